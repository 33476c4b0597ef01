"""Cuts a table into chunks of about as many rows each, by bounds that the server itself computes and compares.

The bounds divide all possible keys: the first chunk has no lower and the last no upper bound, so that rows which come
while the snapshot runs fall into some chunk. Rows are never counted, and no chunk is longer than asked for by more
than half (or than the rows that share one value, where a key column cannot be compared).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pymysql.cursors import Cursor

from tidegate.pipelines.progress import Progress
from tidegate.pipelines.sources.mysql_cdc.key import Bound, KeyColumn, after, at_or_after, before
from tidegate.pipelines.sources.mysql_cdc.types import quote

CHUNK_PREFIX = "chunk-"
CHUNK_DIGITS = 7
_LEAST_DENSITY = 2 / 3


@dataclass(frozen=True)
class SnapshotKey:
    """The columns to cut by, and the index that keeps them in order. No columns: one chunk."""

    columns: tuple[KeyColumn, ...] = ()
    index: str = ""
    unique: bool = True

    def to_json(self) -> dict[str, Any]:
        return {"columns": [column.to_json() for column in self.columns], "index": self.index, "unique": self.unique}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> SnapshotKey:
        return cls(
            tuple(KeyColumn.from_json(column) for column in values["columns"]), values["index"], values["unique"]
        )

    @property
    def force(self) -> str:
        """FORCE INDEX: without it a chunk that is a good part of the table would be read by scanning all of it."""
        return f" FORCE INDEX ({quote(self.index)})" if self.columns else ""


@dataclass(frozen=True)
class Chunk:
    """A range of keys, lower <= key < upper; None is open."""

    ordinal: int
    lower: tuple[str, ...] | None = None
    upper: tuple[str, ...] | None = None

    @property
    def name(self) -> str:
        return chunk_name(self.ordinal)

    def predicate(self, key: SnapshotKey, names: Sequence[str] | None = None) -> str:
        """SQL that holds for the chunk's rows; empty for all rows."""
        parts = []
        if self.lower is not None:
            parts.append(at_or_after(key.columns, self.lower, names))
        if self.upper is not None:
            parts.append(before(key.columns, self.upper, names))
        return " AND ".join(parts)


def chunk_name(ordinal: int) -> str:
    """The name of a chunk in the splits table and in `_split`."""
    return f"{CHUNK_PREFIX}{ordinal:0{CHUNK_DIGITS}d}"


def plan_bounds(
    cursor: Cursor, table: str, key: SnapshotKey, rows: int, chunk_rows: int, progress: Progress
) -> Iterator[tuple[str, ...]]:
    """The lower bounds of all chunks but the first, in order. `table` is quoted, `rows` the server's estimate.

    Dense whole numbers are cut by arithmetic; any other key by walking its index, chunk by chunk.
    """
    if not key.columns:
        return iter(())
    if len(key.columns) == 1 and key.columns[0].integer:
        low, high = _ends(cursor, table, key.columns[0])
        if low is None or high is None:
            return iter(())
        density = rows / (high - low + 1)
        if density >= _LEAST_DENSITY:
            # As many numbers as rows at most, whatever the estimate is worth: no chunk can be too long.
            width = max(1, round(chunk_rows / min(density, 1.0)))
            return ((str(value),) for value in range(low + width, high + 1, width))
    return _walk(cursor, table, key, rows, chunk_rows, progress)


def _ends(cursor: Cursor, table: str, column: KeyColumn) -> tuple[int | None, int | None]:
    name = quote(column.name)
    cursor.execute(f"SELECT MIN({name}), MAX({name}) FROM {table}")  # noqa: S608 quoted identifiers
    low, high = cursor.fetchone() or (None, None)
    return (None, None) if low is None or high is None else (int(low), int(high))


def _walk(
    cursor: Cursor, table: str, key: SnapshotKey, rows: int, chunk_rows: int, progress: Progress
) -> Iterator[tuple[str, ...]]:
    task = progress.task("plan chunks", rows or None, "rows")
    fetch = ", ".join(column.fetch for column in key.columns)
    order = ", ".join(quote(column.name) for column in key.columns)
    source = f"FROM {table}{key.force}"
    last: Bound | None = None
    while True:
        where, moved = "", "1"
        if last is not None:
            where, moved = f" WHERE {at_or_after(key.columns, last)}", after(key.columns, last)
        query = f"SELECT {fetch}, {moved} {source}{where} ORDER BY {order} LIMIT 1 OFFSET {chunk_rows}"
        found = _row(cursor, query)
        if found is not None and not int(found[-1]) and last is not None:
            # More rows than a chunk should have share one value of what can be compared: they stay together.
            query = f"SELECT {fetch}, 1 {source} WHERE {after(key.columns, last)} ORDER BY {order} LIMIT 1"
            found = _row(cursor, query)
        if found is None:
            return
        last = tuple(found[:-1])
        task.advance(chunk_rows)
        yield last


def _row(cursor: Cursor, query: str) -> tuple[str, ...] | None:
    cursor.execute(query)
    found = cursor.fetchone()
    return None if found is None else tuple(_text(value) for value in found)


def _text(value: Any) -> str:
    return value.decode("ascii") if isinstance(value, bytes) else str(value)
