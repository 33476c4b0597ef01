"""Cuts a table into chunks of about as many rows each, by bounds that the server itself computes and compares.

The server compares, never we: under a collation `'a' = 'A'` and `'ss' = 'ß'` may hold, and a chunk must end where the
server's order says. A bound therefore leaves the server as a text and goes back as a literal.

The bounds divide all possible keys: the first chunk has no lower and the last no upper bound, so that rows which come
while the snapshot runs fall into some chunk. Rows are never counted, and no chunk is longer than asked for by more
than half (or than the rows that share one value, where a key column cannot be compared).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tidegate.pipelines.progress import Progress

CHUNK_PREFIX = "chunk-"
CHUNK_DIGITS = 7
_LEAST_DENSITY = 2 / 3

Bound = Sequence[str]
"""One value per key column, as text from `KeyColumn.fetch`."""


class Cursor(Protocol):
    """A cursor of PEP 249."""

    def execute(self, query: str, args: Any = None) -> Any: ...

    def fetchone(self) -> Any: ...


class KeyColumn(Protocol):
    """A key column that the server can compare with a literal."""

    @property
    def quoted(self) -> str:
        """Its name as an identifier of the server's SQL."""
        ...

    @property
    def integer(self) -> bool:
        """Whether it holds whole numbers, whose bounds can be computed."""
        ...

    @property
    def fetch(self) -> str:
        """The server's SQL for a bound's text."""
        ...

    def literal(self, value: str) -> str:
        """The server's SQL for a bound. Raises SourceError for a text that no bound of this column can be."""
        ...

    def to_json(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class SnapshotKey:
    """The columns to cut by, and the index that keeps them in order. No columns: one chunk."""

    columns: tuple[KeyColumn, ...] = ()
    index: str = ""
    unique: bool = True

    @property
    def hint(self) -> str:
        """The server's SQL after the table's name that makes it read the index in its order; empty if not needed."""
        return ""

    def to_json(self) -> dict[str, Any]:
        return {"columns": [column.to_json() for column in self.columns], "index": self.index, "unique": self.unique}


@dataclass(frozen=True)
class Chunk:
    """A range of keys, lower <= key < upper; None is unbounded."""

    ordinal: int
    lower: tuple[str, ...] | None = None
    upper: tuple[str, ...] | None = None

    @property
    def name(self) -> str:
        return chunk_name(self.ordinal)

    def predicate(self, key: SnapshotKey) -> str:
        """SQL that holds for the chunk's rows; empty for all rows."""
        parts = []
        if self.lower is not None:
            parts.append(at_or_after(key.columns, self.lower))
        if self.upper is not None:
            parts.append(before(key.columns, self.upper))
        return " AND ".join(parts)


WHOLE = Chunk(0)
"""All of a table, in one read view."""


def chunk_name(ordinal: int) -> str:
    """The name of a chunk in the splits table and in `_split`."""
    return f"{CHUNK_PREFIX}{ordinal:0{CHUNK_DIGITS}d}"


def chunks_between(lowers: Iterable[Bound | None]) -> list[Chunk]:
    """The chunks with these lower bounds; the first has none."""
    bounds = [None if lower is None else tuple(lower) for lower in lowers]
    return [
        Chunk(ordinal, lower, upper)
        for ordinal, (lower, upper) in enumerate(zip(bounds, [*bounds[1:], None], strict=True))
    ]


def at_or_after(key: Sequence[KeyColumn], bound: Bound) -> str:
    """SQL: the key is at or after `bound`."""
    return _compare(key, bound, ">", ">=")


def after(key: Sequence[KeyColumn], bound: Bound) -> str:
    """SQL: the key is after `bound`."""
    return _compare(key, bound, ">", ">")


def before(key: Sequence[KeyColumn], bound: Bound) -> str:
    """SQL: the key is before `bound`."""
    return _compare(key, bound, "<", "<")


def _compare(key: Sequence[KeyColumn], bound: Bound, strict: str, last: str) -> str:
    """Lexicographic comparison. Written out, because MySQL and MariaDB read no index range from `(a, b) > (1, 2)`."""
    compared = [(column.quoted, column.literal(value)) for column, value in zip(key, bound, strict=True)]
    name, literal = compared.pop()
    text = f"{name} {last} {literal}"
    for name, literal in reversed(compared):
        # The first comparison adds nothing, but gives the optimizer one range to begin with.
        text = f"({name} {strict}= {literal} AND ({name} {strict} {literal} OR ({name} = {literal} AND {text})))"
    return text


def plan_bounds(
    cursor: Cursor, table: str, key: SnapshotKey, rows: int, chunk_rows: int, progress: Progress
) -> Iterator[tuple[str, ...]]:
    """The lower bounds of all chunks but the first, in order. `table` is quoted, `rows` the server's estimate.

    Dense whole numbers are cut by arithmetic; any other key by walking its index, chunk by chunk.
    """
    if not key.columns:
        return iter(())
    if len(key.columns) == 1 and key.columns[0].integer:
        low, high = _ends(cursor, table, key.columns[0].quoted)
        if low is None or high is None:
            return iter(())
        density = rows / (high - low + 1)
        if density >= _LEAST_DENSITY:
            # As many numbers as rows at most, whatever the estimate is worth: no chunk can be too long.
            width = max(1, round(chunk_rows / min(density, 1.0)))
            return ((str(value),) for value in range(low + width, high + 1, width))
    return _walk(cursor, table, key, rows, chunk_rows, progress)


def _ends(cursor: Cursor, table: str, name: str) -> tuple[int | None, int | None]:
    cursor.execute(f"SELECT MIN({name}), MAX({name}) FROM {table}")  # noqa: S608 quoted identifiers
    low, high = cursor.fetchone() or (None, None)
    return (None, None) if low is None or high is None else (int(low), int(high))


def _walk(
    cursor: Cursor, table: str, key: SnapshotKey, rows: int, chunk_rows: int, progress: Progress
) -> Iterator[tuple[str, ...]]:
    task = progress.task("plan chunks", rows or None, "rows")
    fetch = ", ".join(column.fetch for column in key.columns)
    order = ", ".join(column.quoted for column in key.columns)
    source = f"FROM {table}{key.hint}"
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
