"""A step whose files its source writes itself lands as one that Spark writes does: same rows, same log, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.conftest import Database
from tests.oracle.pins import rows_of
from tests.pipelines.runtime.crashing import dying
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.sql import compile_script

SCRIPT = """
CREATE TABLE plain (id BIGINT PRIMARY KEY NOT ENFORCED, name STRING, at TIMESTAMP(3),
    tab STRING METADATA FROM 'table_name', changed_at TIMESTAMP_LTZ(6) METADATA FROM 'op_ts') WITH ({options});
CREATE TABLE computed (id BIGINT PRIMARY KEY NOT ENFORCED, name STRING, at TIMESTAMP(3),
    tab STRING METADATA FROM 'table_name', changed_at TIMESTAMP_LTZ(6) METADATA FROM 'op_ts', twice AS id * 2
    ) WITH ({options});
CREATE TABLE timed (id BIGINT PRIMARY KEY NOT ENFORCED, name STRING, at TIMESTAMP(3),
    WATERMARK FOR at AS at) WITH ({options});
CREATE TABLE spelled (id STRING PRIMARY KEY NOT ENFORCED, name STRING) WITH ({options});
CREATE TABLE clicks (id BIGINT, proctime AS PROCTIME()) WITH ('connector' = 'datagen', 'number-of-rows' = '1');
CREATE TABLE out (id BIGINT, name STRING) WITH ('connector' = 'delta');
INSERT INTO out SELECT c.id, plain.name FROM clicks AS c
LEFT JOIN plain FOR SYSTEM_TIME AS OF c.proctime ON c.id = plain.id
"""
OURS, SPARKS = "chunk-*.parquet", "part-*.parquet"


class Tables:
    def __init__(self, spark: SparkSession, database: Database, directory: Path) -> None:
        database.execute(
            "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(20), at DATETIME(3))",
            "INSERT INTO t SELECT seq, CONCAT('n', seq), '2024-01-01' + INTERVAL seq SECOND FROM seq_1_to_40",
        )
        self.pipeline = compile_script(SCRIPT.format(options=database.clause("t", 10)))
        self.spark, self.lake = spark, Lake(directory / "lake")

    def advance(self, table: str) -> list[tuple[int, int, bool]]:
        """(epoch, rows, flipped) of what landed."""
        with Runner(self.pipeline, self.lake, spark=lambda: self.spark) as runner:
            landed = runner.advance(table).epochs
        return [(each.epoch, each.rows, each.flipped) for each in landed]

    def files(self, table: str, pattern: str) -> int:
        return len(list(Path(self.lake.table_path(table)).glob(f"*/{pattern}")))

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        found = rows_of(str(self.lake.table_path(table)))
        return sorted(tuple(str(row[name]) for name in ("_op", "_split", *columns)) for row in found)


def test_rows_are_the_same_whoever_writes_them(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    tables = Tables(spark, database, tmp_path)
    for table in ("plain", "computed", "timed", "spelled"):
        assert tables.advance(table) == [(1, 40, False), (2, 0, True)], table
    assert (tables.files("plain", OURS), tables.files("plain", SPARKS)) == (4, 0)
    for table in ("computed", "timed", "spelled"):
        assert tables.files(table, OURS) == 0, f"{table} has what only Spark computes"
    names = ("id", "name", "at", "tab", "changed_at")
    assert tables.rows("plain", *names) == tables.rows("computed", *names)
    assert len(tables.rows("plain")) == 40
    assert tables.rows("timed", "id", "name", "at") == tables.rows("plain", "id", "name", "at")
    assert tables.rows("spelled", "id", "name") == tables.rows("plain", "id", "name")
    log = {table: tables.lake.watermarks.last(table, 1) for table in ("plain", "computed")}
    assert log["plain"].position == log["computed"].position  # type: ignore[union-attr]
    # A step of the log is Spark's: its folder has not been begun by the source.
    database.execute("UPDATE t SET name = 'x' WHERE id = 7")
    assert tables.advance("plain") == [(3, 1, False)]
    assert tables.files("plain", SPARKS) >= 1
    assert all(list(folder.glob("*.parquet")) for folder in Path(tables.lake.table_path("plain")).glob("g1-*"))


@pytest.mark.parametrize("point", ["source.written", "source.appended"])
def test_a_crash_beside_the_commit(spark: SparkSession, database: Database, tmp_path: Path, point: str) -> None:
    tables = Tables(spark, database, tmp_path)
    with dying(point):
        tables.advance("plain")
    database.execute("DELETE FROM t WHERE id > 30")
    landed = tables.advance("plain")
    rows = 40 if point == "source.appended" else 30
    assert landed[0] == (1, rows, False)
    snapshot = [row for row in tables.rows("plain", "id") if row[0] == "r"]
    assert len(snapshot) == len(set(snapshot)) == rows
