"""The types of declared states, known without Spark."""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.pipelines.errors import TidegateError
from tidegate.pipelines.process.errors import InvalidDeclaration
from tidegate.pipelines.process.state.declared import StateDeclaration, column_type
from tidegate.pipelines.sql.dialect import parse_type
from tidegate.pipelines.sql.types import NESTED, FlinkType, Kind


def state_types(declarations: Iterable[StateDeclaration], function: str) -> dict[str, FlinkType]:
    """The type of the column that holds each state. Raises InvalidDeclaration."""
    return {item.name: _parsed(item, function) for item in declarations}


def _parsed(declaration: StateDeclaration, function: str) -> FlinkType:
    text = column_type(declaration)
    try:
        found = parse_type(text)
    except TidegateError as error:
        raise InvalidDeclaration(f"{function} declares state {declaration.name!r} as {text}: {error.what}") from error
    if _has_nested_keys(found):
        raise InvalidDeclaration(
            f"{function} declares state {declaration.name!r} as {text}: no dict can have such keys"
        )
    return found


def _has_nested_keys(kind: FlinkType) -> bool:
    inner = [*kind.arguments, *(field.type for field in kind.fields)]
    return (kind.kind is Kind.MAP and kind.arguments[0].kind in NESTED) or any(map(_has_nested_keys, inner))
