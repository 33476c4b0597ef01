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

from pipelines.sources.delta.commits import Commit


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


def changes(spark: SparkSession, path: str, first: int, last: int) -> DataFrame:
    """The change data feed of versions `first` to `last`."""
    reader = spark.read.format("delta").option("readChangeFeed", "true")
    rows = reader.option("startingVersion", first).option("endingVersion", last).load(path)
    return rows.withColumnsRenamed(
        {"_commit_version": "_version", "_change_type": "_change", "_commit_timestamp": "_at"}
    )


def _described(rows: DataFrame, version: int, timestamp: int | None) -> DataFrame:
    at = F.lit(None).cast("timestamp") if timestamp is None else F.timestamp_millis(F.lit(timestamp))
    return rows.withColumns({"_version": F.lit(version).cast("bigint"), "_change": F.lit("insert"), "_at": at})
