"""Reads a Delta table by version: a snapshot, the rows that commits added, or the change data feed of commits.

Every frame has the table's own columns, and `_version`, `_change` (Delta's word for what happened to the row) and
`_at` (the commit's time).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.sources.delta.commits import SPLIT, Commit
from pipelines.sources.protocol import SEQ_TYPE
from pipelines.sql.model import Table
from pipelines.sql.types import quoted

_ROW_BITS = 30
_TASK_BITS = 8
"""`_offset` is (version, task, row in the task): 33 million versions, 256 tasks, a thousand million rows each."""

_BUILD_OPS = {"insert": "c", "update_postimage": "u", "delete": "d", "update_preimage": "d"}
_BUILD_OP = f"element_at(map({', '.join(repr(word) for pair in _BUILD_OPS.items() for word in pair)}), _change)"
_THERE = [word for word, op in _BUILD_OPS.items() if op != "d"]
_IS_END = f"_change IN ({', '.join(repr(word) for word, op in _BUILD_OPS.items() if op == 'd')})"


def snapshot(spark: SparkSession, path: str, version: int, timestamp: int | None) -> DataFrame:
    """All rows as of `version`."""
    rows = spark.read.format("delta").option("versionAsOf", version).load(path)
    return _described(rows, version, timestamp)


def added(spark: SparkSession, path: str, commits: Sequence[Commit]) -> DataFrame:
    """The rows that `commits` added, as the last of them saw the table's schema.

    Goes through Delta's own DeltaLog, as its streaming source does: no public reader takes a list of files, and
    Parquet's knows nothing of partition values and column mapping.
    """
    jvm: Any = spark._jvm
    nothing = jvm.scala.Option.empty()
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, path)
    state = log.getSnapshotAt(commits[-1].version, nothing, nothing, nothing, False)
    frames = []
    for commit in commits:
        files = jvm.java.util.ArrayList()
        for line in commit.added:
            files.add(jvm.org.apache.spark.sql.delta.actions.Action.fromJson(line))
        chosen = jvm.scala.jdk.javaapi.CollectionConverters.asScala(files).toSeq()
        rows = DataFrame(log.createDataFrame(state, chosen, False, nothing), spark)
        frames.append(_described(rows, commit.version, commit.timestamp))
    return reduce(DataFrame.unionAll, frames)


def changes(spark: SparkSession, path: str, table: Table, first: int, last: int) -> DataFrame:
    """What the commits of versions `first` to `last` did to each key of a build side, by the change data feed."""
    reader = spark.read.format("delta").option("readChangeFeed", "true")
    rows = reader.option("startingVersion", first).option("endingVersion", last).load(path)
    named = {"_commit_version": "_version", "_change_type": "_change", "_commit_timestamp": "_at"}
    return _of_keys(rows.withColumnsRenamed(named), table)


def landable(rows: DataFrame, table: Table, *, snapshot: bool) -> DataFrame:
    """What `Source.read` gives, of one of the frames above."""
    build = table.role == "build"
    op = "'r'" if build and snapshot else _BUILD_OP if build else "'+I'"
    task = f"shiftleft(CAST(spark_partition_id() AS BIGINT), {_ROW_BITS})"
    row = f"({task} + (monotonically_increasing_id() & {2**33 - 1}L))"
    position = f"({row} + IF({_IS_END}, 0L, {2 ** (_ROW_BITS + _TASK_BITS)}L))"
    seq = f"'phase', {0 if snapshot else 1}, 'log', 0, 'file', _version, 'position', {position}, 'row', 0"
    return rows.coalesce(2**_TASK_BITS).selectExpr(
        *[quoted(column.name) for column in table.physical_columns],
        f"{op} AS _op",
        f"CAST(named_struct({seq}) AS {SEQ_TYPE}) AS _seq",
        "_at AS _rowtime",
        f"'{SPLIT}' AS _split",
        f"shiftleft(_version, {_ROW_BITS + _TASK_BITS}) + {row} AS _offset",
    )


def _of_keys(rows: DataFrame, table: Table) -> DataFrame:
    """What each commit did to each key: a key that is there after it was not deleted, whatever was written for that. An
    update ends the key that it has changed; an overwrite deletes and adds every row."""
    there, ended = rows.where(F.col("_change").isin(_THERE)), rows.where(_IS_END)
    if not table.primary_key or not set(table.primary_key) <= set(rows.columns):  # a computed one is not known here
        return there.unionByName(ended.where("_change = 'delete'"))
    keys = [quoted(name) for name in table.primary_key]
    kept = there.select("_version", *keys).alias("k")
    same = " AND ".join(f"e.{name} <=> k.{name}" for name in ("_version", *keys))
    return there.unionByName(ended.alias("e").join(kept, F.expr(same), "left_anti"))


def _described(rows: DataFrame, version: int, timestamp: int | None) -> DataFrame:
    at = F.lit(None).cast("timestamp") if timestamp is None else F.timestamp_millis(F.lit(timestamp))
    return rows.withColumns({"_version": F.lit(version).cast("bigint"), "_change": F.lit("insert"), "_at": at})
