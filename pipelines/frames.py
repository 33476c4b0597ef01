"""Small operations on DataFrames that Spark's own functions make more expensive than necessary."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType


def empty_frame(spark: SparkSession, schema: DataType) -> DataFrame:
    """No rows of `schema`. Unlike createDataFrame([], …) it starts no Python worker."""
    from pyspark.sql import functions as F

    # A column of them all: each call of one of Spark's functions asks its JVM three times.
    return spark.range(0).select(F.lit(None).cast(schema).alias("all")).select("all.*")


def by_number(
    spark: SparkSession, rows: Callable[[int], Iterable[pa.RecordBatch]], count: int, schema: str, tasks: int
) -> DataFrame:
    """The `rows` of the numbers 0 <= number < `count`, in `tasks` tasks: each has every `tasks`-th number. `schema` is
    Spark's DDL.

    What `rows` needs travels inside the task, so a password in it is in no plan and no option. A Python data source
    would start two more Python processes before each query: one to make it, one to plan its partitions.
    """
    tasks = max(tasks, 1)

    def number_by_number(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for first in batch.column(0).to_pylist():
                for number in range(first, count, tasks):
                    yield from rows(number)

    return spark.range(0, tasks, 1, tasks).mapInArrow(number_by_number, schema)


def task_number() -> int:
    """The number of the running Spark task in its stage."""
    from pyspark import TaskContext

    task = TaskContext.get()
    assert task is not None, "no Spark task asks"
    return task.partitionId()


def given(value: str) -> str:
    """SQL of a constant (`value`, SQL) that differs from epoch to epoch. Spark writes a number or a time into the code
    that it generates, so each new one is compiled; an element of an array is passed to that code instead."""
    return f"get(array({value}), 0 * spark_partition_id())"


@contextmanager
def as_views(frames: Mapping[str, DataFrame]) -> Iterator[dict[str, str]]:
    """Names under which SQL sees `frames` while the block runs; an analysed query no longer needs them."""
    names = {key: f"tidegate_{key}_{uuid.uuid4().hex[:12]}" for key in frames}
    for key, frame in frames.items():
        frame.createOrReplaceTempView(names[key])
    try:
        yield names
    finally:
        for key, frame in frames.items():
            frame.sparkSession.catalog.dropTempView(names[key])


@contextmanager
def settings_of_thread(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Run the queries of this thread under other settings, for what Spark's tasks read of them, and where the session
    has none of its own. Queries of other threads, and settings that somebody has made, are not changed."""
    context = spark.sparkContext
    before = {key: context.getLocalProperty(key) for key in values}
    try:
        for key, value in values.items():
            context.setLocalProperty(key, value)
        yield
    finally:
        for key, value in before.items():
            context.setLocalProperty(key, value)  # type: ignore[arg-type]  # None takes it away


@contextmanager
def settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Plan and run queries under other settings of the session while the block runs."""
    before = {key: spark.conf.get(key) for key in values}
    try:
        for key, value in values.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, value in before.items():
            spark.conf.set(key, str(value))
