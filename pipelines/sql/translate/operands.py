"""Walks a tree and hands every node to the rule for its kind (`Translator` lists the rules); and the rules of what an
expression begins with: numbers, strings, dates, intervals; columns, fields of a ROW, elements of an ARRAY or a MAP.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import ClassVar, NoReturn

from sqlglot import exp

from tidegate.pipelines.sql.coercion import comparable, looked_up_as
from tidegate.pipelines.sql.scope import Scope, fields
from tidegate.pipelines.sql.values import Value, derived, interval_value, number_value
from tidegate.pipelines.syntax.source import Source, Span
from tidegate.pipelines.syntax.statements import CastTo, Name, Scalar, TypedLiteral, place
from tidegate.pipelines.syntax.types import BOOLEAN, DATE, INTEGERS, STRING, FlinkType, Kind, spark_string


class Walker:
    """Translates the expressions of one scope, by `rules`: one for each kind of node.

    `another_way`: a hint, for a function that the dialect does not have.
    """

    rules: ClassVar[Rules]

    def __init__(self, source: Source, scope: Scope, another_way: str | None = None) -> None:
        self.source = source
        self.scope = scope
        self.another_way = another_way

    def value(self, scalar: Scalar) -> Value:
        """The value of an expression. Raises SqlError."""
        return self.of(scalar.tree, scalar.span)

    def conjuncts(self, scalar: Scalar) -> list[tuple[exp.Expr, Value]]:
        """The terms that AND joins, each with its tree. Raises SqlError, for a term that is no condition too."""
        found: list[tuple[exp.Expr, Value]] = []
        waiting = [scalar.tree]
        while waiting:
            tree = waiting.pop()
            if isinstance(tree, exp.And):
                waiting += [tree.expression, tree.this]
            elif isinstance(tree, exp.Paren) and isinstance(tree.this, exp.And):
                waiting.append(tree.this)
            else:
                found.append((tree, self.truth(tree, scalar.span)))
        return found

    def of(self, tree: exp.Expr, around: Span) -> Value:
        """The value of a node; `around` is its place if it does not know itself."""
        span = place(tree) or around
        rule = self.rules.get(type(tree))
        if rule is None or any(part and name not in arguments_of(type(tree)) for name, part in tree.args.items()):
            self.refuse(span, f"{self.source.shown(span)} is not supported")
        return rule(self, tree, span)

    def truth(self, tree: exp.Expr, around: Span) -> Value:
        """The value of a node that must be BOOLEAN."""
        value = self.of(tree, around)
        if value.type.kind not in (Kind.BOOLEAN, Kind.NULL):
            self.refuse(place(tree) or around, f"type clash: a condition is BOOLEAN, not {value.type}")
        if value.type.kind is Kind.NULL:  # Spark does not take a bare NULL for a condition
            return Value("CAST(NULL AS BOOLEAN)", BOOLEAN, aliases=value.aliases)
        return value

    def refuse(self, span: Span, what: str, hint: str | None = None) -> NoReturn:
        raise self.source.error(span, what, hint)


_OWN_ARGUMENTS: dict[type[exp.Expr], tuple[str, ...]] = {
    exp.Between: ("low", "high", "symmetric"),
    exp.Case: ("ifs", "default"),
    CastTo: ("safe",),
    exp.DPipe: ("safe",),  # sqlglot sets it, and it says nothing about the script; so are those of Div
    exp.Div: ("typed", "safe"),
    exp.Interval: ("unit",),
    exp.Like: ("negate",),
    exp.Literal: ("is_string",),
    TypedLiteral: ("kind",),
}


def arguments_of(kind: type[exp.Expr]) -> tuple[str, ...]:
    """The arguments of a kind of node that its rule reads. A node with others is no part of the dialect."""
    return ("this", "expression", "expressions", *_OWN_ARGUMENTS.get(kind, ()))


Rules = Mapping[type[exp.Expr], Callable[[Walker, exp.Expr, Span], Value]]
"""The rule for each kind of node."""


def literal(walker: Walker, tree: exp.Expr, span: Span) -> Value:
    if tree.is_string:
        return Value(spark_string(tree.this), STRING, literal=True, constant=tree.this)
    value = number_value(tree.this)
    if value is None:
        if "e" in tree.this.lower():
            walker.refuse(span, "the number is greater than a DOUBLE can be")
        walker.refuse(span, "the number has more than 38 digits", "write it as a string")
    return value


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
        hint = "for example INTERVAL '1 02:30' DAY TO MINUTE"
        walker.refuse(span, "the interval's value does not fit its unit", hint)
    return value


def path(walker: Walker, tree: exp.Expr, span: Span) -> Value:
    """`a.b.c`: a column of a table, or fields of a ROW."""
    names = column_path(tree, span)
    if names is not None:
        return walker.scope.resolve(names)
    return fields(walker.of(tree.this, span), [_name(tree.expression, span)], walker.source)


def column_path(tree: exp.Expr, around: Span) -> list[Name] | None:
    """`a.b.c` as names; None for any other expression."""
    names: list[Name] = []
    while isinstance(tree, exp.Dot):
        names.append(_name(tree.expression, around))
        tree = tree.this
    return [_name(tree.this, around), *reversed(names)] if isinstance(tree, exp.Column) else None


def element(walker: Walker, tree: exp.Expr, span: Span) -> Value:
    """`array[1]`, `map[key]`: NULL for what is not there."""
    of, index_tree = walker.of(tree.this, span), tree.expressions[0]
    index = walker.of(index_tree, span)
    where = place(index_tree) or span
    if of.type.kind is Kind.ARRAY:
        if index.type.kind not in INTEGERS or index.type.kind is Kind.BIGINT:
            walker.refuse(where, f"type clash: an ARRAY's index is INT, not {index.type}")
        # Flink counts from 1, and gives NULL for what is not there; Spark's get counts from 0 and refuses nothing.
        sql = f"CASE WHEN {index.sql} > 0 THEN get({of.sql}, {index.sql} - 1) END"
        if isinstance(index.constant, int) and index.constant > 0:
            sql = f"get({of.sql}, {index.constant - 1})"
        return derived(sql, of.type.element.null(), of, index)
    if of.type.kind is Kind.MAP:
        key = of.type.arguments[0]
        if not comparable(key, index.type) or not looked_up_as(index, key):
            walker.refuse(where, f"type clash: the MAP's keys are {key}, not {index.type}")
        return derived(f"try_element_at({of.sql}, {index.to(key)})", of.type.element.null(), of, index)
    walker.refuse(span, f"type clash: [ ] takes an ARRAY or a MAP, not {of.type}")


def _name(identifier: exp.Expr, around: Span) -> Name:
    return Name(identifier.name, place(identifier) or around, bool(identifier.args.get("quoted")))
