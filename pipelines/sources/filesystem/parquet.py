"""Parquet files: whether they have the table's columns, seen in their footers, and their rows as a frame of Spark.

Arrow reads them, row group by row group: it takes any file name, and every type that pandas, polars, Spark and Arrow
write. A column that a file does not have is NULL; one whose name differs in the case of its letters is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from tidegate.pipelines.commands import or_else, redeclare
from tidegate.pipelines.connectors.table import Column
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.frames import by_number
from tidegate.pipelines.sources.arrow_types import arrow_type
from tidegate.pipelines.sources.arrow_values import fits, fitted, is_list, plain, shown
from tidegate.pipelines.sources.filesystem.lines import RANGE_BYTES, Range, planned
from tidegate.pipelines.sources.filesystem.listing import File, Folder
from tidegate.pipelines.sources.formats.shape import SHOWN
from tidegate.pipelines.syntax.types import quoted

DAMAGED = "tidegate: a Parquet file is damaged: "
"""Prefix of an executor's exception; the file's path follows."""

BATCH_ROWS = 1 << 16

PASS_OVER = "set 'format.on-error' = 'quarantine' to pass over the file and keep its name"
MEND = "put the right file there, and run again"


def _opened(file: str | Path | IO[bytes], int96: str = "us") -> pq.ParquetFile:
    return pq.ParquetFile(file, coerce_int96_timestamp_unit=int96)


def misfits(folder: Folder, files: Sequence[File], columns: Sequence[Column]) -> dict[str, str]:
    """What is wrong with those files that `check` refuses, by name."""
    found: dict[str, str] = {}
    for file in files:
        try:
            check(folder, file, columns)
        except SourceError as error:
            found[file.name] = error.what.removeprefix(f"{folder.table}: ")
    return found


def check(folder: Folder, file: File, columns: Sequence[Column]) -> None:
    """Raise SourceError for a file that is no Parquet file, has none of the columns, or has one in a type whose values
    are none of the declared type."""
    path = folder.full(file.name)
    try:
        found, finer = _opened(path).schema_arrow, _opened(path, "ns").schema_arrow
    except (pa.ArrowInvalid, OSError) as error:
        what = f"is no Parquet file: {str(error).splitlines()[0]}"
        raise folder.error(what, or_else(PASS_OVER, MEND), name=file.name) from error
    shown_names = ", ".join(found.names)
    for column in columns:
        name = column.source_name
        if found.names.count(name) > 1:
            raise folder.error(f"has the column {name} twice", or_else(PASS_OVER, MEND), name=file.name)
        if name not in found.names:
            alike = [other for other in found.names if other.lower() == name.lower()]
            if alike:
                raise folder.error(
                    f"has no column {name}; it has {', '.join(alike)}, whose letters differ in case",
                    or_else(PASS_OVER, redeclare(f"write the file's own name into 'fields.{column.name}.name'")),
                    name=file.name,
                )
            continue
        of = found.field(name).type
        if not fits(of, arrow_type(column.spark_type), finer.field(name).type):
            raise folder.error(
                f"has column {name} as {of}, the script as {column.type}",
                or_else(
                    PASS_OVER,
                    redeclare("write the file's type into the script, and cast in the SELECT")
                    if _is_declarable(of)
                    else MEND,
                ),
                name=file.name,
            )
    if columns and not any(column.source_name in found.names for column in columns):
        names = ", ".join(column.source_name for column in columns)
        raise folder.error(
            f"has no column of the table ({names}); it has {shown_names}", or_else(PASS_OVER, MEND), name=file.name
        )


_SCALARS = (
    *(pa.bool_(), pa.int64(), pa.float64(), pa.string(), pa.binary(), pa.date32()),
    *(pa.timestamp("us"), pa.timestamp("us", "UTC")),
)


def _is_declarable(found: pa.DataType) -> bool:
    """Whether some type of a script reads a file's type."""
    found = plain(found)
    if pa.types.is_map(found):
        return _is_declarable(found.key_type) and _is_declarable(found.item_type)
    if is_list(found):
        return _is_declarable(found.value_type)
    if pa.types.is_struct(found):
        return all(_is_declarable(field.type) for field in found)
    if pa.types.is_decimal(found):
        return 0 <= found.scale <= found.precision <= 38
    return any(fits(found, declared) for declared in _SCALARS)


