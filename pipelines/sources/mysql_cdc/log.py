"""The server's binlog files: which there are, how long and since when, how long they stay, and whether they are still
the ones that a plan speaks of.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from pymysql.cursors import Cursor

from tidegate.pipelines.connectors.protocol import LogRetention
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.cdc.errors import resnapshot
from tidegate.pipelines.sources.mysql_cdc.binlog.events import ARTIFICIAL, GTIDS, Event
from tidegate.pipelines.sources.mysql_cdc.binlog.model import FIRST_POSITION, BinlogPosition, BinlogRange
from tidegate.pipelines.sources.mysql_cdc.binlog.scan import commit_time
from tidegate.pipelines.sources.mysql_cdc.binlog.transport import dump
from tidegate.pipelines.sources.mysql_cdc.catalog import Server
from tidegate.pipelines.sources.mysql_cdc.connection import ServerOptions
from tidegate.pipelines.sources.mysql_cdc.errors import BinlogPurged


@dataclass(frozen=True)
class LogFiles:
    """The server's binlog files in order, with their sizes in bytes, as of one moment."""

    sizes: Mapping[str, int]

    @property
    def names(self) -> Sequence[str]:
        return list(self.sizes)

    def bytes_between(self, start: BinlogPosition, end: BinlogPosition) -> int:
        """How many bytes of log lie in [start, end); 0 when there are none."""
        if end.order <= start.order:
            return 0
        if start.number == end.number:
            return end.position - start.position
        between = sum(
            size for name, size in self.sizes.items() if start.number < BinlogPosition(name).number < end.number
        )
        first = max(0, self.sizes.get(start.file, start.position) - start.position)
        return first + between + end.position

    def crossed(self, start: BinlogPosition, end: BinlogPosition) -> list[str]:
        """The files that [start, end) touches."""
        return [name for name in self.sizes if start.number <= BinlogPosition(name).number <= end.number]

    def following(self, file: str) -> str | None:
        """The file after `file`; None for the newest."""
        names = list(self.sizes)
        index = names.index(file) + 1
        return names[index] if index < len(names) else None


def log_files(cursor: Cursor) -> LogFiles:
    """SHOW BINARY LOGS."""
    cursor.execute("SHOW BINARY LOGS")
    return LogFiles({row[0]: int(row[1]) for row in cursor.fetchall()})


def with_number(like: BinlogPosition, number: int, position: int) -> BinlogPosition:
    """The position in the file with `number`, named as `like`'s file is."""
    stem, _, digits = like.file.rpartition(".")
    return BinlogPosition(f"{stem}.{number:0{len(digits)}d}", position)


@dataclass(frozen=True)
class Birth:
    """A binlog file's own beginning: when it was made (s, UTC) and by which server. A file of the same name that
    another server wrote, or the same server after its log began anew, was born otherwise."""

    timestamp: int
    server_id: int

    def __str__(self) -> str:
        return f"{self.timestamp}-{self.server_id}"

    def to_json(self) -> dict[str, Any]:
        return {"timestamp": self.timestamp, "server_id": self.server_id}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Birth:
        return cls(int(values["timestamp"]), int(values["server_id"]))


def check_reachable(position: BinlogPosition, files: LogFiles, table: str, where: str) -> None:
    """Raise SourceError unless the server still has the log from `position` on."""
    size = files.sizes.get(position.file)
    if size is None:
        oldest = next(iter(files.sizes), None)
        gone = oldest is not None and BinlogPosition(oldest).number > position.number
        raise SourceError(
            f"{table}: the binlog {position.file} has been purged"
            if gone
            else f"{table}: the server has no binlog {position.file}: it is another server, or its binlog began anew",
            where=f"{where}, position {position}; the server's files: {oldest} to {files.names[-1] if oldest else '-'}",
            state="what was committed before is kept; changes after that position cannot be had any more",
            next_command=resnapshot(table),
        )
    if not FIRST_POSITION <= position.position <= size:
        raise SourceError(
            f"{table}: {position.file} ends at {size}, before the position that was read last: "
            "it is another server, or its binlog began anew",
            where=f"{where}, position {position}",
            state="what was committed before is kept; nothing of this server was read",
            next_command=resnapshot(table),
        )


def check_birth(recorded: Birth, found: Birth, position: BinlogPosition, table: str, where: str) -> None:
    """Raise SourceError unless the file at `position` is the one that the plans speak of."""
    if recorded == found:
        return
    if recorded.server_id != found.server_id:
        what = f"the binlog was written by server_id {recorded.server_id}, it is now by {found.server_id}"
    else:
        what = f"{position.file} is not the file that was read before: the server's binlog began anew"
    raise SourceError(
        f"{table}: {what}",
        where=f"{where}, position {position}",
        state="what was committed before is kept; nothing of this log was read",
        next_command=resnapshot(table),
    )


