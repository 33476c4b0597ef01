"""The rows of a step's files, as `Source.read` gives them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from tidegate.pipelines.connectors.protocol import FieldsSeen
from tidegate.pipelines.connectors.spec import SEQ_TYPE
from tidegate.pipelines.connectors.table import Column, Table
from tidegate.pipelines.frames import given
from tidegate.pipelines.sources.filesystem.catalog import FORGOTTEN
from tidegate.pipelines.sources.filesystem.listing import SPLIT, File, Folder
from tidegate.pipelines.sources.filesystem.parquet import read_rows
from tidegate.pipelines.sources.formats import VALUE, format_named, metadata_column, shape, wanted
from tidegate.pipelines.sources.formats.fields import RECORDS, fields_of
from tidegate.pipelines.sources.rows import op_or_poison, quarantines, rejected
from tidegate.pipelines.syntax.types import quoted, spark_string

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POSITION_BITS = 40
"""`_offset` is (file, position in the file): 8 million files of a tebibyte each."""

_METADATA_SQL: Mapping[str, str] = {
    "file.path": "_origin.path",
    "file.name": "substring_index(_origin.path, '/', -1)",
    "file.size": "_origin.size",
    "file.modification-time": "timestamp_millis(_origin.modified)",
}


@dataclass(frozen=True)
class Chosen:
    """The files of a step: those with the numbers `first`, `first` + 1, … One that is FORGOTTEN has no rows."""

    folder: Folder
    first: int
    files: Sequence[File]

    def numbered(self) -> list[tuple[int, File]]:
        return [(self.first + place, file) for place, file in enumerate(self.files) if file != FORGOTTEN]

    def planned(self, files: Sequence[tuple[int, File]]) -> list[tuple[int, str, int, int]]:
        """Files as their tasks know them: number, path, size, modified time (ns)."""
        return [(number, self.path(file), file.size, file.modified) for number, file in files]

    def path(self, file: File) -> str:
        return str(self.folder.full(file.name))

    def origin(self) -> str:
        """SQL of what is known of the file `_file`: STRUCT<path, size, modified (ms), partitions>."""
        known = [
            {
                "path": self.path(file),
                "size": file.size,
                "modified": file.modified // 1_000_000,
                "partitions": [] if file == FORGOTTEN else self.folder.values(file.name),
            }
            for file in self.files
        ]
        schema = "ARRAY<STRUCT<path: STRING, size: BIGINT, modified: BIGINT, partitions: ARRAY<STRING>>>"
        place = f"CAST(_file - {given(f'{self.first}L')} AS INT)"
        return f"get(from_json({spark_string(json.dumps(known))}, '{schema}'), {place})"


def _lines(
    spark: SparkSession, chosen: Chosen, table: Table, options: Mapping[str, str], *, keeps_broken: bool
) -> DataFrame:
    from tidegate.pipelines.sources.filesystem.lines import read_lines

    records = format_named(options["format"]).spec.records(wanted(table, options))
    return read_lines(spark, chosen.planned(chosen.numbered()), records, keeps_broken=keeps_broken)


def fields_of_lines(spark: SparkSession, chosen: Chosen, table: Table, options: Mapping[str, str]) -> FieldsSeen:
    """The fields of the first lines."""
    lines = _lines(spark, chosen, table, options, keeps_broken=True).select(VALUE).limit(RECORDS).collect()  # few rows
    return fields_of(format_named(options["format"]), [row[VALUE] for row in lines], wanted(table, options))


def fields_of_parquet(chosen: Chosen, columns: Sequence[Column]) -> FieldsSeen:
    """The columns of all files, those that are no Parquet files apart."""
    names: dict[str, None] = {}
    for _, file in chosen.numbered():
        with suppress(pa.ArrowInvalid, OSError):
            names |= dict.fromkeys(pq.read_schema(chosen.path(file)).names)
    carried = frozenset(column.name for column in columns if column.source_name in names)
    return FieldsSeen(carried, tuple(names))


def of_lines(spark: SparkSession, chosen: Chosen, table: Table, options: Mapping[str, str]) -> DataFrame:
    """The rows of text files. A line that does not fit fails the step when it is read, or becomes REJECTED."""
    keeps = quarantines(options)
    read = _lines(spark, chosen, table, options, keeps_broken=keeps)
    if keeps:
        read = read.withColumn("_raw", read[VALUE])
    beside = [column.metadata for column in table.physical_columns if column.metadata not in _METADATA_SQL]
    wants = wanted(table, options, metadata=tuple(key for key in beside if key is not None))
    decoded = format_named(options["format"]).decode(read, wants)
    known = [column for column in decoded.columns if column not in ("_error", "_cut")]
    rows = decoded.selectExpr(*map(quoted, known), "coalesce(_cut, _error) AS _error", f"{chosen.origin()} AS _origin")
    return _landable(rows, table, "_op", "_time", "the line at byte", keeps_misfits=keeps)


def of_parquet(
    spark: SparkSession, chosen: Chosen, table: Table, options: Mapping[str, str], misfits: Mapping[str, str]
) -> DataFrame:
    """The rows of Parquet files. `misfits`: those that are not read, by name, with the reason; the schemas of the
    others have been compared. A row that the declaration excludes fails the step, or becomes REJECTED."""
    op = "'c'" if table.role == "build" else "'+I'"
    frames = []
    for number, file in chosen.numbered():
        if file.name in misfits:
            line = f"{number}L AS _file, 0L AS _position, 0 AS _sub, CAST(NULL AS BINARY) AS _raw"
            empty = ", ".join(f"'{column.name}', CAST(NULL AS {column.spark_type})" for column in table.message_columns)
            whole = spark.range(1).selectExpr(
                f"IF(id < 0, named_struct({empty}), NULL) AS _fields",
                *line.split(", "),
                f"{spark_string(misfits[file.name])} AS _error",
            )
            frames.append(whole)
    read = [item for item in chosen.numbered() if item[1].name not in misfits]
    if read:
        frames.append(_parquet_rows(spark, chosen.planned(read), table))
    rows = reduce(DataFrame.unionByName, frames).selectExpr("*", f"{chosen.origin()} AS _origin")
    return _landable(rows, table, op, "CAST(NULL AS TIMESTAMP)", "row", keeps_misfits=quarantines(options))


def _parquet_rows(spark: SparkSession, files: Sequence[tuple[int, str, int, int]], table: Table) -> DataFrame:
    columns = table.message_columns
    excluded = shape.excluded_error(columns, "_fields")
    return read_rows(spark, files, columns).selectExpr(
        "_fields",
        "_file",
        "_position",
        "0 AS _sub",
        "CAST(to_json(_fields) AS BINARY) AS _raw",
        f"coalesce(_misfit, {excluded}) AS _error",
    )


def _column(column: Column, table: Table) -> str:
    """SQL of a column's value. The value of a partition's folder applies to its rows; a truncate has none."""
    if column.metadata is not None:
        return _METADATA_SQL.get(column.metadata) or metadata_column(column.metadata)
    if column.name not in table.partition_columns:
        return f"_fields.{quoted(column.name)}"
    text = f"_origin.partitions[{table.partition_columns.index(column.name)}]"
    return f"IF(_fields IS NULL, NULL, CAST({text} AS {column.spark_type}))"


def _rowtime(table: Table, time: str) -> str:
    """SQL of a row's source time: the message's own time of the change, else the file's modification time.

    A file may hold years of changes, so if rows have times of their own, the time of the file says nothing of when a
    delete was made: the delete has the time of its line (docs/joins.md).
    """
    known = f"coalesce({time}, timestamp_millis(_origin.modified))"
    if table.watermark is None or table.column(table.watermark.path[0]).source_time:
        return known
    return f"IF(_op = 'd', {time}, {known})"


def _landable(rows: DataFrame, table: Table, op: str, time: str, what: str, *, keeps_misfits: bool) -> DataFrame:
    """`what`: the unit of `_position`. A row that does not fit fails the step, or becomes REJECTED, with the line's
    bytes, or the row as JSON."""
    reason = f"concat(_origin.path, ', {what} ', _position, ': ', _error)"
    if not keeps_misfits:
        op = op_or_poison(op, "_error", path="_origin.path", what=f"'{what}'", position="_position")
    columns = [f"{_column(column, table)} AS {quoted(column.name)}" for column in table.physical_columns]
    seq = "'phase', 1, 'log', 0, 'file', _file, 'position', _position, 'row', _sub"
    return rows.selectExpr(
        *columns,
        f"{op} AS _op",
        f"CAST(named_struct({seq}) AS {SEQ_TYPE}) AS _seq",
        f"{_rowtime(table, time)} AS _rowtime",
        f"'{SPLIT}' AS _split",
        # A line of several rows has more bytes than rows, so no two rows have the same offset.
        f"shiftleft(_file, {_POSITION_BITS}) + _position + _sub AS _offset",
        *([rejected("_error", reason, "_raw")] if keeps_misfits else []),
    )
