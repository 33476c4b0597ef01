"""INTERVAL '1 02:30' DAY TO MINUTE: read, checked, written as Spark's two interval types."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

from sqlglot import exp

from tidegate.pipelines.sql.values import Value
from tidegate.pipelines.syntax.types import FlinkType, Kind

_MONTHS = {"YEAR": 12, "QUARTER": 3, "MONTH": 1}
_MICROS = {
    "WEEK": 604_800_000_000,
    "DAY": 86_400_000_000,
    "HOUR": 3_600_000_000,
    "MINUTE": 60_000_000,
    "SECOND": 1_000_000,
}
_SPARK_UNITS = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")
_ORDER = ("DAY", "HOUR", "MINUTE", "SECOND")
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
    plain = f"INTERVAL '{sign}{text}' {first}" if last is None and first in _SPARK_UNITS else None
    if first in _MONTHS:
        sql = plain or f"INTERVAL '{sign}{amount // 12}-{amount % 12}' YEAR TO MONTH"
        return Value(sql, FlinkType(Kind.MONTH_INTERVAL), constant=DAYS)
    days, rest = divmod(amount, _MICROS["DAY"])
    seconds, micros = divmod(rest, 1_000_000)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{micros:06}"
    sql = f"INTERVAL '{sign}{days}' DAY" if not rest else f"INTERVAL '{sign}{days} {clock}' DAY TO SECOND"
    sql = plain or sql
    return Value(sql, FlinkType(Kind.DAY_INTERVAL), constant=None if rest else DAYS)


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
    first, last = _units(tree)
    text = tree.this.this.strip()
    plain = text.lstrip("+-")
    return plain, text.startswith("-"), _single(plain, first) if last is None else _span(plain, first, last)


def _single(text: str, unit: str) -> int | None:
    number = _number(text)
    if number is None or (unit != "SECOND" and number != int(number)):
        return None
    scaled = number * (_MONTHS.get(unit) or _MICROS[unit])
    return int(scaled) if scaled == int(scaled) else None


def _span(text: str, first: str, last: str) -> int | None:
    if (first, last) == ("YEAR", "MONTH"):
        parts, names = text.split("-"), ["YEAR", "MONTH"]
    elif first in _ORDER and last in _ORDER and _ORDER.index(first) < _ORDER.index(last):
        parts = text.replace(" ", ":", 1).split(":") if first == "DAY" else text.split(":")
        names = list(_ORDER[_ORDER.index(first) : _ORDER.index(last) + 1])
    else:
        return None
    if len(parts) != len(names):
        return None
    total = 0
    for place, (part, name) in enumerate(zip(parts, names, strict=True)):
        amount = _single(part, name)
        scale = _MONTHS.get(name) or _MICROS[name]
        if amount is None or (place and amount >= _MOST[name] * scale):
            return None
        total += amount
    return total


def _number(text: str) -> Decimal | None:
    if not text or not set(text) <= set("0123456789."):
        return None
    try:
        return Decimal(text)
    except InvalidOperation:
        return None
