"""The columns that a table computes from what its source delivers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidegate.pipelines.connectors.protocol import StoredStep
from tidegate.pipelines.connectors.spec import SOURCE_COLUMNS
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.frames import given
from tidegate.pipelines.functions import UserFunction, used_in
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.lake.stream import Generation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def functions_of(table: Table, functions: Mapping[str, UserFunction]) -> tuple[UserFunction, ...]:
    """The functions that a table's computed columns and its watermark call."""
    watermark = table.watermark.expression if table.watermark is not None else None
    return used_in(functions.values(), watermark, *(column.expression for column in table.columns))


def plan_instant(stored: StoredStep) -> Column:
    """The plan's instant, used for every "now" of a step."""
    return F.expr(given(f"timestamp_millis({stored.planned_at}L)"))


def committed_rows(own: Generation, spark: SparkSession, stored: StoredStep) -> DataFrame:
    """The committed rows of a step, with the plan's instant for a watermark that uses it."""
    return own.rows(spark, stored.epoch - 1, stored.epoch).withColumn("_instant", plan_instant(stored))


def stored_as_delivered(table: Table) -> bool:
    """Whether every column is stored as the source delivers it, so that none has to be computed."""
    return all(column.expression is None and column.delivered is None for column in table.stored_columns)


def computed(rows: DataFrame, table: Table, stored: StoredStep) -> DataFrame:
    """The source's rows with the table's computed columns, in stored order."""
    columns = [  # an error of Spark's shows the whole text that it parsed: each expression is one of its own
        F.expr(column.expression).cast(column.spark_type).alias(column.name)
        if column.expression is not None
        else F.col(lake_rows.quoted(column.name)).cast(column.spark_type).alias(column.name)
        for column in table.stored_columns
    ]
    rows = table.as_declared(rows)
    if any("_instant" in (column.expression or "") for column in table.stored_columns):
        rows = rows.withColumn("_instant", plan_instant(stored))
    seen = rows.select(*SOURCE_COLUMNS, *columns)
    if table.watermark is not None:
        path = ".".join(lake_rows.quoted(name) for name in table.watermark.path)
        # What a delete carries is the row before it; a version ends when its delete was made, not when it began.
        ends = "IF(_op IN ('d', 't'), greatest({0}, _rowtime), {0})".format(f"CAST({path} AS TIMESTAMP)")
        seen = seen.withColumn("_rowtime", F.expr(ends))
    return seen
