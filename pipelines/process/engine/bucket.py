"""The state of one bucket of keys, read from the row groups that epochs have written of it. The newest row of a key
counts.

A key's bucket never changes, and an epoch writes a row for every key that it has changed. Stored values stay in Arrow
until a function reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.pipelines.location import Location
from tidegate.pipelines.process.engine.epoch import KeyState
from tidegate.pipelines.process.engine.rows import conformed, list_values, python_values
from tidegate.pipelines.process.errors import WrongValue
from tidegate.pipelines.process.state.declared import KeyedStateDeclaration
from tidegate.pipelines.process.state.stores import Cell, ListCell, MapCell, cell_of, plain
from tidegate.pipelines.watermarks import MAX_TIMESTAMP

RowGroup = tuple[str, int]
"""A file, and a row group of it."""

GENERATION, EPOCH, BUCKET, LIVE = "_generation", "_epoch", "_bucket", "_live"
TIMERS, LEAST = "_timers", "_least_timer"
LARGE = 1 << 20
"""Bytes from which a row group's keys are read first, before the rest of it."""

BROADCAST_BUCKET = -1
"""The bucket of the broadcast states, which are one row."""


@dataclass(frozen=True)
class StateColumns:
    """The columns of a process's state: `keys` and the declared states, each with its Arrow type."""

    keys: tuple[tuple[str, pa.DataType], ...]
    states: tuple[tuple[str, pa.DataType], ...]
    broadcast: tuple[tuple[str, pa.DataType], ...] = ()

    @property
    def schema(self) -> pa.Schema:
        """What the files hold."""
        own = [(GENERATION, pa.int32()), (EPOCH, pa.int64()), (BUCKET, pa.int32()), (LIVE, pa.bool_())]
        own += [(LEAST, pa.int64()), (TIMERS, pa.list_(pa.int64()))]
        return pa.schema([*own, *self.keys, *self.states, *self.broadcast])

    @property
    def key_schema(self) -> pa.Schema:
        """The columns that show which rows count."""
        return pa.schema([(LIVE, pa.bool_()), *self.keys])


class Stored(NamedTuple):
    """One value of a column, not decoded yet."""

    array: pa.Array
    row: int

    def read(self) -> Any:
        if pa.types.is_list(self.array.type):
            return list_values(self.array, self.row)
        return python_values(self.array.slice(self.row, 1))[0]


@lru_cache(maxsize=128)
def _footer(path: str) -> tuple[pq.FileMetaData, frozenset[str]]:
    """A file's footer: its row groups and columns."""
    found = Location(path).footer()
    return found, frozenset(found.schema.to_arrow_schema().names)


def _read(group: RowGroup, schema: pa.Schema) -> pa.Table:
    """The columns of `schema` of a row group; those that its file lacks are null."""
    path, number = group
    footer, columns = _footer(path)
    there = [name for name in schema.names if name in columns]
    # Opened for this one group: a file that stays open keeps what was read of it last.
    with Location(path).parquet(footer) as file:
        found = file.read_row_group(number, columns=there, use_threads=False)
    return pa.table([_column(found, field) for field in schema], schema=schema)


def read_groups(groups: Iterable[RowGroup], schema: pa.Schema) -> pa.Table:
    """The rows of `groups`, one after the other, with the columns of `schema`; those that a file lacks are null."""
    tables = [_read(group, schema) for group in groups]
    return pa.concat_tables(tables).combine_chunks() if tables else schema.empty_table()


def living(groups: Iterable[RowGroup], columns: StateColumns) -> tuple[list[Any], pa.Table]:
    """The living keys of a bucket, and the newest row of each, which counts. `groups`: the newest first.

    However often a key was written, at most two of its rows are in memory: the newest so far, and an older one.
    """
    known: set[Any] = set()
    names: list[Any] = []
    tables: list[pa.Table] = []
    for group in groups:
        # Of a large group it is seen first which rows count; a small one is sooner read than looked at twice.
        large = _footer(group[0])[0].row_group(group[1]).total_byte_size > LARGE
        table = _read(group, columns.key_schema if large else columns.schema)
        live = table.column(LIVE).to_pylist()
        parts = [python_values(table.column(name)) for name, _ in columns.keys]
        keys = parts[0] if len(parts) == 1 else list(zip(*parts, strict=True))
        rows = [row for row, key in enumerate(keys) if live[row] and key not in known]
        known.update(keys)
        if rows:
            names += keys if len(rows) == len(keys) else [keys[row] for row in rows]
            whole = _read(group, columns.schema) if large else table
            tables.append(whole if len(rows) == len(keys) else whole.take(pa.array(rows)))
    if not tables:
        return [], columns.schema.empty_table()
    return names, tables[0] if len(tables) == 1 else pa.concat_tables(tables).combine_chunks()


