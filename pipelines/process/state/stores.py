"""State as a function sees it: one object for each declared state, which always reads and writes the current key; and
the stored state of one key, a cell for each.

Values are converted to their type when they are written (`tidegate.pipelines.process.values`), and copied when they are
read if they can change: to store a change, write the value again. A cell has its stored value (`base`, decoded on
demand) and what has changed since, so a state that is only appended to is never decoded, and one that is not changed is
written back as it was read.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from tidegate.pipelines.process.errors import BroadcastReadOnly, NotKeyed, WrongValue
from tidegate.pipelines.process.state.declared import (
    BroadcastStateDeclaration,
    KeyedStateDeclaration,
    ListStateDeclaration,
    MapStateDeclaration,
    StateDeclaration,
)
from tidegate.pipelines.process.values import Convert, copied, exact, map_key
from tidegate.pipelines.syntax.types import FlinkType


class Stored(Protocol):
    """A stored value that has not been decoded yet."""

    def read(self) -> Any:
        """Its Python value; None where there is none."""
        ...


def _read(base: Stored | None) -> Any:
    return None if base is None else base.read()


class ValueCell:
    """A value; None is no value."""

    __slots__ = ("base", "decoded", "value")

    def __init__(self, base: Stored | None = None) -> None:
        self.base, self.decoded, self.value = base, base is None, None

    def get(self) -> Any:
        if self.base is not None and not self.decoded:
            self.value, self.decoded = self.base.read(), True
        return self.value

    def set(self, value: Any) -> None:
        self.value, self.decoded = value, True

    @property
    def empty(self) -> bool:
        return self.decoded and self.value is None


class ListCell:
    """A list. `added`: the elements appended to the stored list while that is not decoded."""

    __slots__ = ("added", "base", "items")

    def __init__(self, base: Stored | None = None) -> None:
        self.base = base
        self.items: list[Any] | None = [] if base is None else None
        self.added: list[Any] = []

    def add(self, value: Any) -> None:
        (self.added if self.items is None else self.items).append(value)

    def get(self) -> list[Any]:
        if self.items is None:
            self.items = [*(_read(self.base) or ()), *self.added]
        return self.items

    def set(self, values: list[Any]) -> None:
        self.items = values

    @property
    def empty(self) -> bool:
        return self.items is not None and not self.items


class MapCell:
    """A map. `order`: its keys in order, once they were needed."""

    __slots__ = ("base", "entries", "order")

    def __init__(self, base: Stored | None = None) -> None:
        self.base = base
        self.entries: dict[Any, Any] | None = {} if base is None else None
        self.order: list[Any] | None = None

    def get(self) -> dict[Any, Any]:
        if self.entries is None:
            self.entries = dict(_read(self.base) or ())
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
    """The constructor of a state's cells."""
    if isinstance(declaration, ListStateDeclaration):
        return ListCell
    return MapCell if isinstance(declaration, MapStateDeclaration) else ValueCell


def fresh(declarations: Sequence[KeyedStateDeclaration]) -> Cells:
    """The cells of a key that has no state yet."""
    return [cell_of(declaration)(None) for declaration in declarations]


def plain(cell: Cell) -> Any:
    """What a cell holds as plain Python; None where it is empty."""
    value = cell.get()
    return value if isinstance(cell, ValueCell) else value or None


class Known:
    """A plain Python value, with the interface of `Stored`."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def read(self) -> Any:
        return self.value


class CurrentKey:
    """Which key the running callback is of. `cells` is None where it is of none."""

    __slots__ = ("cells", "key")

    def __init__(self) -> None:
        self.cells: Cells | None = None
        self.key: Any = None


class Values:
    """How a state takes its values and hands them out: of a list its elements, of a map the values.

    Attributes:
        taken: Converts a value on its way in.
        copy: Copies one on its way out; None where it cannot change.
        key: Converts a key; of a map only.
    """

    __slots__ = ("copy", "key", "taken")

    def __init__(self, declaration: StateDeclaration, column: FlinkType) -> None:
        """`column`: the type of the column that holds the state."""
        is_map = isinstance(declaration, MapStateDeclaration | BroadcastStateDeclaration)
        kind = column.element if is_map or isinstance(declaration, ListStateDeclaration) else column
        self.taken, self.copy = _naming(declaration.name, exact(kind)), copied(kind)
        self.key = _naming(declaration.name, map_key(column)) if is_map else self.taken

    def sought(self, key: Any) -> Any:
        """A key to look up; None, which no map holds, stays None."""
        return None if key is None else self.key(key)


def _naming(state: str, convert: Convert) -> Convert:
    def converted(value: Any) -> Any:
        try:
            return convert(value)
        except WrongValue as error:
            raise WrongValue(f"state {state!r}: {error.what}") from error

    return converted


def _copied(copy: Convert | None, value: Any) -> Any:
    return value if copy is None else copy(value)


class _KeyedState:
    """`values`: how the state takes them."""

    __slots__ = ("_copy", "_current", "_name", "_place", "_taken", "_values")

    def __init__(self, current: CurrentKey, place: int, name: str, values: Values) -> None:
        self._current, self._place, self._name, self._values = current, place, name, values
        self._taken, self._copy = values.taken, values.copy

    def _cell(self) -> Any:
        cells = self._current.cells
        if cells is None:
            raise NotKeyed(f"state {self._name!r}")
        return cells[self._place]


class ValueState(_KeyedState):
    """One value a key."""

    __slots__ = ()

    def value(self) -> Any:
        """The value, which is the caller's; None where there is none. Raises NotKeyed."""
        return _copied(self._copy, self._cell().get())

    def update(self, value: Any) -> None:
        """Remember `value`; None forgets it. Raises NotKeyed, WrongValue."""
        self._cell().set(None if value is None else self._taken(value))

    def clear(self) -> None:
        """Forget the value. Raises NotKeyed."""
        self._cell().set(None)


