"""Which expression of a table failed while its rows landed, out of what Spark throws."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.errors.exceptions.base import QueryContextType

from tidegate.pipelines.connectors.table import Table


@dataclass(frozen=True)
class Failed:
    """A table's own expression that could not be computed for some row.

    Attributes:
        name: whose it is: "computed column n", "the watermark".
        sql: what is declared, as the script has it: "n AS CAST(text AS INT)".
    """

    name: str
    sql: str


def failed_expression(error: BaseException, table: Table, watermark: str | None) -> Failed | None:
    """The computed column or watermark of `table` that Spark's `error` comes from; None where it names none of them.

    `watermark` is the Spark SQL that the table's strategy evaluates. Spark tells the text of an expression and the part
    of it that failed. Of two expressions with the same text the first is named: both fail on the same row.
    """
    declared = _declared(table, watermark)
    whole = next((failed for failed, text in declared if f" ==\n{text}\n" in str(error)), None)
    if whole is not None:
        return whole
    part = _fragment(error)
    return next((failed for failed, text in declared if part and part in text), None)


def _declared(table: Table, watermark: str | None) -> list[tuple[Failed, str]]:
    found = [
        (Failed(f"computed column {column.name}", f"{column.name} AS {column.sql or column.expression}"), expression)
        for column in table.stored_columns
        if (expression := column.expression) is not None
    ]
    spec = table.watermark
    if watermark is not None:
        own = spec is not None and spec.expression == watermark
        sql = f"WATERMARK FOR {spec.column} AS {spec.sql or spec.expression}" if own and spec else watermark
        found.append((Failed("the watermark", sql), watermark))
    return found


def _fragment(error: BaseException) -> str | None:
    if not isinstance(error, PySparkException):
        return None
    told = (context for context in error.getQueryContext() if context.contextType() == QueryContextType.SQL)
    return next((context.fragment() for context in told), None)
