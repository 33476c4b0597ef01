"""What a state holds is its own: values are copied on their way in and on their way out, in the one form that they are
read back in.

Whatever a function does to a value afterwards (or did to one that it has collected) can then not change what is kept,
and a value looks the same in the epoch that wrote it as in all later ones: a ROW is a dict of all its fields, an ARRAY
a list, a MAP a dict. Values that nothing can change need no copy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from pipelines.process.errors import WrongValue
from pipelines.process.state.declared import (
    BroadcastStateDeclaration,
    ListStateDeclaration,
    MapStateDeclaration,
    StateDeclaration,
)

Copy = Callable[[Any], Any]
"""value -> the same one as it is read back, sharing nothing with it that can change. Raises WrongValue."""


def copy_of_element(declaration: StateDeclaration, column: pa.DataType) -> Copy | None:
    """How to copy what a state hands out at once: its value, an element of its list, a value of its map. None where
    that can not change. `column`: the type of the column that holds the state."""
    if isinstance(declaration, ListStateDeclaration):
        return copy_as(column.value_type)
    if isinstance(declaration, MapStateDeclaration | BroadcastStateDeclaration):
        return copy_as(column.item_type)
    return copy_as(column)


def copy_as(kind: pa.DataType) -> Copy | None:
    """How to copy values of a type; None for a type whose values can not change."""
    if pa.types.is_struct(kind):
        return _copy_row({field.name: copy_as(field.type) for field in kind})
    if pa.types.is_map(kind):
        return _copy_map(copy_as(kind.item_type))
    if pa.types.is_list(kind):
        return _copy_list(copy_as(kind.value_type))
    return None


def _copy_row(fields: Mapping[str, Copy | None]) -> Copy:
    names, copies = list(fields), [(name, copy) for name, copy in fields.items() if copy is not None]

    def copy(value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, Mapping):
            if not value.keys() <= fields.keys():
                odd = ", ".join(sorted(map(str, value.keys() - fields.keys())))
                raise WrongValue(f"a ROW has the fields {', '.join(names)}, and not {odd}")
            found = {name: value.get(name) for name in names}
        elif isinstance(value, tuple):
            if len(value) != len(names):
                raise WrongValue(f"a ROW has the fields {', '.join(names)}, and {len(value)} values are given")
            found = dict(zip(names, value, strict=True))
        else:
            raise WrongValue(f"a ROW is a dict, or a tuple of all its fields, not {type(value).__name__}")
        for name, inner in copies:
            found[name] = inner(found[name])
        return found

    return copy


def _copy_map(inner: Copy | None) -> Copy:
    def copy(value: Any) -> Any:
        if value is None:
            return None
        try:
            found = dict(value)
        except (TypeError, ValueError):
            raise WrongValue(f"a MAP is a dict, not {type(value).__name__}") from None
        return found if inner is None else {key: inner(item) for key, item in found.items()}

    return copy


def _copy_list(inner: Copy | None) -> Copy:
    def copy(value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, str | bytes | Mapping) or not hasattr(value, "__iter__"):
            raise WrongValue(f"an ARRAY is a list, not {type(value).__name__}")
        return list(value) if inner is None else [inner(item) for item in value]

    return copy
