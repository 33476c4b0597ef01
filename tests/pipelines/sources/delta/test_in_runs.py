"""A Delta table's change data feed as the build side of a whole pipeline: aborted, restarted, proved again.

In an alignment group a commit's time is the rowtime, and no table waits for itself.
"""

from __future__ import annotations

import os
import shutil
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from tests.cases import at_length
from tests.pipelines.runtime.crashing import dying
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.testing import Harness

SCRIPT = """
CREATE TABLE users (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'delta', 'path' = '{path}');
CREATE TABLE clicks (user_id BIGINT, item BIGINT, proctime AS PROCTIME()) WITH ('connector' = 'scripted');
CREATE TABLE joined (item BIGINT, name STRING) WITH ('connector' = 'scripted');
INSERT INTO joined SELECT c.item, u.name FROM clicks AS c
LEFT JOIN users FOR SYSTEM_TIME AS OF c.proctime AS u ON c.user_id = u.id;
"""


def users(**names: int) -> pa.Table:
    return pa.table({"id": pa.array(names.values(), pa.int64()), "name": list(names)})


@pytest.fixture
def feed(tmp_path: Path) -> Path:
    path = tmp_path / "users"
    write_deltalake(path, users(ann=1, bob=2, cleo=3), configuration={"delta.enableChangeDataFeed": "true"})
    return path


@pytest.mark.parametrize(
    "point", at_length(["source.appended", "source.planned", "source.written", "source.watermarked"])
)
def test_changes_are_met_once_however_a_step_ended(spark: SparkSession, tmp_path: Path, feed: Path, point: str) -> None:
    harness = Harness(SCRIPT.format(path=feed), spark, tmp_path / "lake")

    def clicked(first: int, *keys: int) -> list[tuple[int, str]]:
        harness.push("clicks", [{"user_id": key, "item": first + n} for n, key in enumerate(keys)])
        return sorted((row["item"], row["name"]) for row in harness.advance())

    with dying(point, owner="users"):
        harness.run()
    harness.restart()
    assert clicked(10, 1, 2, 3) == [(10, "ann"), (11, "bob"), (12, "cleo")]

    DeltaTable(feed).update(predicate="id = 1", updates={"name": "'anne'"})
    DeltaTable(feed).delete("id = 2")
    DeltaTable(feed).update(predicate="id = 3", updates={"id": "4"})
    with dying(point, owner="users"):
        harness.run()
    harness.restart()
    assert clicked(20, 1, 2, 3, 4) == [(20, "anne"), (23, "cleo")]
    assert sorted((row["item"], row["_reason"]) for row in harness.quarantined("joined")) == [
        (21, "unmatched:deleted@u"),
        (22, "unmatched:deleted@u"),
    ]

    write_deltalake(feed, users(dora=1), mode="overwrite")
    assert clicked(30, 1, 4) == [(30, "dora")]
    report = harness.verify("joined")
    assert report.passed
    assert not report.unproved


@pytest.mark.parametrize("point", at_length([None, "source.appended", "source.planned"]))
def test_a_table_brought_back_from_a_backup_is_read_anew_by_the_command_of_its_refusal(
    spark: SparkSession, tmp_path: Path, point: str | None
) -> None:
    """`point`: where the run that read the lost row was killed."""
    path, backup = tmp_path / "users", tmp_path / "backup"
    write_deltalake(path, users(ann=1))
    shutil.copytree(path, backup)
    write_deltalake(path, users(lost=2), mode="append")
    harness = Harness(SCRIPT.format(path=path), spark, tmp_path / "lake")
    with dying(point, owner="users") if point else nullcontext():
        harness.run()
    harness.restart()

    shutil.rmtree(path)
    shutil.copytree(backup, path)
    for name, key in (("bob", 3), ("cleo", 4)):
        write_deltalake(path, users(**{name: key}), mode="append")
        with pytest.raises(SourceError, match="users: version 1 of the Delta table, up to which it was read"):
            harness.runner.advance("users")
    harness.runner.advance("users", resnapshot=True)
    harness.push("clicks", [{"user_id": key, "item": key} for key in (1, 2, 3, 4)])
    assert sorted((row["item"], row["name"]) for row in harness.advance()) == [(1, "ann"), (3, "bob"), (4, "cleo")]
    assert [(row["item"], row["_reason"]) for row in harness.quarantined("joined")] == [(2, "unmatched:key-absent@u")]
    assert harness.verify("joined").passed


