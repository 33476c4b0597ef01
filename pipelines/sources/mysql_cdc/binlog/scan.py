"""Finds transactions by event headers, and those that change one table by the names in table maps: no checksum, no row.

A border is where a transaction begins, or where a file does. The server cannot search for one, so a scan reads all
bytes from a known border on; the network is its limit.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tidegate.pipelines.sources.mysql_cdc.binlog import tagged
from tidegate.pipelines.sources.mysql_cdc.binlog.events import (
    HEADER_BYTES,
    KIND_OF,
    Event,
    Offsets,
    rows_at,
    unsigned_at,
)
from tidegate.pipelines.sources.mysql_cdc.binlog.model import BinlogPosition, BinlogRange
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.table_map import POST_HEADER_BYTES, TABLE_ID_BYTES
from tidegate.pipelines.sources.mysql_cdc.binlog.stream import Events, EventStream, begin_times, gtid_indices
from tidegate.pipelines.sources.mysql_cdc.binlog.transport import dump
from tidegate.pipelines.sources.mysql_cdc.connection import ServerOptions


@dataclass(frozen=True)
class Borders:
    """Transactions of one file, in order: where each begins and when it committed (microseconds, UTC)."""

    file: str
    positions: Offsets
    times: Offsets

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, cut: slice | NDArray[np.int64]) -> Borders:
        return Borders(self.file, self.positions[cut], self.times[cut])

    def place(self, index: int) -> BinlogPosition:
        """Where a transaction begins."""
        return BinlogPosition(self.file, int(self.positions[index]))


def _scan(server: ServerOptions, start: BinlogPosition, end: BinlogPosition | None) -> Generator[Events, None, None]:
    """The events from `start` on, by chunks, until one of these reaches `end`."""
    stream = EventStream(start, verify=False)
    with closing(dump(server, start)) as chunks:
        for chunk in chunks:
            yield from stream.feed(chunk)
            if end is not None and stream.place.order >= end.order:
                return


def scan_borders(
    server: ServerOptions, start: BinlogPosition, end: BinlogPosition | None = None
) -> Generator[Borders, None, None]:
    """The transactions that begin in [start, end), by chunks; without `end`, up to where the binlog ends now.

    `start` is a border; `end` need not be one. Raises BinlogPurged, BinlogRefused, ConnectionLost, UnknownEvent,
    UnsupportedEvent.
    """
    with closing(_scan(server, start, end)) as found:
        for events in found:
            borders = borders_before(borders_of(events), end)
            if len(borders):
                yield borders


def next_border(server: ServerOptions, place: BinlogPosition) -> BinlogPosition:
    """Where the first transaction begins behind the event at `place`; where the binlog ends now, if none does. Raises
    as `scan_borders` does."""
    with closing(dump(server, place)) as chunks:
        stream = EventStream(place, verify=False)
        for chunk in chunks:
            for events in stream.feed(chunk):
                borders = borders_of(events)
                behind = np.flatnonzero(borders.positions > place.position) if borders.file == place.file else [0]
                if len(borders) and len(behind):
                    return borders.place(int(behind[0]))
        return stream.place


def scan_gtids(
    server: ServerOptions, start: BinlogPosition, end: BinlogPosition
) -> Generator[tuple[BinlogPosition, str | None], None, None]:
    """Where each transaction in [start, end) begins, and its name as MySQL writes it; None where it has none. Raises as
    `scan_borders` does."""
    with closing(_scan(server, start, end)) as found:
        for events in found:
            for index in gtid_indices(events).tolist():
                place = events.place(index)
                if place.order >= end.order:
                    return
                yield place, gtid_of(events, index)


def gtid_of(events: Events, index: int) -> str | None:
    """`3e11fa47-71ca-11e1-9e33-c80aa9429562:23`, of a tagged one `…:tag:23`; None where the event that begins a
    transaction has no such name. Raises MalformedEvent."""
    if events.types[index] == Event.GTID_TAGGED:
        return tagged.parse(events.body(index), events.place(index)).name
    if events.types[index] != Event.GTID:
        return None
    body = events.body(index)
    return f"{uuid.UUID(bytes=body[_UUID])}:{int.from_bytes(body[_NUMBER], 'little')}"


_UUID, _NUMBER = slice(1, 17), slice(17, 25)


def borders_of(events: Events) -> Borders:
    """The transactions that begin in `events`."""
    begins = gtid_indices(events)
    return Borders(events.file, events.positions[begins], begin_times(events, begins))


def borders_before(borders: Borders, end: BinlogPosition | None) -> Borders:
    """Those of `borders` that lie before `end`."""
    if end is None or not len(borders):
        return borders
    number = borders.place(0).number
    if number == end.number:
        return borders[: int(np.searchsorted(borders.positions, end.position))]
    return borders if number < end.number else borders[:0]


def shares(server: ServerOptions, span: BinlogRange, parts: int) -> list[BinlogRange]:
    """`span`, which lies in one file, as at most `parts` ranges of about as many bytes: to be read in parallel.

    A transaction is never cut, so one that is longer than a share makes fewer of them. All but the last share are
    scanned for it. Raises what `scan_borders` does.
    """
    length = span.end.position - span.start.position
    cuts: list[BinlogPosition] = []
    wanted = iter(span.start.position + length * part // parts for part in range(1, parts))
    least = next(wanted, None)
    with closing(scan_borders(server, span.start, span.end)) as found:
        for borders in found:
            while least is not None and borders.positions[-1] >= least:
                cuts.append(borders.place(int(np.searchsorted(borders.positions, least))))
                least = next((at for at in wanted if at > cuts[-1].position), None)
            if least is None:
                break
    places = [span.start, *cuts, span.end]
    return [replace(span, start=start, end=end) for start, end in itertools.pairwise(places)]


def commit_time(server: ServerOptions, start: BinlogPosition, position: BinlogPosition) -> int | None:
    """When the last transaction that begins in [start, position) committed; microseconds, UTC. None: there is none."""
    latest = None
    for borders in scan_borders(server, start, position):
        latest = int(borders.times[-1])
    return latest


@dataclass(frozen=True)
class TableName:
    """A table as the server's table maps name it, without regard to the case of ASCII letters."""

    database: str
    table: str

    @property
    def written(self) -> bytes:
        """What a table map's body begins with, past its post header."""
        database, table = self.database.encode(), self.table.encode()
        return (bytes([len(database)]) + database + b"\0" + bytes([len(table)]) + table + b"\0").lower()


