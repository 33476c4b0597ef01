"""Event headers straight from the server: how a binlog file begins, and where transactions begin.

The driver asks for these few; rows are read by `binlog`, on executors.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import pymysql
from pymysql.constants import COMMAND

from pipelines.errors import SourceError
from pipelines.sources.mysql_cdc.binlog.model import FIRST_POSITION, BinlogPosition, ServerOptions
from pipelines.sources.mysql_cdc.connection import connect, explaining
from pipelines.sources.mysql_cdc.log import Birth, LogFiles

_HEADER = struct.Struct("<IBIIIH")
_NON_BLOCKING = 1
_NO_REPLICA = 0
_ROTATE = 4
_FORMAT_DESCRIPTION = 15
_ARTIFICIAL = 0x20
_BEGINS = {162, 33, 34, 42}
"""MariaDB's Gtid; MySQL's Gtid, Anonymous_Gtid and Gtid_tagged: each begins a transaction."""
_BETWEEN = {3, _ROTATE, 35, 161, 163}
"""Stop, Rotate, Previous_gtids, Binlog_checkpoint, Gtid_list: they stand between transactions."""
_BAD_POSITION = 1236


@dataclass(frozen=True)
class Header:
    """One event's header. `timestamp` in s, UTC; `end` is where the next event begins."""

    timestamp: int
    kind: int
    server_id: int
    size: int
    end: int
    flags: int

    @property
    def begins(self) -> bool:
        """Whether a transaction begins with it."""
        return self.kind in _BEGINS


def headers(server: ServerOptions, start: BinlogPosition, where: str) -> Iterator[Header]:
    """The headers of one file's events from `start` to what is its end now. Raises SourceError.

    Events that stand in no file (the server makes some up for a reader's sake) are left out.
    """
    request = struct.pack("<IHI", start.position, _NON_BLOCKING, _NO_REPLICA) + start.file.encode()
    with closing(connect(server)) as connection, explaining(where):
        with connection.cursor() as cursor:
            cursor.execute("SET @master_binlog_checksum = @@GLOBAL.binlog_checksum, @mariadb_slave_capability = 4")
        connection._execute_command(COMMAND.COM_BINLOG_DUMP, request)  # pyright: ignore[reportAttributeAccessIssue]
        while True:
            packet = connection._read_packet()
            if packet.is_eof_packet():
                return
            header = Header(*_HEADER.unpack(packet.read_all()[1 : 1 + _HEADER.size]))
            if header.kind == _FORMAT_DESCRIPTION or (not header.flags & _ARTIFICIAL and header.timestamp):
                yield header
                if header.kind == _ROTATE:  # what comes next is of the next file
                    return


def birth(server: ServerOptions, file: str, where: str) -> Birth:
    """When and by which server `file` was begun. Raises SourceError."""
    for header in headers(server, BinlogPosition(file), where):
        if header.kind == _FORMAT_DESCRIPTION:
            return Birth(header.timestamp, header.server_id)
    raise SourceError(
        f"the binlog {file} does not begin as a binlog does",
        where=where,
        state="nothing was read",
        next_command="SHOW BINLOG EVENTS IN the file, on the server, tells what is wrong with it",
    )


def is_border(server: ServerOptions, position: BinlogPosition, where: str) -> bool:
    """Whether `position` stands between transactions. Raises SourceError when the server can not be asked."""
    if position.position == FIRST_POSITION:
        return True
    try:
        for header in headers(server, position, where):
            if header.kind != _FORMAT_DESCRIPTION:
                return header.begins or header.kind in _BETWEEN
    except SourceError as error:
        if isinstance(error.__cause__, pymysql.err.OperationalError) and error.__cause__.args[0] == _BAD_POSITION:
            return False
        raise
    return True


def first_at(server: ServerOptions, files: LogFiles, timestamp: int, where: str) -> BinlogPosition | None:
    """The first transaction of the log that is not before `timestamp` (ms, UTC); None when all are before it."""
    names = list(files.names)
    low, high = 0, len(names)
    while low < high:  # the first file that was begun after `timestamp`
        middle = (low + high) // 2
        if birth(server, names[middle], where).timestamp * 1000 < timestamp:
            low = middle + 1
        else:
            high = middle
    for name in names[max(0, low - 1) :]:
        for header in headers(server, BinlogPosition(name), where):
            if header.begins and header.timestamp * 1000 >= timestamp:
                return BinlogPosition(name, header.end - header.size)
    return None
