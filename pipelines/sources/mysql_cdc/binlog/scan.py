"""Finds transaction borders by looking at event headers only: no checksum, no row.

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

from tidegate.pipelines.sources.mysql_cdc.binlog.model import BinlogPosition, BinlogRange
from tidegate.pipelines.sources.mysql_cdc.binlog.stream import Events, EventStream, begin_times, gtid_indices
from tidegate.pipelines.sources.mysql_cdc.binlog.transport import dump
from tidegate.pipelines.sources.mysql_cdc.binlog.wire.events import HEADER_BYTES, SERVER_ID_AT, Event
from tidegate.pipelines.sources.mysql_cdc.binlog.wire.gather import Offsets, rows_at
from tidegate.pipelines.sources.mysql_cdc.connection import ServerOptions

_MARIADB_NUMBER = slice(HEADER_BYTES, HEADER_BYTES + 8)
_MARIADB_DOMAIN = slice(HEADER_BYTES + 8, HEADER_BYTES + 12)
_MYSQL_UUID = slice(HEADER_BYTES + 1, HEADER_BYTES + 17)
_MYSQL_NUMBER = slice(HEADER_BYTES + 17, HEADER_BYTES + 25)
_SERVER_ID = slice(SERVER_ID_AT, SERVER_ID_AT + 4)
_MARIADB_NAME_BYTES, _MYSQL_NAME_BYTES = _MARIADB_DOMAIN.stop, _MYSQL_NUMBER.stop
"""Header and body of a GTID event as far as they name the transaction."""


@dataclass(frozen=True)
class Borders:
    """Transactions of one file, in order: where each begins and when it committed (microseconds, UTC)."""

    file: str
    positions: Offsets
    times: Offsets
    types: NDArray[np.uint8]
    heads: NDArray[np.uint8]
    """The first bytes of each GTID event, which name the transaction."""

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, cut: slice | NDArray[np.int64]) -> Borders:
        return Borders(self.file, self.positions[cut], self.times[cut], self.types[cut], self.heads[cut])

    def place(self, index: int) -> BinlogPosition:
        """Where a transaction begins."""
        return BinlogPosition(self.file, int(self.positions[index]))

    def gtid(self, index: int) -> str | None:
        """As the server writes it: `0-1-42`, or `3e11fa47-71ca-11e1-9e33-c80aa9429562:23`. None: it has none."""
        head, kind = self.heads[index].tobytes(), self.types[index]
        if kind == Event.MARIADB_GTID:
            domain, server, number = (
                int.from_bytes(head[part], "little") for part in (_MARIADB_DOMAIN, _SERVER_ID, _MARIADB_NUMBER)
            )
            return f"{domain}-{server}-{number}"
        if kind == Event.GTID:
            return f"{uuid.UUID(bytes=head[_MYSQL_UUID])}:{int.from_bytes(head[_MYSQL_NUMBER], 'little')}"
        return None


def scan_borders(
    server: ServerOptions, start: BinlogPosition, end: BinlogPosition | None = None, *, server_id: int = 0
) -> Generator[Borders, None, None]:
    """The transactions that begin in [start, end), by chunks; without `end`, up to where the binlog ends now.

    `start` is a border; `end` need not be one. Raises BinlogPurged, BinlogRefused, ConnectionLost, UnknownEvent,
    UnsupportedEvent.
    """
    stream = EventStream(start, verify=False)
    with closing(dump(server, start, server_id=server_id)) as chunks:
        for chunk in chunks:
            for events in stream.feed(chunk):
                borders = borders_before(borders_of(events), end)
                if len(borders):
                    yield borders
            if end is not None and stream.place.order >= end.order:
                return


def borders_of(events: Events) -> Borders:
    """The transactions that begin in `events`."""
    begins = gtid_indices(events)
    types, starts = events.types[begins], events.starts[begins]
    heads = np.zeros((len(begins), _MYSQL_NAME_BYTES), np.uint8)
    of_mariadb = types == Event.MARIADB_GTID
    heads[of_mariadb, :_MARIADB_NAME_BYTES] = rows_at(events.data, starts[of_mariadb], _MARIADB_NAME_BYTES)
    heads[~of_mariadb] = rows_at(events.data, starts[~of_mariadb], _MYSQL_NAME_BYTES)
    return Borders(events.file, events.positions[begins], begin_times(events, begins), types, heads)


def borders_before(borders: Borders, end: BinlogPosition | None) -> Borders:
    """Those of `borders` that lie before `end`."""
    if end is None or not len(borders):
        return borders
    number = borders.place(0).number
    if number == end.number:
        return borders[: int(np.searchsorted(borders.positions, end.position))]
    return borders if number < end.number else borders[:0]


def shares(server: ServerOptions, span: BinlogRange, parts: int, *, server_id: int = 0) -> list[BinlogRange]:
    """`span`, which lies in one file, as at most `parts` ranges of about as many bytes: to be read in parallel.

    A transaction is never cut, so one that is longer than a share makes fewer of them. All but the last share are
    scanned for it. Raises what `scan_borders` does.
    """
    length = span.end.position - span.start.position
    cuts: list[BinlogPosition] = []
    wanted = iter(span.start.position + length * part // parts for part in range(1, parts))
    least = next(wanted, None)
    with closing(scan_borders(server, span.start, span.end, server_id=server_id)) as found:
        for borders in found:
            while least is not None and borders.positions[-1] >= least:
                cuts.append(borders.place(int(np.searchsorted(borders.positions, least))))
                least = next((at for at in wanted if at > cuts[-1].position), None)
            if least is None:
                break
    places = [span.start, *cuts, span.end]
    return [replace(span, start=start, end=end) for start, end in itertools.pairwise(places)]


def commit_time(
    server: ServerOptions, start: BinlogPosition, position: BinlogPosition, *, server_id: int = 0
) -> int | None:
    """When the last transaction that begins in [start, position) committed; microseconds, UTC. None: there is none."""
    latest = None
    for borders in scan_borders(server, start, position, server_id=server_id):
        latest = int(borders.times[-1])
    return latest
