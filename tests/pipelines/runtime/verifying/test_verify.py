"""verify finds nothing in what the runtime published, and finds every row that somebody changed since."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.cases import at_length
from tests.copies import copy_of
from tests.pipelines.runtime.handmade import store
from tidegate.pipelines.connectors.protocol import Step
from tidegate.pipelines.errors import GateHeld, LakeError
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.records.document import as_json
from tidegate.pipelines.runtime.epochs import source_row
from tidegate.pipelines.runtime.epochs.history import history_of
from tidegate.pipelines.runtime.verifying.verify import Proof
from tidegate.pipelines.testing import Harness

SCRIPT = """
CREATE TABLE users (id INT PRIMARY KEY NOT ENFORCED, name STRING, city INT)
WITH ('connector' = 'scripted', 'phases' = 'true', 'signals' = 'true');
CREATE TABLE `city-s` (`city-id` INT PRIMARY KEY NOT ENFORCED, `na'me` STRING)
WITH ('connector' = 'scripted', 'phases' = 'true', 'signals' = 'true');
CREATE TABLE clicks (id INT, n INT, proctime AS PROCTIME()) WITH ('connector' = 'scripted');
CREATE TABLE kept (n INT PRIMARY KEY NOT ENFORCED, name STRING, city STRING, at TIMESTAMP_LTZ(3))
WITH ('connector' = 'scripted');
CREATE TABLE shown (n INT, name STRING, city STRING) WITH ('connector' = 'scripted', 'gate.on-unmatched' = 'publish');
CREATE TABLE inside (n INT, name STRING, city STRING) WITH ('connector' = 'scripted', 'gate.on-unmatched' = 'publish');
INSERT INTO kept
SELECT n, u.name, `v-1`.`na'me`, proctime FROM clicks
LEFT JOIN users FOR SYSTEM_TIME AS OF clicks.proctime AS u ON clicks.id = u.id AND u.name <> 'nobody'
LEFT JOIN `city-s` FOR SYSTEM_TIME AS OF clicks.proctime AS `v-1` ON u.city = `v-1`.`city-id`
WHERE clicks.n <> 13 AND (`v-1`.`na'me` IS NULL OR `v-1`.`na'me` <> 'Atlantis');
INSERT INTO shown
SELECT n, u.name, `v-1`.`na'me` FROM clicks
LEFT JOIN users FOR SYSTEM_TIME AS OF clicks.proctime AS u ON clicks.id = u.id AND u.name <> 'nobody'
LEFT JOIN `city-s` FOR SYSTEM_TIME AS OF clicks.proctime AS `v-1` ON u.city = `v-1`.`city-id`
WHERE clicks.n <> 13 AND (`v-1`.`na'me` IS NULL OR `v-1`.`na'me` <> 'Atlantis');
INSERT INTO inside
SELECT n, u.name, `v-1`.`na'me` FROM clicks
LEFT JOIN users FOR SYSTEM_TIME AS OF clicks.proctime AS u ON clicks.id = u.id AND u.name <> 'nobody'
JOIN `city-s` FOR SYSTEM_TIME AS OF clicks.proctime AS `v-1` ON u.city = `v-1`.`city-id`
WHERE clicks.n <> 13 AND (`v-1`.`na'me` IS NULL OR `v-1`.`na'me` <> 'Atlantis')
"""


@pytest.fixture(scope="module")
def published(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Harness:
    """Three epochs: rows of every outcome, then a build that has moved on, then one that was truncated."""
    harness = Harness(SCRIPT, spark, tmp_path_factory.mktemp("verify"))
    harness.push("city-s", [{"city-id": 1, "na'me": "Oslo"}, {"city-id": 2, "na'me": "Atlantis"}])
    harness.end_of_snapshot("city-s")
    people = [(1, "ann", 1), (2, "bob", 1), (3, "nobody", 1), (4, "dan", 2), (5, "eve", 9), (6, "flo", None)]
    harness.push("users", [{"id": key, "name": name, "city": city} for key, name, city in people])
    harness.push("users", [{"id": 2, "name": "bob", "city": 1}], op="-D")
    harness.end_of_snapshot("users")
    clicks = [(1, 11), (2, 12), (1, 13), (3, 14), (4, 15), (5, 16), (6, 17), (None, 18), (99, 19), (1, 20)]
    harness.push("clicks", [{"id": key, "n": n} for key, n in clicks])
    harness.run()
    harness.push("users", [{"id": 1, "name": "anna", "city": 1}], op="+U")
    harness.push("users", [{"id": 2, "name": "bob", "city": 1}])
    harness.push("clicks", [{"id": 1, "n": 21}, {"id": 2, "n": 22}])
    harness.run()
    _truncate(harness, "users")
    harness.push("users", [{"id": 7, "name": "gil", "city": 1}])
    harness.push("clicks", [{"id": 7, "n": 31}, {"id": 1, "n": 32}])
    harness.run()
    return harness


@pytest.fixture
def copied(published: Harness, tmp_path: Path) -> Harness:
    return copy_of(published, tmp_path / "copy")


def _truncate(harness: Harness, table: str) -> None:
    """Land an epoch that is nothing but a truncate, which the scripted connector has no word for."""
    lake, spark = harness.lake, harness.spark
    last, plan = lake.watermarks.last(table), lake.epochs.last(table)
    assert last is not None and plan is not None  # noqa: PT018
    end = plan.plan["ranges"]["to"]
    epoch = last.epoch + 1
    row = source_row(table, 1, epoch, 0, Step({"from": end, "to": end}))
    store(lake, row)
    columns = lake_rows.stored_columns(harness.pipeline.table(table))
    seq = f"named_struct('phase', 1, 'log', 0, 'file', 0L, 'position', {end - 1}L, 'row', 1000)"
    values = {"_op": "'t'", "_seq": seq, "_split": "'0'", "_offset": "0L"}
    frame = spark.range(1).select(
        *[F.expr(values.get(name, "NULL")).cast(kind).alias(name) for name, kind in columns.items()]
    )
    application = lake.application(table, "data", 1)
    lake_rows.append(frame, lake.table_path(table), application=application, generation=1, epoch=epoch)
    Stream(lake, table).generation(1).log_epoch(replace(last, epoch=epoch, rows=1, truncated=True))


def _target(harness: Harness) -> Path:
    return Path(harness.lake.target_path(harness.pipeline.table("kept")))


def test_the_outcomes_are_those_of_the_rulings(published: Harness) -> None:
    assert {row["n"]: (row["name"], row["city"]) for row in published.published("kept")} == {
        11: ("ann", "Oslo"),
        20: ("ann", "Oslo"),
        21: ("anna", "Oslo"),
        22: ("bob", "Oslo"),
        31: ("gil", "Oslo"),
    }
    reasons = {row["n"]: row["_reason"].removeprefix("unmatched:") for row in published.quarantined("kept")}
    assert reasons == {
        12: "deleted@u",
        14: "predicate@u",
        16: "key-absent@v-1",
        17: "key-null@v-1",
        18: "key-null@u",
        19: "key-absent@u",
        32: "deleted@u",
    }
    assert sorted(row["n"] for row in published.published("shown")) == [11, 12, 14, 16, 17, 18, 19, 20, 21, 22, 31, 32]
    assert sorted(row["n"] for row in published.published("inside")) == [11, 20, 21, 22, 31]


@pytest.mark.parametrize("insert", at_length(["inside", "kept", "shown"]))
def test_nothing_is_found_in_what_was_published(published: Harness, insert: str) -> None:
    report = published.verify(insert)
    found = [(epoch.epoch, epoch.rows, epoch.state) for epoch in report.epochs]
    assert found == [(1, 10, "equal"), (2, 2, "equal"), (3, 2, "equal")], report
    assert (report.passed, report.differences, report.rows, report.problems) == (True, 0, 14, ())


@pytest.mark.thorough
def test_a_batch_at_a_time_finds_the_same(published: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.pipelines.runtime.verifying.verify.BATCH_ROWS", 1)
    report = published.verify("kept")
    assert ([epoch.state for epoch in report.epochs], report.passed) == (["equal"] * 3, True)


def test_one_changed_cell_is_found(copied: Harness) -> None:
    DeltaTable(str(_target(copied))).update(predicate="n = 21", updates={"name": "'ann'"})
    report = copied.verify("kept")
    assert [epoch.state for epoch in report.epochs] == ["equal", "different", "equal"]
    found = {(item.place, item.kind): (item.rows, item.keys) for item in report.epochs[1].differences}
    assert found == {("publish", "missing"): (1, ('{"n":21}',)), ("publish", "unexpected"): (1, ('{"n":21}',))}
    assert (report.passed, report.differences) == (False, 2)
    assert json.loads(json.dumps(as_json(report)))["passed"] is False


def test_rows_that_were_lost_repeated_or_added_are_found(copied: Harness) -> None:
    table, path = copied.pipeline.table("kept"), str(_target(copied))
    rows = copied.spark.read.format("delta").load(path)
    stray = rows.where("n = 31").withColumn("_epoch", F.lit(77).cast("bigint"))
    rows.where("n = 11").unionByName(stray).write.format("delta").mode("append").save(path)
    DeltaTable(path).delete("n = 22")
    quarantine = copied.lake.quarantine_path(table, copied.pipeline.insert("kept"))
    DeltaTable(str(quarantine)).update(predicate="n = 18", updates={"_reason": "'unmatched:deleted@u'"})
    report = copied.verify("kept")
    found = {
        (epoch.epoch, item.place, item.kind): (item.rows, item.keys)
        for epoch in report.epochs
        for item in epoch.differences
    }
    assert found == {
        (1, "publish", "unexpected"): (1, ('{"n":11}',)),
        (1, "quarantine", "missing"): (1, ('{"n":18}',)),
        (1, "quarantine", "unexpected"): (1, ('{"n":18}',)),
        (2, "publish", "missing"): (1, ('{"n":22}',)),
    }
    assert report.problems == ("the target has 1 row of generation 1, epoch 77, which was not published",)


def test_what_another_runner_publishes_meanwhile_is_no_problem(published: Harness) -> None:
    proof = Proof(published.pipeline, published.lake, published.pipeline.insert("kept"))
    before = history_of(proof.lake, proof.pipeline, proof.insert)[:-1]
    assert list(proof._problems(proof.counts(published.spark), before)) == []


def test_rows_that_no_retention_has_removed_are_lost(copied: Harness) -> None:
    DeltaTable(str(copied.lake.table_path("users"))).delete("_op = 'd'")
    report = copied.verify("kept")
    assert [epoch.state for epoch in report.epochs] == ["rows lost"] * 3
    assert report.epochs[0].detail == "1 row of users that it read is gone, and no retention has removed so many"
    assert (report.passed, report.unproved, report.rows) == (False, 3, 0)


@pytest.mark.parametrize("how", ["the log is gone", "a file is gone", "a file is damaged"])
def test_a_table_that_cannot_be_read_is_named(copied: Harness, how: str) -> None:
    """It was an error of Spark's, or a FileNotFoundError, with no table and no way out."""
    path = Path(copied.lake.table_path("users"))
    if how == "the log is gone":
        shutil.rmtree(path / "_delta_log")
    else:
        file = Path(DeltaTable(str(path)).file_uris()[0])
        file.unlink() if how == "a file is gone" else file.write_bytes(b"PAR1" + bytes(file.stat().st_size))
        for sums in path.rglob(".*.crc"):
            sums.unlink()
    with pytest.raises(LakeError, match="kept cannot be verified: ") as refused:
        copied.verify("kept")
    assert refused.value.where == str(path)
    assert refused.value.next_command.startswith("bring what is damaged or gone back from a backup")
    assert refused.value.next_command.endswith("tidegate verify SCRIPT")


