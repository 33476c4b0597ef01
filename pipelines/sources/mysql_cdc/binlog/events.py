"""The event types of MySQL and MariaDB, and what becomes of each. A type that is not listed here stops the reader.

Codes: MySQL `libs/mysql/binlog/event/binlog_event.h` (Log_event_type), MariaDB `sql/log_event.h`.

Positions of events: MariaDB leaves that of most events inside a transaction at 0, and MySQL's 4 bytes wrap at 4 GB. So
places are counted from event lengths, and checked against every position that is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tidegate.pipelines.sources.mysql_cdc.binlog.model import BinlogPosition
from tidegate.pipelines.sources.mysql_cdc.errors import BinlogError, MalformedEvent

Offsets = NDArray[np.int64]
Bytes2D = NDArray[np.uint8]


def rows_at(data: bytes, at: Offsets, width: int) -> Bytes2D:
    """`width` bytes at each place of `at`, as a fresh [n, width] matrix. `width` >= 1.

    Raises IndexError when a place is not inside the buffer.
    """
    windows = np.ndarray((max(len(data) - width + 1, 0),), np.dtype((np.void, width)), data, strides=(1,))
    return windows[at].view(np.uint8).reshape(len(at), width)


def unsigned_at(data: bytes, at: Offsets, width: int) -> NDArray[np.int64]:
    """The little-endian unsigned integers of `width` bytes (1 to 8) at each place of `at`.

    An 8-byte value above 2**63-1 comes out negative.
    """
    if width in (1, 2, 4, 8):
        windows = np.ndarray((max(len(data) - width + 1, 0),), f"<u{width}", data, strides=(1,))
        return windows[at].astype(np.int64)
    padded = np.zeros((len(at), 8), np.uint8)
    padded[:, :width] = rows_at(data, at, width)
    return padded.view("<i8").ravel()


def big_endian(rows: Bytes2D) -> NDArray[np.int64]:
    """Each row of 1 to 8 bytes as one big-endian unsigned integer."""
    width = rows.shape[1]
    value = np.zeros(len(rows), np.int64)
    at = 0
    while at < width:
        size = next(size for size in (8, 4, 2, 1) if size <= width - at)
        part = rows[:, at : at + size].view(f">u{size}")[:, 0].astype(np.int64)
        value = part if at == 0 else (value << (8 * size)) | part
        at += size
    return value


def little_endian(rows: Bytes2D, *, signed: bool) -> NDArray[np.generic]:
    """Each row of 1, 2, 3, 4 or 8 bytes as one little-endian integer of the next natural width."""
    width = rows.shape[1]
    if width != 3:
        return rows.view(f"<{'i' if signed else 'u'}{width}")[:, 0]
    padded = np.zeros((len(rows), 4), np.uint8)
    padded[:, 1:] = rows
    if signed:
        return padded.view("<i4").ravel() >> 8
    return padded.view("<u4").ravel() >> np.uint32(8)


CHUNK_BYTES = 8 << 20
"""Measured best of 1, 8 and 32 MB: enough events to decode at once, small enough for the processor's cache."""


@dataclass(frozen=True)
class Chunk:
    """Whole events of one buffer, in order: event i is data[starts[i] : starts[i] + its header's length]."""

    data: bytes
    starts: Offsets


HEADER_BYTES: Final = 19
TYPE_AT: Final = 4
SERVER_AT: Final = 5
LENGTH_AT: Final = 9
POSITION_AT: Final = 13
FLAGS_AT: Final = 17
CHECKSUM_BYTES: Final = 4
IN_USE: Final = 0x0001
THREAD_SPECIFIC: Final = 0x0004
"""A statement opened a TEMPORARY table, or called CONNECTION_ID()."""
ARTIFICIAL: Final = 0x0020


def split_events(data: bytes) -> tuple[Offsets, int]:
    """Starts of the whole events in `data`, and where the unfinished rest begins.

    Raises MalformedEvent for an event that is shorter than its own header.
    """
    starts, at = [], 0
    while at + HEADER_BYTES <= len(data):
        length = int.from_bytes(data[at + LENGTH_AT : at + LENGTH_AT + 4], "little")
        if length < HEADER_BYTES:
            raise MalformedEvent(f"an event says it is {length} bytes long", where=f"byte {at} of the chunk")
        if at + length > len(data):
            break
        starts.append(at)
        at += length
    return np.array(starts, np.int64), at


