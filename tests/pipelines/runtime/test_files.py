"""Where the files of targets and quarantines lie, from staging to upkeep, in new lakes and in older ones."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import duckdb
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests import cases
from tests.pipelines.runtime.crashing import crash_at
from tests.pipelines.runtime.plays import Play
from tests.pipelines.runtime.processes import functions as fn
from tests.pipelines.runtime.processes.test_processes import SCRIPT as EVENTS
from tests.pipelines.runtime.processes.test_processes import event, wrapped
from tidegate.pipelines.errors import GateHeld
from tidegate.pipelines.lake.rows import read
from tidegate.pipelines.lake.upkeep import live_files
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.sql.model import Insert
from tidegate.pipelines.testing import Harness

pytestmark = pytest.mark.long


def files(harness: Harness, target: str, insert: Insert) -> tuple[set[str], set[str]]:
    """The files of a target and of its quarantine, by their logs, below the target's folder."""
    table = harness.pipeline.table(target)
    path = harness.lake.target_path(table)
    logs = (path, harness.lake.quarantine_path(table, insert))
    found = [{str(Path(file).relative_to(path)) for file in live_files(log)} for log in logs]
    return found[0], found[1]


def check(harness: Harness, target: str, insert: Insert) -> None:
    """Every file of the target lies in its own folder, and in the quarantine's is no file but the quarantine's own."""
    published, quarantined = files(harness, target, insert)
    path = harness.lake.target_path(harness.pipeline.table(target))
    assert published
    assert all(name.startswith(f"_data/{insert.id}/") for name in published), published
    assert quarantined
    assert {str(file.relative_to(path)) for file in Path(path).glob("_quarantine/**/*.parquet")} == quarantined


def ids(play: Play) -> list[int]:
    """The rows of the target as Spark, delta-rs and DuckDB (over Arrow) see them."""
    path = play.harness.lake.target_path(play.harness.pipeline.table("converted"))
    by_spark = sorted(row["id"] for row in play.harness.spark.read.format("delta").load(str(path)).collect())
    rows = DeltaTable(str(path)).to_pyarrow_table()
    assert sorted(rows["id"].to_pylist()) == by_spark
    with duckdb.connect() as connection:
        assert [row[0] for row in connection.sql("SELECT id FROM rows ORDER BY id").fetchall()] == by_spark
    return by_spark


def vacuum(play: Play) -> None:
    """What delta-rs, and at length Spark, does to target and quarantine with no retention at all; Spark lists by
    10,000 tasks otherwise."""
    lake, table, spark = play.harness.lake, play.harness.pipeline.table("converted"), play.harness.spark
    paths = (lake.target_path(table), lake.quarantine_path(table, play.harness.pipeline.insert("converted")))
    for path in paths:
        DeltaTable(str(path)).vacuum(0, dry_run=False, enforce_retention_duration=False)
    if not cases.AT_LENGTH:
        return
    check, tasks = (
        "spark.databricks.delta.retentionDurationCheck.enabled",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism",
    )
    spark.conf.set(check, "false")
    spark.conf.set(tasks, "2")
    try:
        for path in paths:
            spark.sql(f"VACUUM delta.`{path}` RETAIN 0 HOURS").collect()
    finally:
        spark.conf.unset(check)
        spark.conf.unset(tasks)


def staged(play: Play) -> set[str]:
    """The names of the attempts that have files in either place."""
    lake, table, insert = play.harness.lake, play.harness.pipeline.table("converted"), play.harness.pipeline.inserts[0]
    places = lake.staged_paths(table, insert).values()
    return {file.relative_to(place).parts[0] for place in places for file in Path(place).rglob("*.parquet")}


def test_files_lie_with_the_table_that_names_them_whoever_vacuums(spark: SparkSession, tmp_path: Path) -> None:
    play = Play(spark, tmp_path, policy="block")
    harness, insert = play.harness, play.harness.pipeline.insert("converted")
    play.rate("EUR", 100, 10)
    play.order(1, "EUR", 10)
    play.upto(rates=10, orders=10)
    play.order(2, "EUR", 20)
    play.order(3, "XXX", 20)
    with pytest.raises(GateHeld):
        play.upto(rates=20, orders=20)
    held = harness.lake.staged.rows("insert converted")[-1]
    for upkeep in (lambda: vacuum(play), lambda: harness.runner.maintenance(timedelta(0)).run()):
        upkeep()
        assert ids(play) == [1]
        assert held.folder in staged(play)
    harness.runner.resolve_held("converted", on_unmatched="quarantine")
    harness.runner.maintenance(timedelta(0)).run()
    assert held.folder not in staged(play)
    check(harness, "converted", insert)
    assert ids(play) == [1, 2]
    assert play.quarantined.keys() == {3}
    play.prove()


def test_what_a_crash_has_left_goes_from_both_places(play: Play) -> None:
    harness = play.harness
    play.rate("EUR", 100, 10)
    play.order(1, "EUR", 10)
    play.order(2, "XXX", 10)
    play.watermarks(rates=10, orders=10)
    crash_at(harness, "insert.written")
    assert len(staged(play)) == 1
    crash_at(harness, "insert.staged")
    assert play.upto() == [(1, 100)]
    harness.runner.maintenance(timedelta(0)).run()
    assert staged(play) == {harness.lake.staged.rows("insert converted")[-1].folder}
    check(harness, "converted", harness.pipeline.insert("converted"))


def test_files_of_both_outputs_of_a_process(spark: SparkSession, tmp_path: Path) -> None:
    columns = "k STRING, number BIGINT, total BIGINT, CONSTRAINT known EXPECT (k <> 'b') ON VIOLATION QUARANTINE"
    pipeline = compile_script(EVENTS).process(
        ["evens", "odds"], "events", "k", wrapped(fn.Tallied()), [columns, columns]
    )
    harness = Harness(pipeline, spark, tmp_path)
    harness.push("events", [event(key, number) for key in "ab" for number in (1, 2)])
    harness.advance()
    insert = harness.pipeline.insert("evens")
    for target in ("evens", "odds"):
        check(harness, target, insert)
        path = harness.lake.target_path(harness.pipeline.table(target))
        assert {row["k"] for row in read(spark, path).collect()} == {"a"}