def test_an_epoch_is_proved_by_the_definition_that_made_it(published: Harness) -> None:
    other = Harness(SCRIPT.replace("<> 13", "<> 12"), published.spark, published.directory)
    report = other.verify("kept")
    assert [epoch.state for epoch in report.epochs] == ["equal"] * 3
    assert (report.passed, report.script_differs) == (True, True)


@pytest.mark.thorough
def test_held_epochs_released_again_or_discarded(spark: SparkSession, tmp_path: Path) -> None:
    script = """
        CREATE TABLE users (id INT PRIMARY KEY NOT ENFORCED, name STRING)
        WITH ('connector' = 'scripted', 'phases' = 'true', 'signals' = 'true');
        CREATE TABLE clicks (id INT, n INT, proctime AS PROCTIME()) WITH ('connector' = 'scripted');
        CREATE TABLE kept (n INT, name STRING) WITH ('connector' = 'scripted', 'gate.on-unmatched' = 'block');
        INSERT INTO kept SELECT n, u.name FROM clicks
        JOIN users FOR SYSTEM_TIME AS OF clicks.proctime AS u ON clicks.id = u.id WHERE n <> 13
    """
    harness = Harness(script, spark, tmp_path)
    harness.end_of_snapshot("users")
    harness.push("clicks", [{"id": 1, "n": 1}])
    with pytest.raises(GateHeld):
        harness.run()
    assert harness.verify("kept").epochs == ()
    harness.push("users", [{"id": 1, "name": "ann"}])
    with pytest.raises(GateHeld):
        harness.run()
    harness.runner.resolve_held("kept")
    harness.push("clicks", [{"id": 2, "n": 2}, {"id": 1, "n": 3}, {"id": 1, "n": 13}])
    with pytest.raises(GateHeld):
        harness.run()
    harness.runner.resolve_held("kept", discard=True)
    report = harness.verify("kept")
    assert [(epoch.epoch, epoch.rows, epoch.state) for epoch in report.epochs] == [(2, 1, "equal"), (4, 3, "equal")]
    assert report.passed
    found = sorted((row["n"], row["_reason"]) for row in harness.quarantined("kept"))
    assert found == [(2, "discarded"), (3, "discarded")]
