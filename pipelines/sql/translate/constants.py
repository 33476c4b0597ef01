"""Numbers, strings, dates, intervals."""

from __future__ import annotations

from datetime import date, datetime

from sqlglot import exp

from tidegate.pipelines.sql.intervals import interval_value
from tidegate.pipelines.sql.translate.walker import Walker
from tidegate.pipelines.sql.values import Value, null_value, number_value, spark_string, string_value
from tidegate.pipelines.syntax.source import Span
from tidegate.pipelines.syntax.statements import place
from tidegate.pipelines.syntax.types import BOOLEAN, BYTES, DATE, FlinkType, Kind


def literal(walker: Walker, tree: exp.Expr, span: Span) -> Value:
    """A number or a string."""
    if tree.is_string:
        return string_value(tree.this)
    value = number_value(tree.this)
    if value is None:
        if "e" in tree.this.lower():
            walker.refuse(span, "the number is greater than a DOUBLE can be")
        walker.refuse(span, "the number has more than 38 digits", "write it as a string")
    return value


def null(walker: Walker, tree: exp.Expr, span: Span) -> Value:
    """NULL."""
    return null_value()


def boolean(walker: Walker, tree: exp.Expr, span: Span) -> Value:
    """TRUE or FALSE."""
    return Value("TRUE" if tree.this else "FALSE", BOOLEAN)


def octets(walker: Walker, tree: exp.Expr, span: Span) -> Value:
    """X'45F0'."""
    return Value(f"X'{tree.this}'", BYTES)


def written_as(kind: str, text: str) -> str:
    """The literal of a DATE or a TIMESTAMP that a plain string means, or one of that kind."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is not None:
        return f"{kind} '2024-01-31'" if kind == "DATE" else f"{kind} '2024-01-31 12:00:00.123'"
    return f"{kind} '{moment.date() if kind == 'DATE' else moment}'"


def moment(walker: Walker, tree: exp.Expr, span: Span) -> Value:
    """DATE '…' or TIMESTAMP '…', checked here, not by Spark."""
    text, kind = tree.this.this, tree.args["kind"]
    try:
        if kind == "DATE":
            return Value(f"DATE{spark_string(date.fromisoformat(text).isoformat())}", DATE)
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    seconds, _, fraction = text.partition(".")
    if moment is None or moment.tzinfo is not None or len(fraction) > 6 or len(seconds) != 19 or kind == "DATE":
        walker.refuse(place(tree.this) or span, f"this is no {kind}", f"write {written_as(kind, text)}")
    return Value(f"TIMESTAMP_NTZ{spark_string(text)}", FlinkType(Kind.TIMESTAMP, len(fraction)))


def interval(walker: Walker, tree: exp.Expr, span: Span) -> Value:
    """INTERVAL '5' SECOND."""
    value = interval_value(tree)
    if value is None:
        walker.refuse(
            span, "the interval's value does not fit its unit", "for example INTERVAL '1 02:30' DAY TO MINUTE"
        )
    return value
