"""A function's annotations as SQL types."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Union, get_args, get_origin, get_type_hints

from tidegate.pipelines.functions.function import FunctionProblem, Parameter, UserFunction
from tidegate.pipelines.functions.loading import load

SQL_TYPES: dict[type, str] = {
    int: "BIGINT",
    float: "DOUBLE",
    Decimal: "DECIMAL(38, 18)",
    str: "STRING",
    bool: "BOOLEAN",
    bytes: "BYTES",
    date: "DATE",
    datetime: "TIMESTAMP(6)",
}
"""The SQL type of an annotation. Python's datetime has microseconds, and so has the type: nothing is cut off."""

KNOWN = "int, float, Decimal, str, bool, bytes, date, datetime, and each of them `| None`"


def read(name: str, reference: str) -> UserFunction:
    """Import the function that `reference` names and read its signature. Raises FunctionProblem."""
    function = load(reference)
    signature, hints = _signature(function, reference)
    parameters = tuple(_parameter(found, hints, reference) for found in signature.parameters.values())
    if "return" not in hints:
        raise FunctionProblem(
            f"`{reference}` does not say what it returns", f"annotate it: `-> int`; known are {KNOWN}"
        )
    kind, gives_null = _sql_type(hints["return"], f"what `{reference}` returns")
    return UserFunction(name, reference, parameters, kind, gives_null)


def _signature(function: Callable[..., Any], reference: str) -> tuple[inspect.Signature, dict[str, Any]]:
    try:
        # A decorated function is annotated inside, a callable object where it is called.
        inner = inspect.unwrap(function)
        annotated = inner if inspect.isroutine(inner) else type(inner).__call__
        return inspect.signature(function), get_type_hints(annotated)
    except (ValueError, TypeError) as error:
        raise FunctionProblem(
            f"`{reference}` has no signature: {error}", "wrap it in a function with annotations"
        ) from error
    except (NameError, AttributeError) as error:
        raise FunctionProblem(
            f"an annotation of `{reference}` cannot be resolved: {error}", "import what it names where it is defined"
        ) from error


def _parameter(found: inspect.Parameter, hints: dict[str, Any], reference: str) -> Parameter:
    optional = found.default is not inspect.Parameter.empty
    if found.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
        raise FunctionProblem(f"`{reference}` takes any number of arguments (`{found}`)", "name each parameter")
    if found.kind is inspect.Parameter.KEYWORD_ONLY:
        raise FunctionProblem(
            f"parameter `{found.name}` of `{reference}` can only be given by name", "SQL gives arguments by position"
        )
    if found.name not in hints:
        raise FunctionProblem(
            f"parameter `{found.name}` of `{reference}` has no annotation",
            f"annotate it: `{found.name}: int`; known are {KNOWN}",
        )
    kind, takes_null = _sql_type(hints[found.name], f"parameter `{found.name}` of `{reference}`")
    return Parameter(found.name, kind, takes_null, optional)


def _sql_type(annotation: Any, where: str) -> tuple[str, bool]:
    """The SQL type of an annotation, and whether None belongs to it."""
    members = [annotation]
    if get_origin(annotation) in (Union, types.UnionType):
        members = list(get_args(annotation))
    plain = [member for member in members if member is not type(None)]
    if len(plain) == 1 and isinstance(plain[0], type) and plain[0] in SQL_TYPES:
        return SQL_TYPES[plain[0]], len(plain) < len(members)
    shown = annotation.__name__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")
    raise FunctionProblem(f"{where} is annotated `{shown}`, which has no type in SQL", f"known are {KNOWN}")
