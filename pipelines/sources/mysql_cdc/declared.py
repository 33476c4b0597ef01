"""From canonical columns to what the script declares; the same for rows of either phase."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tidegate.pipelines.connectors.spec import SOURCE_COLUMNS
from tidegate.pipelines.connectors.table import Column, Table
from tidegate.pipelines.frames import empty_frame
from tidegate.pipelines.sources.mysql_cdc.options import MysqlOptions
from tidegate.pipelines.sources.mysql_cdc.types import SourceColumn, canonical, cast_to_declared, quote


def declared_rows(rows: DataFrame, table: Table, columns: Sequence[SourceColumn], options: MysqlOptions) -> DataFrame:
    """`rows` with the declared columns in their declared types and order. `columns` describe what `rows` has."""
    source = {column.name: column for column in columns}
    values = [_value(column, source, options) for column in table.physical_columns]
    return rows.select(*SOURCE_COLUMNS, *values)


def _value(column: Column, source: dict[str, SourceColumn], options: MysqlOptions) -> SparkColumn:
    if column.metadata == "database_name":
        value = F.when(F.col("_op") != "t", F.lit(options.database))
    elif column.metadata == "table_name":
        value = F.when(F.col("_op") != "t", F.lit(options.table))
    elif column.metadata == "op_ts":
        value = F.when(F.col("_op") != "r", F.col("_rowtime"))
    else:
        have = canonical(source[column.name])
        value = F.expr(cast_to_declared(quote(column.name), have, column.spark_type, options.time_zone))
    return value.cast(column.spark_type).alias(column.name)


def empty_rows(spark: SparkSession, table: Table) -> DataFrame:
    """No rows, of the same columns."""
    names = {**SOURCE_COLUMNS, **{column.name: column.spark_type for column in table.physical_columns}}
    ddl = ", ".join(f"{quote(name)} {kind}" for name, kind in names.items())
    return empty_frame(spark, StructType.fromDDL(ddl))
