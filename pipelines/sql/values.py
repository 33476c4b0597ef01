"""A translated expression, and the writing of Spark SQL literals."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from decimal import Decimal

from tidegate.pipelines.syntax.types import MAX_PRECISION, NULL, STRING, FlinkType, Kind, decimal, spark_string

Constant = int | Decimal | str | None


@dataclass(frozen=True)
class Value:
    """Spark SQL and what is known of it.

    `literal`: the expression is a constant as written, its value is `constant`. `column`: it is nothing but that
    column, (alias, name). `aliases`: the tables it looks at.
    """

    sql: str
    type: FlinkType
    literal: bool = False
    constant: Constant = None
    column: tuple[str, str] | None = None
    aliases: frozenset[str] = field(default_factory=frozenset)


def string_value(text: str) -> Value:
    """A string constant."""
    return Value(spark_string(text), STRING, literal=True, constant=text)


def null_value() -> Value:
    """NULL."""
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
    if target.kind in (Kind.FLOAT, Kind.DOUBLE):
        return True
    if target.kind is not Kind.DECIMAL:
        return False
    scale = target.scale or 0
    scaled = Decimal(constant).scaleb(scale)
    return scaled == scaled.to_integral_value() and abs(scaled) < Decimal(10) ** (target.precision or 0)
