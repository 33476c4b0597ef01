"""The dump connection: asks a server for its binlog, which arrives in chunks of whole events.

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

import pymysql
from pymysql.connections import Connection
from pymysql.cursors import Cursor

from tidegate.pipelines.sources.cdc.errors import FRESH
from tidegate.pipelines.sources.mysql_cdc.binlog.events import CHUNK_BYTES, HEADER_BYTES, Chunk
from tidegate.pipelines.sources.mysql_cdc.binlog.model import CASE_MATTERS, BinlogPosition, Lower
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns import Collations
from tidegate.pipelines.sources.mysql_cdc.connection import Client, ServerOptions
from tidegate.pipelines.sources.mysql_cdc.errors import (
    DENIED,
    BinlogEnded,
    BinlogError,
    BinlogPurged,
    BinlogRefused,
    ConnectionLost,
    MalformedEvent,
    code_and_text,
)
from tidegate.pipelines.sources.mysql_cdc.packets import EOF, ERROR, Packets

_COM_BINLOG_DUMP = 0x12
_NON_BLOCKING, _SEND_ANNOTATE_ROWS = 0x01, 0x02
_MAX_START = 2**32 - 1
_HEARTBEAT_NANOSECONDS = 15_000_000_000
_WRITE_TIMEOUT_SECONDS = 3_600
"""How long the server waits for a slow reader (Spark writing Parquet, say) before it gives up."""

_FATAL_ERROR_READING_BINLOG = 1236
_NO_SUCH_COLUMN = 1054


@dataclass(frozen=True)
class ServerFacts:
    """What the decoder must know of the server. `lower`: how its table names know no upper case."""

    collations: Collations
    lower: Lower


def connect(server: ServerOptions) -> Connection[Any]:
    """An open connection. Raises ConnectionLost, or BinlogRefused when the server does not let the user in."""
    try:
        return Client(**server.connecting, read_timeout=server.read_timeout, write_timeout=server.read_timeout)
    except pymysql.err.OperationalError as error:
        code, text = code_and_text(error)
        kind = BinlogRefused if code in DENIED else ConnectionLost
        raise kind(f"no connection to the server: {text} ({code})", where=server.where) from error


def facts(connection: Connection[Any]) -> ServerFacts:
    """Read the server's facts. Raises ConnectionLost."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT @@lower_case_table_names")
            (fold_case,) = cursor.fetchone() or (0,)
            lower = lower_of(cursor) if int(fold_case) else CASE_MATTERS
            try:
                cursor.execute(_APPLICABLE_COLLATIONS_QUERY)
            except pymysql.err.OperationalError as error:
                if code_and_text(error)[0] != _NO_SUCH_COLUMN:
                    raise
                cursor.execute(_COLLATIONS_QUERY)
            collations = {int(number): str(charset) for number, charset in cursor.fetchall()}
    except pymysql.err.MySQLError as error:
        raise ConnectionLost(f"the server did not answer who it is: {code_and_text(error)[1]}") from error
    return ServerFacts(collations, lower)


_CAPITALS = "".join(letter for letter in map(chr, range(0x10000)) if letter.isupper() or letter.lower() != letter)
"""All letters that a server may take for another one; names have none above U+FFFF."""


def lower_of(cursor: Cursor) -> Lower:
    """How the server lowers names: as it does a text in utf8mb3, the character set that they are in."""
    cursor.execute("SELECT LOWER(CONVERT(%s USING utf8mb3))", (_CAPITALS,))
    (lowered,) = cursor.fetchone() or ("",)
    return {ord(letter): low for letter, low in zip(_CAPITALS, str(lowered), strict=True) if letter != low}


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
            raise _typed(error, start) from error
        except OSError as error:
            raise ConnectionLost(f"the connection to {server.where} broke: {error}", where=start) from error


def _receive(sock: Any, chunk_bytes: int) -> Iterator[Chunk]:
    """Chunks of about `chunk_bytes`, or what there is before the stream ends."""
    packets = Packets(sock, b"", chunk_bytes)
    for piece in packets:
        least = int((piece.ends - piece.starts).min())
        if least < 1 + HEADER_BYTES:
            raise _no_event(least)
        yield Chunk(piece.data, piece.starts + 1)
    if packets.last.startswith(ERROR):
        pymysql.err.raise_mysql_exception(packets.last)
    if not packets.last.startswith(EOF):
        raise _no_event(len(packets.last))


def _no_event(length: int) -> MalformedEvent:
    return MalformedEvent(f"a packet of {length} bytes holds no event", where="the dump connection")


def _typed(error: pymysql.err.MySQLError, start: BinlogPosition) -> BinlogError:
    """The server's error as ours."""
    code, text = code_and_text(error)
    if code == _FATAL_ERROR_READING_BINLOG:
        return BinlogPurged(
            f"the server does not have the binlog from {start} on, by purging or because it is another server: {text}",
            where=start,
            next_command=FRESH,
        )
    if code in DENIED:
        return BinlogRefused(
            f"the server will not send its binlog ({text}); on the server: GRANT REPLICATION SLAVE ON *.* TO this user",
            where=start,
        )
    return ConnectionLost(f"the server ended the connection: {text} ({code})", where=start)
