"""Rows as frames of Spark: those of chunks, one task a chunk; either phase's in the types of the script."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tidegate.pipelines.connectors.spec import SOURCE_COLUMNS
from tidegate.pipelines.connectors.table import Column as DeclaredColumn
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.frames import empty_frame
from tidegate.pipelines.sources.cdc.changelog import cast_to_declared
from tidegate.pipelines.sources.cdc.database import ChunkReader, Column
from tidegate.pipelines.syntax.types import quoted


def read_chunks(spark: SparkSession, reader: ChunkReader) -> DataFrame:
    """The rows of the chunks: SOURCE_COLUMNS, and the columns in their canonical types.

    Reading happens when the rows are written; the read view of a chunk is opened by its own task. An error then comes
    as Spark's, with its whole text inside; `errors.find` gets the typed one back.
    """
    columns = {**SOURCE_COLUMNS, **{quoted(column.name): column.canonical.spark for column in reader.columns}}
    schema = ", ".join(f"{name} {kind}" for name, kind in columns.items())
    count = len(reader.chunks)
    return by_chunk(spark, reader.read, count, schema, count)


def by_chunk(
    spark: SparkSession, rows: Callable[[int], Iterable[pa.RecordBatch]], count: int, schema: str, tasks: int
) -> DataFrame:
    """The `rows` of `count` chunks, by number; each of so many tasks has every `tasks`-th one. `schema` is Spark's DDL.

    What `rows` connects with travels inside the task: its password is in no plan and no option.
    """
    tasks = max(tasks, 1)

    def chunk_by_chunk(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for first in batch.column(0).to_pylist():
                for number in range(first, count, tasks):
                    yield from rows(number)

    return spark.range(0, tasks, 1, tasks).mapInArrow(chunk_by_chunk, schema)


def declared_rows(
    rows: DataFrame, table: Table, columns: Sequence[Column], place: tuple[str, str], time_zone: str
) -> DataFrame:
    """`rows` with the declared columns of `table` in their declared types and order. `columns` describe what `rows`
    has. `place`: the database's and the table's name on the server; `time_zone`: where an instant becomes local."""
    source = {column.name: column for column in columns}
    values = [_value(column, source, place, time_zone) for column in table.physical_columns]
    return rows.select(*SOURCE_COLUMNS, *values)


def _value(column: DeclaredColumn, source: dict[str, Column], place: tuple[str, str], time_zone: str) -> SparkColumn:
    if column.metadata == "database_name":
        value = F.when(F.col("_op") != "t", F.lit(place[0]))
    elif column.metadata == "table_name":
        value = F.when(F.col("_op") != "t", F.lit(place[1]))
    elif column.metadata == "op_ts":
        value = F.when(F.col("_op") != "r", F.col("_rowtime"))
    else:
        have = source[column.name].canonical
        value = F.expr(cast_to_declared(quoted(column.name), have, column.spark_type, time_zone))
    return value.cast(column.spark_type).alias(column.name)


def empty_rows(spark: SparkSession, table: Table) -> DataFrame:
    """No rows, of the same columns."""
    names = {**SOURCE_COLUMNS, **{column.name: column.spark_type for column in table.physical_columns}}
    return empty_frame(spark, StructType.fromDDL(", ".join(f"{quoted(name)} {kind}" for name, kind in names.items())))
