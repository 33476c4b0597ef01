"""COALESCE, IF, NULLIF, …"""

from __future__ import annotations

from tidegate.pipelines.sql.coercion import cast_to_one, common, comparable, converted
from tidegate.pipelines.sql.functions.function import ANY, TRUTH, Call, Function
from tidegate.pipelines.syntax.types import BOOLEAN, FlinkType


def one_type(call: Call, first: int = 0) -> FlinkType:
    """The type that all arguments from `first` on fit into. Raises SqlError when there is none."""
    found = common(call.types[first:])
    if found is None:
        types = " and ".join(dict.fromkeys(map(str, call.types[first:])))
        hint = "CAST them to one type" if cast_to_one(call.types[first:]) else None
        call.refuse(f"type clash: {call.name} has arguments of types {types}", hint)
    return found


def all_as(call: Call, target: FlinkType, first: int = 0) -> list[str]:
    """The arguments from `first` on as Spark SQL of the type `target`."""
    return [converted(argument.sql, argument.type, target) for argument in call.arguments[first:]]


def _coalesce(call: Call) -> str:
    return f"coalesce({', '.join(all_as(call, one_type(call)))})"


def _extreme(function: str):
    def write(call: Call) -> str:
        target = one_type(call)
        if not comparable(target, target):
            call.refuse(f"type clash: values of type {target} cannot be compared")
        missing = " OR ".join(f"{sql} IS NULL" for sql in call.sqls)
        # Spark passes over NULLs, Flink does not.
        return f"CASE WHEN {missing} THEN NULL ELSE {function}({', '.join(all_as(call, target))}) END"

    return write


def _nullif(call: Call) -> str:
    left, right = call.arguments
    if not comparable(left.type, right.type):
        hint = "CAST one of them" if cast_to_one((left.type, right.type), compared=True) else None
        call.refuse(f"type clash: {left.type} and {right.type} cannot be compared", hint)
    return f"nullif({left.sql}, {right.sql})"


def _if(call: Call) -> str:
    target = one_type(call, 1)
    condition = call.arguments[0]
    return f"if({converted(condition.sql, condition.type, BOOLEAN)}, {', '.join(all_as(call, target, 1))})"


FUNCTIONS = (
    Function(("COALESCE",), (ANY,), one_type, _coalesce, variadic=True),
    Function(("IFNULL",), (ANY, ANY), one_type, _coalesce),
    Function(("NULLIF",), (ANY, ANY), lambda call: call.types[0].null(), _nullif),
    Function(("IF",), (TRUTH, ANY, ANY), lambda call: one_type(call, 1), _if),
    Function(("GREATEST",), (ANY,), one_type, _extreme("greatest"), variadic=True, least=2),
    Function(("LEAST",), (ANY,), one_type, _extreme("least"), variadic=True, least=2),
)