class Event(IntEnum):
    """Event type codes that this reader knows by name."""

    QUERY = 2
    STOP = 3
    ROTATE = 4
    INTVAR = 5
    APPEND_BLOCK = 9
    DELETE_FILE = 11
    RAND = 13
    USER_VAR = 14
    FORMAT_DESCRIPTION = 15
    XID = 16
    BEGIN_LOAD_QUERY = 17
    EXECUTE_LOAD_QUERY = 18
    TABLE_MAP = 19
    WRITE_ROWS_V1 = 23
    UPDATE_ROWS_V1 = 24
    DELETE_ROWS_V1 = 25
    INCIDENT = 26
    HEARTBEAT = 27
    IGNORABLE = 28
    ROWS_QUERY = 29
    WRITE_ROWS = 30
    UPDATE_ROWS = 31
    DELETE_ROWS = 32
    GTID = 33
    ANONYMOUS_GTID = 34
    PREVIOUS_GTIDS = 35
    TRANSACTION_CONTEXT = 36
    VIEW_CHANGE = 37
    XA_PREPARE = 38
    PARTIAL_UPDATE_ROWS = 39
    TRANSACTION_PAYLOAD = 40
    HEARTBEAT_V2 = 41
    GTID_TAGGED = 42
    ANNOTATE_ROWS = 160
    BINLOG_CHECKPOINT = 161
    MARIADB_GTID = 162
    GTID_LIST = 163
    START_ENCRYPTION = 164
    QUERY_COMPRESSED = 165
    WRITE_ROWS_COMPRESSED_V1 = 166
    UPDATE_ROWS_COMPRESSED_V1 = 167
    DELETE_ROWS_COMPRESSED_V1 = 168
    WRITE_ROWS_COMPRESSED = 169
    UPDATE_ROWS_COMPRESSED = 170
    DELETE_ROWS_COMPRESSED = 171


class Kind(IntEnum):
    """What a row event does to its rows."""

    INSERT = 0
    UPDATE = 1
    DELETE = 2


_ROWS: Final[Mapping[Kind, tuple[Event, ...]]] = {
    Kind.INSERT: (Event.WRITE_ROWS_V1, Event.WRITE_ROWS_COMPRESSED_V1, Event.WRITE_ROWS, Event.WRITE_ROWS_COMPRESSED),
    Kind.UPDATE: (
        *(Event.UPDATE_ROWS_V1, Event.UPDATE_ROWS_COMPRESSED_V1),
        *(Event.UPDATE_ROWS, Event.UPDATE_ROWS_COMPRESSED),
    ),
    Kind.DELETE: (
        *(Event.DELETE_ROWS_V1, Event.DELETE_ROWS_COMPRESSED_V1),
        *(Event.DELETE_ROWS, Event.DELETE_ROWS_COMPRESSED),
    ),
}
VERSION_2: Final = frozenset(event for events in _ROWS.values() for event in events if not event.name.endswith("_V1"))
"""Row events whose header ends in a block of extra data."""

PASSED_OVER: Final[Mapping[Event, str]] = {
    Event.STOP: "the server was shut down; a ROTATE or the file's end says the rest",
    Event.INTVAR: "sets up a statement, whose own QUERY event is judged",
    Event.RAND: "sets up a statement, whose own QUERY event is judged",
    Event.USER_VAR: "sets up a statement, whose own QUERY event is judged",
    Event.HEARTBEAT: "says that the connection lives; is in no file",
    Event.HEARTBEAT_V2: "says that the connection lives; is in no file",
    Event.IGNORABLE: "holds nothing, by its own definition",
    Event.ROWS_QUERY: "the text of a statement whose rows follow",
    Event.ANNOTATE_ROWS: "the text of a statement whose rows follow",
    Event.PREVIOUS_GTIDS: "what earlier files hold",
    Event.GTID_LIST: "what earlier files hold",
    Event.TRANSACTION_CONTEXT: "group replication's certification, which is over once the transaction is in the binlog",
    Event.VIEW_CHANGE: "who is a member of a group; no rows",
    Event.BINLOG_CHECKPOINT: "which files crash recovery needs; no rows",
}
"""Events that may be passed over, and why that loses no row."""

_LOAD: Final = (Event.APPEND_BLOCK, Event.DELETE_FILE, Event.BEGIN_LOAD_QUERY, Event.EXECUTE_LOAD_QUERY)
REFUSED: Final[Mapping[Event, tuple[str, str]]] = {
    **dict.fromkeys(_LOAD, ("LOAD DATA was logged as a statement", "SET GLOBAL binlog_format = 'ROW'")),
    Event.INCIDENT: ("the server says that changes are missing from its own binlog here", "take a new snapshot"),
    Event.START_ENCRYPTION: ("the binlog's bytes are encrypted", "read it through the server, which decrypts it"),
}
"""Events that stop the reader: (what they mean, the fix on the server)."""

GTIDS: Final = frozenset({Event.GTID, Event.ANONYMOUS_GTID, Event.GTID_TAGGED, Event.MARIADB_GTID})
"""Events that begin a transaction (or a DDL statement): the place before one is a transaction border."""

