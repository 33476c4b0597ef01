"""The dump connection: asks a server for its binlog and cuts what arrives into chunks of whole events.

`COM_BINLOG_DUMP` with the non-blocking flag: the server sends what it has and then says EOF, so a read is bounded.
It is asked for checksums as the file has them, for MariaDB's own GTID events, and for ANNOTATE_ROWS events too: only
with all events in the stream are their places known.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymysql
from pymysql.connections import Connection

from tidegate.pipelines.sources.cdc.errors import FRESH
from tidegate.pipelines.sources.mysql_cdc.binlog.model import BinlogPosition
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns import Collations
from tidegate.pipelines.sources.mysql_cdc.binlog.wire.framing import (
    CHUNK_BYTES,
    EOF,
    MAX_PACKET,
    Chunk,
    PacketWalker,
    join_packets,
)
from tidegate.pipelines.sources.mysql_cdc.connection import Client, ServerOptions, received
from tidegate.pipelines.sources.mysql_cdc.errors import (
    BinlogEnded,
    BinlogError,
    BinlogPurged,
    BinlogRefused,
    ConnectionLost,
)

_COM_BINLOG_DUMP = 0x12
_NON_BLOCKING, _SEND_ANNOTATE_ROWS = 0x01, 0x02
_MAX_START = 2**32 - 1
_HEARTBEAT_NANOSECONDS = 15_000_000_000
_WRITE_TIMEOUT_SECONDS = 3_600
"""How long the server waits for a slow reader (Spark writing Parquet, say) before it gives up."""

_FATAL_ERROR_READING_BINLOG = 1236
_NO_GRANT = frozenset({1045, 1227, 1044})
_NO_SUCH_COLUMN = 1054
_LEAST_RECEIVED = 1 << 16


@dataclass(frozen=True)
class ServerFacts:
    """What the decoder must know of the server. `fold_case`: its table names know no upper case."""

    collations: Collations
    fold_case: bool


def connect(server: ServerOptions) -> Connection[Any]:
    """An open connection. Raises ConnectionLost, or BinlogRefused when the server does not let the user in."""
    try:
        return Client(**server.connecting, read_timeout=server.read_timeout, write_timeout=server.read_timeout)
    except pymysql.err.OperationalError as error:
        code, text = _code_and_text(error)
        kind = BinlogRefused if code in _NO_GRANT else ConnectionLost
        raise kind(f"no connection to the server: {text} ({code})", where=server.where) from error


def facts(connection: Connection[Any]) -> ServerFacts:
    """Read the server's facts. Raises ConnectionLost."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT @@lower_case_table_names")
            (fold_case,) = cursor.fetchone() or (0,)
            try:
                cursor.execute(_APPLICABLE_COLLATIONS_QUERY)
            except pymysql.err.OperationalError as error:
                if _code_and_text(error)[0] != _NO_SUCH_COLUMN:
                    raise
                cursor.execute(_COLLATIONS_QUERY)
            collations = {int(number): str(charset) for number, charset in cursor.fetchall()}
    except pymysql.err.MySQLError as error:
        raise ConnectionLost(f"the server did not answer who it is: {_code_and_text(error)[1]}") from error
    return ServerFacts(collations, bool(int(fold_case)))


_COLLATIONS_QUERY = "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATIONS WHERE ID IS NOT NULL"
_APPLICABLE_COLLATIONS_QUERY = (
    "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY WHERE ID IS NOT NULL"
)
"""Since MariaDB 10.10 this view has the ids, also those of collations that fit several character sets."""


