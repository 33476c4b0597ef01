"""Reads a Delta table by version: a snapshot, the rows that commits added, or the change data feed of commits.

Goes through Delta's own DeltaLog, as its streaming source does: no public reader takes a list of files, and Parquet's
knows nothing of partition values and column mapping; and the public ones refuse versions that are older than
`delta.deletedFileRetentionDuration`, whether their files are there or not, or read them by the newest schema. Only what
commits added to a plain table, without any of that, is read by its files.

Every frame has the table's columns that the script names in the STRUCT `_row`, and `_version`, `_change` (Delta's word
for what happened to the row) and `_at` (the commit's time).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tidegate.pipelines.connectors.spec import SEQ_TYPE
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.frames import given
from tidegate.pipelines.sources.delta.commits import SPLIT, Commit, grouped
from tidegate.pipelines.sources.formats import shape
from tidegate.pipelines.sources.rows import op_or_poison, rejected
from tidegate.pipelines.syntax.types import quoted, spark_string

_ALL_OF_EACH = {
    "recursiveFileLookup": "true",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "__globPaths__": "false",
}
"""Options that read exactly the named files, whatever the session says of folders named like `a=1` and of files that
fail, and whatever a `*` in a folder's name would match."""

_ROW_BITS = 30
_TASK_BITS = 8
"""`_offset` is (version, task, row in the task): 33 million versions, 256 tasks, a thousand million rows each."""

_BUILD_OPS = {"insert": "c", "update_postimage": "u", "delete": "d", "update_preimage": "d"}
_BUILD_OP = f"element_at(map({', '.join(repr(word) for pair in _BUILD_OPS.items() for word in pair)}), _change)"
_THERE = [word for word, op in _BUILD_OPS.items() if op != "d"]
_IS_END = f"_change IN ({', '.join(repr(word) for word, op in _BUILD_OPS.items() if op == 'd')})"


def snapshot(spark: SparkSession, path: str, table: Table, version: int, timestamp: int | None) -> DataFrame:
    """All rows as of `version`, by the log as it is now.

    Delta keeps the state of the version that this JVM read last. In a table that was brought back from a backup that
    version may be another one by now.
    """
    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession
    jvm.org.apache.spark.sql.delta.DeltaLog.invalidateCache(session, jvm.org.apache.hadoop.fs.Path(path))
    log, state, nothing = _at(spark, path, version)
    no_filters = jvm.scala.jdk.javaapi.CollectionConverters.asScala(jvm.java.util.ArrayList()).toSeq()
    relation = log.createRelation(no_filters, jvm.scala.Option.apply(state), nothing, True)
    rows = DataFrame(session.baseRelationToDataFrame(relation), spark)
    return _described(rows, table, version, timestamp)


def added(
    spark: SparkSession, path: str, table: Table, commits: Sequence[Commit], schema: Mapping[str, Any] | None
) -> DataFrame:
    """The rows that `commits` added, by the table's schema as of the last of them.

    `schema`: that one, as Spark's JSON, of a table whose rows are exactly those of its Parquet files
    (`CommitLog.plain_schema`). Delta's reader lists the table's log, which grows, and makes a state of each version; so
    only the files are read of such a table. Commits are read together, since each query costs its planning.
    """
    if schema is None:
        scan, columns = _by_delta(spark, path, commits[-1].version)
    else:
        scan, columns = _by_files(spark, path, schema)
    hidden = "_metadata" in map(str.lower, columns)  # by which Spark says of which file a row is
    groups = [[commit] for commit in commits] if hidden else grouped(commits)
    return reduce(DataFrame.unionAll, [_added(scan(group), table, group) for group in groups])


Scan = Callable[[Sequence[Commit]], DataFrame]
"""The rows that some commits added."""


def _by_files(spark: SparkSession, path: str, schema: Mapping[str, Any]) -> tuple[Scan, list[str]]:
    columns = StructType.fromJson(dict(schema))

    def scan(commits: Sequence[Commit]) -> DataFrame:
        files = [f"{path}/{name}" for commit in commits for name in commit.names]
        rows = spark.read.schema(columns).options(**_ALL_OF_EACH).parquet(*files)
        if len(rows.inputFiles()) != len(files):  # a listing passes over a file that is not there any more
            raise FileNotFoundError(f"File not found: one of {len(files)} files of {path}")
        return rows

    return scan, columns.names


def _by_delta(spark: SparkSession, path: str, version: int) -> tuple[Scan, list[str]]:
    jvm: Any = spark._jvm
    log, state, nothing = _at(spark, path, version)

    def scan(commits: Sequence[Commit]) -> DataFrame:
        lines = jvm.java.util.ArrayList()
        for commit in commits:
            for line in commit.added:
                lines.add(jvm.org.apache.spark.sql.delta.actions.Action.fromJson(line))
        chosen = jvm.scala.jdk.javaapi.CollectionConverters.asScala(lines).toSeq()
        return DataFrame(log.createDataFrame(state, chosen, False, nothing), spark)

    return scan, list(state.schema().fieldNames())


