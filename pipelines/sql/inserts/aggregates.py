"""SQL's aggregates: what is stored of a window for each, as Spark adds it up, and what they give, with Flink's types.

SUM and AVG of integers and DECIMALs are exact: what does not fit the result's type stops the run.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from tidegate.pipelines.process.windows.windowed import Part
from tidegate.pipelines.sql.coercion import castable
from tidegate.pipelines.sql.functions.function import Call
from tidegate.pipelines.sql.scope import unused
from tidegate.pipelines.sql.values import Value
from tidegate.pipelines.syntax.types import (
    APPROXIMATE,
    BIGINT,
    BINARIES,
    DOUBLE,
    INTEGERS,
    INTERVALS,
    MAX_PRECISION,
    NESTED,
    NUMERIC,
    FlinkType,
    Kind,
    array_of,
    decimal,
    quoted,
)

_EXACT_SUM = {kind: BIGINT for kind in (Kind.TINYINT, Kind.SMALLINT, Kind.INT)}
"""The type that sums of narrow integers are stored in: no number of rows makes them overflow."""


@dataclass
class Parts:
    """The parts that a statement's aggregates need, each once. `taken`: names that they must not have."""

    taken: set[str]
    found: dict[tuple[str, str], Part] = field(default_factory=dict)

    def need(self, kind: str, expression: str, of: FlinkType, name: str) -> str:
        """The column, quoted, of a part: `expression` is its Spark aggregate."""
        known = self.found.get((kind, expression))
        if known is None:
            name = unused(name, self.taken)
            self.taken.add(name.casefold())
            known = Part(name, kind, expression, str(of.null()), of.spark)  # type: ignore[arg-type]
            self.found[kind, expression] = known
        return quoted(known.name)


def aggregate(call: Call, distinct: bool, star: bool, parts: Parts) -> Value:
    """The value of an aggregate over what is stored. Raises SqlError: unknown, wrong arguments."""
    rule = RULES.get(call.name)
    if rule is None:
        call.refuse(f"the aggregate {call.name} is not supported", f"there are {', '.join(RULES)}")
    if star:
        if call.name != "COUNT":
            call.refuse(f"{call.name}(*) is not supported", "only COUNT takes `*`")
        return Value(parts.need("sum", "count(1)", BIGINT, "rows"), BIGINT.not_null())
    if len(call.arguments) != 1:
        given = len(call.arguments)
        what = f"{call.name} does not take {given} argument{'' if given == 1 else 's'}"
        call.refuse(what, f"call it as {call.name}(expression)")
    if call.arguments[0].type.kind is Kind.NULL:
        call.refuse(f"type clash: {call.name} of a bare NULL", "CAST(NULL AS type) gives it one", 0)
    return rule(call, distinct, parts)


def _count(call: Call, distinct: bool, parts: Parts) -> Value:
    of, sql = call.arguments[0].type, call.sqls[0]
    if not distinct:
        return Value(parts.need("sum", f"count({sql})", BIGINT, _named("count", call)), BIGINT.not_null())
    if of.kind in {*NESTED, *APPROXIMATE, *INTERVALS}:
        hint = "CAST it to a DECIMAL or a STRING" if of.kind in APPROXIMATE else None
        call.refuse(f"type clash: COUNT(DISTINCT …) of {of.null()}", hint, 0)
    kept = parts.need("set", f"collect_set({sql})", array_of(of.null()), _named("distinct", call))
    return Value(kept, BIGINT.not_null())


def _sum(call: Call, distinct: bool, parts: Parts) -> Value:
    of = _number(call, distinct)
    gives = decimal(MAX_PRECISION, of.scale or 0) if of.kind is Kind.DECIMAL else of
    return _value(f"CAST({_kept_sum(call, parts)} AS {gives.spark})", gives, call)


def _avg(call: Call, distinct: bool, parts: Parts) -> Value:
    of, total = _number(call, distinct), _kept_sum(call, parts)
    count = f"nullif({parts.need('sum', f'count({call.sqls[0]})', BIGINT, _named('count', call))}, 0L)"
    if of.kind in INTEGERS:
        return _value(f"CAST(({total} DIV {count}) AS {of.spark})", of, call)
    if of.kind is Kind.DECIMAL:
        gives = decimal(MAX_PRECISION, max(6, of.scale or 0))
        return _value(f"CAST({total} / CAST({count} AS DECIMAL(20, 0)) AS {gives.spark})", gives, call)
    return _value(f"CAST({total} / {count} AS {of.spark})", of, call)


def _extreme(call: Call, distinct: bool, parts: Parts) -> Value:
    kind, of = call.name.lower(), call.arguments[0].type
    if of.kind in {*NESTED, *BINARIES, *INTERVALS}:
        call.refuse(f"type clash: {call.name} of {of.null()}", "it takes what has an order", 0)
    return _value(parts.need(kind, f"{kind}({call.sqls[0]})", of, _named(kind, call)), of, call)


def _kept_sum(call: Call, parts: Parts) -> str:
    of, sql = call.arguments[0].type, call.sqls[0]
    if of.kind in APPROXIMATE:
        summed_as = DOUBLE
    elif of.kind is Kind.DECIMAL:
        summed_as = decimal(MAX_PRECISION, of.scale or 0)
    else:
        summed_as = _EXACT_SUM.get(of.kind, decimal(MAX_PRECISION, 0))
    summed = f"CAST({sql} AS DECIMAL(19, 0))" if of.kind is Kind.BIGINT else sql
    return parts.need("sum", f"CAST(sum({summed}) AS {summed_as.spark})", summed_as, _named("sum", call))


def _number(call: Call, distinct: bool) -> FlinkType:
    of = call.arguments[0].type
    if distinct:
        call.refuse(f"{call.name}(DISTINCT …) is not supported", "COUNT, MIN and MAX take DISTINCT")
    if of.kind not in NUMERIC:
        hint = "CAST(… AS type) changes a type" if castable(of, BIGINT) else None
        call.refuse(f"type clash: {call.name} takes a number, not {of.null()}", hint, 0)
    return of.null()


def _value(sql: str, of: FlinkType, call: Call) -> Value:
    """A window has a row, so of an argument that is NOT NULL there is a result."""
    return Value(sql, of.null() if call.arguments[0].type.nullable else of.not_null())


def _named(kind: str, call: Call) -> str:
    """What a part is called in the state's table."""
    column = call.arguments[0].column
    return f"{kind}_{column[1]}" if column and re.fullmatch(r"\w+", column[1]) else kind


RULES: dict[str, Callable[[Call, bool, Parts], Value]] = {
    "COUNT": _count,
    "SUM": _sum,
    "MIN": _extreme,
    "MAX": _extreme,
    "AVG": _avg,
}
"""The aggregates that there are."""
