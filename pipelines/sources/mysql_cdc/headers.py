"""Looks at single events of the server's binlog: how a file begins, and whether a place stands between transactions."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.mysql_cdc.binlog.model import FIRST_POSITION, BinlogPosition, ServerOptions
from tidegate.pipelines.sources.mysql_cdc.binlog.transport import dump
from tidegate.pipelines.sources.mysql_cdc.binlog.wire.events import ARTIFICIAL, GTIDS, Event
from tidegate.pipelines.sources.mysql_cdc.errors import BinlogPurged
from tidegate.pipelines.sources.mysql_cdc.log import Birth

_HEADER = struct.Struct("<IBIIIH")
_BETWEEN = {Event.STOP, Event.ROTATE, Event.PREVIOUS_GTIDS, Event.BINLOG_CHECKPOINT, Event.GTID_LIST}
_ONE_EVENT = 1


@dataclass(frozen=True)
class Header:
    """One event's header; `timestamp` in s, UTC."""

    timestamp: int
    kind: int
    server_id: int
    flags: int


def headers(server: ServerOptions, start: BinlogPosition) -> Iterator[Header]:
    """The events that stand in the file from `start` on, and before them how the file begins.

    Raises BinlogPurged for a place that the server does not have, BinlogRefused without the grant, ConnectionLost.
    """
    with closing(dump(server, start, chunk_bytes=_ONE_EVENT)) as chunks:
        for chunk in chunks:
            for at in chunk.starts:
                timestamp, kind, server_id, _, _, flags = _HEADER.unpack_from(chunk.data, at)
                if kind == Event.FORMAT_DESCRIPTION or not flags & ARTIFICIAL:
                    yield Header(timestamp, kind, server_id, flags)


def birth(server: ServerOptions, place: BinlogPosition) -> Birth:
    """When and by which server the file at `place` was begun. Raises as `headers`.

    A server sends what follows `place` until it is told to stop, some MB of it: ask at the newest place that is known.
    """
    for header in headers(server, place):
        if header.kind == Event.FORMAT_DESCRIPTION:
            return Birth(header.timestamp, header.server_id)
    raise SourceError(
        f"the binlog {place.file} does not begin as a binlog does",
        where=server.where,
        state="nothing was read",
        next_command="SHOW BINLOG EVENTS IN the file, on the server, tells what is wrong with it",
    )


def is_border(server: ServerOptions, position: BinlogPosition) -> bool:
    """Whether `position` stands between transactions. Raises BinlogRefused and ConnectionLost."""
    if position.position == FIRST_POSITION:
        return True
    try:
        for header in headers(server, position):
            if header.kind != Event.FORMAT_DESCRIPTION:
                return header.kind in GTIDS or header.kind in _BETWEEN
    except BinlogPurged:
        return False  # the server takes the bytes there for an event that cannot be
    return True
