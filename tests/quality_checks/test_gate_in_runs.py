"""The gate inside of real runs: what is kept, what is held, and that its first word on an epoch is its last."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.copies import copy_of
from tests.quality_checks import broken
from tidegate.pipelines.errors import GateHeld
from tidegate.pipelines.runtime.gate import NoVerdict
from tidegate.pipelines.runtime.status import status
from tidegate.pipelines.testing import Harness
from tidegate.quality_checks import suite
from tidegate.quality_checks.reconcile import reconcile_all

SCRIPT = """
CREATE TABLE users (id INT PRIMARY KEY NOT ENFORCED, name STRING)
WITH ('connector' = 'scripted', 'phases' = 'true', 'signals' = 'true');
CREATE TABLE clicks (id INT, n INT, proctime AS PROCTIME()) WITH ('connector' = 'scripted');
CREATE TABLE enriched (n INT PRIMARY KEY NOT ENFORCED, name STRING) WITH ('connector' = 'scripted');
INSERT INTO enriched SELECT n, u.name FROM clicks
LEFT JOIN users FOR SYSTEM_TIME AS OF clicks.proctime AS u ON clicks.id = u.id AND u.name <> 'nobody' WHERE n <> 13
"""


@pytest.fixture(scope="module")
def first(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Harness:
    """One epoch published: two rows matched, one of each reason quarantined, one dropped by WHERE."""
    harness = Harness(SCRIPT, spark, tmp_path_factory.mktemp("gate"))
    people = [(1, "ann"), (2, "bob"), (3, "nobody")]
    harness.push("users", [{"id": key, "name": name} for key, name in people])
    harness.push("users", [{"id": 2, "name": "bob"}], op="-D")
    harness.end_of_snapshot("users")
    clicks = [(1, 11), (1, 12), (1, 13), (2, 14), (3, 15), (9, 16), (None, 17)]
    harness.push("clicks", [{"id": key, "n": n} for key, n in clicks])
    harness.run()
    harness.runner.close()
    return harness


@pytest.fixture
def harness(first: Harness, tmp_path: Path) -> Harness:
    """The same lake once more, with a second epoch staged and not judged: n 21 and 22 matched, 23 not."""
    copy = copy_of(first, tmp_path / "copy")
    copy.push("clicks", [{"id": 1, "n": 21}, {"id": 1, "n": 22}, {"id": 9, "n": 23}])
    copy.runner.advance("clicks")
    copy.runner.stage("enriched")
    return copy


def _result(harness: Harness, epoch: int) -> dict[str, Any]:
    return json.loads(Path(harness.lake.root / "_quality" / "enriched" / f"g1-e{epoch}.json").read_text())


def _observed(harness: Harness, epoch: int) -> dict[str, Any]:
    items = _result(harness, epoch)["result"]["results"]
    return {item["expectation_config"]["kwargs"]["column"]: item["result"]["observed_value"] for item in items}


def _staged_file(harness: Harness) -> Path:
    position = harness.runner.releasing("enriched").position()
    assert position.staged is not None
    table, insert = harness.pipeline.table("enriched"), harness.pipeline.insert("enriched")
    folder = harness.lake.new_attempt(table, insert, position.staged.folder)["publish"]
    return Path(folder / position.staged.of("publish")[0].path)


def test_every_row_is_in_one_place_with_its_reason(first: Harness) -> None:
    assert sorted(row["n"] for row in first.published("enriched")) == [11, 12]
    reasons = {row["n"]: row["_reason"] for row in first.quarantined("enriched")}
    assert reasons == {
        14: "unmatched:deleted@u",
        15: "unmatched:predicate@u",
        16: "unmatched:key-absent@u",
        17: "unmatched:key-null@u",
    }
    (found,) = reconcile_all(first.lake, first.pipeline)
    assert found.problems == ()
    assert found.tables == {"probe": 7, "target": 2, "quarantine": 4}
    assert (found.rows.landed, found.rows.published, found.rows.dropped, found.rows.waiting) == (7, 2, {"where": 1}, 0)
    shown = status(first.lake, first.pipeline)
    assert (shown.inserts[0].state, shown.inserts[0].rows) == ("published", found.rows)
    assert (shown.totals.landed, shown.totals.published, shown.totals.quarantined) == (11, 2, 4)


def test_the_suite_keeps_its_result_and_a_page(first: Harness) -> None:
    result = _result(first, 1)
    assert (result["insert"], result["epoch"], result["result"]["success"]) == ("enriched", 1, True)
    assert _observed(first, 1) == {
        "columns": ["n int, name string"],
        "rows to publish": 2,
        "rows to quarantine": 4,
        "nulls in n": 0,
    }
    page = Path(first.lake.root / "_quality" / "enriched" / "index.html").read_text()
    assert "<html" in page
    assert "rows to publish" in page


def test_many_rows_are_read_back_by_spark(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "AGGREGATE_FROM", 1)
    verdict = harness.runner.judge("enriched")
    assert verdict is not None
    assert verdict.passed, verdict.reasons
    assert _observed(harness, 2)["rows to publish"] == 2


def test_a_staged_row_that_was_changed_is_held_and_can_be_released_again(harness: Harness) -> None:
    path = _staged_file(harness)
    table = pq.ParquetFile(path).read()
    name = pa.array(["somebody else"] * table.num_rows)
    pq.write_table(table.set_column(table.schema.get_field_index("name"), "name", name), path)
    with pytest.raises(GateHeld, match="are not what the join wrote"):
        harness.run()
    assert sorted(row["n"] for row in harness.published("enriched")) == [11, 12]
    (found,) = reconcile_all(harness.lake, harness.pipeline)
    assert (found.problems, found.rows.waiting, found.rows.held) == ((), 3, 3)
    harness.runner.resolve_held("enriched")
    assert {row["n"]: row["name"] for row in harness.published("enriched", after=1)} == {21: "ann", 22: "ann"}


def test_an_epoch_that_leaves_its_recent_range_is_held_until_a_person_releases_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    window = "'gate.unmatched-ratio.window' = '30', 'gate.unmatched-ratio.min-rows' = '1'"
    harness = Harness(SCRIPT.replace("name STRING) WITH (", f"name STRING) WITH ({window}, "), spark, tmp_path)
    harness.push("users", [{"id": 1, "name": "ann"}])
    harness.end_of_snapshot("users")
    for epoch in range(1, 6):
        harness.push("clicks", [{"id": 1, "n": 100 + epoch}])
        harness.run()
    harness.push("clicks", [{"id": 1, "n": 106}, {"id": 9, "n": 107}])
    with pytest.raises(GateHeld, match=r"50\.00% of 2 rows found no match .* at most 2\.00% is usual"):
        harness.run()
    assert [row["n"] for row in harness.published("enriched", after=5)] == []
    assert pq.ParquetFile(_staged_file(harness)).metadata.num_rows == 1
    harness.runner.resolve_held("enriched")
    assert [row["n"] for row in harness.published("enriched", after=5)] == [106]


def test_a_lake_that_was_moved_goes_on(harness: Harness, tmp_path: Path) -> None:
    identity = harness.lake.id
    harness.runner.close()
    moved = Harness(harness.pipeline, harness.spark, shutil.move(harness.directory, tmp_path / "elsewhere"))
    assert not harness.directory.exists()
    assert moved.lake.id == identity
    moved.run()
    assert sorted(row["n"] for row in moved.published("enriched")) == [11, 12, 21, 22]
    report = moved.verify("enriched")
    assert (report.passed, [epoch.state for epoch in report.epochs]) == (True, ["equal"] * 2)
    (found,) = reconcile_all(moved.lake, moved.pipeline)
    assert found.problems == ()


def test_the_first_verdict_is_final(harness: Harness) -> None:
    path = _staged_file(harness)
    whole = path.read_bytes()
    path.unlink()
    verdict = harness.runner.judge("enriched")
    assert verdict is not None
    assert not verdict.passed
    path.write_bytes(whole)
    assert harness.runner.judge("enriched") == verdict
    harness.restart()
    with pytest.raises(GateHeld, match="is gone"):
        harness.run()
    assert _staged_file(harness) == path
    assert path.read_bytes() == whole, "what was held stays"
    with pytest.raises(GateHeld):
        harness.runner.publish("enriched")


def test_a_broken_check_is_no_verdict(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(suite, "run", lambda *_: 1 / 0)
        with pytest.raises(NoVerdict, match=r"failed \(ZeroDivisionError\)"):
            harness.runner.judge("enriched")
    ways = {"asserts": "AssertionError", "answers_true": "answered with bool", "leaves_a_check_out": "constraints"}
    for how, says in ways.items():
        with monkeypatch.context() as patch:
            case = broken.Case(patch, lambda: Path(harness.lake.root))
            getattr(broken, how)(case)
            harness.runner.gate = case.gate
            with pytest.raises(NoVerdict, match=says):
                harness.run()
        position = harness.runner.releasing("enriched").position()
        assert (position.state, position.verdict) == ("staged", None)
        assert harness.published("enriched", after=1) == []
    with pytest.raises(GateHeld, match="has no verdict"):
        harness.runner.publish("enriched")
    harness.restart()
    harness.run()
    assert sorted(row["n"] for row in harness.published("enriched", after=1)) == [21, 22]


def test_rows_that_a_table_lost_or_won_are_seen(harness: Harness) -> None:
    target = harness.lake.target_path(harness.pipeline.table("enriched"))
    DeltaTable(str(target)).delete("n = 11")
    landed = DeltaTable(str(harness.lake.table_path("clicks")))
    kept = landed.to_pyarrow_table()
    again = kept.filter(pc.equal(kept.column("n"), 12))
    from deltalake import write_deltalake

    write_deltalake(landed, again, mode="append")
    (found,) = reconcile_all(harness.lake, harness.pipeline)
    assert found.problems == (
        "INSERT enriched: the table of clicks holds 11 rows, by the control tables it should be 10",
        "INSERT enriched: the table of enriched holds 1 row, by the control tables it should be 2",
    )
    assert found.rows.balanced