TABLE = """
CREATE TABLE {name} (n BIGINT, at AS SYSTEM_ROWTIME(), WATERMARK FOR at AS {watermark}) WITH (
    'connector' = 'delta', 'path' = '{path}',
    'scan.watermark.alignment.group' = 'g', 'scan.watermark.alignment.max-drift' = '{drift}');
CREATE TABLE kept_{name} (n BIGINT) WITH ('connector' = 'delta');
INSERT INTO kept_{name} SELECT n FROM {name};
"""
BEGIN = 1_000_000


class Commits:
    """A Delta table with one row a commit, each at a second of the test's choice."""

    def __init__(self, path: Path) -> None:
        self.path, self.count = path, 0

    def add(self, *seconds: int) -> None:
        for second in seconds:
            write_deltalake(self.path, pa.table({"n": pa.array([second], pa.int64())}), mode="append")
            written = self.path / "_delta_log" / f"{self.count:020}.json"
            os.utime(written, (BEGIN + second, BEGIN + second))
            self.count += 1

    def script(self, watermark: str, drift: str) -> str:
        return TABLE.format(name=self.path.name, path=self.path, watermark=watermark, drift=drift)


def runner(spark: SparkSession, lake: Lake, script: str) -> Runner:
    return Runner(compile_script(script), lake, spark=lambda: spark, clock=lambda: 10**12, environment={})


def spans(lake: Lake, table: str) -> list[tuple[int, int]]:
    """The versions of every epoch after the snapshot."""
    plans = [row.plan["ranges"] for row in lake.epochs.rows(table)]
    return [(plan["from"] + 1, plan["to"]) for plan in plans[1:]]


def test_a_table_alone_in_its_group_is_never_held_by_itself(spark: SparkSession, tmp_path: Path) -> None:
    alone, lake = Commits(tmp_path / "alone"), Lake(tmp_path / "lake")
    alone.add(0)
    with runner(spark, lake, alone.script("SYSTEM_WATERMARK()", "5 s")) as active:
        active.run()
        alone.add(100, 200, 300)
        advance = active.advance("alone")
        assert (advance.rows, advance.blocked) == (3, ())
        assert spans(lake, "alone") == [(1, 3)]


@pytest.mark.thorough
def test_the_slowest_goes_on_past_a_gap_that_is_wider_than_the_drift(spark: SparkSession, tmp_path: Path) -> None:
    one, two, lake = Commits(tmp_path / "one"), Commits(tmp_path / "two"), Lake(tmp_path / "lake")
    one.add(0)
    two.add(1)
    with runner(
        spark, lake, one.script("SYSTEM_WATERMARK()", "5 s") + two.script("SYSTEM_WATERMARK()", "5 s")
    ) as active:
        active.run()
        one.add(1000, 1001, 1002)
        two.add(999, 1020)
        report = active.run()
        assert [advance.rows for advance in report.advances] == [3, 2]
        # One takes the commit that is past the gap, and no other until two is there as well.
        assert spans(lake, "one") == [(1, 1), (2, 3)]
        assert spans(lake, "two") == [(1, 1), (2, 2)]


@pytest.mark.thorough
def test_a_delay_that_is_longer_than_the_drift_stops_nobody(spark: SparkSession, tmp_path: Path) -> None:
    one, two, lake = Commits(tmp_path / "one"), Commits(tmp_path / "two"), Lake(tmp_path / "lake")
    delayed, drift = "SYSTEM_WATERMARK() - INTERVAL '1' HOUR", "5 min"
    one.add(0)
    two.add(0)
    with runner(spark, lake, one.script(delayed, drift) + two.script(delayed, drift)) as active:
        active.run()
        one.add(*range(60, 661, 60))
        two.add(650)
        assert [advance.rows for advance in active.run().advances] == [11, 1]
        # Up to five minutes past what two has emitted, which is an hour before its rows: not a commit at a time.
        assert spans(lake, "one") == [(1, 5), (6, 11)]