def dump(
    server: ServerOptions,
    start: BinlogPosition,
    *,
    server_id: int = 0,
    chunk_bytes: int = CHUNK_BYTES,
    connection: Connection[Any] | None = None,
) -> Generator[Chunk, None, None]:
    """The binlog from `start` to where it ends now, through all files. Close the iterator to stop earlier.

    An open `connection` to the server is used, and closed, in place of a new one. Raises BinlogPurged when the server
    does not have `start`, BinlogRefused without the grant, ConnectionLost.
    """
    if start.position > _MAX_START:
        raise BinlogEnded(
            "a server cannot be asked for a place beyond 4 GB of a file; no transaction begins there",
            where=start,
            next_command=FRESH,
        )
    # pymysql has no command for this, so its parts are used; and a connection that dumps takes no other command, not
    # even a farewell: it is cut.
    used: Any = connection or connect(server)
    with ExitStack() as stack:
        stack.callback(used._force_close)
        try:
            with used.cursor() as cursor:
                cursor.execute(
                    "SET @master_binlog_checksum = 'CRC32', @source_binlog_checksum = 'CRC32',"
                    " @mariadb_slave_capability = 4, @master_heartbeat_period = %s, net_write_timeout = %s",
                    (_HEARTBEAT_NANOSECONDS, _WRITE_TIMEOUT_SECONDS),
                )
            flags = _NON_BLOCKING | _SEND_ANNOTATE_ROWS
            request = struct.pack("<IHI", start.position, flags, server_id) + start.file.encode()
            used._execute_command(_COM_BINLOG_DUMP, request)
            yield from _receive(used._sock, chunk_bytes)
        except pymysql.err.MySQLError as error:
            raise _typed(*_code_and_text(error), start) from error
        except OSError as error:
            raise ConnectionLost(f"the connection to {server.where} broke: {error}", where=start) from error
        except _ServerError as error:
            raise _typed(error.code, error.text, start) from error


class _ServerError(Exception):
    """An error packet in the stream."""

    def __init__(self, packet: bytes) -> None:
        self.code = int.from_bytes(packet[1:3], "little")
        text = packet[3:].decode(errors="replace")
        self.text = text[6:] if text.startswith("#") else text
        super().__init__(self.text)


def _receive(sock: Any, chunk_bytes: int) -> Iterator[Chunk]:
    """Chunks of about `chunk_bytes`, or what there is before the stream ends."""
    buffer = bytearray(max(chunk_bytes, _LEAST_RECEIVED) + MAX_PACKET + _LEAST_RECEIVED)
    view = memoryview(buffer)
    size = 0
    while True:
        walker = PacketWalker()
        walker.walk(buffer, size)
        while walker.end is None and not walker.long_event and not (walker.starts and size >= chunk_bytes):
            size += received(sock, view[size : max(chunk_bytes, size + _LEAST_RECEIVED)])
            walker.walk(buffer, size)
        if walker.starts:
            yield Chunk(bytes(view[: walker.at]), np.array(walker.starts, np.int64))
        if walker.end is not None:
            if walker.end[0] == EOF:
                return
            raise _ServerError(walker.end)
        taken = walker.at
        if walker.long_event:
            yield _long_event(sock, view[taken:size], walker.long_event)
            taken += walker.long_event
        rest = bytes(view[taken:size])  # nothing, when the long event reached beyond the buffer
        view[: len(rest)] = rest
        size = len(rest)


def _long_event(sock: Any, begun: memoryview, wire_bytes: int) -> Chunk:
    """An event of 16 MB or more, of which `begun` is in the buffer: its packets joined, alone in a chunk."""
    packets = bytearray(wire_bytes)
    size = min(len(begun), wire_bytes)
    view = memoryview(packets)
    view[:size] = begun[:size]
    while size < wire_bytes:
        size += received(sock, view[size:])
    return Chunk(join_packets(packets), np.zeros(1, np.int64))


def _code_and_text(error: pymysql.err.MySQLError) -> tuple[int, str]:
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    return code, str(error.args[1] if len(error.args) > 1 else error)


def _typed(code: int, text: str, start: BinlogPosition) -> BinlogError:
    """The server's error as ours."""
    if code == _FATAL_ERROR_READING_BINLOG:
        return BinlogPurged(
            f"the server does not have the binlog from {start} on, by purging or because it is another server: {text}",
            where=start,
            next_command=FRESH,
        )
    if code in _NO_GRANT:
        return BinlogRefused(
            f"the server will not send its binlog ({text}); on the server: GRANT REPLICATION SLAVE ON *.* TO this user",
            where=start,
        )
    return ConnectionLost(f"the server ended the connection: {text} ({code})", where=start)
