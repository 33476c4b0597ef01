"""Conversions between types: which are assigned implicitly, compared, brought to a common type, or cast; and the types
and the Spark SQL of arithmetic and comparison.

Assigning follows Flink's implicit casts as far as they lose nothing: an INT fits a BIGINT and a DOUBLE, a BIGINT does
not fit a DOUBLE; lengths of strings are not enforced, as in Flink by default. Sessions run in UTC, so TIMESTAMP and
TIMESTAMP_LTZ turn into each other without loss.

Result types are Flink's: integers divide to integers, decimals grow by the rule that Flink and Spark share. An overflow
is an error of the run, as in Spark, never a wrong number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce

from tidegate.pipelines.sql.values import Value, derived
from tidegate.pipelines.syntax.types import (
    APPROXIMATE,
    BINARIES,
    DOUBLE,
    INTEGERS,
    INTERVALS,
    MAX_FRACTION,
    MAX_PRECISION,
    MOMENTS,
    NESTED,
    NUMERIC,
    STRING,
    STRINGS,
    TIMESTAMPS,
    FlinkType,
    Kind,
    decimal,
)

_WIDTH = {kind: position for position, kind in enumerate(INTEGERS)}
_EXACT_IN = {
    Kind.FLOAT: (Kind.TINYINT, Kind.SMALLINT),
    Kind.DOUBLE: (Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.FLOAT),
}


def digits(of: FlinkType) -> tuple[int, int]:
    """Digits before and after the point that an integer or a DECIMAL may have."""
    if of.kind is Kind.DECIMAL:
        precision, scale = of.precision or 0, of.scale or 0
        return precision - scale, scale
    return INTEGERS[of.kind], 0


def as_decimal(of: FlinkType) -> FlinkType:
    """The DECIMAL that holds every value of an integer or DECIMAL type."""
    whole, scale = digits(of)
    return decimal(whole + scale, scale)


def assignable(source: FlinkType, target: FlinkType) -> bool:
    """Whether every value of `source` is one of `target`, so that INSERT may cast it without a CAST in the script."""
    have, want = source.kind, target.kind
    if have is Kind.NULL:
        return True
    if any(have in family and want in family for family in (STRINGS, BINARIES)):
        return True
    if have in TIMESTAMPS and want in TIMESTAMPS:
        return (source.precision or 0) <= (target.precision or 0)
    if have in INTEGERS and want in INTEGERS:
        return _WIDTH[have] <= _WIDTH[want]
    if want is Kind.DECIMAL and (have in INTEGERS or have is Kind.DECIMAL):
        return all(here <= there for here, there in zip(digits(source), digits(target), strict=True))
    if want in APPROXIMATE and have is not want:
        return have in _EXACT_IN[want]
    parts, wanted = source.parts, target.parts
    return have is want and len(parts) == len(wanted) and all(map(assignable, parts, wanted))


def comparable(left: FlinkType, right: FlinkType) -> bool:
    """Whether `=`, `<` and the like make sense between two types, and are exact if both are: if no DECIMAL holds the
    values of both DECIMALs, Spark would round one before it compares."""
    kinds = {left.kind, right.kind}
    if Kind.MAP in kinds or kinds & INTERVALS:
        return False
    if Kind.NULL in kinds:
        return True
    if kinds <= NUMERIC:
        return bool(kinds & APPROXIMATE) or _held_by_one(left, right)
    if any(kinds <= family for family in (STRINGS, BINARIES, TIMESTAMPS)):
        return True
    return left.kind is right.kind and (left.kind not in NESTED or left.null() == right.null())


def _held_by_one(left: FlinkType, right: FlinkType) -> bool:
    """Whether one DECIMAL holds the values of two exact types. Spark takes a BIGINT for one of 20 digits."""
    whole, scale = (max(pair) for pair in zip(digits(left), digits(right), strict=True))
    return whole + (Kind.BIGINT in (left.kind, right.kind) and whole == INTEGERS[Kind.BIGINT]) + scale <= MAX_PRECISION


def narrowed(value: Value) -> FlinkType:
    """The type of a value that is compared: a whole constant has as many digits as it is written with."""
    if value.literal and isinstance(value.constant, int) and not isinstance(value.constant, bool):
        return decimal(min(len(str(abs(value.constant))), MAX_PRECISION), 0)
    return value.type


def looked_up_as(value: Value, key: FlinkType) -> bool:
    """Whether a value can be cast to the type of the elements, or of a MAP's keys, among which it is looked up. A cast
    that rounds would find a value that is not equal."""
    numbers = {value.type.kind, key.kind} <= NUMERIC
    return not numbers or assignable(value.type, key) or (value.literal and isinstance(value.constant, int))


def common(types: Iterable[FlinkType]) -> FlinkType | None:
    """The narrowest type that all of `types` fit into, DECIMALs by the rule of `bounded_decimal`; None when there is
    none."""
    known = [found.null() for found in types if found.kind is not Kind.NULL]
    if not known:
        return FlinkType(Kind.NULL)
    return reduce(_wider, known[1:], known[0])


def common_exact(values: Sequence[Value]) -> FlinkType | None:
    """The type of values that are returned or compared (CASE, COALESCE, IN); None also where a DECIMAL of 38 digits
    would cut some of them."""
    for types in ([value.type for value in values], [narrowed(value) for value in values]):
        found = common(types)
        if found is None or found.kind is not Kind.DECIMAL or all(assignable(of, found) for of in types):
            return found
    return None


def _wider(left: FlinkType | None, right: FlinkType) -> FlinkType | None:
    if left is None or left == right:
        return left
    kinds = {left.kind, right.kind}
    if kinds <= STRINGS:
        return STRING
    if kinds <= BINARIES:
        return FlinkType(Kind.BYTES)
    if kinds <= NUMERIC:
        return _wider_number(left, right)
    if len(kinds) == 1 and left.kind in TIMESTAMPS:
        return left if (left.precision or 0) >= (right.precision or 0) else right
    return None


def _wider_number(left: FlinkType, right: FlinkType) -> FlinkType:
    kinds = {left.kind, right.kind}
    if kinds <= set(INTEGERS):
        return left if _WIDTH[left.kind] >= _WIDTH[right.kind] else right
    if Kind.DOUBLE in kinds or (Kind.FLOAT in kinds and Kind.DECIMAL in kinds):
        return FlinkType(Kind.DOUBLE)
    if Kind.FLOAT in kinds:
        return FlinkType(Kind.FLOAT)
    whole, scale = (max(pair) for pair in zip(digits(left), digits(right), strict=True))
    return bounded_decimal(whole + scale, scale)


def bounded_decimal(precision: int, scale: int) -> FlinkType:
    """DECIMAL(precision, scale), reduced to 38 digits if it is larger: up to 6 digits after the point are preserved.

    The rule that Flink and Spark both have from Hive.
    """
    if precision <= MAX_PRECISION:
        return decimal(precision, scale)
    whole = precision - scale
    return decimal(MAX_PRECISION, max(MAX_PRECISION - whole, min(scale, 6)))


def castable(source: FlinkType, target: FlinkType) -> bool:
    """Whether CAST takes `source` to `target` (Flink's table, without what Spark would do differently)."""
    kinds = {source.kind, target.kind}
    if assignable(source, target):
        return True
    if kinds & (NESTED | INTERVALS):
        return False
    if kinds & STRINGS or any(kinds <= family for family in (BINARIES, NUMERIC, MOMENTS)):
        return True
    if source.kind is Kind.BOOLEAN:
        return target.kind in NUMERIC
    return target.kind is Kind.BOOLEAN and source.kind in INTEGERS


def cast_to_one(types: Iterable[FlinkType], *, compared: bool = False) -> bool:
    """Whether CAST takes all of `types` to one of them; with `compared`, to one that has an order.

    Messages that suggest a CAST check this first: no interval and no ARRAY can be cast to anything.
    """
    known = [of for of in types if of.kind is not Kind.NULL]
    return any(
        all(castable(of, target) for of in known) and (not compared or comparable(target, target)) for target in known
    )


def cast(sql: str, source: FlinkType, target: FlinkType, *, safe: bool = False) -> str:
    """Spark SQL for a cast that `castable` allows, with Flink's result.

    A timestamp's text keeps all digits of its precision, a BOOLEAN's text is TRUE or FALSE, CHAR and BINARY are filled
    up and cut, digits of a second beyond the target's precision are cut off.
    """
    word = "try_cast" if safe else "CAST"
    if target.kind in STRINGS:
        return _sized(_text(sql, source, word), target, "' '")
    if target.kind in BINARIES:
        return _sized(f"{word}({sql} AS BINARY)", target, "X'00'")
    if target.kind in TIMESTAMPS and _finer(source, target):
        return _truncated(f"{word}({sql} AS TIMESTAMP)", target)
    return f"{word}({sql} AS {target.spark})"


def _text(sql: str, source: FlinkType, word: str) -> str:
    if source.kind in STRINGS:
        return sql
    if source.kind in TIMESTAMPS:
        fraction = f".{'S' * source.precision}" if source.precision else ""
        return f"date_format({sql}, 'yyyy-MM-dd HH:mm:ss{fraction}')"
    if source.kind is Kind.BOOLEAN:
        return f"upper(CAST({sql} AS STRING))"
    if source.kind in BINARIES:  # Spark takes any bytes for a text, which others cannot read
        return f"{'try_validate_utf8' if word == 'try_cast' else 'validate_utf8'}(CAST({sql} AS STRING))"
    return f"{word}({sql} AS STRING)"


def _sized(sql: str, target: FlinkType, filler: str) -> str:
    if target.kind in (Kind.CHAR, Kind.BINARY):
        return f"rpad({sql}, {target.precision}, {filler})"
    if target.kind in (Kind.VARCHAR, Kind.VARBINARY):
        return f"substring({sql}, 1, {target.precision})"
    return sql


def _finer(source: FlinkType, target: FlinkType) -> bool:
    if target.precision == MAX_FRACTION or source.kind is Kind.DATE:
        return False
    return source.kind not in TIMESTAMPS or (source.precision or 0) > (target.precision or 0)


def _truncated(sql: str, target: FlinkType) -> str:
    """`sql` (a Spark TIMESTAMP) without the digits of a second that `target` does not have."""
    units = {0: "SECOND", 3: "MILLISECOND"}
    if target.precision in units:
        cut = f"date_trunc('{units[target.precision]}', {sql})"
    else:
        step = 10 ** (MAX_FRACTION - (target.precision or 0))
        cut = f"timestamp_micros(unix_micros({sql}) - pmod(unix_micros({sql}), {step}L))"
    return cut if target.kind is Kind.TIMESTAMP_LTZ else f"CAST({cut} AS TIMESTAMP_NTZ)"


def arithmetic(sign: str, left: Value, right: Value) -> Value | None:
    """`left sign right`; None when the types do not go together."""
    moved = _moved(sign, left, right) or _times(sign, left, right)
    if moved is not None:
        return moved
    if not {left.type.kind, right.type.kind} <= NUMERIC | {Kind.NULL}:
        return None
    if sign == "%":
        return modulo(left, right)
    wide = common([left.type, right.type])
    if wide is None:
        return None
    if wide.kind is Kind.NULL:
        return derived("NULL", wide, left, right)
    if wide.kind is Kind.DECIMAL:
        return _decimals(sign, left, right)
    if sign == "/" and wide.kind in INTEGERS:
        return derived(f"CAST(({left.to(wide)} DIV {right.to(wide)}) AS {wide.spark})", wide, left, right)
    sql = f"({left.to(wide)} {sign} {right.to(wide)})"
    return derived(f"CAST({sql} AS FLOAT)" if sign == "/" and wide.kind is Kind.FLOAT else sql, wide, left, right)


def _decimals(sign: str, left: Value, right: Value) -> Value:
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
    return derived(f"({left.to(a)} {sign} {right.to(b)})", gives, left, right)


def _number(of: FlinkType) -> FlinkType:
    return FlinkType(Kind.INT) if of.kind is Kind.NULL else of


def modulo(left: Value, right: Value) -> Value:
    """`left % right`."""
    gives = _modulo_type(left.type, right.type)
    return derived(f"CAST(({left.sql} % {right.sql}) AS {gives.spark})", gives, left, right)


def _modulo_type(left: FlinkType, right: FlinkType) -> FlinkType:
    """The divisor's for integers."""
    if {left.kind, right.kind} & APPROXIMATE:
        return DOUBLE
    if right.kind in INTEGERS and left.kind in INTEGERS:
        return right.null()
    (whole_a, scale_a), (whole_b, scale_b) = digits(_number(left)), digits(_number(right))
    scale = max(scale_a, scale_b)
    return bounded_decimal(min(whole_a, whole_b) + scale, scale)


def _moved(sign: str, left: Value, right: Value) -> Value | None:
    """The sum or difference of a moment and an interval, or of two intervals."""
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
    digits_of_second = max(left.type.precision or 0 if moves else left.digits, right.digits)
    of = replace(left.type.null(), precision=digits_of_second) if moves else left.type.null()
    return replace(derived(sql, of, left, right), digits=0 if moves else digits_of_second)


def _times(sign: str, left: Value, right: Value) -> Value | None:
    """An interval times a number; whole numbers only for months and years."""
    number, one = (left, right) if right.type.kind in INTERVALS else (right, left)
    if sign != "*" or one.type.kind not in INTERVALS or number.type.kind not in NUMERIC:
        return None
    whole = number.type.kind in INTEGERS
    if not whole and one.type.kind is Kind.MONTH_INTERVAL:
        return None
    found = derived(f"({number.sql} * {one.sql})", one.type.null(), left, right)
    return replace(found, constant=one.constant if whole else None, digits=one.digits if whole else MAX_FRACTION)


def compared(sign: str, left: Value, right: Value) -> str:
    """Spark SQL of a comparison of `comparable` types."""
    kinds = {left.type.kind, right.type.kind}
    if kinds == {Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ}:
        wide = FlinkType(Kind.TIMESTAMP_LTZ, 6)
        return f"({left.to(wide)} {sign} {right.to(wide)})"
    return f"({left.sql} {sign} {right.sql})"