class ListState(_KeyedState):
    """A list a key. Adding to it does not read what is stored."""

    __slots__ = ()

    def add(self, value: Any) -> None:
        """Append `value`. Raises NotKeyed, WrongValue."""
        cells = self._current.cells
        if cells is None:
            raise NotKeyed(f"state {self._name!r}")
        cells[self._place].add(self._taken(value))  # type: ignore[union-attr]

    def add_all(self, values: Iterable[Any]) -> None:
        """Append `values`. Raises NotKeyed, WrongValue."""
        cell = self._cell()
        for value in list(map(self._taken, values)):
            cell.add(value)

    def get(self) -> list[Any]:
        """All elements in the order in which they were added; the list is the caller's. Raises NotKeyed."""
        found = self._cell().get()
        return list(found) if self._copy is None else list(map(self._copy, found))

    def update(self, values: Iterable[Any]) -> None:
        """Hold `values` instead. Raises NotKeyed, WrongValue."""
        self._cell().set(list(map(self._taken, values)))

    def clear(self) -> None:
        """Forget all elements. Raises NotKeyed."""
        self._cell().set([])


class _Entries:
    """How a map is read, whichever holds it."""

    __slots__ = ()

    _values: Values
    _copy: Convert | None

    def _entries(self) -> Mapping[Any, Any]:
        raise NotImplementedError

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of `key`, which is the caller's; `default` where there is none. Raises NotKeyed, WrongValue."""
        entries, key = self._entries(), self._values.sought(key)
        return _copied(self._copy, entries[key]) if key in entries else default

    def contains(self, key: Any) -> bool:
        """Whether `key` is there. Raises NotKeyed, WrongValue."""
        return self._values.sought(key) in self._entries()

    def keys(self) -> Iterator[Any]:
        """The keys as they are now. Raises NotKeyed."""
        return iter(list(self._entries()))

    def values(self) -> Iterator[Any]:
        """The values as they are now. Raises NotKeyed."""
        return iter([_copied(self._copy, value) for value in self._entries().values()])

    def items(self) -> Iterator[tuple[Any, Any]]:
        """The entries as they are now. Raises NotKeyed."""
        return iter([(key, _copied(self._copy, value)) for key, value in self._entries().items()])

    def is_empty(self) -> bool:
        """Whether there is no entry. Raises NotKeyed."""
        return not self._entries()


class MapState(_Entries, _KeyedState):
    """A map a key."""

    __slots__ = ()

    def _entries(self) -> Mapping[Any, Any]:
        return self._cell().get()

    def put(self, key: Any, value: Any) -> None:
        """Set the value of `key`. Raises NotKeyed, WrongValue."""
        self._cell().put(self._values.key(key), self._taken(value))

    def remove(self, key: Any) -> None:
        """Forget `key`, if it is there. Raises NotKeyed."""
        self._cell().remove(self._values.sought(key))

    def first_from(self, key: Any) -> Any:
        """The least key that is not less than `key`, found without reading the others; None if there is none. Raises
        NotKeyed."""
        return self._cell().first_from(key)

    def clear(self) -> None:
        """Forget all entries. Raises NotKeyed."""
        self._cell().clear()


class ReducingState(_KeyedState):
    """One value a key, into which every added value is folded."""

    __slots__ = ("_reduce",)

    def __init__(
        self, current: CurrentKey, place: int, name: str, values: Values, reduce: Callable[[Any, Any], Any]
    ) -> None:
        super().__init__(current, place, name, values)
        self._reduce = reduce

    def add(self, value: Any) -> None:
        """Fold `value` in; the first one is the value. Raises NotKeyed, WrongValue."""
        cell, value = self._cell(), self._taken(value)
        old = cell.get()
        cell.set(value if old is None else self._taken(self._reduce(old, value)))

    def get(self) -> Any:
        """The value, which is the caller's; None where nothing was added. Raises NotKeyed."""
        return _copied(self._copy, self._cell().get())

    def clear(self) -> None:
        """Forget the value. Raises NotKeyed."""
        self._cell().set(None)


class BroadcastState(_Entries):
    """A map that is the same on every task. While a record of the other input or a timer is processed, it is read-only
    and as the broadcast records before have left it."""

    __slots__ = ("_copy", "_name", "_own", "_values", "entries", "writable")

    def __init__(self, name: str, values: Values, entries: Mapping[Any, Any]) -> None:
        self._name, self._values, self._copy = name, values, values.copy
        self.entries: Mapping[Any, Any] = entries
        self.writable = False
        self._own: dict[Any, Any] | None = None

    def version(self) -> Mapping[Any, Any]:
        """The entries as they are now; later writes make a new map."""
        self._own = None
        return self.entries

    def _entries(self) -> Mapping[Any, Any]:
        return self.entries

    def put(self, key: Any, value: Any) -> None:
        """Set the value of `key`. Raises BroadcastReadOnly, WrongValue."""
        self._mutable()[self._values.key(key)] = self._values.taken(value)

    def remove(self, key: Any) -> None:
        """Forget `key`, if it is there. Raises BroadcastReadOnly."""
        self._mutable().pop(self._values.sought(key), None)

    def clear(self) -> None:
        """Forget all entries. Raises BroadcastReadOnly."""
        self._mutable().clear()

    def _mutable(self) -> dict[Any, Any]:
        if not self.writable:
            raise BroadcastReadOnly(self._name)
        if self._own is None or self._own is not self.entries:
            self.entries = self._own = dict(self.entries)
        return self._own
