"""Arithmetic and comparison: result types as in Flink, Spark SQL that gives them.

Integers divide to integers, decimals grow by the rule that Flink and Spark share. What overflows is an error of the
run, as Spark has it, never a wrong number.
"""

from __future__ import annotations

from tidegate.pipelines.sql.coercion import as_decimal, bounded_decimal, common, converted, digits
from tidegate.pipelines.sql.values import Value
from tidegate.pipelines.syntax.types import (
    APPROXIMATE,
    DOUBLE,
    INTEGERS,
    INTERVALS,
    NUMERIC,
    TIMESTAMPS,
    FlinkType,
    Kind,
)


def arithmetic(sign: str, left: Value, right: Value) -> Value | None:
    """`left sign right`; None when the types do not go together."""
    moved = _moved(sign, left, right) or _times(sign, left, right)
    if moved is not None:
        return moved
    if not {left.type.kind, right.type.kind} <= NUMERIC | {Kind.NULL}:
        return None
    if sign == "%":
        return _value(modulo(left, right), modulo_type(left.type, right.type), left, right)
    wide = common([left.type, right.type])
    if wide is None:
        return None
    if wide.kind is Kind.NULL:
        return _value("NULL", wide, left, right)
    if wide.kind is Kind.DECIMAL:
        return _value(*_decimals(sign, left, right), left, right)
    a, b = converted(left.sql, left.type, wide), converted(right.sql, right.type, wide)
    if sign == "/" and wide.kind in INTEGERS:
        return _value(f"CAST(({a} DIV {b}) AS {wide.spark})", wide, left, right)
    sql = f"({a} {sign} {b})"
    return _value(f"CAST({sql} AS FLOAT)" if sign == "/" and wide.kind is Kind.FLOAT else sql, wide, left, right)


def _value(sql: str, of: FlinkType, left: Value, right: Value) -> Value:
    return Value(sql, of, aliases=left.aliases | right.aliases)


def _decimals(sign: str, left: Value, right: Value) -> tuple[str, FlinkType]:
    a, b = as_decimal(_number(left.type)), as_decimal(_number(right.type))
    (whole_a, scale_a), (whole_b, scale_b) = digits(a), digits(b)
    if sign in "+-":
        scale = max(scale_a, scale_b)
        gives = bounded_decimal(max(whole_a, whole_b) + scale + 1, scale)
    elif sign == "*":
        gives = bounded_decimal(whole_a + scale_a + whole_b + scale_b + 1, scale_a + scale_b)
    else:
        scale = max(6, scale_a + whole_b + scale_b + 1)
        gives = bounded_decimal(whole_a + scale_b + scale, scale)
    return f"({converted(left.sql, left.type, a)} {sign} {converted(right.sql, right.type, b)})", gives


def _number(of: FlinkType) -> FlinkType:
    return FlinkType(Kind.INT) if of.kind is Kind.NULL else of


def modulo_type(left: FlinkType, right: FlinkType) -> FlinkType:
    """The type of `left % right`: the divisor's for integers."""
    if {left.kind, right.kind} & APPROXIMATE:
        return DOUBLE
    if right.kind in INTEGERS and left.kind in INTEGERS:
        return right.null()
    (whole_a, scale_a), (whole_b, scale_b) = digits(_number(left)), digits(_number(right))
    scale = max(scale_a, scale_b)
    return bounded_decimal(min(whole_a, whole_b) + scale, scale)


def modulo(left: Value, right: Value) -> str:
    """Spark SQL of `left % right`."""
    gives = modulo_type(left.type, right.type)
    return f"CAST(({left.sql} % {right.sql}) AS {gives.spark})"


def _moved(sign: str, left: Value, right: Value) -> Value | None:
    """A moment and an interval; or two intervals."""
    if sign == "+" and left.type.kind in INTERVALS and right.type.kind not in INTERVALS:
        left, right = right, left
    if right.type.kind not in INTERVALS or sign not in "+-":
        return None
    moves = left.type.kind in TIMESTAMPS
    whole_days = left.type.kind is Kind.DATE and right.constant == "days"
    if not moves and not whole_days and left.type.kind is not right.type.kind:
        return None
    sql = f"({left.sql} {sign} {right.sql})"
    if whole_days:
        sql = f"CAST({sql} AS DATE)"
    return _value(sql, left.type.null(), left, right)


def _times(sign: str, left: Value, right: Value) -> Value | None:
    """A number of intervals: whole ones of months and years."""
    number, one = (left, right) if right.type.kind in INTERVALS else (right, left)
    if sign != "*" or one.type.kind not in INTERVALS or number.type.kind not in NUMERIC:
        return None
    whole = number.type.kind in INTEGERS
    if not whole and one.type.kind is Kind.MONTH_INTERVAL:
        return None
    constant = one.constant if whole else None
    aliases = left.aliases | right.aliases
    return Value(f"({number.sql} * {one.sql})", one.type.null(), constant=constant, aliases=aliases)


def compared(sign: str, left: Value, right: Value) -> str:
    """Spark SQL of a comparison of `comparable` types."""
    kinds = {left.type.kind, right.type.kind}
    if kinds == {Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ}:
        wide = FlinkType(Kind.TIMESTAMP_LTZ, 6)
        return f"({converted(left.sql, left.type, wide)} {sign} {converted(right.sql, right.type, wide)})"
    return f"({left.sql} {sign} {right.sql})"