def check_server(recorded: str, found: str, table: str, where: str) -> None:
    """Raise SourceError where the server is another one than was read, by the id that it has itself. A MySQL server has
    a server_uuid; MariaDB has none, and "" is never another one."""
    if recorded and found and recorded != found:
        raise SourceError(
            f"{table}: the server is another one than was read",
            where=f"{where}: server_uuid {found}, it was {recorded}",
            state="what was committed before is kept; nothing of this server was read",
            next_command=resnapshot(table),
        )


_HEADER = struct.Struct("<IBIIIH")
_BETWEEN = {Event.STOP, Event.ROTATE, Event.PREVIOUS_GTIDS, Event.BINLOG_CHECKPOINT, Event.GTID_LIST}
_ONE_EVENT = 1


@dataclass(frozen=True)
class Header:
    """One event's header; `timestamp` in s, UTC."""

    timestamp: int
    kind: int
    server_id: int


def headers(server: ServerOptions, start: BinlogPosition) -> Iterator[Header]:
    """The events that stand in the file from `start` on, and before them how the file begins.

    Raises BinlogPurged for a place that the server does not have, BinlogRefused without the grant, ConnectionLost.
    """
    with closing(dump(server, start, chunk_bytes=_ONE_EVENT)) as chunks:
        for chunk in chunks:
            for at in chunk.starts:
                timestamp, kind, server_id, _, _, flags = _HEADER.unpack_from(chunk.data, at)
                if kind == Event.FORMAT_DESCRIPTION or not flags & ARTIFICIAL:
                    yield Header(timestamp, kind, server_id)


def birth(server: ServerOptions, place: BinlogPosition) -> Birth:
    """When and by which server the file at `place` was begun. Raises as `headers`.

    A server sends what follows `place` until it is stopped, some MB of it: ask at the newest place that is known.
    """
    for header in headers(server, place):
        if header.kind == Event.FORMAT_DESCRIPTION:
            return Birth(header.timestamp, header.server_id)
    raise SourceError(
        f"the binlog {place.file} does not begin as a binlog does",
        where=server.where,
        state="nothing was read",
        next_command="SHOW BINLOG EVENTS IN the file, on the server, shows what is wrong with it",
    )


def birth_of_file(server: ServerOptions, name: str, files: LogFiles) -> Birth:
    """When and by which server the file called `name` was begun; asked at its end, as `files` has it. Raises as
    `headers`."""
    return birth(server, BinlogPosition(name, files.sizes.get(name, FIRST_POSITION)))


def is_border(server: ServerOptions, position: BinlogPosition) -> bool:
    """Whether `position` is between transactions. Raises BinlogRefused and ConnectionLost."""
    if position.position == FIRST_POSITION:
        return True
    try:
        for header in headers(server, position):
            if header.kind != Event.FORMAT_DESCRIPTION:
                return header.kind in GTIDS or header.kind in _BETWEEN
    except BinlogPurged:
        return False  # the server takes the bytes there for an event that cannot be
    return True


def retention(
    cursor: Cursor, server: Server, options: ServerOptions, position: BinlogPosition, now: int
) -> LogRetention:
    """How long the binlog after `position` is still there; `now` in ms, UTC. Raises SourceError.

    A server deletes a file once its last write is older than binlog_expire_logs_seconds, and never the newest. A file
    is written to until the next one begins, so the birth of the next file says when it may go.
    """
    files, retained_s = log_files(cursor), server.retention_seconds
    if position.file not in files.sizes:
        return LogRetention(0.0, retained_s, str(position))
    following = files.following(position.file)
    if following is None or retained_s is None:
        return LogRetention(None, retained_s, str(position))
    try:
        closed = birth_of_file(options, following, files).timestamp
    except BinlogPurged:
        return LogRetention(0.0, retained_s, str(position))
    return LogRetention(max(0.0, closed + retained_s - now / 1000), retained_s, str(position))


def log_time(server: ServerOptions, span: BinlogRange, files: Sequence[str]) -> int | None:
    """When the last transaction of `span`, which lies in `files`, committed (ms, UTC), of any table, so that time goes
    on for a table without changes. None if there is none.

    The last file is scanned for it, earlier ones only if no transaction begins there. Raises BinlogPurged and the other
    errors of reading a binlog.
    """
    for file in reversed(files):
        start = span.start if file == span.start.file else BinlogPosition(file)
        found = commit_time(server, start, span.end)
        if found is not None:
            return found // 1000
    return None