def _column(table: pa.Table, field: pa.Field) -> pa.Array:
    if field.name not in table.column_names:
        return pa.nulls(len(table), field.type)
    column = table.column(field.name).combine_chunks()
    column = column if isinstance(column, pa.Array) else pa.concat_arrays(column.chunks)
    try:
        return conformed(column, field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise WrongValue(
            f"state {field.name!r} is stored as {column.type}, and declared as {field.type}: {error}"
        ) from error


class Bucket:
    """The stored state of a bucket's keys. `groups`: the newest first."""

    def __init__(
        self, groups: Sequence[RowGroup], columns: StateColumns, declarations: Sequence[KeyedStateDeclaration]
    ) -> None:
        self._makers = [cell_of(declaration) for declaration in declarations]
        self._names, self.table = living(groups, columns)
        arrays = {name: _one(self.table.column(name)) for name in self.table.column_names}
        self._arrays = [arrays[name] for name, _ in columns.states]
        self._there = [array.is_valid().to_numpy(zero_copy_only=False) for array in self._arrays]
        self._times = arrays[TIMERS].values.to_numpy(zero_copy_only=False)
        self._times_upto: list[int] = arrays[TIMERS].offsets.to_pylist()
        self._least = arrays[LEAST].fill_null(MAX_TIMESTAMP).to_numpy(zero_copy_only=False)
        self._timed = arrays[LEAST].is_valid().to_numpy(zero_copy_only=False)
        self._rows = dict(zip(self._names, range(len(self._names)), strict=True))
        self._taken: set[Any] = set()

    def take(self, key: Any) -> KeyState | None:
        """The state of a key, which is the caller's from now on; None if the key has none."""
        self._taken.add(key)
        row = self._rows.get(key)
        if row is None:
            return None
        cells: list[Cell] = [
            make(Stored(array, row) if there[row] else None)
            for make, array, there in zip(self._makers, self._arrays, self._there, strict=True)
        ]
        start, end = self._times_upto[row : row + 2] if self._timed[row] else (0, 0)
        return KeyState(cells, self._times[start:end].tolist())

    def _rest(self) -> np.ndarray:
        """The rows of keys that nobody has taken."""
        return np.fromiter((row for key, row in self._rows.items() if key not in self._taken), dtype=np.int64)

    def due(self, time: int) -> Iterator[Any]:
        """The keys that nobody has taken and whose first timer is up to `time`."""
        rest = self._rest()
        due = rest[self._timed[rest] & (self._least[rest] <= time)]
        return iter([self._names[row] for row in due])

    def others(self) -> list[Any]:
        """All keys that nobody has taken."""
        return [self._names[row] for row in self._rest()]

    def untouched(self) -> tuple[np.ndarray, int | None]:
        """The rows of keys that nobody has taken, and their least timer."""
        rest = self._rest()
        timed = rest[self._timed[rest]]
        return rest, int(self._least[timed].min()) if len(timed) else None


class _StoredLists:
    """The stored elements of lists, one list after the other. A null list must not be read."""

    def __init__(self, array: pa.ListArray) -> None:
        self.array = array
        self._values = array.values
        self._offsets: list[int] = array.offsets.to_pylist()

    def elements(self, row: int) -> pa.Array:
        start, end = self._offsets[row : row + 2]
        return self._values.slice(start, end - start)


def _one(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def encoded(
    stamp: Mapping[str, int],
    keys: Sequence[Any],
    states: Sequence[KeyState],
    columns: StateColumns,
) -> pa.Table:
    """An epoch's rows for the keys that it changed; `stamp` is what all rows have in common. Values must be of their
    types (`tidegate.pipelines.process.values`)."""
    live = [not state.empty for state in states]
    timers = [state.timers or None for state in states]
    least = [state.timers[0] if state.timers else None for state in states]
    found: dict[str, pa.Array] = {
        **{name: pa.array([value] * len(keys), columns.schema.field(name).type) for name, value in stamp.items()},
        LIVE: pa.array(live, pa.bool_()),
        LEAST: pa.array(least, pa.int64()),
        TIMERS: pa.array(timers, pa.list_(pa.int64())),
    }
    parts = [keys] if len(columns.keys) == 1 else list(zip(*keys, strict=True)) or [() for _ in columns.keys]
    for (name, kind), values in zip(columns.keys, parts, strict=True):
        found[name] = pa.array(values, kind)
    for place, (name, kind) in enumerate(columns.states):
        found[name] = _states([state.cells[place] for state in states], kind)
    for name, kind in columns.broadcast:
        found[name] = pa.nulls(len(keys), kind)
    return pa.table(found, schema=columns.schema)


def _states(cells: Sequence[Cell], kind: pa.DataType) -> pa.Array:
    if cells and isinstance(cells[0], ListCell):
        return _lists(cells, kind)  # type: ignore[arg-type]
    # Arrow takes the entries of a map; those of a ROW, a dict too, it takes as they are.
    values = [list(cell.get().items()) or None if isinstance(cell, MapCell) else plain(cell) for cell in cells]
    return pa.array(values, kind)


def _in_order(pieces: Sequence[pa.Array | int], new: pa.Array) -> list[pa.Array]:
    """Stored and new elements in the order of `pieces`; all new ones are encoded at once."""
    chunks, taken = [new.slice(0, 0)], 0
    for piece in pieces:
        if isinstance(piece, int):
            chunks.append(new.slice(taken, piece))
            taken += piece
        else:
            chunks.append(piece)
    return chunks


def _lists(cells: Sequence[ListCell], kind: pa.ListType) -> pa.Array:
    """A column of lists; those that were only appended to are not decoded. NULL for empty lists, which are not
    stored."""
    pieces: list[pa.Array | int] = []  # what is stored, or how many of the new elements come next
    new: list[Any] = []
    offsets, end = [0], 0
    stored: _StoredLists | None = None
    for cell in cells:
        base, own = cell.base, cell.added if cell.items is None else cell.items
        if cell.items is None and isinstance(base, Stored):
            if stored is None or stored.array is not base.array:
                stored = _StoredLists(base.array)
            elements = stored.elements(base.row)
            pieces.append(elements)
            end += len(elements)
        if own:
            new += own
            end += len(own)
            if pieces and isinstance(pieces[-1], int):
                pieces[-1] += len(own)
            else:
                pieces.append(len(own))
        offsets.append(end)
    chunks = _in_order(pieces, pa.array(new, kind.value_type))
    empty = pa.array([low == high for low, high in pairwise(offsets)], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.concat_arrays(chunks), mask=empty).cast(kind)
