"""A lake from before definitions goes on: what its script means is assumed, and said once."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.stories.changes.bases import rows_of, state_of, tidegate
from tidegate.pipelines.testing import Harness

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
    assert "counted: not recomputed" in verified.output
    alone = tidegate(folder, "verify", script, "--lake", lake, "--insert", "counted")
    assert alone.exit_code == 1
    assert "is a process" in alone.stderr
    discarded = tidegate(folder, "discard", script, "ruled", "--lake", lake)
    assert discarded.exit_code == 0, discarded.output
    assert tidegate(folder, "run", script, "--lake", lake).exit_code == 0


OTHER = """CREATE TABLE others (user_id INT PRIMARY KEY NOT ENFORCED, gender STRING)
    WITH ('connector' = 'scripted', 'phases' = 'true', 'signals' = 'true');
CREATE TABLE enriched"""


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ([("gender STRING)", "gender STRING, age INT)")], "age"),
        ([("gender STRING)", "gender INT)"), ("gender STRING", "gender INT")], "gender"),
        (
            [
                ("CREATE TABLE enriched", OTHER),
                ("JOIN users FOR", "JOIN others FOR"),
                ("AS OF clicks.proctime", "AS OF clicks.proctime AS users"),
            ],
            "others",
        ),
    ],
)
def test_what_an_older_lake_knows_is_held_against_the_first_script(
    changes: list[tuple[str, str]], word: str, script: Path
) -> None:
    """Its stored columns, and what its plans were made over."""
    text = script.read_text()
    for number, (old, new) in enumerate(changes):
        assert old in text
        text = text.replace(old, new, 1 if number == 0 or "JOIN" in old or "AS OF" in old else -1)
    script.write_text(text)
    before = state_of(script.parent / "lake")
    result = tidegate(script.parent, "run", script, "--lake", script.parent / "lake")
    assert result.exit_code == 1, result.output
    assert word in result.stderr
    assert "lake:" in result.stderr
    assert state_of(script.parent / "lake") == before
