"""Expressions: names resolved, types inferred and checked, written as Spark SQL.

Types are inferred bottom up by rules of our own rather than by sqlglot's `annotate_types`, which knows neither a
DECIMAL's digits, nor NOT NULL, nor where in the script an operand stands.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from typing import NoReturn

from sqlglot import exp

from pipelines.sql.coercion import cast, castable, common, comparable, converted
from pipelines.sql.errors import did_you_mean
from pipelines.sql.functions import FUNCTIONS, Call
from pipelines.sql.functions.refused import ABSENT, AGAIN_OTHERWISE, AGGREGATES, DDL_ONLY, RECOMPUTE, ROWS_STAY, WINDOWS
from pipelines.sql.intervals import interval_value
from pipelines.sql.operators import arithmetic, compared
from pipelines.sql.scope import Scope, fields
from pipelines.sql.source import Source, Span
from pipelines.sql.syntax import CastTo, Name, Scalar, TypedLiteral, place
from pipelines.sql.types import BOOLEAN, BYTES, DATE, NUMERIC, STRINGS, FlinkType, Kind
from pipelines.sql.values import Value, integer_value, null_value, number_value, spark_string, string_value

_SIGNS: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}


class Translator:
    """Translates the expressions of one scope."""

    def __init__(self, source: Source, scope: Scope) -> None:
        self.source = source
        self.scope = scope

    def value(self, scalar: Scalar) -> Value:
        """The value of an expression. Raises SqlError."""
        return self._of(scalar.tree, scalar.span)

    def condition(self, scalar: Scalar) -> Value:
        """The value of an expression that must be BOOLEAN."""
        return self._truth(scalar.tree, scalar.span)

    def conjuncts(self, scalar: Scalar) -> list[tuple[exp.Expr, Value]]:
        """The terms that AND joins, each translated."""
        found: list[tuple[exp.Expr, Value]] = []
        waiting = [scalar.tree]
        while waiting:
            tree = waiting.pop()
            if isinstance(tree, exp.And):
                waiting += [tree.expression, tree.this]
            elif isinstance(tree, exp.Paren) and isinstance(tree.this, exp.And):
                waiting.append(tree.this)
            else:
                found.append((tree, self._truth(tree, place(tree) or scalar.span)))
        return found

    def part(self, tree: exp.Expr, around: Span) -> Value:
        """The value of a part of an expression that was read already."""
        return self._of(tree, around)

    def _of(self, tree: exp.Expr, around: Span) -> Value:
        span = place(tree) or around
        sign = _SIGNS.get(type(tree))
        if sign is not None:
            return self._arithmetic(sign, tree, span)
        sign = _COMPARISONS.get(type(tree))
        if sign is not None:
            return self._comparison(sign, tree, span)
        handler = _HANDLERS.get(type(tree))
        if handler is None:
            self._refuse(span, f"{self.source.shown(span)} is not supported")
        return handler(self, tree, span)

    def _refuse(self, span: Span, what: str, hint: str | None = None) -> NoReturn:
        raise self.source.error(span, what, hint)

    def _truth(self, tree: exp.Expr, around: Span) -> Value:
        value = self._of(tree, around)
        if value.type.kind not in (Kind.BOOLEAN, Kind.NULL):
            self._refuse(place(tree) or around, f"type clash: a condition is BOOLEAN, not {value.type}")
        return value

    # Constants

    def _literal(self, tree: exp.Expr, span: Span) -> Value:
        if tree.is_string:
            return string_value(tree.this)
        value = number_value(tree.this)
        if value is None:
            self._refuse(span, "the number has more than 38 digits", "write it as a string")
        return value

    def _null(self, tree: exp.Expr, span: Span) -> Value:
        return null_value()

    def _boolean(self, tree: exp.Expr, span: Span) -> Value:
        return Value("TRUE" if tree.this else "FALSE", BOOLEAN)

    def _octets(self, tree: exp.Expr, span: Span) -> Value:
        return Value(f"X'{tree.this}'", BYTES)

    def _moment(self, tree: exp.Expr, span: Span) -> Value:
        text, kind = tree.this.this, tree.args["kind"]
        try:
            if kind == "DATE":
                return Value(f"DATE{spark_string(date.fromisoformat(text).isoformat())}", DATE)
            moment = datetime.fromisoformat(text)
        except ValueError:
            moment = None
        seconds, _, fraction = text.partition(".")
        if moment is None or moment.tzinfo is not None or len(fraction) > 6 or len(seconds) != 19 or kind == "DATE":
            form = "2024-01-31" if kind == "DATE" else "2024-01-31 12:00:00.123"
            self._refuse(place(tree.this) or span, f"this is no {kind}", f"write {kind} '{form}'")
        return Value(f"TIMESTAMP_NTZ{spark_string(text)}", FlinkType(Kind.TIMESTAMP, len(fraction)))

    def _interval(self, tree: exp.Expr, span: Span) -> Value:
        value = interval_value(tree)
        if value is None:
            self._refuse(
                span, "the interval's value does not fit its unit", "for example INTERVAL '1 02:30' DAY TO MINUTE"
            )
        return value

    # Names

    def _path(self, tree: exp.Expr, span: Span) -> Value:
        names: list[Name] = []
        while isinstance(tree, exp.Dot):
            names.append(_name(tree.expression, span))
            tree = tree.this
        names.reverse()
        if isinstance(tree, exp.Column):
            return self.scope.resolve([_name(tree.this, span), *names])
        return fields(self._of(tree, span), names, self.source)

    def _element(self, tree: exp.Expr, span: Span) -> Value:
        of, index_tree = self._of(tree.this, span), tree.expressions[0]
        index = self._of(index_tree, span)
        where = place(index_tree) or span
        aliases = of.aliases | index.aliases
        if of.type.kind is Kind.ARRAY:
            if index.type.kind not in (Kind.TINYINT, Kind.SMALLINT, Kind.INT):
                self._refuse(where, f"type clash: an ARRAY's index is INT, not {index.type}")
            # Flink counts from 1, and gives NULL for what is not there; Spark's get counts from 0 and refuses nothing.
            sql = f"CASE WHEN {index.sql} > 0 THEN get({of.sql}, {index.sql} - 1) END"
            if isinstance(index.constant, int) and index.constant > 0:
                sql = f"get({of.sql}, {index.constant - 1})"
            return Value(sql, of.type.element.null(), aliases=aliases)
        if of.type.kind is Kind.MAP:
            key = of.type.arguments[0]
            if not comparable(key, index.type):
                self._refuse(where, f"type clash: the MAP's keys are {key}, not {index.type}")
            sql = f"try_element_at({of.sql}, {converted(index.sql, index.type, key)})"
            return Value(sql, of.type.element.null(), aliases=aliases)
        self._refuse(span, f"type clash: [ ] takes an ARRAY or a MAP, not {of.type}")

    # Operators

    def _arithmetic(self, sign: str, tree: exp.Expr, span: Span) -> Value:
        left, right = self._of(tree.this, span), self._of(tree.expression, span)
        found = arithmetic(sign, left, right)
        if found is not None:
            return found
        kinds = {left.type.kind, right.type.kind}
        hint = None
        if sign == "+" and kinds & STRINGS:
            hint = "strings are joined by ||"
        elif sign == "-" and not kinds & (NUMERIC | STRINGS):
            hint = "TIMESTAMPDIFF(unit, from, to) gives the time between two moments"
        elif kinds & STRINGS:
            hint = "an interval is written INTERVAL '5' SECOND" if sign in "+-" else "CAST the string to a number"
        self._refuse(span, f"type clash: {left.type} {sign} {right.type}", hint)

    def _comparison(self, sign: str, tree: exp.Expr, span: Span) -> Value:
        left, right = self._of(tree.this, span), self._of(tree.expression, span)
        self._comparable(left, right, span)
        return Value(compared(sign, left, right), BOOLEAN, aliases=left.aliases | right.aliases)

    def _comparable(self, left: Value, right: Value, span: Span) -> None:
        if comparable(left.type, right.type):
            return
        hint = "CAST one of them"
        for value, other in ((left, right), (right, left)):
            if isinstance(value.constant, str) and other.type.kind in (Kind.DATE, Kind.TIMESTAMP):
                hint = f"write {other.type.kind} in front of the string"
        self._refuse(span, f"type clash: {left.type} can not be compared with {right.type}", hint)

    def _distinct(self, tree: exp.Expr, span: Span) -> Value:
        left, right = self._of(tree.this, span), self._of(tree.expression, span)
        self._comparable(left, right, span)
        sql = compared("<=>", left, right)
        sql = sql if isinstance(tree, exp.NullSafeEQ) else f"(NOT {sql})"
        return Value(sql, BOOLEAN, aliases=left.aliases | right.aliases)

    def _logic(self, tree: exp.Expr, span: Span) -> Value:
        word = "AND" if isinstance(tree, exp.And) else "OR"
        terms: list[Value] = []
        waiting = [tree]
        while waiting:  # a long chain is deep on its left side: no recursion
            term = waiting.pop()
            if type(term) is type(tree):
                waiting += [term.expression, term.this]
            else:
                terms.append(self._truth(term, span))
        aliases = frozenset().union(*(term.aliases for term in terms))
        return Value(f"({f' {word} '.join(term.sql for term in terms)})", BOOLEAN, aliases=aliases)

    def _not(self, tree: exp.Expr, span: Span) -> Value:
        operand = self._truth(tree.this, span)
        return Value(f"(NOT {operand.sql})", BOOLEAN, aliases=operand.aliases)

    def _negative(self, tree: exp.Expr, span: Span) -> Value:
        operand = self._of(tree.this, span)
        if operand.type.kind not in NUMERIC | {Kind.NULL, Kind.DAY_INTERVAL, Kind.MONTH_INTERVAL}:
            self._refuse(span, f"type clash: - takes a number, not {operand.type}")
        if operand.literal and isinstance(operand.constant, int):
            return integer_value(-operand.constant) or operand
        if operand.literal and operand.constant is not None and not isinstance(operand.constant, str):
            return Value(f"-{operand.sql}", operand.type, literal=True, constant=-operand.constant)
        return Value(f"(- {operand.sql})", operand.type, aliases=operand.aliases)

    def _paren(self, tree: exp.Expr, span: Span) -> Value:
        return self._of(tree.this, span)

    def _is(self, tree: exp.Expr, span: Span) -> Value:
        operand = self._of(tree.this, span)
        if isinstance(tree.expression, exp.Null):
            return Value(f"({operand.sql} IS NULL)", BOOLEAN, aliases=operand.aliases)
        self._truth(tree.this, span)
        word = "TRUE" if tree.expression.this else "FALSE"
        return Value(f"({operand.sql} IS {word})", BOOLEAN, aliases=operand.aliases)

    def _between(self, tree: exp.Expr, span: Span) -> Value:
        operand, low, high = (self._of(tree.args[part], span) for part in ("this", "low", "high"))
        self._comparable(operand, low, span)
        self._comparable(operand, high, span)
        sql = f"({compared('>=', operand, low)} AND {compared('<=', operand, high)})"
        if tree.args.get("symmetric"):
            sql = f"({sql} OR ({compared('>=', operand, high)} AND {compared('<=', operand, low)}))"
        return Value(sql, BOOLEAN, aliases=operand.aliases | low.aliases | high.aliases)

    def _in(self, tree: exp.Expr, span: Span) -> Value:
        operand = self._of(tree.this, span)
        items = [self._of(item, span) for item in tree.expressions]
        for item, item_tree in zip(items, tree.expressions, strict=True):
            self._comparable(operand, item, place(item_tree) or span)
        wide = common([operand.type, *(item.type for item in items)]) or operand.type
        sqls = [converted(item.sql, item.type, wide) for item in items]
        aliases = operand.aliases.union(*(item.aliases for item in items))
        return Value(f"({converted(operand.sql, operand.type, wide)} IN ({', '.join(sqls)}))", BOOLEAN, aliases=aliases)

    def _like(self, tree: exp.Expr, span: Span) -> Value:
        escape: str | None = None
        if isinstance(tree, exp.Escape):
            escape, tree = tree.expression.this, tree.this
            if len(escape or "") != 1:
                self._refuse(span, "the escape is one character", "for example LIKE '50!%' ESCAPE '!'")
        text, pattern = self._of(tree.this, span), self._of(tree.expression, span)
        for operand in (text, pattern):
            if operand.type.kind not in STRINGS | {Kind.NULL}:
                self._refuse(span, f"type clash: LIKE takes STRINGs, not {operand.type}", "CAST(… AS STRING)")
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

    def _concatenated(self, tree: exp.Expr, span: Span) -> Value:
        left, right = self._of(tree.this, span), self._of(tree.expression, span)
        for operand in (left, right):
            if operand.type.kind not in STRINGS | {Kind.NULL}:
                self._refuse(span, f"type clash: || takes STRINGs, not {operand.type}", "CAST(… AS STRING)")
        return Value(f"concat({left.sql}, {right.sql})", FlinkType(Kind.STRING), aliases=left.aliases | right.aliases)

    def _case(self, tree: exp.Expr, span: Span) -> Value:
        subject = self._of(tree.this, span) if tree.this is not None else None
        conditions: list[Value] = []
        for branch in tree.args["ifs"]:
            if subject is None:
                conditions.append(self._truth(branch.this, span))
                continue
            wanted = self._of(branch.this, span)
            self._comparable(subject, wanted, place(branch.this) or span)
            sql = compared("=", subject, wanted)
            conditions.append(Value(sql, BOOLEAN, aliases=subject.aliases | wanted.aliases))
        results = [self._of(branch.args["true"], span) for branch in tree.args["ifs"]]
        default = tree.args.get("default")
        results.append(self._of(default, span) if default is not None else null_value())
        wide = common(result.type for result in results)
        if wide is None:
            types = " and ".join(dict.fromkeys(str(result.type) for result in results))
            self._refuse(span, f"type clash: CASE gives {types}", "CAST the results to one type")
        sqls = [converted(result.sql, result.type, wide) for result in results]
        parts = [f"WHEN {test.sql} THEN {sql}" for test, sql in zip(conditions, sqls, strict=False)]
        aliases = frozenset().union(*(value.aliases for value in (*conditions, *results)))
        return Value(f"CASE {' '.join(parts)} ELSE {sqls[-1]} END", wide, aliases=aliases)

    def _cast(self, tree: exp.Expr, span: Span) -> Value:
        assert isinstance(tree, CastTo)
        operand, target = self._of(tree.this, span), tree.target
        if not castable(operand.type, target):
            hint = None
            if {operand.type.kind, target.kind} & {Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ}:
                hint = "TO_TIMESTAMP_LTZ(n, 3) reads a number as an instant, EXTRACT(EPOCH FROM t) is its seconds"
            self._refuse(span, f"type clash: {operand.type} can not be cast to {target}", hint)
        sql = cast(operand.sql, operand.type, target, safe=bool(tree.args.get("safe")))
        return Value(sql, target, aliases=operand.aliases)

    def _array(self, tree: exp.Expr, span: Span) -> Value:
        items = [self._of(item, span) for item in tree.expressions]
        wide = common(item.type for item in items)
        if not items or wide is None or wide.kind is Kind.NULL:
            what = "has elements of different types" if wide is None else "has no element to know its type by"
            self._refuse(span, f"type clash: the ARRAY {what}", "CAST them to one type" if wide is None else None)
        sqls = ", ".join(converted(item.sql, item.type, wide) for item in items)
        aliases = frozenset().union(*(item.aliases for item in items))
        return Value(f"array({sqls})", FlinkType(Kind.ARRAY, arguments=(wide,)), aliases=aliases)

    # Functions

    def _function(self, tree: exp.Expr, span: Span) -> Value:
        written = tree.name
        name = written.upper()
        units = tuple(argument.name for argument in tree.expressions if isinstance(argument, exp.Var))
        trees = [argument for argument in tree.expressions if not isinstance(argument, exp.Var)]
        function = FUNCTIONS.get(f"{name} TO" if units and name in ("FLOOR", "CEIL", "CEILING") else name)
        if function is None:
            self._no_function(written, Span(span.start, span.start + len(written)))
        arguments = tuple(self._of(argument, span) for argument in trees)
        spans = tuple(place(argument) or span for argument in trees)
        return function.translate(Call(name, arguments, spans, span, self.source, units))

    def _no_function(self, written: str, span: Span) -> NoReturn:
        name = written.upper()
        if name in AGAIN_OTHERWISE:
            self._refuse(span, f"{name} is not supported: {RECOMPUTE}", AGAIN_OTHERWISE[name])
        if name in AGGREGATES:
            self._refuse(span, f"the aggregate {name} is not supported", ROWS_STAY)
        if name in WINDOWS:
            self._refuse(span, f"the window {name} is not supported", ROWS_STAY)
        if name in DDL_ONLY:
            self._refuse(span, f"{name}() can not stand here", DDL_ONLY[name])
        if name in ABSENT:
            self._refuse(
                span, f"{name} is a function of Flink that Tidegate does not have", "docs/sql.md lists the functions"
            )
        close = did_you_mean(name, (known for known in FUNCTIONS if " " not in known))
        self._refuse(span, f"unknown function {written}", close or "docs/sql.md lists the functions")


def _name(identifier: exp.Expr, around: Span) -> Name:
    return Name(identifier.name, place(identifier) or around, bool(identifier.args.get("quoted")))


_HANDLERS: dict[type[exp.Expr], Callable[[Translator, exp.Expr, Span], Value]] = {
    exp.Literal: Translator._literal,
    exp.Null: Translator._null,
    exp.Boolean: Translator._boolean,
    exp.HexString: Translator._octets,
    TypedLiteral: Translator._moment,
    exp.Interval: Translator._interval,
    exp.Column: Translator._path,
    exp.Dot: Translator._path,
    exp.Bracket: Translator._element,
    exp.And: Translator._logic,
    exp.Or: Translator._logic,
    exp.Not: Translator._not,
    exp.Neg: Translator._negative,
    exp.Paren: Translator._paren,
    exp.Is: Translator._is,
    exp.NullSafeEQ: Translator._distinct,
    exp.NullSafeNEQ: Translator._distinct,
    exp.Between: Translator._between,
    exp.In: Translator._in,
    exp.Like: Translator._like,
    exp.Escape: Translator._like,
    exp.DPipe: Translator._concatenated,
    exp.Case: Translator._case,
    CastTo: Translator._cast,
    exp.Array: Translator._array,
    exp.Anonymous: Translator._function,
}
