"""Let a Spark session know the functions of a pipeline."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from tidegate.pipelines.functions.arrow import ArrowFunction
from tidegate.pipelines.functions.function import UserFunction

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


def register(spark: SparkSession, functions: Iterable[UserFunction]) -> None:
    """Register `functions` under their `spark_name`, as vectorised functions over Arrow batches.

    Harmless when repeated; a session that was started anew needs it again. Expressions that call them give them
    `_split` and `_offset` first, so a frame that they are evaluated on has both.
    """
    from pyspark.sql.functions import arrow_udf

    from tidegate.pipelines.sql.dialect import parse_type

    for function in functions:
        # Spark's stub wants the kind of function said, Spark itself warns where it is; its default is the right one.
        over_arrays = arrow_udf(parse_type(function.type).spark)  # type: ignore[call-overload]
        spark.udf.register(function.spark_name, over_arrays(_batches(function)))


def _batches(function: UserFunction) -> Callable[..., pa.Array]:
    """A plain function, which is all that Spark takes."""
    over = ArrowFunction(function, tuple(entry or os.getcwd() for entry in sys.path))

    def call(splits, offsets, *columns):  # without annotations: Spark would read them
        return over(splits, offsets, *columns)

    return call
