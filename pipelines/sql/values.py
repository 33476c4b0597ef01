"""A translated expression, and literals as Spark SQL: strings, numbers, and INTERVAL '1 02:30' DAY TO MINUTE as Spark's
two interval types.
"""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass, field
from decimal import Decimal

from sqlglot import exp

from tidegate.pipelines.syntax.types import (
    APPROXIMATE,
    MAX_PRECISION,
    NULL,
    FlinkType,
    Kind,
    decimal,
)

Constant = int | Decimal | str | None


@dataclass(frozen=True)
class Value:
    """Spark SQL and its properties.

    `literal`: the expression is a constant as written, its value is `constant`. `column`: it is just that column,
    (alias, name). `aliases`: the tables that it reads. `digits`: those of a second that an INTERVAL of days has.
    """

    sql: str
    type: FlinkType
    literal: bool = False
    constant: Constant = None
    column: tuple[str, str] | None = None
    aliases: frozenset[str] = field(default_factory=frozenset)
    digits: int = 0

    def to(self, target: FlinkType) -> str:
        """Spark SQL of the value as an `assignable` type; unchanged where Spark's type is the same already."""
        return self.sql if self.type.spark == target.spark else f"CAST({self.sql} AS {target.spark})"


def derived(sql: str, of: FlinkType, *parts: Value) -> Value:
    """What is computed of `parts`."""
    return Value(sql, of, aliases=frozenset().union(*(part.aliases for part in parts)))


def null_value() -> Value:
    return Value("NULL", NULL, literal=True)


def number_value(text: str) -> Value | None:
    """A numeric constant: INT, BIGINT, DECIMAL or, with an exponent, DOUBLE. None when it has more than 38 digits,
    or is more than a DOUBLE can be."""
    if "e" in text.lower():
        if math.isinf(float(text)):
            return None
        return Value(f"{text}D", FlinkType(Kind.DOUBLE), literal=True, constant=Decimal(text))
    if text.isdecimal():
        digits = text.lstrip("0") or "0"
        return integer_value(int(digits)) if len(digits) <= MAX_PRECISION else None
    number = Decimal(text)
    exponent = number.as_tuple().exponent
    scale = -exponent if isinstance(exponent, int) else 0
    precision = max(len(number.as_tuple().digits), scale, 1)
    if precision > MAX_PRECISION:
        return None
    return Value(f"{number:f}BD", decimal(precision, scale), literal=True, constant=number)


def integer_value(number: int) -> Value | None:
    """An integer constant, as narrow as Flink makes it: INT, else BIGINT, else DECIMAL."""
    if -(2**31) <= number < 2**31:
        return Value(str(number), FlinkType(Kind.INT), literal=True, constant=number)
    if -(2**63) <= number < 2**63:
        return Value(f"{number}L", FlinkType(Kind.BIGINT), literal=True, constant=number)
    precision = len(str(abs(number)))
    if precision > MAX_PRECISION:
        return None
    return Value(f"{number}BD", decimal(precision, 0), literal=True, constant=number)


def fits(constant: Constant, target: FlinkType) -> bool:
    """Whether a numeric constant is a value of `target`, whatever type it would have by itself."""
    bits = {Kind.TINYINT: 8, Kind.SMALLINT: 16, Kind.INT: 32, Kind.BIGINT: 64}
    if isinstance(constant, int) and target.kind in bits:
        limit = 2 ** (bits[target.kind] - 1)
        return -limit <= constant < limit
    if not isinstance(constant, int | Decimal):
        return False
    if target.kind in APPROXIMATE:
        return _held_by_float(constant, target)
    if target.kind is not Kind.DECIMAL:
        return False
    scale = target.scale or 0
    scaled = Decimal(constant).scaleb(scale)
    return scaled == scaled.to_integral_value() and abs(scaled) < Decimal(10) ** (target.precision or 0)


