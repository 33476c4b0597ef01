"""What is computed: arithmetic, ||, CASE, CAST, ARRAY[…]; comparisons, AND, IN, BETWEEN, LIKE, IS; calls of functions,
and why some cannot be called.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

from sqlglot import exp

from tidegate.pipelines.sql.coercion import (
    arithmetic,
    cast,
    cast_to_one,
    castable,
    common_exact,
    comparable,
    compared,
    narrowed,
)
from tidegate.pipelines.sql.functions import FUNCTIONS, Call, patterns
from tidegate.pipelines.sql.functions.refused import (
    ABSENT,
    AGAIN_OTHERWISE,
    AGGREGATES,
    DDL_ONLY,
    RECOMPUTE,
    ROWS_STAY,
    WINDOWS,
    WINDOWS_STAND,
)
from tidegate.pipelines.sql.translate.operands import Walker, written_as
from tidegate.pipelines.sql.values import Value, derived, integer_value, null_value
from tidegate.pipelines.syntax.source import Span
from tidegate.pipelines.syntax.statements import CastTo, place
from tidegate.pipelines.syntax.types import (
    BOOLEAN,
    INTERVALS,
    MOMENTS,
    NESTED,
    NUMERIC,
    STRING,
    STRINGS,
    TIMESTAMPS,
    Kind,
    array_of,
    spark_string,
)

COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
    exp.NullSafeNEQ: "<=>",
}


def _sides(walker: Walker, tree: exp.Expr, span: Span) -> tuple[Value, Value]:
    """Both operands of an operator."""
    return walker.of(tree.this, span), walker.of(tree.expression, span)


def comparable_or_refused(walker: Walker, left: Value, right: Value, span: Span) -> None:
    """Raise SqlError when two values have no order between them, or none that is exact."""
    if comparable(narrowed(left), narrowed(right)):
        return
    hint = "CAST one of them" if cast_to_one((left.type, right.type), compared=True) else None
    for value, other in ((left, right), (right, left)):
        if value.literal and isinstance(value.constant, str) and other.type.kind in (Kind.DATE, Kind.TIMESTAMP):
            hint = f"write {written_as(other.type.kind, value.constant)}"
    walker.refuse(span, f"type clash: {left.type} cannot be compared with {right.type}", hint)


def comparison(walker: Walker, tree: exp.Expr, span: Span) -> Value:
    """=, <>, <, <=, >, >=, IS [NOT] DISTINCT FROM."""
    left, right = _sides(walker, tree, span)
    comparable_or_refused(walker, left, right, span)
    sql = compared(COMPARISONS[type(tree)], left, right)
    return derived(f"(NOT {sql})" if isinstance(tree, exp.NullSafeNEQ) else sql, BOOLEAN, left, right)


def logic(walker: Walker, tree: exp.Expr, span: Span) -> Value:
    word = "AND" if isinstance(tree, exp.And) else "OR"
    terms: list[Value] = []
    waiting = [tree]
    while waiting:  # a long chain is deep on its left side: no recursion
        term = waiting.pop()
        if type(term) is type(tree):
            waiting += [term.expression, term.this]
        else:
            terms.append(walker.truth(term, span))
    return derived(f"({f' {word} '.join(term.sql for term in terms)})", BOOLEAN, *terms)


def negated(walker: Walker, tree: exp.Expr, span: Span) -> Value:
    operand = walker.truth(tree.this, span)
    return derived(f"(NOT {operand.sql})", BOOLEAN, operand)


def is_(walker: Walker, tree: exp.Expr, span: Span) -> Value:
    """IS NULL, IS TRUE, IS FALSE."""
    operand = walker.of(tree.this, span)
    word = "NULL"
    if not isinstance(tree.expression, exp.Null):
        walker.truth(tree.this, span)
        word = "TRUE" if tree.expression.this else "FALSE"
    return derived(f"({operand.sql} IS {word})", BOOLEAN, operand)


def between(walker: Walker, tree: exp.Expr, span: Span) -> Value:
    """BETWEEN [SYMMETRIC]."""
    operand, low, high = (walker.of(tree.args[part], span) for part in ("this", "low", "high"))
    comparable_or_refused(walker, operand, low, span)
    comparable_or_refused(walker, operand, high, span)
    sql = f"({compared('>=', operand, low)} AND {compared('<=', operand, high)})"
    if tree.args.get("symmetric"):
        sql = f"({sql} OR ({compared('>=', operand, high)} AND {compared('<=', operand, low)}))"
    return derived(sql, BOOLEAN, operand, low, high)


def in_(walker: Walker, tree: exp.Expr, span: Span) -> Value:
    operand = walker.of(tree.this, span)
    items = [walker.of(item, span) for item in tree.expressions]
    for item, item_tree in zip(items, tree.expressions, strict=True):
        comparable_or_refused(walker, operand, item, place(item_tree) or span)
    wide = common_exact([operand, *items])
    if wide is None and {operand.type.kind, *(item.type.kind for item in items)} <= NUMERIC:
        types = " and ".join(dict.fromkeys(str(value.type) for value in (operand, *items)))
        walker.refuse(span, f"type clash: no DECIMAL holds the values of {types}", "CAST them to one type")
    wide = wide or operand.type
    listed = ", ".join(item.to(wide) for item in items)
    return derived(f"({operand.to(wide)} IN ({listed}))", BOOLEAN, operand, *items)


def _strings(walker: Walker, tree: exp.Expr, span: Span, operator: str) -> tuple[Value, Value]:
    """Both operands of an operator that takes STRINGs."""
    left, right = _sides(walker, tree, span)
    for operand in (left, right):
        if operand.type.kind not in STRINGS | {Kind.NULL}:
            hint = "CAST(… AS STRING)" if castable(operand.type, STRING) else None
            walker.refuse(span, f"type clash: {operator} takes STRINGs, not {operand.type}", hint)
    return left, right


def like(walker: Walker, tree: exp.Expr, span: Span) -> Value:
    """LIKE … [ESCAPE c], SIMILAR TO … [ESCAPE c]."""
    escape: str | None = None
    if isinstance(tree, exp.Escape):
        escape, tree = tree.expression.this, tree.this
        if len(escape or "") != 1:
            walker.refuse(span, "the escape is one character", "for example LIKE '50!%' ESCAPE '!'")
    operator = "SIMILAR TO" if isinstance(tree, exp.SimilarTo) else "LIKE"
    text, pattern = _strings(walker, tree, span, operator)
    word, sql = "NOT LIKE" if tree.args.get("negate") else "LIKE", pattern.sql
    if operator == "SIMILAR TO" or (isinstance(pattern.constant, str) and "_" in pattern.constant):
        found = _matched(walker, text, pattern, escape, operator, place(tree.expression) or span)
        return replace(found, sql=f"(NOT {found.sql})") if word == "NOT LIKE" else found
    if escape is not None:
        sql = f"{sql} ESCAPE {spark_string(escape)}"
    elif isinstance(pattern.constant, str):
        # Flink has no escape unless one is named, Spark has the backslash.
        unused = next(sign for sign in "\\!#~^|" if sign not in pattern.constant)
        sql = sql if unused == "\\" else f"{sql} ESCAPE '{unused}'"
    else:
        sql = f"replace({sql}, {spark_string(chr(92))}, {spark_string(chr(92) * 2)})"
    return derived(f"({text.sql} {word} {sql})", BOOLEAN, text, pattern)


def _matched(walker: Walker, text: Value, pattern: Value, escape: str | None, operator: str, span: Span) -> Value:
    """The same by a regular expression: Spark's LIKE takes the end of a line for `_`, Flink's does not."""
    if not isinstance(pattern.constant, str):
        walker.refuse(span, "the pattern of SIMILAR TO is a constant", "REGEXP takes any expression for its pattern")
    try:
        regex = (patterns.like if operator == "LIKE" else patterns.similar)(pattern.constant, escape or "")
    except patterns.NoPattern as problem:
        walker.refuse(span, f"this is no pattern: {problem}", f"for example name {operator} 'a%'")
    return derived(f"({text.sql} RLIKE {spark_string(regex)})", BOOLEAN, text)


SIGNS: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}


def calculated(walker: Walker, tree: exp.Expr, span: Span) -> Value:
    """+, -, *, /, %."""
    sign = SIGNS[type(tree)]
    left, right = _sides(walker, tree, span)
    found = arithmetic(sign, left, right)
    if found is not None:
        return found
    kinds, hint = {left.type.kind, right.type.kind}, None
    if sign in "+-" and left.type.kind in MOMENTS and right.type.kind in STRINGS:
        hint = "an interval is written INTERVAL '5' SECOND"
    elif sign == "+" and kinds & STRINGS and not kinds & (NESTED | INTERVALS):
        hint = "strings are joined by ||"
    elif sign == "-" and kinds <= MOMENTS:
        hint = "TIMESTAMPDIFF(unit, from, to) gives the time between two moments"
    elif kinds & STRINGS and kinds <= STRINGS | NUMERIC:
        hint = "CAST the string to a number"
    walker.refuse(span, f"type clash: {left.type} {sign} {right.type}", hint)


def negative(walker: Walker, tree: exp.Expr, span: Span) -> Value:
    operand = walker.of(tree.this, span)
    if operand.type.kind not in NUMERIC | INTERVALS | {Kind.NULL}:
        walker.refuse(span, f"type clash: - takes a number, not {operand.type}")
    if operand.literal and isinstance(operand.constant, int):
        return integer_value(-operand.constant) or operand
    if operand.literal and operand.constant is not None and not isinstance(operand.constant, str):
        sql = operand.sql[1:] if operand.sql.startswith("-") else f"-{operand.sql}"  # two of them begin a comment
        return Value(sql, operand.type, literal=True, constant=-operand.constant)
    return Value(f"(- {operand.sql})", operand.type, aliases=operand.aliases, digits=operand.digits)


def concatenated(walker: Walker, tree: exp.Expr, span: Span) -> Value:
    """||: NULL where either side is."""
    left, right = _strings(walker, tree, span, "||")
    return derived(f"concat({left.sql}, {right.sql})", STRING, left, right)


def case(walker: Walker, tree: exp.Expr, span: Span) -> Value:
    """CASE … END, of the type that all results fit into."""
    subject = walker.of(tree.this, span) if tree.this is not None else None
    conditions: list[Value] = []
    for branch in tree.args["ifs"]:
        if subject is None:
            conditions.append(walker.truth(branch.this, span))
            continue
        wanted = walker.of(branch.this, span)
        comparable_or_refused(walker, subject, wanted, place(branch.this) or span)
        conditions.append(derived(compared("=", subject, wanted), BOOLEAN, subject, wanted))
    results = [walker.of(branch.args["true"], span) for branch in tree.args["ifs"]]
    default = tree.args.get("default")
    results.append(walker.of(default, span) if default is not None else null_value())
    wide = common_exact(results)
    if wide is None:
        types = " and ".join(dict.fromkeys(str(result.type) for result in results))
        hint = "CAST the results to one type" if cast_to_one(result.type for result in results) else None
        walker.refuse(span, f"type clash: CASE gives {types}", hint)
    parts = [f"WHEN {test.sql} THEN {result.to(wide)}" for test, result in zip(conditions, results, strict=False)]
    return derived(f"CASE {' '.join(parts)} ELSE {results[-1].to(wide)} END", wide, *conditions, *results)


def cast_to(walker: Walker, tree: exp.Expr, span: Span) -> Value:
    assert isinstance(tree, CastTo)
    operand, target = walker.of(tree.this, span), tree.target
    if not castable(operand.type, target):
        hint = None
        kinds = {operand.type.kind, target.kind}
        if kinds & TIMESTAMPS and kinds & NUMERIC:
            hint = "TO_TIMESTAMP_LTZ(n, 3) reads a number as an instant, EXTRACT(EPOCH FROM t) is its seconds"
        walker.refuse(span, f"type clash: {operand.type} cannot be cast to {target}", hint)
    return derived(cast(operand.sql, operand.type, target, safe=bool(tree.args.get("safe"))), target, operand)


def array(walker: Walker, tree: exp.Expr, span: Span) -> Value:
    items = [walker.of(item, span) for item in tree.expressions]
    wide = common_exact(items)
    if not items or wide is None or wide.kind is Kind.NULL:
        what = "has elements of different types" if wide is None else "has no element to know its type by"
        hint = "CAST them to one type" if wide is None and cast_to_one(item.type for item in items) else None
        walker.refuse(span, f"type clash: the ARRAY {what}", hint)
    return derived(f"array({', '.join(item.to(wide) for item in items)})", array_of(wide), *items)


def call(walker: Walker, tree: exp.Expr, span: Span) -> Value:
    """A function, by its record."""
    written = tree.name
    name = written.upper()
    units = tuple(argument.name for argument in tree.expressions if isinstance(argument, exp.Var))
    trees = [argument for argument in tree.expressions if not isinstance(argument, exp.Var)]
    function = FUNCTIONS.get(f"{name} TO") if units else None
    if function is None and " " not in name:
        function = FUNCTIONS.get(name)
    if function is None:
        at = Span(span.start, tree.meta.get("name_end", span.start + len(written)))
        function = walker.scope.function(written, at) or _no_function(walker, written, at)
    if tree.meta.get("distinct"):
        walker.refuse(span, f"{name}(DISTINCT …) is not supported", "DISTINCT belongs in aggregates alone")
    arguments = tuple(walker.of(argument, span) for argument in trees)
    spans = tuple(place(argument) or span for argument in trees)
    return function.translate(
        Call(name if name in FUNCTIONS else written, arguments, spans, span, walker.source, units)
    )


def _no_function(walker: Walker, written: str, span: Span) -> NoReturn:
    name = written.upper()
    if name in AGAIN_OTHERWISE:
        walker.refuse(span, f"{name} is not supported: {RECOMPUTE}", AGAIN_OTHERWISE[name])
    if name in AGGREGATES:
        walker.refuse(span, f"the aggregate {name} is not supported", ROWS_STAY)
    if name in WINDOWS:
        walker.refuse(span, f"the window {name} cannot stand here", WINDOWS_STAND)
    if name in DDL_ONLY:
        walker.refuse(span, f"{name}() cannot stand here", DDL_ONLY[name])
    if name in ABSENT:
        what = f"{name} is a function of Flink that Tidegate does not have"
        walker.refuse(span, what, _ways(walker, "docs/sql.md lists the functions"))
    close = walker.scope.functions.close_to(name)
    hint = "docs/sql.md lists the functions; CREATE FUNCTION … LANGUAGE PYTHON declares your own"
    walker.refuse(span, f"unknown function {written}", close or _ways(walker, hint))


def _ways(walker: Walker, hint: str) -> str:
    return hint if walker.another_way is None else f"{hint}; {walker.another_way}"
