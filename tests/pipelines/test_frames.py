"""Frames: numbers are dealt to tasks, and no Python process is asked but those of the tasks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tidegate.pipelines.frames import by_number


def squares(number: int) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"n": pa.array([number * number], pa.int64())})


@pytest.mark.parametrize("tasks", [1, 3, 5])
def test_each_number_is_in_one_task(spark: SparkSession, tasks: int) -> None:
    rows = by_number(spark, squares, 5, "n BIGINT", tasks)
    assert sorted(row["n"] for row in rows.collect()) == [0, 1, 4, 9, 16]
    assert rows.rdd.getNumPartitions() == tasks


def test_no_numbers_no_rows(spark: SparkSession) -> None:
    assert by_number(spark, squares, 0, "n BIGINT", 0).collect() == []


def test_no_source_is_a_python_data_source() -> None:
    """Spark asks two more Python processes before each query of one, each of a daemon of its own (decision 12)."""
    pipelines = Path(__file__).parents[2] / "pipelines"
    files = list(pipelines.rglob("*.py"))
    assert files
    assert [str(file) for file in files if "pyspark.sql.datasource" in file.read_text()] == []