def _held_by_float(constant: int | Decimal, target: FlinkType) -> bool:
    """Whether a FLOAT or DOUBLE takes a constant: a whole one exactly, one with a point as the nearest value."""
    layout = "<f" if target.kind is Kind.FLOAT else "<d"
    try:
        (nearest,) = struct.unpack(layout, struct.pack(layout, constant))
    except OverflowError:
        return False
    return nearest == constant or not isinstance(constant, int)


_MONTHS = {"YEAR": 12, "QUARTER": 3, "MONTH": 1}
_MICROS = {
    "WEEK": 604_800_000_000,
    "DAY": 86_400_000_000,
    "HOUR": 3_600_000_000,
    "MINUTE": 60_000_000,
    "SECOND": 1_000_000,
}
_SPANS = (("YEAR", "MONTH"), ("DAY", "HOUR", "MINUTE", "SECOND"))
"""The units that an interval may reach over, of months and of microseconds."""
_MOST = {"HOUR": 24, "MINUTE": 60, "SECOND": 60, "MONTH": 12}
DAYS = "days"
"""The constant of an interval of whole days, months or years: it may be added to a DATE."""


def interval_value(tree: exp.Expr) -> Value | None:
    """The interval as a value; None when its text does not fit its units."""
    first, last = _units(tree)
    text, negative, amount = _amount(tree)
    if amount is None or amount >= (2**31 if first in _MONTHS else 2**63):  # Spark's INT of months, BIGINT of µs
        return None
    sign = "-" if negative and amount else ""
    plain = f"INTERVAL '{sign}{text}' {first}" if last is None and any(first in units for units in _SPANS) else None
    if first in _MONTHS:
        sql = plain or f"INTERVAL '{sign}{amount // 12}-{amount % 12}' YEAR TO MONTH"
        return Value(sql, FlinkType(Kind.MONTH_INTERVAL), constant=DAYS)
    days, rest = divmod(amount, _MICROS["DAY"])
    seconds, micros = divmod(rest, 1_000_000)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{micros:06}"
    sql = f"INTERVAL '{sign}{days}' DAY" if not rest else f"INTERVAL '{sign}{days} {clock}' DAY TO SECOND"
    digits = len(f"{micros:06}".rstrip("0")) if micros else 0
    return Value(plain or sql, FlinkType(Kind.DAY_INTERVAL), constant=None if rest else DAYS, digits=digits)


def length(tree: exp.Interval) -> int | None:
    """How long an interval is, in microseconds; None for one of months or years, or whose text does not fit."""
    _, negative, amount = _amount(tree)
    if amount is None or _units(tree)[0] in _MONTHS:
        return None
    return -amount if negative else amount


def _units(tree: exp.Expr) -> tuple[str, str | None]:
    unit = tree.args["unit"]
    return (unit.this.name, unit.expression.name) if isinstance(unit, exp.IntervalSpan) else (unit.name, None)


def _amount(tree: exp.Expr) -> tuple[str, bool, int | None]:
    """An interval's text without its sign, whether that is a minus, and its length in microseconds or months."""
    text = tree.this.this.strip()
    plain = text.lstrip("+-")
    return plain, text.startswith("-"), _total(plain, *_units(tree))


def _total(text: str, first: str, last: str | None) -> int | None:
    """The length that a text spells in one unit, or from a `first` to a `last` one; None where it does not fit them."""
    units, parts = [first], [text]
    if last is not None:
        line = next((line for line in _SPANS if first in line and last in line), ())
        units = [unit for unit in line if line.index(first) <= line.index(unit) <= line.index(last)]
        parts = (text.replace(" ", ":", 1) if first == "DAY" else text).split("-" if first == "YEAR" else ":")
        if len(units) < 2 or len(parts) != len(units):
            return None
    total = 0
    for place, (part, unit) in enumerate(zip(parts, units, strict=True)):
        number = Decimal(part) if re.fullmatch(r"[0-9]+\.?[0-9]*|\.[0-9]+", part) else None
        if number is None or (unit != "SECOND" and number != int(number)) or (place and number >= _MOST[unit]):
            return None
        scaled = number * (_MONTHS.get(unit) or _MICROS[unit])
        if scaled != int(scaled):
            return None
        total += int(scaled)
    return total