@dataclass(frozen=True)
class Touching:
    """Transactions of one file that change the table, in order. `events`: how many of its row events each has in
    this chunk. The first transaction may be the continuation of the previous chunk's last one."""

    borders: Borders
    events: Offsets


def touching(
    server: ServerOptions, start: BinlogPosition, end: BinlogPosition, name: TableName
) -> Generator[Touching, None, None]:
    """The transactions that begin in [start, end) and change the table, by chunks; `start` is a border.

    A compressed transaction hides its tables, and counts as one row event of this one. Raises as `scan_borders` does.
    """
    running = Running(name, end)
    with closing(_scan(server, start, end)) as scanned:
        for events in scanned:
            found = running.of(events)
            if found is not None:
                yield found


@dataclass(frozen=True)
class PieceEnd:
    """Where a piece of the log ends. `late`: when the next transaction committed (microseconds, UTC), if the piece ends
    because that is too late; None if the piece is large enough."""

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
) -> PieceEnd | None:
    """Where a piece of the log that begins at `start` should end before `end`; None if it need not.

    It ends before the first transaction of the table that committed after `instant` (microseconds, UTC), or after
    `most` of its row events; but it takes at least one transaction of the table, so that whoever waits for the table
    gets on. Without `least` it takes none after `instant`: nobody waits for it.
    """
    last: BinlogPosition | None = None
    taken = 0
    with closing(touching(server, start, end, name)) as found:
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
        inside = (owners < len(borders)) & ((owners >= 0) | (self._open is not None))
        owners, weights = owners[inside], rows[places[inside]]
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
    )
