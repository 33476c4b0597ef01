"""Chunks written as files of the lake by the tasks that read them, if the declared types are the server's.

Rows go from the server's packets to Parquet as Arrow columns; a frame would make Spark take each of them apart and
write it value by value. Each task names its file and returns the name: a file of an attempt that Spark has given up is
never adopted.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from tidegate.pipelines.connectors.spec import SOURCE_COLUMNS
from tidegate.pipelines.connectors.table import Column as DeclaredColumn
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.frames import by_number
from tidegate.pipelines.location import Location
from tidegate.pipelines.parquet import bounds_of_files, column_bounds, write_file
from tidegate.pipelines.sources.arrow_types import SOURCE_TYPES
from tidegate.pipelines.sources.cdc.changelog import cast_to_declared
from tidegate.pipelines.sources.cdc.database import ChunkReader, Column
from tidegate.pipelines.sources.cdc.errors import NotWritten

_WIDER: Mapping[str, pa.DataType] = {"SMALLINT": pa.int16(), "INT": pa.int32(), "BIGINT": pa.int64()}


@dataclass(frozen=True)
class FileColumn:
    """A column of the files: `source`, a column of the batches, as `type`; or, without a source, `value` in every
    row."""

    name: str
    type: pa.DataType
    source: str | None = None
    value: str | None = None

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        """Its values for the rows of `batch`."""
        if self.source is None:
            return pa.repeat(pa.scalar(self.value, self.type), batch.num_rows)
        values = batch.column(self.source)
        return values if values.type == self.type else values.cast(self.type)


def file_columns(table: Table, columns: Sequence[Column], place: tuple[str, str]) -> tuple[FileColumn, ...] | None:
    """The table's columns as files hold them; None if one needs a cast that only Spark makes. `place`: the database's
    and the table's name on the server."""
    source = {column.name: column for column in columns}
    names: Mapping[str, str] = {"database_name": place[0], "table_name": place[1]}
    found = [_file_column(column, source, names) for column in table.physical_columns]
    return None if None in found else tuple(column for column in found if column is not None)


def _file_column(column: DeclaredColumn, source: Mapping[str, Column], names: Mapping[str, str]) -> FileColumn | None:
    if column.metadata is not None:
        if column.metadata in names and column.spark_type == "STRING":
            return FileColumn(column.name, pa.string(), value=names[column.metadata])
        if column.metadata == "op_ts" and column.spark_type == "TIMESTAMP":
            return FileColumn(column.name, SOURCE_TYPES["_rowtime"])
        return None
    name = column.source_name
    have = source[name].canonical
    if cast_to_declared("", have, column.spark_type) == "":
        return FileColumn(column.name, have.arrow, name)
    wider = _WIDER.get(column.spark_type)
    if wider is not None and pa.types.is_integer(have.arrow):
        return FileColumn(column.name, wider, name)
    if column.spark_type == "BOOLEAN" and have.arrow == pa.int8():  # what the servers make of BOOLEAN
        return FileColumn(column.name, pa.bool_(), name)
    return None


@dataclass(frozen=True)
class Files:
    """Where files of an epoch are written, and what they hold beside the source's columns."""

    folder: str
    generation: int
    epoch: int
    columns: tuple[FileColumn, ...]

    def stored(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch as the lake stores it."""
        count = batch.num_rows
        tags = {
            "_generation": pa.repeat(pa.scalar(self.generation, pa.int32()), count),
            "_epoch": pa.repeat(pa.scalar(self.epoch, pa.int64()), count),
        }
        own = {name: batch.column(name) for name in SOURCE_COLUMNS}
        return pa.RecordBatch.from_pydict({**tags, **own, **{column.name: column.of(batch) for column in self.columns}})


def write_chunks(spark: SparkSession, reader: ChunkReader, files: Files) -> list[str]:
    """Read the chunks and write each to a file of its own; returns the names of the files. A chunk without rows has
    none.

    Runs as many tasks as can run at once: with one task a chunk, 1,000,000 rows took a quarter longer.

    Raises what Spark makes of a task's error; `errors.find` gets the typed one back: NotWritten, or the reader's.
    """
    count = len(reader.chunks)
    tasks = min(count, spark.sparkContext.defaultParallelism)
    written = by_number(spark, partial(_written, files, reader), count, "name STRING", tasks)
    return [row["name"] for row in written.collect()]  # one row a chunk


def _written(files: Files, reader: ChunkReader, number: int) -> Iterator[pa.RecordBatch]:
    chunk = reader.chunks[number].name
    name = f"{chunk}-{uuid.uuid4().hex[:8]}.parquet"
    try:
        rows = write_file(Location(files.folder) / name, map(files.stored, reader.read(number)))
    except OSError as error:  # the disk's; errors of the network are typed by the reader
        raise NotWritten(f"the rows cannot be written: {error}", where=f"{chunk} of {reader}") from error
    yield pa.RecordBatch.from_pydict({"name": pa.array([name] if rows else [], pa.string())})


@dataclass(frozen=True)
class Span:
    """One chunk's rows by the footers: least and greatest cut, as (file number, position), and their number."""

    least: tuple[int, int]
    greatest: tuple[int, int]
    rows: int


def spans_of(files: Iterable[str], generation: int, epoch: int) -> dict[str, Span] | None:
    """By split; None where the footers of `files` (URIs or paths) do not hold it for this very epoch."""
    footers = _footers(files)
    if footers is None:
        return None
    found: dict[str, Span] = {}
    for footer in footers:
        split, bounds = _one(footer, "_split"), [column_bounds(footer, f"_seq.{part}") for part in ("file", "position")]
        own = _one(footer, "_generation") == generation and _one(footer, "_epoch") == epoch
        if not own or not isinstance(split, str) or split in found or None in bounds:
            return None
        (file, last_file), (position, last_position) = bounds  # type: ignore[misc]
        found[split] = Span((file, position), (last_file, last_position), footer.num_rows)
    return found


def newest_rowtime(files: Iterable[str]) -> int | None:
    """The greatest rowtime (ms, UTC) of the rows in `files` (URIs or paths); None where no footer holds it."""
    footers = _footers(files)
    found = None if footers is None else bounds_of_files(footers, "_rowtime")
    if found is None or found[1] is None:
        return None
    newest: datetime = found[1]
    return round((newest if newest.tzinfo else newest.replace(tzinfo=UTC)).timestamp() * 1000)


def _footers(files: Iterable[str]) -> Iterator[pq.FileMetaData] | None:
    """The footers of files of this machine; None where one of `files` (URIs or paths) lies elsewhere."""
    parsed = [urlparse(name) for name in files]
    if any(name.scheme not in ("", "file") for name in parsed):
        return None
    return (Location(unquote(name.path)).footer() for name in parsed)


def _one(footer: pq.FileMetaData, column: str) -> Any:
    """The one value that a column has in a file; None where it has several, or where the footer does not say."""
    bounds = column_bounds(footer, column)
    return bounds[0] if bounds is not None and bounds[0] == bounds[1] else None
