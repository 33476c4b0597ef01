"""Finds the transactions that change one table, by event headers and the names in table maps: no checksum, no row.

What a piece of the log has for one table is bounded by these; how many transactions of other tables lie in between
says nothing.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidegate.pipelines.sources.mysql_cdc.binlog.model import BinlogPosition
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.table_map import POST_HEADER_BYTES, TABLE_ID_BYTES
from tidegate.pipelines.sources.mysql_cdc.binlog.scan import Borders, borders_before, borders_of
from tidegate.pipelines.sources.mysql_cdc.binlog.stream import Events, EventStream, gtid_indices
from tidegate.pipelines.sources.mysql_cdc.binlog.transport import dump
from tidegate.pipelines.sources.mysql_cdc.binlog.wire.events import HEADER_BYTES, KIND_OF, Event
from tidegate.pipelines.sources.mysql_cdc.binlog.wire.gather import Offsets, rows_at, unsigned_at
from tidegate.pipelines.sources.mysql_cdc.connection import ServerOptions


@dataclass(frozen=True)
class TableName:
    """A table as table maps name it, without regard to the case of ASCII letters."""

    database: str
    table: str

    @property
    def written(self) -> bytes:
        """What a table map's body begins with, past its post header."""
        database, table = self.database.encode(), self.table.encode()
        return (bytes([len(database)]) + database + b"\0" + bytes([len(table)]) + table + b"\0").lower()


@dataclass(frozen=True)
class Touching:
    """Transactions of one file that change the table, in order. `events`: how many row events of it each of them has
    here; the first of them may be the last one of before, gone on with."""

    borders: Borders
    events: Offsets


def touching(
    server: ServerOptions, start: BinlogPosition, end: BinlogPosition, name: TableName, *, server_id: int = 0
) -> Generator[Touching, None, None]:
    """The transactions that begin in [start, end) and change the table, by chunks; `start` is a border.

    A compressed transaction hides its tables, and counts as one row event of this one. Raises as `scan_borders` does.
    """
    stream, running = EventStream(start, verify=False), Running(name, end)
    with closing(dump(server, start, server_id=server_id)) as chunks:
        for chunk in chunks:
            for events in stream.feed(chunk):
                found = running.of(events)
                if found is not None:
                    yield found
            if stream.place.order >= end.order:
                return


@dataclass(frozen=True)
class PieceEnd:
    """Where a piece of the log ends. `late`: when the transaction that comes next committed (microseconds, UTC), where
    that is why it ends; None where it has enough."""

    place: BinlogPosition
    late: int | None


def end_of_piece(
    server: ServerOptions,
    start: BinlogPosition,
    end: BinlogPosition,
    name: TableName,
    *,
    instant: int | None = None,
    most: int | None = None,
    least: bool = True,
    server_id: int = 0,
) -> PieceEnd | None:
    """Where a piece of the log that begins at `start` should end before `end`; None when it need not.

    It ends before the first transaction of the table that committed after `instant` (microseconds, UTC), or after
    `most` of its row events; but it takes one transaction of the table at least, so that who waits for it gets on.
    Without `least` not one after `instant`: nobody waits for it.
    """
    last: BinlogPosition | None = None
    taken = 0
    with closing(touching(server, start, end, name, server_id=server_id)) as found:
        for item in found:
            borders = item.borders
            again = last is not None and borders.place(0) == last
            before = taken + np.append(0, np.cumsum(item.events)[:-1])
            stops = np.zeros(len(borders), bool)
            if most is not None:
                stops |= before >= most
            if last is None:
                stops[0] = False
            if instant is not None:
                late = borders.times > instant
                late[0] &= last is not None or not least
                stops |= late
            if again:  # the last one goes on here
                stops[0] = False
            if stops.any():
                stop = int(np.argmax(stops))
                at = int(borders.times[stop])
                return PieceEnd(borders.place(stop), at if instant is not None and at > instant else None)
            last, taken = borders.place(-1), taken + int(item.events.sum())
    return None


class Running:
    """Knows the running transaction, and the ids that the table has, from chunk to chunk."""

    def __init__(self, name: TableName, end: BinlogPosition) -> None:
        self._written = np.frombuffer(name.written, np.uint8)
        self._end = end
        self._open: Borders | None = None
        self._ids = np.empty(0, np.int64)

    def of(self, events: Events) -> Touching | None:
        """The transactions before the end that change the table in `events`; None when there are none."""
        begins = gtid_indices(events)
        borders = borders_before(borders_of(events), self._end)
        maps, rows = self._own(events)
        places = np.flatnonzero(maps | rows)
        owners = np.searchsorted(begins, places, side="right") - 1
        kept = (owners < len(borders)) & ((owners >= 0) | (self._open is not None))
        owners, weights = owners[kept], rows[places[kept]]
        before, last = self._open, len(borders) - 1
        if len(begins):
            self._open = borders[last:] if len(borders) == len(begins) else None
        if not len(owners):
            return None
        if before is not None:
            borders, owners = _joined(before, borders), owners + 1
        changed, which = np.unique(owners, return_inverse=True)
        return Touching(borders[changed], np.bincount(which, weights).astype(np.int64))

    def _own(self, events: Events) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which events are table maps of the table, and which may have rows of it."""
        maps, rows = np.zeros(len(events), bool), events.types == Event.TRANSACTION_PAYLOAD
        if Event.FORMAT_DESCRIPTION in events.types:  # a server that was started anew gives the ids to others
            self._ids, self._open = self._ids[:0], None
        width, at = len(self._written), events.starts + HEADER_BYTES
        named = np.flatnonzero((events.types == Event.TABLE_MAP) & (events.ends >= at + POST_HEADER_BYTES + width))
        if len(named):
            names = rows_at(events.data, at[named] + POST_HEADER_BYTES, width)
            upper = (names >= ord("A")) & (names <= ord("Z"))
            maps[named] = (np.where(upper, names + 32, names) == self._written).all(axis=1)
            self._ids = np.union1d(self._ids, unsigned_at(events.data, at[maps], TABLE_ID_BYTES))
        changes = np.flatnonzero(KIND_OF[events.types] >= 0)
        if len(changes) and len(self._ids):
            rows[changes] = np.isin(unsigned_at(events.data, at[changes], TABLE_ID_BYTES), self._ids)
        return maps, rows


def _joined(first: Borders, then: Borders) -> Borders:
    """Borders of one file, put together."""
    return Borders(
        first.file,
        np.concatenate([first.positions, then.positions]),
        np.concatenate([first.times, then.times]),
        np.concatenate([first.types, then.types]),
        np.concatenate([first.heads, then.heads]),
    )
