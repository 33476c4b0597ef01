"""METADATA columns whose declared type is not the one that the connector delivers: Flink casts them explicitly.

Those casts are taken that lose nothing, those to a text, and those that leave out digits of a second, as the declared
type says; Flink's would change the others without a word.
"""

from __future__ import annotations

from dataclasses import replace

from tidegate.pipelines.connectors.table import Column, Table
from tidegate.pipelines.sql.coercion import assignable, cast
from tidegate.pipelines.syntax.dialect import parse_type
from tidegate.pipelines.syntax.types import BINARIES, NESTED, STRINGS, TIMESTAMPS, FlinkType, quoted


def declarable(delivered: FlinkType, declared: FlinkType) -> bool:
    """Whether a METADATA column that is `delivered` may be `declared`: CAST then has Flink's result. A CHAR(n) or
    VARCHAR(n) is filled up and cut, a timestamp has the digits of a second that it is declared with."""
    if declared.kind in STRINGS:
        return delivered.kind not in BINARIES | NESTED
    if {delivered.kind, declared.kind} <= TIMESTAMPS:
        return True
    return assignable(delivered, declared)


def as_delivered(table: Table) -> Table:
    """`table` as its connector is to read it: every METADATA column in the type that the connector has it in."""
    return replace(table, columns=tuple(map(_delivered, table.columns)))


def declared_sql(column: Column) -> str:
    """Spark SQL of a column in its declared type, over rows that the connector of `as_delivered` gave."""
    name = quoted(column.name)
    return name if column.delivered is None else cast(name, parse_type(column.delivered), parse_type(column.type))


def _delivered(column: Column) -> Column:
    if column.delivered is None:
        return column
    return replace(column, type=column.delivered, spark_type=parse_type(column.delivered).spark, delivered=None)