def rows_of(folder: Folder, file: File) -> int:
    """How many rows a file has; 0 if it is no Parquet file."""
    return 0 if misfits(folder, [file], ()) else pq.read_metadata(folder.full(file.name)).num_rows


@dataclass(frozen=True)
class Group:
    """A row group of a file, and the number of its first row in the file."""

    part: Range
    number: int
    first: int


def read_rows(
    spark: SparkSession,
    files: Sequence[tuple[int, str, int, int]],
    columns: Sequence[Column],
    range_bytes: int = RANGE_BYTES,
) -> DataFrame:
    """The rows of files (number, path, size, modified) that `check` has passed: `_fields` STRUCT of the columns,
    `_file` BIGINT, `_position` BIGINT, and `_misfit` STRING: which value is none of its column's type, NULL in all
    other rows."""
    tasks: list[list[Group]] = []
    room = 0
    for number, path, size, modified in files:
        metadata = pq.read_metadata(path)
        first = 0
        for place in range(metadata.num_row_groups):
            group = metadata.row_group(place)
            if not tasks or room < group.total_byte_size:
                tasks.append([])
                room = range_bytes
            room -= group.total_byte_size
            tasks[-1].append(Group(Range(number, path, size, modified, 0, size), place, first))
            first += group.num_rows
    fields = ", ".join(f"{quoted(column.name)}: {column.spark_type}" for column in columns)
    schema = f"_fields STRUCT<{fields}>, _file BIGINT, _position BIGINT, _misfit STRING"
    return by_number(spark, partial(_of_task, tasks, tuple(columns)), len(tasks), schema, len(tasks))


def _of_task(tasks: Sequence[Sequence[Group]], columns: tuple[Column, ...], number: int) -> Iterator[pa.RecordBatch]:
    for group in tasks[number]:
        yield from read_group(group, columns)


def read_group(group: Group, columns: tuple[Column, ...]) -> Iterator[pa.RecordBatch]:
    """The rows of a row group. Raises RuntimeError: CHANGED (lines.py), or DAMAGED."""
    part = group.part
    with planned(part) as file:
        try:
            with open(part.path, "rb") as again:
                yield from _batches(group, columns, _opened(file), _opened(again, "ns"))
        except (pa.ArrowInvalid, OSError) as error:
            raise RuntimeError(f"{DAMAGED}{part.path}") from error


def _batches(
    group: Group, columns: tuple[Column, ...], file: pq.ParquetFile, by_ns: pq.ParquetFile
) -> Iterator[pa.RecordBatch]:
    schema, finer = file.schema_arrow, by_ns.schema_arrow
    names = [column.source_name for column in columns if column.source_name in schema.names]
    int96 = [name for name in names if schema.field(name).type != finer.field(name).type]
    position = group.first
    beside = _pieces(by_ns, group.number, int96) if int96 else None
    for batch in _pieces(file, group.number, names):
        values = {name: batch.column(name) for name in names}
        exact = next(beside) if beside else batch
        fine = {name: exact.column(name) if name in int96 else values[name] for name in names}
        yield _batch(group.part.number, position, columns, values, fine, batch.num_rows)
        position += batch.num_rows


def _pieces(file: pq.ParquetFile, group: int, names: list[str]) -> Iterator[pa.RecordBatch]:
    return file.iter_batches(BATCH_ROWS, row_groups=[group], columns=names, use_threads=False)


def _batch(
    number: int,
    position: int,
    columns: tuple[Column, ...],
    values: Mapping[str, pa.Array],
    finer: Mapping[str, pa.Array],
    count: int,
) -> pa.RecordBatch:
    children: list[pa.Array] = []
    misfits: list[str | None] = [None] * count
    for column in columns:
        of = arrow_type(column.spark_type)
        read = values.get(column.source_name)
        if read is None:
            children.append(pa.nulls(count, of))
            continue
        made, wrong = fitted(read, of, finer[column.source_name])
        children.append(made)
        for place in wrong:
            text = shown(finer[column.source_name], place)[:SHOWN]
            misfits[place] = misfits[place] or f"column {column.name}: '{text}' does not fit {column.type}"
    names = [column.name for column in columns]
    return pa.record_batch(
        [
            pa.StructArray.from_arrays(children, names=names),
            pa.array(np.full(count, number, np.int64)),
            pa.array(np.arange(position, position + count, dtype=np.int64)),
            pa.array(misfits, pa.string()),
        ],
        names=["_fields", "_file", "_position", "_misfit"],
    )
