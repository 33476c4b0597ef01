"""The state that a function declares, by name and type: all that is stored between epochs.

Types are Flink SQL's, as in the scripts: 'BIGINT', 'STRING', 'ROW<a INT, b STRING>'. An instance of a function lives
for one epoch on one task; what it stores in attributes of its own is lost then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tidegate.pipelines.errors import TidegateError
from tidegate.pipelines.process.errors import InvalidDeclaration
from tidegate.pipelines.syntax.dialect import parse_type
from tidegate.pipelines.syntax.types import NESTED, FlinkType, Kind


@dataclass(frozen=True)
class ValueStateDeclaration:
    """One value a key."""

    name: str
    type: str


@dataclass(frozen=True)
class ListStateDeclaration:
    """A list a key; `type` is that of its elements."""

    name: str
    type: str


@dataclass(frozen=True)
class MapStateDeclaration:
    """A map a key."""

    name: str
    key_type: str
    type: str


@dataclass(frozen=True)
class ReducingStateDeclaration:
    """One value a key, into which every added value is folded by `reduce(old, new)`."""

    name: str
    type: str
    reduce: Callable[[Any, Any], Any]


@dataclass(frozen=True)
class BroadcastStateDeclaration:
    """A map that every task has whole, written from the broadcast input alone."""

    name: str
    key_type: str
    type: str


KeyedStateDeclaration = ValueStateDeclaration | ListStateDeclaration | MapStateDeclaration | ReducingStateDeclaration
StateDeclaration = KeyedStateDeclaration | BroadcastStateDeclaration


class StateDeclarations:
    """Where a declaration begins; the names of Flink's `StateDeclarations`."""

    value_state = ValueStateDeclaration
    list_state = ListStateDeclaration
    map_state = MapStateDeclaration
    reducing_state = ReducingStateDeclaration
    broadcast_state = BroadcastStateDeclaration


def column_type(declaration: StateDeclaration) -> str:
    """The type of the column that holds a state, in Flink SQL's spelling."""
    if isinstance(declaration, ListStateDeclaration):
        return f"ARRAY<{declaration.type}>"
    if isinstance(declaration, MapStateDeclaration | BroadcastStateDeclaration):
        return f"MAP<{declaration.key_type}, {declaration.type}>"
    return str(declaration.type)  # a Python type is reported as what it is, when it is parsed


def described(declaration: Any) -> str:
    """A declaration as an error shows it."""
    if not isinstance(declaration, StateDeclaration):
        return f"{declaration!r}, which is no declaration"
    kind = type(declaration).__name__.removesuffix("StateDeclaration").lower()
    return f"a {kind} state, {column_type(declaration)}"


def checked(declarations: Iterable[StateDeclaration], function: str) -> tuple[StateDeclaration, ...]:
    """What a function declares, each name once. Raises InvalidDeclaration."""
    if not isinstance(declarations, Iterable):
        raise InvalidDeclaration(
            f"uses_states() of {function} gives {declarations!r}, and no collection of declarations"
        )
    found: dict[str, StateDeclaration] = {}
    for declaration in declarations:
        if not isinstance(declaration, StateDeclaration):
            raise InvalidDeclaration(f"{function} declares {declaration!r}, which is no state declaration")
        name = declaration.name
        if not isinstance(name, str) or not name.isidentifier() or name.startswith("_"):
            raise InvalidDeclaration(f"{function} declares a state called {name!r}: write a name, without `_` in front")
        if isinstance(declaration, ReducingStateDeclaration) and not callable(declaration.reduce):
            raise InvalidDeclaration(
                f"{function} reduces state {name!r} by {declaration.reduce!r}, which is no function"
            )
        if any(name.casefold() == other.casefold() for other in found):
            raise InvalidDeclaration(f"{function} declares state {name!r} twice")
        found[name] = declaration
    return tuple(found.values())


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
