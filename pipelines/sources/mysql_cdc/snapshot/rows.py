"""The rows of chunks as a frame of Spark, for all that only Spark computes of them. One task a chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tidegate.pipelines.connectors.spec import SOURCE_COLUMNS
from tidegate.pipelines.sources.mysql_cdc.snapshot.reading import Work, read_chunk
from tidegate.pipelines.sources.mysql_cdc.types import canonical, quote

OfChunk = Callable[[Work, int], Iterable[pa.RecordBatch]]


def read_chunks(spark: SparkSession, work: Work) -> DataFrame:
    """The rows of the chunks: SOURCE_COLUMNS, and the columns in their canonical types.

    Reading happens when the rows are written; the read view of a chunk is opened by its own task. An error then comes
    as Spark's, with its whole text inside; `errors.find` gets the typed one back.
    """
    columns = {**SOURCE_COLUMNS, **{quote(column.name): canonical(column).spark for column in work.query.columns}}
    schema = ", ".join(f"{name} {kind}" for name, kind in columns.items())
    return by_chunk(spark, work, read_chunk, schema, len(work.chunks))


def by_chunk(spark: SparkSession, work: Work, of_chunk: OfChunk, schema: str, tasks: int) -> DataFrame:
    """What `of_chunk` gives for each chunk; each of so many tasks has every `tasks`-th one. `schema` is Spark's DDL.

    The work travels inside the task: its password is in no plan and no option.
    """
    count, tasks = len(work.chunks), max(tasks, 1)

    def chunk_by_chunk(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for first in batch.column(0).to_pylist():
                for number in range(first, count, tasks):
                    yield from of_chunk(work, number)

    return spark.range(0, tasks, 1, tasks).mapInArrow(chunk_by_chunk, schema)
