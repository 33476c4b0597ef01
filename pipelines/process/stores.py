"""State as a function sees it: one object for each declared state, which always speaks of the current key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from pipelines.process.cells import Cells
from pipelines.process.errors import BroadcastReadOnly, NotKeyed


class CurrentKey:
    """Which key the running callback is of. `cells` is None where it is of none."""

    __slots__ = ("cells", "key")

    def __init__(self) -> None:
        self.cells: Cells | None = None
        self.key: Any = None


class _KeyedState:
    __slots__ = ("_current", "_name", "_place")

    def __init__(self, current: CurrentKey, place: int, name: str) -> None:
        self._current, self._place, self._name = current, place, name

    def _cell(self) -> Any:
        cells = self._current.cells
        if cells is None:
            raise NotKeyed(f"state {self._name!r}")
        return cells[self._place]


class ValueState(_KeyedState):
    """One value a key."""

    __slots__ = ()

    def value(self) -> Any:
        """The value; None where there is none. Raises NotKeyed."""
        return self._cell().get()

    def update(self, value: Any) -> None:
        """Remember `value`; None forgets it. Raises NotKeyed."""
        self._cell().set(value)

    def clear(self) -> None:
        """Forget the value. Raises NotKeyed."""
        self._cell().set(None)


class ListState(_KeyedState):
    """A list a key. Adding to it does not read what is stored."""

    __slots__ = ()

    def add(self, value: Any) -> None:
        """Append `value`. Raises NotKeyed."""
        cells = self._current.cells
        if cells is None:
            raise NotKeyed(f"state {self._name!r}")
        cells[self._place].add(value)  # type: ignore[union-attr]

    def add_all(self, values: Iterable[Any]) -> None:
        """Append `values`. Raises NotKeyed."""
        cell = self._cell()
        for value in values:
            cell.add(value)

    def get(self) -> list[Any]:
        """All elements in the order in which they were added. Raises NotKeyed."""
        return self._cell().get()

    def update(self, values: Iterable[Any]) -> None:
        """Hold `values` instead. Raises NotKeyed."""
        self._cell().set(list(values))

    def clear(self) -> None:
        """Forget all elements. Raises NotKeyed."""
        self._cell().set([])


class MapState(_KeyedState):
    """A map a key."""

    __slots__ = ()

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of `key`. Raises NotKeyed."""
        return self._cell().get().get(key, default)

    def put(self, key: Any, value: Any) -> None:
        """Set the value of `key`. Raises NotKeyed."""
        self._cell().get()[key] = value

    def remove(self, key: Any) -> None:
        """Forget `key`, if it is there. Raises NotKeyed."""
        self._cell().get().pop(key, None)

    def contains(self, key: Any) -> bool:
        """Whether `key` is there. Raises NotKeyed."""
        return key in self._cell().get()

    def keys(self) -> Iterator[Any]:
        return iter(list(self._cell().get()))

    def items(self) -> Iterator[tuple[Any, Any]]:
        return iter(list(self._cell().get().items()))

    def is_empty(self) -> bool:
        return not self._cell().get()

    def clear(self) -> None:
        """Forget all entries. Raises NotKeyed."""
        self._cell().get().clear()


class ReducingState(_KeyedState):
    """One value a key, into which every added value is folded."""

    __slots__ = ("_reduce",)

    def __init__(self, current: CurrentKey, place: int, name: str, reduce: Callable[[Any, Any], Any]) -> None:
        super().__init__(current, place, name)
        self._reduce = reduce

    def add(self, value: Any) -> None:
        """Fold `value` in; the first one is the value. Raises NotKeyed."""
        cell = self._cell()
        old = cell.get()
        cell.set(value if old is None else self._reduce(old, value))

    def get(self) -> Any:
        """The value; None where nothing was added. Raises NotKeyed."""
        return self._cell().get()

    def clear(self) -> None:
        """Forget the value. Raises NotKeyed."""
        self._cell().set(None)


class BroadcastState:
    """A map that is the same on every task. While a record of the other input, or a timer, is processed it is as the
    broadcast records before it have left it, and read-only."""

    __slots__ = ("_name", "_own", "entries", "writable")

    def __init__(self, name: str, entries: Mapping[Any, Any]) -> None:
        self._name = name
        self.entries: Mapping[Any, Any] = entries
        self.writable = False
        self._own: dict[Any, Any] | None = None

    def version(self) -> Mapping[Any, Any]:
        """The entries as they are now, for good: the next write makes a new map."""
        self._own = None
        return self.entries

    def get(self, key: Any, default: Any = None) -> Any:
        return self.entries.get(key, default)

    def contains(self, key: Any) -> bool:
        return key in self.entries

    def keys(self) -> Iterator[Any]:
        return iter(list(self.entries))

    def items(self) -> Iterator[tuple[Any, Any]]:
        return iter(list(self.entries.items()))

    def put(self, key: Any, value: Any) -> None:
        """Set the value of `key`. Raises BroadcastReadOnly."""
        self._mutable()[key] = value

    def remove(self, key: Any) -> None:
        """Forget `key`, if it is there. Raises BroadcastReadOnly."""
        self._mutable().pop(key, None)

    def clear(self) -> None:
        """Forget all entries. Raises BroadcastReadOnly."""
        self._mutable().clear()

    def _mutable(self) -> dict[Any, Any]:
        if not self.writable:
            raise BroadcastReadOnly(self._name)
        if self._own is None or self._own is not self.entries:
            self.entries = self._own = dict(self.entries)
        return self._own