def _added(rows: DataFrame, table: Table, commits: Sequence[Commit]) -> DataFrame:
    if len(commits) == 1:
        return _described(rows, table, commits[0].version, commits[0].timestamp)
    versions = ", ".join(f"{spark_string(name)}, {commit.version}L" for commit in commits for name in commit.names)
    times = ", ".join(f"{commit.version}L, timestamp_millis({commit.timestamp}L)" for commit in commits)
    found = rows.selectExpr(
        f"{_row(rows, table)} AS _row", f"element_at(map({versions}), _metadata.file_name) AS _version"
    )
    return found.selectExpr("_row", "_version", "'insert' AS _change", f"element_at(map({times}), _version) AS _at")


def changes(spark: SparkSession, path: str, table: Table, first: int, last: int) -> DataFrame:
    """What the commits of versions `first` to `last` did to each key of a build side, by the change data feed, and by
    the table's schema as of the last of them."""
    jvm: Any = spark._jvm
    log, state, nothing = _at(spark, path, last)
    feed = jvm.org.apache.spark.sql.delta.commands.cdc.CDCReader
    found = feed.changesToBatchDF(
        log, first, last, spark._jsparkSession, nothing, jvm.scala.Option.apply(state), False, nothing
    )
    changes = DataFrame(found, spark)
    rows = changes.selectExpr(
        f"{_row(changes, table)} AS _row",
        "_commit_version AS _version",
        "_change_type AS _change",
        "_commit_timestamp AS _at",
    )
    return _of_keys(rows, table)


def _at(spark: SparkSession, path: str, version: int) -> tuple[Any, Any, Any]:
    """The table's log, its state as of `version`, and Scala's None."""
    jvm: Any = spark._jvm
    nothing = jvm.scala.Option.empty()
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, path)
    return log, log.getSnapshotAt(version, nothing, nothing, nothing, False), nothing


def landable(rows: DataFrame, table: Table, *, snapshot: bool, quarantines: bool) -> DataFrame:
    """The rows of `Source.read`, from one of the frames above. A row that the declaration excludes fails the step, or
    becomes REJECTED."""
    build = table.role == "build"
    op = "'r'" if build and snapshot else _BUILD_OP if build else "'+I'"
    task = f"shiftleft(CAST(spark_partition_id() AS BIGINT), {_ROW_BITS})"
    row = f"({task} + (monotonically_increasing_id() & {2**33 - 1}L))"
    position = f"({row} + IF({_IS_END}, 0L, {2 ** (_ROW_BITS + _TASK_BITS)}L))"
    seq = f"'phase', {0 if snapshot else 1}, 'log', 0, 'file', _version, 'position', {position}, 'row', 0"
    error = shape.excluded_error(table.physical_columns, "_row", _IS_END, table.primary_key)
    reason = f"concat('version ', _version, ' of the Delta table: ', {error})"
    return rows.coalesce(2**_TASK_BITS).selectExpr(
        *[f"_row.{quoted(column.name)} AS {quoted(column.name)}" for column in table.physical_columns],
        f"{op if quarantines else op_or_poison(op, error, version='_version')} AS _op",
        f"CAST(named_struct({seq}) AS {SEQ_TYPE}) AS _seq",
        "_at AS _rowtime",
        f"'{SPLIT}' AS _split",
        f"shiftleft(_version, {_ROW_BITS + _TASK_BITS}) + {row} AS _offset",
        *([rejected(error, reason, "CAST(to_json(_row) AS BINARY)")] if quarantines else []),
    )


def _row(rows: DataFrame, table: Table) -> str:
    """SQL of the columns that the script names, apart from those that are made beside them; NULL for one that the table
    got later, and for one of no type."""
    there = {field.name for field in rows.schema if field.dataType.simpleString() != "void"}
    values = {
        column.name: quoted(column.source_name) if column.source_name in there else f"CAST(NULL AS {column.spark_type})"
        for column in table.physical_columns
    }
    fields = (f"{spark_string(name)}, {value}" for name, value in values.items())
    return f"named_struct({', '.join(fields)})"


def _of_keys(rows: DataFrame, table: Table) -> DataFrame:
    """The effect of each commit on each key: a key that exists after it was not deleted, whatever the feed says. An
    update ends the key that it has changed; an overwrite deletes and adds every row."""
    there, ended = rows.where(F.col("_change").isin(_THERE)), rows.where(_IS_END)
    known = {column.name for column in table.physical_columns}
    if not table.primary_key or not set(table.primary_key) <= known:  # a computed one is not known here
        return there.unionByName(ended.where("_change = 'delete'"))
    keys = ["_version", *(f"_row.{quoted(name)}" for name in table.primary_key)]
    live = there.selectExpr(*(f"{key} AS k{number}" for number, key in enumerate(keys)))
    same = " AND ".join(f"e.{key} <=> k.k{number}" for number, key in enumerate(keys))
    return there.unionByName(ended.alias("e").join(live.alias("k"), F.expr(same), "left_anti"))


def _described(rows: DataFrame, table: Table, version: int, timestamp: int | None) -> DataFrame:
    at = "CAST(NULL AS TIMESTAMP)" if timestamp is None else given(f"timestamp_millis({timestamp}L)")
    return rows.selectExpr(
        f"{_row(rows, table)} AS _row", f"{given(f'{version}L')} AS _version", "'insert' AS _change", f"{at} AS _at"
    )
