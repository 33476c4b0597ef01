"""The columns that a table computes from what its source delivers."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidegate.pipelines.connectors.protocol import StoredStep
from tidegate.pipelines.connectors.spec import SOURCE_COLUMNS
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.frames import given
from tidegate.pipelines.functions import UserFunction, used_in
from tidegate.pipelines.functions.arrow import RESULTS, ArrowFunction
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.lake.stream import Generation
from tidegate.pipelines.spark_versions import over_arrays
from tidegate.pipelines.sql.tables.source_columns import as_declared

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def functions_of(table: Table, functions: Mapping[str, UserFunction]) -> tuple[UserFunction, ...]:
    """The functions that a table's computed columns and its watermark call."""
    watermark = table.watermark.expression if table.watermark is not None else None
    return used_in(functions.values(), watermark, *(column.expression for column in table.columns))


def plan_instant(stored: StoredStep) -> Column:
    """The plan's instant, which stands for every "now" of a step."""
    return F.expr(given(f"timestamp_millis({stored.planned_at}L)"))


def committed_rows(own: Generation, spark: SparkSession, stored: StoredStep) -> DataFrame:
    """The rows of a step that are in its table, with the plan's instant for a watermark that names it."""
    return own.rows(spark, stored.epoch - 1, stored.epoch).withColumn("_instant", plan_instant(stored))


def stored_as_delivered(table: Table) -> bool:
    """Whether every column is stored just as the source delivers it: none has to be computed."""
    return all(column.expression is None and column.delivered is None for column in table.stored_columns)


def computed(rows: DataFrame, table: Table, stored: StoredStep) -> DataFrame:
    """The source's rows with the table's computed columns, in stored order."""
    columns = [  # an error of Spark's shows the whole text that it parsed: each expression is one of its own
        F.expr(column.expression).cast(column.spark_type).alias(column.name)
        if column.expression is not None
        else F.col(lake_rows.quoted(column.name)).cast(column.spark_type).alias(column.name)
        for column in table.stored_columns
    ]
    rows = as_declared(rows, table)
    if any("_instant" in (column.expression or "") for column in table.stored_columns):
        rows = rows.withColumn("_instant", plan_instant(stored))
    seen = rows.select(*SOURCE_COLUMNS, *columns)
    if table.watermark is not None:
        path = ".".join(lake_rows.quoted(name) for name in table.watermark.path)
        # What a delete carries is the row before it; a version ends when its delete was made, not when it began.
        ends = "IF(_op IN ('d', 't'), greatest({0}, _rowtime), {0})".format(f"CAST({path} AS TIMESTAMP)")
        seen = seen.withColumn("_rowtime", F.expr(ends))
    return seen


def register(spark: SparkSession, functions: Iterable[UserFunction]) -> None:
    """Register `functions` under their `spark_name`, as vectorised functions over Arrow batches.

    Harmless when repeated; a session that was started anew needs it again. Expressions that call them give them
    `_split` and `_offset` first, so a frame that they are evaluated on has both.
    """
    from tidegate.pipelines.syntax.dialect import parse_type

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
