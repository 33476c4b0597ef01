"""What is true or false: comparisons, AND, IN, BETWEEN, LIKE, IS."""

from __future__ import annotations

from sqlglot import exp

from tidegate.pipelines.sql.coercion import cast_to_one, castable, common, comparable, converted
from tidegate.pipelines.sql.operators import compared
from tidegate.pipelines.sql.translate.operands import written_as
from tidegate.pipelines.sql.translate.walker import Walker
from tidegate.pipelines.sql.values import Value
from tidegate.pipelines.syntax.source import Span
from tidegate.pipelines.syntax.statements import place
from tidegate.pipelines.syntax.types import BOOLEAN, STRING, STRINGS, Kind, spark_string

SIGNS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}


def comparable_or_refused(walker: Walker, left: Value, right: Value, span: Span) -> None:
    """Raise SqlError when two values have no order between them."""
    if comparable(left.type, right.type):
        return
    hint = "CAST one of them" if cast_to_one((left.type, right.type), compared=True) else None
    for value, other in ((left, right), (right, left)):
        if value.literal and isinstance(value.constant, str) and other.type.kind in (Kind.DATE, Kind.TIMESTAMP):
            hint = f"write {written_as(other.type.kind, value.constant)}"
    walker.refuse(span, f"type clash: {left.type} cannot be compared with {right.type}", hint)


def comparison(walker: Walker, tree: exp.Expr, span: Span) -> Value:
    """=, <>, <, <=, >, >=."""
    left, right = walker.of(tree.this, span), walker.of(tree.expression, span)
    comparable_or_refused(walker, left, right, span)
    return Value(compared(SIGNS[type(tree)], left, right), BOOLEAN, aliases=left.aliases | right.aliases)


def distinct(walker: Walker, tree: exp.Expr, span: Span) -> Value:
    """IS [NOT] DISTINCT FROM."""
    left, right = walker.of(tree.this, span), walker.of(tree.expression, span)
    comparable_or_refused(walker, left, right, span)
    sql = compared("<=>", left, right)
    sql = sql if isinstance(tree, exp.NullSafeEQ) else f"(NOT {sql})"
    return Value(sql, BOOLEAN, aliases=left.aliases | right.aliases)


def logic(walker: Walker, tree: exp.Expr, span: Span) -> Value:
    """AND, OR."""
    word = "AND" if isinstance(tree, exp.And) else "OR"
    terms: list[Value] = []
    waiting = [tree]
    while waiting:  # a long chain is deep on its left side: no recursion
        term = waiting.pop()
        if type(term) is type(tree):
            waiting += [term.expression, term.this]
        else:
            terms.append(walker.truth(term, span))
    aliases = frozenset().union(*(term.aliases for term in terms))
    return Value(f"({f' {word} '.join(term.sql for term in terms)})", BOOLEAN, aliases=aliases)


def negated(walker: Walker, tree: exp.Expr, span: Span) -> Value:
    """NOT."""
    operand = walker.truth(tree.this, span)
    return Value(f"(NOT {operand.sql})", BOOLEAN, aliases=operand.aliases)


def is_(walker: Walker, tree: exp.Expr, span: Span) -> Value:
    """IS NULL, IS TRUE, IS FALSE."""
    operand = walker.of(tree.this, span)
    if isinstance(tree.expression, exp.Null):
        return Value(f"({operand.sql} IS NULL)", BOOLEAN, aliases=operand.aliases)
    walker.truth(tree.this, span)
    word = "TRUE" if tree.expression.this else "FALSE"
    return Value(f"({operand.sql} IS {word})", BOOLEAN, aliases=operand.aliases)


def between(walker: Walker, tree: exp.Expr, span: Span) -> Value:
    """BETWEEN [SYMMETRIC]."""
    operand, low, high = (walker.of(tree.args[part], span) for part in ("this", "low", "high"))
    comparable_or_refused(walker, operand, low, span)
    comparable_or_refused(walker, operand, high, span)
    sql = f"({compared('>=', operand, low)} AND {compared('<=', operand, high)})"
    if tree.args.get("symmetric"):
        sql = f"({sql} OR ({compared('>=', operand, high)} AND {compared('<=', operand, low)}))"
    return Value(sql, BOOLEAN, aliases=operand.aliases | low.aliases | high.aliases)


def in_(walker: Walker, tree: exp.Expr, span: Span) -> Value:
    """IN (…)."""
    operand = walker.of(tree.this, span)
    items = [walker.of(item, span) for item in tree.expressions]
    for item, item_tree in zip(items, tree.expressions, strict=True):
        comparable_or_refused(walker, operand, item, place(item_tree) or span)
    wide = common([operand.type, *(item.type for item in items)]) or operand.type
    sqls = [converted(item.sql, item.type, wide) for item in items]
    aliases = operand.aliases.union(*(item.aliases for item in items))
    return Value(f"({converted(operand.sql, operand.type, wide)} IN ({', '.join(sqls)}))", BOOLEAN, aliases=aliases)


def like(walker: Walker, tree: exp.Expr, span: Span) -> Value:
    """LIKE … [ESCAPE c]."""
    escape: str | None = None
    if isinstance(tree, exp.Escape):
        escape, tree = tree.expression.this, tree.this
        if len(escape or "") != 1:
            walker.refuse(span, "the escape is one character", "for example LIKE '50!%' ESCAPE '!'")
    text, pattern = walker.of(tree.this, span), walker.of(tree.expression, span)
    for operand in (text, pattern):
        if operand.type.kind not in STRINGS | {Kind.NULL}:
            hint = "CAST(… AS STRING)" if castable(operand.type, STRING) else None
            walker.refuse(span, f"type clash: LIKE takes STRINGs, not {operand.type}", hint)
    word = "NOT LIKE" if tree.args.get("negate") else "LIKE"
    sql = pattern.sql
    if escape is not None:
        sql = f"{sql} ESCAPE {spark_string(escape)}"
    elif isinstance(pattern.constant, str):
        # Flink has no escape unless one is named, Spark has the backslash.
        unused = next(sign for sign in "\\!#~^|" if sign not in pattern.constant)
        sql = sql if unused == "\\" else f"{sql} ESCAPE '{unused}'"
    else:
        sql = f"replace({sql}, {spark_string(chr(92))}, {spark_string(chr(92) * 2)})"
    return Value(f"({text.sql} {word} {sql})", BOOLEAN, aliases=text.aliases | pattern.aliases)
