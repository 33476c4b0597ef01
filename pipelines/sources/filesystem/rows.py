"""The rows of a step's files, as `Source.read` gives them; and whether Parquet files have the table's columns, found in
their footers before a row is read."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from tidegate.pipelines.commands import or_else, resnapshot
from tidegate.pipelines.connectors.protocol import FieldsSeen
from tidegate.pipelines.connectors.spec import SEQ_TYPE
from tidegate.pipelines.connectors.table import Column, Table
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.frames import given
from tidegate.pipelines.sources.arrow_types import arrow_type
from tidegate.pipelines.sources.filesystem.listing import SPLIT, File, Folder
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
    """The files of a step: those with the numbers `first`, `first` + 1, …"""

    folder: Folder
    first: int
    files: Sequence[File]

    def paths(self) -> list[str]:
        return [str(self.folder.full(file.name)) for file in self.files]

    def origin(self) -> str:
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
        place = f"CAST(_file - {given(f'{self.first}L')} AS INT)"
        return f"get(from_json({spark_string(json.dumps(known))}, '{schema}'), {place})"


def _lines(spark: SparkSession, chosen: Chosen, *, keeps_broken: bool) -> DataFrame:
    from tidegate.pipelines.sources.filesystem.lines import read_lines

    numbered = [
        (chosen.first + place, path, file.size, file.modified)
        for place, (path, file) in enumerate(zip(chosen.paths(), chosen.files, strict=True))
    ]
    return read_lines(spark, numbered, keeps_broken=keeps_broken)


def fields_of_lines(spark: SparkSession, chosen: Chosen, table: Table, options: Mapping[str, str]) -> FieldsSeen:
    """The fields of the first lines."""
    lines = _lines(spark, chosen, keeps_broken=True).select(VALUE).limit(RECORDS).collect()  # few rows
    return fields_of(format_named(options["format"]), [row[VALUE] for row in lines], wanted(table, options))


def fields_of_parquet(chosen: Chosen, columns: Sequence[Column]) -> FieldsSeen:
    """The columns of all files, those that are no Parquet files apart."""
    names: dict[str, None] = {}
    for path in chosen.paths():
        with suppress(pa.ArrowInvalid, OSError):
            names |= dict.fromkeys(pq.read_schema(path).names)
    carried = frozenset(column.name for column in columns if column.source_name in names)
    return FieldsSeen(carried, tuple(names))


def of_lines(spark: SparkSession, chosen: Chosen, table: Table, options: Mapping[str, str]) -> DataFrame:
    """The rows of text files. A line that does not fit fails the step when it is read, or becomes REJECTED."""
    keeps = quarantines(options)
    read = _lines(spark, chosen, keeps_broken=keeps)
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
    for place, file in enumerate(chosen.files):
        if file.name in misfits:
            line = f"{chosen.first + place}L AS _file, 0L AS _position, 0 AS _sub, CAST(NULL AS BINARY) AS _raw"
            empty = ", ".join(f"'{column.name}', CAST(NULL AS {column.spark_type})" for column in table.message_columns)
            whole = spark.range(1).selectExpr(
                f"IF(id < 0, named_struct({empty}), NULL) AS _fields",
                *line.split(", "),
                f"{spark_string(misfits[file.name])} AS _error",
            )
            frames.append(whole)
    read = [file for file in chosen.files if file.name not in misfits]
    if read:
        frames.append(_parquet_rows(spark, chosen, read, table))
    rows = reduce(DataFrame.unionByName, frames).selectExpr("*", f"{chosen.origin()} AS _origin")
    return _landable(rows, table, op, "CAST(NULL AS TIMESTAMP)", "row", keeps_misfits=quarantines(options))


def _parquet_rows(spark: SparkSession, chosen: Chosen, files: Sequence[File], table: Table) -> DataFrame:
    columns = table.message_columns
    schema = ", ".join(f"{quoted(column.source_name)} {column.spark_type}" for column in columns)
    # Spark names a file by a URI, in which + stands for itself.
    path = "regexp_replace(url_decode(replace(_metadata.file_path, '+', '%2B')), '^file:/+', '/') AS _path"
    rows = spark.read.schema(schema).parquet(*(_literally(str(chosen.folder.full(file.name))) for file in files))
    _check_found(rows, chosen.folder, files)
    fields = ", ".join(f"{spark_string(column.name)}, {quoted(column.source_name)}" for column in columns)
    read = rows.selectExpr(f"named_struct({fields}) AS _fields", path, "_metadata.row_index AS _position", "0 AS _sub")
    numbers = {path: chosen.first + place for place, path in enumerate(chosen.paths())}
    known = f"from_json({spark_string(json.dumps(numbers))}, 'MAP<STRING, BIGINT>')"
    numbered = read.selectExpr("*", f"element_at({known}, _path) AS _file")
    error = shape.excluded_error(columns, "_fields")
    return numbered.selectExpr(
        "_fields", "_file", "_position", "_sub", "CAST(to_json(_fields) AS BINARY) AS _raw", f"{error} AS _error"
    )


def _literally(path: str) -> str:
    """A path as a pattern that matches only itself: Spark takes every path for a pattern."""
    return re.sub(r"[][{}*?\\]", r"\\\g<0>", path)


def _check_found(rows: DataFrame, folder: Folder, files: Sequence[File]) -> None:
    """Raise SourceError unless Spark reads exactly the chosen files: it ignores some names, and follows patterns."""
    read = {re.sub("^file:/+", "/", unquote(address)) for address in rows.inputFiles()}
    wanted = {str(folder.full(file.name)): file for file in files}
    for path, file in wanted.items():
        if path not in read:
            anew = resnapshot(folder.table, "once the file has another name")
            raise folder.error("has a name that Spark does not read", anew, name=file.name)
    for path in read.difference(wanted):
        raise folder.error(f"would be read with {path}, which is not taken up", "move that file away, and run again")


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


def rows_of(folder: Folder, file: File) -> int:
    """How many rows a file has; 0 if it is no Parquet file."""
    return 0 if misfits(folder, [file], ()) else pq.read_metadata(folder.full(file.name)).num_rows


PASS_OVER = "set 'format.on-error' = 'quarantine' to pass over the file and keep its name"


def misfits(folder: Folder, files: Sequence[File], columns: Sequence[Column]) -> dict[str, str]:
    """What is wrong with those files that `check` refuses, by name."""
    found: dict[str, str] = {}
    for file in files:
        try:
            check(folder, [file], columns)
        except SourceError as error:
            found[file.name] = error.what.removeprefix(f"{folder.table}: ")
    return found


def check(folder: Folder, files: Sequence[File], columns: Sequence[Column]) -> None:
    """Raise SourceError for a file that is no Parquet file, or lacks a column, or has it in a type that cannot be read
    as the declared one without loss."""
    for file in files:
        try:
            found = pq.read_schema(folder.full(file.name))
        except (pa.ArrowInvalid, OSError) as error:
            raise folder.error(
                f"is no Parquet file: {str(error).splitlines()[0]}",
                or_else(PASS_OVER, resnapshot(folder.table, "once the right file is there")),
                name=file.name,
            ) from error
        names = Counter(name.lower() for name in found.names)
        for column in columns:
            name = column.source_name
            if names[name.lower()] > 1:
                alike = [other for other in found.names if other.lower() == name.lower()]
                raise folder.error(
                    f"has columns that differ in the case of their letters alone: {', '.join(alike)}",
                    or_else(PASS_OVER, resnapshot(folder.table, "once it has other names")),
                    name=file.name,
                )
            if name not in found.names:
                raise folder.error(
                    f"has no column {name}; it has {', '.join(found.names)}",
                    f"{PASS_OVER}, or take {column.name} out of the script",
                    name=file.name,
                )
            of = found.field(name).type
            if not fits(of, arrow_type(column.spark_type)):
                raise folder.error(
                    f"has column {name} as {of}, the script as {column.type}",
                    f"{PASS_OVER}, or write the file's type into the script, and cast in the SELECT"
                    if _is_declarable(of)
                    else or_else(PASS_OVER, resnapshot(folder.table, "once it is written as a type that a script has")),
                    name=file.name,
                )


_SCALARS = (
    *(pa.bool_(), pa.int64(), pa.float64(), pa.string(), pa.binary(), pa.date32()),
    *(pa.timestamp("us"), pa.timestamp("us", "UTC")),
)


def _is_declarable(found: pa.DataType) -> bool:
    """Whether some type of a script reads a file's type."""
    if isinstance(found, pa.DictionaryType):
        return _is_declarable(found.value_type)
    if pa.types.is_struct(found) or pa.types.is_map(found) or _is_list(found):
        return all(_is_declarable(found.field(place).type) for place in range(found.num_fields))
    if pa.types.is_decimal128(found):
        return 0 <= found.scale <= found.precision
    return any(fits(found, declared) for declared in _SCALARS)


