"""The state of one key: a cell for each declared state, decoded when it is first looked at.

A cell knows what is stored of it (`base`, which decodes itself) and what has changed since, so that a state that is
only appended to is never decoded, and one that is not touched is written back as it was read.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tidegate.pipelines.process.state.declared import (
    KeyedStateDeclaration,
    ListStateDeclaration,
    MapStateDeclaration,
    ReducingStateDeclaration,
)


class Stored(Protocol):
    """A stored value that has not been decoded yet."""

    def read(self) -> Any:
        """Its Python value; None where there is none."""
        ...


class ValueCell:
    """A value; None is no value."""

    __slots__ = ("base", "decoded", "value")

    def __init__(self, base: Stored | None = None) -> None:
        self.base, self.decoded, self.value = base, base is None, None

    def get(self) -> Any:
        if not self.decoded:
            assert self.base is not None
            self.value, self.decoded = self.base.read(), True
        return self.value

    def set(self, value: Any) -> None:
        self.value, self.decoded = value, True

    @property
    def empty(self) -> bool:
        return self.decoded and self.value is None


class ListCell:
    """A list. `added` is what came to the stored one as long as that is not decoded."""

    __slots__ = ("added", "base", "items")

    def __init__(self, base: Stored | None = None) -> None:
        self.base = base
        self.items: list[Any] | None = [] if base is None else None
        self.added: list[Any] = []

    def add(self, value: Any) -> None:
        (self.added if self.items is None else self.items).append(value)

    def get(self) -> list[Any]:
        if self.items is None:
            assert self.base is not None
            self.items = [*(self.base.read() or ()), *self.added]
        return self.items

    def set(self, values: list[Any]) -> None:
        self.items = values

    @property
    def empty(self) -> bool:
        return self.items is not None and not self.items


class MapCell:
    """A map. `order`: its keys in order, once that was asked for."""

    __slots__ = ("base", "entries", "order")

    def __init__(self, base: Stored | None = None) -> None:
        self.base = base
        self.entries: dict[Any, Any] | None = {} if base is None else None
        self.order: list[Any] | None = None

    def get(self) -> dict[Any, Any]:
        if self.entries is None:
            assert self.base is not None
            self.entries = dict(self.base.read() or ())
        return self.entries

    def put(self, key: Any, value: Any) -> None:
        entries = self.get()
        if self.order is not None and key not in entries:
            insort(self.order, key)
        entries[key] = value

    def remove(self, key: Any) -> None:
        entries = self.get()
        if key in entries:
            del entries[key]
            if self.order is not None:
                del self.order[bisect_left(self.order, key)]

    def clear(self) -> None:
        self.get().clear()
        self.order = None

    def first_from(self, key: Any) -> Any:
        """The least key that is not less than `key`; None where there is none."""
        if self.order is None:
            self.order = sorted(self.get())
        place = bisect_left(self.order, key)
        return self.order[place] if place < len(self.order) else None

    @property
    def empty(self) -> bool:
        return self.entries is not None and not self.entries


Cell = ValueCell | ListCell | MapCell
Cells = list[Cell]
"""One for each declared state of a key, in order."""


def cell_of(declaration: KeyedStateDeclaration) -> Callable[[Stored | None], Cell]:
    """What makes the cells of a state."""
    if isinstance(declaration, ListStateDeclaration):
        return ListCell
    return MapCell if isinstance(declaration, MapStateDeclaration) else ValueCell


def fresh(declarations: Sequence[KeyedStateDeclaration]) -> Cells:
    """The cells of a key that nothing is known of."""
    return [cell_of(declaration)(None) for declaration in declarations]


def plain(declaration: KeyedStateDeclaration, cell: Cell) -> Any:
    """What a cell holds as plain Python; None where it is empty."""
    value = cell.get()
    if isinstance(declaration, ReducingStateDeclaration) or isinstance(cell, ValueCell):
        return value
    return value or None


class Known:
    """A value that is plain Python already, as `Stored`."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def read(self) -> Any:
        return self.value
