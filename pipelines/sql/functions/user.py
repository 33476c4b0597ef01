"""Functions that a script declares itself: CREATE FUNCTION … LANGUAGE PYTHON, called like the built-in ones."""

from __future__ import annotations

from tidegate.pipelines.functions import Parameter, UserFunction
from tidegate.pipelines.sql.functions.function import NUMBER, OCTETS, TEXT, TRUTH, Call, Family, Function
from tidegate.pipelines.sql.values import Value
from tidegate.pipelines.syntax.dialect import parse_type
from tidegate.pipelines.syntax.types import INTEGERS, NUMERIC, TIMESTAMPS, FlinkType, Kind

ROW = "_split, _offset"
"""Every call gets the place of its row, so that a failure names it."""

_TAKES = {
    Kind.BIGINT: Family("integer or TIMESTAMP (its ms)", frozenset({*INTEGERS, *TIMESTAMPS})),
    Kind.DOUBLE: NUMBER,
    Kind.DECIMAL: Family("integer or DECIMAL", frozenset({*INTEGERS, Kind.DECIMAL})),
    Kind.STRING: TEXT,
    Kind.BOOLEAN: TRUTH,
    Kind.BYTES: OCTETS,
    Kind.DATE: Family("DATE", frozenset({Kind.DATE})),
    Kind.TIMESTAMP: Family("TIMESTAMP or TIMESTAMP_LTZ", frozenset(TIMESTAMPS)),
}
"""What may be passed for a parameter of a type. FLIP-66's example passes a TIMESTAMP for a long: it gets ms, UTC."""


def callable_in_sql(function: UserFunction) -> Function:
    """The record by which calls of `function` are checked and translated."""
    gives = parse_type(function.type)

    def result(call: Call) -> FlinkType:
        # Without a call where a NULL meets a parameter that takes none, so the result may be NULL then.
        pairs = zip(function.parameters, call.types, strict=False)
        passed_over = any(found.nullable and not parameter.takes_null for parameter, found in pairs)
        return gives if function.gives_null or passed_over else gives.not_null()

    def spark(call: Call) -> str:
        pairs = zip(function.parameters, call.arguments, strict=False)
        arguments = [_argument(parameter, argument) for parameter, argument in pairs]
        return f"{function.spark_name}({', '.join([ROW, *arguments])})"

    return Function(
        names=(function.name,),
        takes=tuple(_TAKES[parse_type(parameter.type).kind] for parameter in function.parameters),
        gives=result,
        spark=spark,
        least=sum(not parameter.optional for parameter in function.parameters),
        usage=function.signature.partition(" -> ")[0],
    )


def _argument(parameter: Parameter, argument: Value) -> str:
    wanted, have = parse_type(parameter.type), argument.type.kind
    if have in TIMESTAMPS and wanted.kind is Kind.BIGINT:
        return f"unix_millis(CAST({argument.sql} AS TIMESTAMP))"
    if have is Kind.NULL or (have in NUMERIC and argument.type.spark != wanted.spark):
        return f"CAST({argument.sql} AS {wanted.spark})"
    return argument.sql


__all__ = ["callable_in_sql"]
