"""Work on Python objects, each in a Spark task of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")


def each(spark: SparkSession, work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """What `work` gives for each item, in their order. It goes through JSON and comes to the driver, so it must be
    small. A task's error comes as Spark's, with its whole text."""

    def of(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            told = [json.dumps(work(items[number])) for number in batch.column(0).to_pylist()]
            yield pa.RecordBatch.from_pydict({"told": told})

    rows = spark.range(0, len(items), 1, len(items)).mapInArrow(of, "told STRING").collect()
    return [json.loads(row["told"]) for row in rows]
