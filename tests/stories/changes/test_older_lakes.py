"""A lake from before definitions goes on: what its script means is assumed, and said once."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipelines.errors import GateHeld
from pipelines.testing import Harness
from tests.stories.changes.bases import rows_of, tidegate

FIXTURE = Path("tests/fixtures/lake_of_format_1")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """The script, beside its lake: two INSERTs (one with a quarantine, one with a held epoch) and a process."""
    with tarfile.open(FIXTURE / "lake.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    return Path(shutil.copy(FIXTURE / "pipeline.py", tmp_path))


def test_a_lake_of_format_1_goes_on(script: Path, spark: SparkSession) -> None:
    folder, lake = script.parent, script.parent / "lake"
    targets = lake / "targets"
    before = {name: rows_of(targets / name) for name in ("enriched", "counted")}
    sources = Harness(script, spark, folder)
    sources.push("clicks", [{"user_id": 1, "item": "new"}])

    first = tidegate(folder, "run", script, "--lake", lake)
    assert first.exit_code == 1, first.output  # the epoch that was held is held
    assert "Held" in first.output or "gate" in first.output
    for owner in ("clicks", "users", "enriched", "counted"):
        assert any("assumed" in line and owner in line for line in first.output.splitlines()), first.output
    assert rows_of(targets / "enriched") == sorted([*before["enriched"], (1, "new", "x")], key=repr)
    assert rows_of(targets / "counted") == sorted([*before["counted"], (1, 2)], key=repr)

    second = tidegate(folder, "run", script, "--lake", lake)
    assert second.exit_code == 1
    assert "assumed" not in second.output

    verified = tidegate(folder, "verify", script, "--lake", lake)
    assert verified.exit_code == 0, verified.output
    with pytest.raises(GateHeld):
        sources.run()
    discarded = tidegate(folder, "discard", script, "ruled", "--lake", lake)
    assert discarded.exit_code == 0, discarded.output
    assert tidegate(folder, "run", script, "--lake", lake).exit_code == 0


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("gender STRING)", "gender STRING, age INT)", "age"),
        ("JOIN users FOR", "JOIN clicks2 FOR", "users"),
    ],
)
def test_what_an_older_lake_knows_is_held_against_the_first_script(
    old: str, new: str, word: str, script: Path, spark: SparkSession
) -> None:
    """Its stored columns, and what its plans were made over."""
    text = script.read_text()
    if "clicks2" in new:
        text = text.replace(
            "CREATE TABLE enriched",
            "CREATE TABLE clicks2 (user_id INT PRIMARY KEY NOT ENFORCED, gender STRING)\n"
            "    WITH ('connector' = 'scripted', 'phases' = 'true', 'signals' = 'true');\nCREATE TABLE enriched",
        )
        text = text.replace(
            "JOIN users FOR SYSTEM_TIME AS OF clicks.proctime ON clicks.user_id = users.user_id",
            "JOIN clicks2 FOR SYSTEM_TIME AS OF clicks.proctime AS users ON clicks.user_id = users.user_id",
        )
        text = text.replace("users.gender FROM", "users.gender FROM", 1)
    else:
        assert old in text
        text = text.replace(old, new, 1)
    script.write_text(text)
    lake = script.parent / "lake"
    before = {path: path.stat().st_mtime_ns for path in lake.rglob("*.parquet") if "leases" not in str(path)}
    result = tidegate(script.parent, "run", script, "--lake", lake)
    assert result.exit_code == 1
    assert word in result.stderr
    assert before == {path: path.stat().st_mtime_ns for path in lake.rglob("*.parquet") if "leases" not in str(path)}
