"""Rows of a connector that reads `as_delivered(table)`, in the types that the script declares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.sql.tables.metadata import declared_sql
from tidegate.pipelines.syntax.types import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def as_declared(rows: DataFrame, table: Table) -> DataFrame:
    """`rows` with the METADATA columns of `table` cast as Flink casts them; all else as it is."""
    cast = {column.name: declared_sql(column) for column in table.physical_columns if column.delivered is not None}
    if not cast:
        return rows
    return rows.selectExpr(
        *(f"{cast[name]} AS {quoted(name)}" if name in cast else quoted(name) for name in rows.columns)
    )
