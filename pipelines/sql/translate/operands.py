"""What an expression begins with: numbers, strings, dates, intervals; columns, fields of a ROW, elements of an ARRAY or
a MAP.
"""

from __future__ import annotations

from datetime import date, datetime

from sqlglot import exp

from tidegate.pipelines.sql.coercion import comparable, converted
from tidegate.pipelines.sql.scope import fields
from tidegate.pipelines.sql.translate.walker import Walker
from tidegate.pipelines.sql.values import Value, interval_value, null_value, number_value, string_value
from tidegate.pipelines.syntax.source import Span
from tidegate.pipelines.syntax.statements import Name, place
from tidegate.pipelines.syntax.types import BOOLEAN, BYTES, DATE, FlinkType, Kind, spark_string


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


def path(walker: Walker, tree: exp.Expr, span: Span) -> Value:
    """`a.b.c`: a column of a table, or fields of a ROW."""
    names: list[Name] = []
    while isinstance(tree, exp.Dot):
        names.append(_name(tree.expression, span))
        tree = tree.this
    names.reverse()
    if isinstance(tree, exp.Column):
        return walker.scope.resolve([_name(tree.this, span), *names])
    return fields(walker.of(tree, span), names, walker.source)


def element(walker: Walker, tree: exp.Expr, span: Span) -> Value:
    """`array[1]`, `map[key]`: NULL for what is not there."""
    of, index_tree = walker.of(tree.this, span), tree.expressions[0]
    index = walker.of(index_tree, span)
    where = place(index_tree) or span
    aliases = of.aliases | index.aliases
    if of.type.kind is Kind.ARRAY:
        if index.type.kind not in (Kind.TINYINT, Kind.SMALLINT, Kind.INT):
            walker.refuse(where, f"type clash: an ARRAY's index is INT, not {index.type}")
        # Flink counts from 1, and gives NULL for what is not there; Spark's get counts from 0 and refuses nothing.
        sql = f"CASE WHEN {index.sql} > 0 THEN get({of.sql}, {index.sql} - 1) END"
        if isinstance(index.constant, int) and index.constant > 0:
            sql = f"get({of.sql}, {index.constant - 1})"
        return Value(sql, of.type.element.null(), aliases=aliases)
    if of.type.kind is Kind.MAP:
        key = of.type.arguments[0]
        if not comparable(key, index.type):
            walker.refuse(where, f"type clash: the MAP's keys are {key}, not {index.type}")
        sql = f"try_element_at({of.sql}, {converted(index.sql, index.type, key)})"
        return Value(sql, of.type.element.null(), aliases=aliases)
    walker.refuse(span, f"type clash: [ ] takes an ARRAY or a MAP, not {of.type}")


def _name(identifier: exp.Expr, around: Span) -> Name:
    return Name(identifier.name, place(identifier) or around, bool(identifier.args.get("quoted")))