def fits(found: pa.DataType, declared: pa.DataType) -> bool:
    """Whether every value of a file's type is one of the declared type, and Spark reads it so."""
    if isinstance(found, pa.DictionaryType):
        return fits(found.value_type, declared)
    if pa.types.is_struct(found) and pa.types.is_struct(declared):
        names = {field.name: field.type for field in found}
        if len({name.lower() for name in names}) < found.num_fields:
            return False
        return all(field.name in names and fits(names[field.name], field.type) for field in declared)
    if pa.types.is_map(found) and pa.types.is_map(declared):
        return fits(found.key_type, declared.key_type) and fits(found.item_type, declared.item_type)
    if _is_list(found) and _is_list(declared):
        return fits(found.value_type, declared.value_type)
    if pa.types.is_timestamp(found) and pa.types.is_timestamp(declared):
        return found.unit in ("ms", "us") and (found.tz is None) == (declared.tz is None)
    if pa.types.is_decimal(found) and pa.types.is_decimal(declared):
        return found.scale == declared.scale and found.precision <= declared.precision
    if pa.types.is_signed_integer(found) and pa.types.is_signed_integer(declared):
        return found.bit_width <= declared.bit_width
    if pa.types.is_floating(found) and pa.types.is_floating(declared):
        # Spark reads no float16.
        return 32 <= found.bit_width <= declared.bit_width
    same = [pa.types.is_boolean, pa.types.is_date, _is_text, _is_binary]
    return any(kind(found) and kind(declared) for kind in same)


def _is_list(of: pa.DataType) -> bool:
    return pa.types.is_list(of) or pa.types.is_large_list(of)


def _is_text(of: pa.DataType) -> bool:
    return pa.types.is_string(of) or pa.types.is_large_string(of)


def _is_binary(of: pa.DataType) -> bool:
    return pa.types.is_binary(of) or pa.types.is_large_binary(of) or pa.types.is_fixed_size_binary(of)
