"""Let a Spark session know the functions of a pipeline."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import pyarrow as pa

from tidegate.pipelines.functions.arrow import RESULTS, ArrowFunction
from tidegate.pipelines.functions.function import UserFunction
from tidegate.pipelines.spark_versions import over_arrays

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession, functions: Iterable[UserFunction]) -> None:
    """Register `functions` under their `spark_name`, as vectorised functions over Arrow batches.

    Harmless when repeated; a session that was started anew needs it again. Expressions that call them give them
    `_split` and `_offset` first, so a frame that they are evaluated on has both.
    """
    from tidegate.pipelines.sql.dialect import parse_type

    for function in functions:
        arguments = [pa.string(), pa.int64(), *(RESULTS[parameter.type].arrow for parameter in function.parameters)]
        of_spark = over_arrays(_batches(function), arguments, parse_type(function.type).spark)
        spark.udf.register(function.spark_name, of_spark)


def _batches(function: UserFunction) -> Callable[..., pa.Array]:
    """A plain function, which is all that Spark takes."""
    over = ArrowFunction(function, tuple(entry or os.getcwd() for entry in sys.path))

    def call(splits, offsets, *columns):  # without annotations: Spark would read them
        return over(splits, offsets, *columns)

    return call
