"""The types of declared states, known without Spark: how their values are nested, and whether there are such types."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from pipelines.errors import TidegateError
from pipelines.process.errors import InvalidDeclaration
from pipelines.process.state.declared import StateDeclaration, column_type
from pipelines.sql.dialect import parse_type
from pipelines.sql.types import NESTED, FlinkType, Kind

_PLAIN = pa.string()
"""Stands for all types that are not nested."""


def nestings(declarations: Iterable[StateDeclaration], function: str) -> dict[str, pa.DataType]:
    """How the column of each state is nested; any type that is not is `_PLAIN`. Raises InvalidDeclaration."""
    return {item.name: _nesting(_parsed(item, function)) for item in declarations}


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


def _nesting(kind: FlinkType) -> pa.DataType:
    if kind.kind is Kind.ROW:
        return pa.struct([pa.field(field.name, _nesting(field.type)) for field in kind.fields])
    if kind.kind is Kind.MAP:
        return pa.map_(_PLAIN, _nesting(kind.element))
    return pa.list_(_nesting(kind.element)) if kind.kind is Kind.ARRAY else _PLAIN
