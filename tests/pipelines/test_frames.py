"""Frames: numbers are dealt to tasks, and no Python process is asked but those of the tasks."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tidegate.pipelines.frames import by_number, settings_of_thread


def squares(number: int) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"n": pa.array([number * number], pa.int64())})


@pytest.mark.parametrize("tasks", [1, 3, 5])
def test_each_number_is_in_one_task(spark: SparkSession, tasks: int) -> None:
    rows = by_number(spark, squares, 5, "n BIGINT", tasks)
    assert sorted(row["n"] for row in rows.collect()) == [0, 1, 4, 9, 16]
    assert rows.rdd.getNumPartitions() == tasks


def test_no_numbers_no_rows(spark: SparkSession) -> None:
    assert by_number(spark, squares, 0, "n BIGINT", 0).collect() == []


def rows_at_once(spark: SparkSession) -> list[int]:
    """Of how many rows the batches of five are that Spark hands to a task of Python's."""

    def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"n": pa.array([batch.num_rows], pa.int32())})

    return [row["n"] for row in spark.range(0, 5, 1, 1).mapInArrow(counted, "n INT").collect()]


def test_a_setting_of_a_thread_is_seen_by_its_queries_alone(spark: SparkSession) -> None:
    name = "spark.sql.execution.arrow.maxBytesPerBatch"
    small = {name: "1"}
    with settings_of_thread(spark, small):
        bounded = not spark.version.startswith("4.0.")  # whose tasks have no such limit
        assert rows_at_once(spark) == ([1] * 5 if bounded else [5])
        with ThreadPoolExecutor(1) as other:
            assert other.submit(rows_at_once, spark).result() == [5]
        assert spark.conf.get(name) != "1"
        spark.conf.set(name, "64MB")  # somebody's own
        try:
            assert rows_at_once(spark) == [5]
        finally:
            spark.conf.unset(name)
        with pytest.raises(ZeroDivisionError), settings_of_thread(spark, {name: "2"}):
            raise ZeroDivisionError
        assert spark.sparkContext.getLocalProperty(name) == "1"
    assert spark.sparkContext.getLocalProperty(name) is None
    assert rows_at_once(spark) == [5]


def test_no_source_is_a_python_data_source() -> None:
    """Spark asks two more Python processes before each query of one, each of a daemon of its own (decision 12)."""
    pipelines = Path(__file__).parents[2] / "pipelines"
    files = list(pipelines.rglob("*.py"))
    assert files
    assert [str(file) for file in files if "pyspark.sql.datasource" in file.read_text()] == []
