"""Columns, fields of a ROW, elements of an ARRAY or a MAP."""

from __future__ import annotations

from sqlglot import exp

from tidegate.pipelines.sql.coercion import comparable, converted
from tidegate.pipelines.sql.scope import fields
from tidegate.pipelines.sql.translate.walker import Walker
from tidegate.pipelines.sql.values import Value
from tidegate.pipelines.syntax.source import Span
from tidegate.pipelines.syntax.statements import Name, place
from tidegate.pipelines.syntax.types import Kind


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
