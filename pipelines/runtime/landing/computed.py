"""The columns that a table computes from what its source delivers."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.runtime.landing.user_functions import plan_instant
from tidegate.pipelines.sources.delivered import as_declared
from tidegate.pipelines.sources.protocol import SOURCE_COLUMNS, StoredStep
from tidegate.pipelines.sql.model import Table


def stored_as_delivered(table: Table) -> bool:
    """Whether every column is stored just as the source delivers it: none has to be computed."""
    return all(column.expression is None and column.delivered is None for column in table.stored_columns)


def computed(rows: DataFrame, table: Table, stored: StoredStep) -> DataFrame:
    """The source's rows with the table's computed columns, in stored order."""
    columns = [  # an error of Spark's tells the whole text that it parsed: each expression is one of its own
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