HANDLED: Final = GTIDS | {
    *(Event.QUERY, Event.QUERY_COMPRESSED, Event.ROTATE, Event.FORMAT_DESCRIPTION),
    *(Event.XID, Event.TABLE_MAP, Event.TRANSACTION_PAYLOAD, Event.XA_PREPARE, Event.PARTIAL_UPDATE_ROWS),
}
"""Events beside row events that the decoder acts upon."""

KIND_OF: Final = np.full(256, -1, np.int8)
"""Type code -> Kind of a row event, -1 for all other events."""
for _kind, _codes in _ROWS.items():
    KIND_OF[list(_codes)] = _kind

FIRST_COMPRESSED: Final = Event.WRITE_ROWS_COMPRESSED_V1

KNOWN: Final = np.zeros(256, bool)
"""Type code -> whether the decoder may go on past it."""
KNOWN[[*HANDLED, *PASSED_OVER]] = True
KNOWN[KIND_OF >= 0] = True


INSIDE_TRANSACTION: Final = KIND_OF >= 0
"""Type code -> whether more of a transaction must follow it: a range cannot end after such an event."""
INSIDE_TRANSACTION[[*GTIDS, Event.TABLE_MAP, Event.PARTIAL_UPDATE_ROWS, Event.ANNOTATE_ROWS, Event.ROWS_QUERY]] = True
INSIDE_TRANSACTION[[Event.INTVAR, Event.RAND, Event.USER_VAR]] = True

BETWEEN_FILES: Final = np.zeros(256, bool)
"""Type code -> whether the event is no part of a transaction, so that the state before it still holds."""
BETWEEN_FILES[[Event.ROTATE, Event.FORMAT_DESCRIPTION, Event.STOP, Event.HEARTBEAT, Event.HEARTBEAT_V2]] = True


_WRAP = 1 << 32

_ROW_BITS, _UNIT_BITS, _UNITS_BITS, _FILE_BITS = 12, 4, 31, 20
MAX_FILE_NUMBER = (1 << _FILE_BITS) - 1


class Cursor:
    """The place of the next event. Artificial events and heartbeats are in no file and take no room."""

    def __init__(self, place: BinlogPosition) -> None:
        self.place = place

    def advance(self, data: bytes, starts: Offsets, lengths: Offsets, types: NDArray[np.uint8]) -> Offsets:
        """The position of each event in the current file; the cursor moves past them.

        Raises MalformedEvent when the position in an event is before that of the event ahead of it.
        """
        written = unsigned_at(data, starts + POSITION_AT, 4)
        in_file = unsigned_at(data, starts + FLAGS_AT, 2) & ARTIFICIAL == 0
        in_file &= (types != Event.HEARTBEAT) & (types != Event.HEARTBEAT_V2)
        in_file &= (types != Event.FORMAT_DESCRIPTION) | (written != 0)  # sent again when a dump begins in a file
        room = np.where(in_file, lengths, 0)
        ends = self.place.position + np.cumsum(room)
        ahead = np.where(in_file & (written != 0), (written - ends) % _WRAP, 0)
        if ahead.any():
            ends = self._resynchronised(ends, ahead)
        if len(ends):
            self.place = BinlogPosition(self.place.file, int(ends[-1]))
        return ends - room

    def _resynchronised(self, ends: Offsets, ahead: Offsets) -> Offsets:
        """The server left out events: everything after moves on by what is missing."""
        jump = np.maximum.accumulate(ahead)
        wrong = (ahead != 0) & (ahead != jump) | (jump >= _WRAP // 2)
        if wrong.any():
            place = BinlogPosition(self.place.file, int(ends[np.flatnonzero(wrong)[0]]))
            raise MalformedEvent("an event says that it stands before the event ahead of it", where=place)
        return ends + jump


def offsets(file_number: int, positions: Offsets, rows: Offsets) -> Offsets:
    """`_offset`: one number that grows with (file, position, row), for files below 2**20 and positions below 32 GB.

    Bits: 20 file number, 31 position / 16, 12 row. No two row events begin in the same 16 bytes. A row number of more
    than 12 bits carries into the position, which stays below the next event: images take a byte each or more.
    Raises BinlogError for a greater file number.
    """
    if file_number > MAX_FILE_NUMBER:
        raise BinlogError(
            f"binlog file number {file_number} is above {MAX_FILE_NUMBER}, the greatest that rows can be ordered by",
            where=f"binlog file {file_number}",
            next_command="RESET MASTER   (on the server: numbers files from 1 again)",
        )
    units = np.minimum(positions >> _UNIT_BITS, (1 << _UNITS_BITS) - 1)
    return (file_number << (_UNITS_BITS + _ROW_BITS)) + (units << _ROW_BITS) + rows
