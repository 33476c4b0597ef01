"""The rows of a step's files, as `Source.read` gives them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipelines.sources.filesystem.listing import File, Folder
from pipelines.sources.formats import VALUE, format_named, literals, metadata_column, wanted
from pipelines.sources.formats.checks import ERROR_OPTION
from pipelines.sources.protocol import REJECTED, REJECTED_TYPE, SEQ_TYPE, SOURCE_COLUMNS
from pipelines.sql.model import Column, Table
from pipelines.sql.types import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPLIT = "0"
"""Files are read one after another in one order, so a folder is one split."""

_POSITION_BITS = 40
"""`_offset` is (file, position in the file): 8 million files of a tebibyte each."""

_METADATA_SQL: Mapping[str, str] = {
    "file.path": "_told.path",
    "file.name": "substring_index(_told.path, '/', -1)",
    "file.size": "_told.size",
    "file.modification-time": "timestamp_millis(_told.modified)",
}

POISON = "tidegate: a line does not fit: "
"""What an executor throws begins with it; JSON of path, position and error follows."""


@dataclass(frozen=True)
class Chosen:
    """The files of a step: those with the numbers `first`, `first` + 1, …"""

    folder: Folder
    first: int
    files: Sequence[File]

    def paths(self) -> list[str]:
        return [str(self.folder.full(file.name)) for file in self.files]

    def told(self) -> str:
        """SQL of what is known of the file `_file`: STRUCT<path, size, modified (ms), partitions>."""
        known = [
            {
                "path": path,
                "size": file.size,
                "modified": file.modified // 1_000_000,
                "partitions": self.folder.values(file.name),
            }
            for path, file in zip(self.paths(), self.files, strict=True)
        ]
        schema = "ARRAY<STRUCT<path: STRING, size: BIGINT, modified: BIGINT, partitions: ARRAY<STRING>>>"
        return f"get(from_json({literals.text(json.dumps(known))}, '{schema}'), CAST(_file - {self.first} AS INT))"


def of_lines(spark: SparkSession, chosen: Chosen, table: Table, options: Mapping[str, str]) -> DataFrame:
    """The rows of text files. A line that does not fit fails the step when it is read, or is told as REJECTED."""
    from pipelines.sources.filesystem.lines import read_lines

    numbered = [
        (chosen.first + place, path, file.size, file.modified)
        for place, (path, file) in enumerate(zip(chosen.paths(), chosen.files, strict=True))
    ]
    quarantines = options.get(ERROR_OPTION.name) == "quarantine"
    read = read_lines(spark, numbered)
    if quarantines:
        read = read.withColumn("_raw", read[VALUE])
    beside = [column.metadata for column in table.physical_columns if column.metadata not in _METADATA_SQL]
    wants = wanted(table, options, metadata=tuple(key for key in beside if key is not None))
    decoded = format_named(options["format"]).decode(read, wants)
    rows = decoded.selectExpr("*", f"{chosen.told()} AS _told")
    if quarantines:
        return _landable(rows, table, op="_op", time="_time", beside=(_rejected(),))
    place = "to_json(named_struct('path', _told.path, 'position', _position, 'error', _error))"
    poison = f"CAST(raise_error(concat({literals.text(POISON)}, {place})) AS STRING)"
    return _landable(rows, table, op=f"IF(_error IS NULL, _op, {poison})", time="_time")


def of_parquet(spark: SparkSession, chosen: Chosen, table: Table) -> DataFrame:
    """The rows of Parquet files; their schemas have been compared."""
    columns = table.message_columns
    schema = ", ".join(f"{quoted(column.name)} {column.spark_type}" for column in columns)
    # Spark tells a file as a URI, in which + stands for itself.
    path = "regexp_replace(url_decode(replace(_metadata.file_path, '+', '%2B')), '^file:/+', '/') AS _path"
    rows = spark.read.schema(schema).parquet(*chosen.paths())
    fields = ", ".join(f"{literals.text(column.name)}, {quoted(column.name)}" for column in columns)
    read = rows.selectExpr(f"named_struct({fields}) AS _fields", path, "_metadata.row_index AS _position", "0 AS _sub")
    numbers = [(path, chosen.first + place) for place, path in enumerate(chosen.paths())]
    numbered = read.join(spark.createDataFrame(numbers, "_path STRING, _file BIGINT").hint("broadcast"), "_path")
    op = "'c'" if table.role == "build" else "'+I'"
    return _landable(
        numbered.selectExpr("*", f"{chosen.told()} AS _told"), table, op=op, time="CAST(NULL AS TIMESTAMP)"
    )


def _rejected() -> str:
    """SQL of REJECTED: the line's bytes, and where they stand; null in a line that fits."""
    reason = "concat(_told.path, ', the line at byte ', _position, ': ', _error)"
    told = f"CAST(named_struct('reason', {reason}, 'key', NULL, 'value', _raw, 'headers', NULL) AS {REJECTED_TYPE})"
    return f"IF(_error IS NULL, NULL, {told}) AS {REJECTED}"


def nothing(spark: SparkSession, table: Table) -> DataFrame:
    """No rows."""
    columns = {column.name: column.spark_type for column in table.physical_columns}
    return spark.createDataFrame(
        [], ", ".join(f"{quoted(name)} {of}" for name, of in {**columns, **SOURCE_COLUMNS}.items())
    )


def _column(column: Column, table: Table) -> str:
    """SQL of a column's value. What a folder says is said of rows: a truncate has none."""
    if column.metadata is not None:
        return _METADATA_SQL.get(column.metadata) or metadata_column(column.metadata)
    if column.name not in table.partition_columns:
        return f"_fields.{quoted(column.name)}"
    told = f"_told.partitions[{table.partition_columns.index(column.name)}]"
    return f"IF(_fields IS NULL, NULL, CAST({told} AS {column.spark_type}))"


def _rowtime(table: Table, time: str) -> str:
    """SQL of a row's source time: what its message says of the change, else when its file was changed last.

    A file may hold years of changes. So where rows have times of their own, that of its change says nothing of when a
    delete was made: the delete is at the time that its line has (docs/joins.md).
    """
    known = f"coalesce({time}, timestamp_millis(_told.modified))"
    if table.watermark is None or table.column(table.watermark.path[0]).source_time:
        return known
    return f"IF(_op = 'd', {time}, {known})"


def _landable(rows: DataFrame, table: Table, *, op: str, time: str, beside: Sequence[str] = ()) -> DataFrame:
    columns = [f"{_column(column, table)} AS {quoted(column.name)}" for column in table.physical_columns]
    seq = "'phase', 1, 'log', 0, 'file', _file, 'position', _position, 'row', _sub"
    return rows.selectExpr(
        *columns,
        f"{op} AS _op",
        f"CAST(named_struct({seq}) AS {SEQ_TYPE}) AS _seq",
        f"{_rowtime(table, time)} AS _rowtime",
        f"'{SPLIT}' AS _split",
        # A line that gives several rows is longer than they are many, so no two rows have the same.
        f"shiftleft(_file, {_POSITION_BITS}) + _position + _sub AS _offset",
        *beside,
    )
