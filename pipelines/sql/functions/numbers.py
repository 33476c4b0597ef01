"""ABS, ROUND, POWER, …"""

from __future__ import annotations

from tidegate.pipelines.sql.coercion import modulo
from tidegate.pipelines.sql.functions.function import NUMBER, WHOLE, Call, Function, alike, same
from tidegate.pipelines.syntax.types import DOUBLE, INTEGERS, MAX_PRECISION, STRING, FlinkType, Kind, decimal


def _rounded_type(call: Call) -> FlinkType:
    of = call.types[0].null()
    places = _places(call)
    if of.kind is not Kind.DECIMAL:
        return of
    precision, scale = of.precision or 0, of.scale or 0
    if places >= scale:
        return of
    whole = min(MAX_PRECISION, 1 + precision - scale)
    return decimal(whole, 0) if places < 0 else decimal(min(MAX_PRECISION, whole + places), places)


def _places(call: Call) -> int:
    if len(call.arguments) == 1:
        return 0
    places = call.arguments[1].constant
    if not isinstance(places, int):
        call.refuse("the number of digits of ROUND is a constant", "ROUND(price, 2)", 1)
    return places


def _round(call: Call) -> str:
    return f"CAST(round({', '.join(call.sqls)}) AS {_rounded_type(call).spark})"


def _whole_type(call: Call) -> FlinkType:
    of = call.types[0].null()
    return decimal(of.precision or 1, 0) if of.kind is Kind.DECIMAL else of


def _whole(function: str):
    def write(call: Call) -> str:
        sql, of = call.sqls[0], call.types[0]
        if of.kind in INTEGERS:
            return sql
        if of.kind is Kind.DECIMAL:
            return f"CAST({function}({sql}) AS {_whole_type(call).spark})"
        # Spark gives a BIGINT, which cuts off greater values; those have no digits after the point anyway.
        return f"CASE WHEN abs({sql}) < 9e15D THEN CAST({function}({sql}) AS {of.spark}) ELSE {sql} END"

    return write


_OF_ONE = """
    SQRT LN LOG10 LOG2 EXP SIN COS TAN COT ASIN ACOS ATAN SINH COSH TANH ASINH ACOSH ATANH CBRT DEGREES RADIANS
"""

FUNCTIONS = (
    *alike((NUMBER,), DOUBLE, _OF_ONE),
    *alike((NUMBER, NUMBER), DOUBLE, "POWER ATAN2"),
    *alike((), DOUBLE, "PI E"),
    *alike((WHOLE,), STRING, "BIN"),
    Function(("ABS",), (NUMBER,), same(0), "abs({0})"),
    Function(("ROUND",), (NUMBER, WHOLE), _rounded_type, _round, least=1),
    Function(("FLOOR",), (NUMBER,), _whole_type, _whole("floor"), usage="FLOOR(number) or FLOOR(time TO unit)"),
    Function(("CEIL", "CEILING"), (NUMBER,), _whole_type, _whole("ceil"), usage="CEIL(number) or CEIL(time TO unit)"),
    Function(("SIGN",), (NUMBER,), same(0), lambda call: f"CAST(sign({call.sqls[0]}) AS {call.types[0].spark})"),
    Function(
        ("MOD",), (NUMBER, NUMBER), lambda call: modulo(*call.arguments).type, lambda call: modulo(*call.arguments).sql
    ),
    Function(("LOG",), (NUMBER, NUMBER), DOUBLE, "log({all})", least=1),
)
