"""Where each event stands in its binlog file, and the numbers that order rows by it.

MariaDB leaves the position of most events inside a transaction at 0, and MySQL's 4 bytes wrap at 4 GB: so places are
counted from event lengths, and checked against every position that is written.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tidegate.pipelines.sources.mysql_cdc.binlog.model import BinlogPosition
from tidegate.pipelines.sources.mysql_cdc.binlog.wire.events import ARTIFICIAL, FLAGS_AT, POSITION_AT, Event
from tidegate.pipelines.sources.mysql_cdc.binlog.wire.gather import Offsets, unsigned_at
from tidegate.pipelines.sources.mysql_cdc.errors import BinlogError, MalformedEvent

_WRAP = 1 << 32

_ROW_BITS, _UNIT_BITS, _UNITS_BITS, _FILE_BITS = 12, 4, 31, 20
MAX_FILE_NUMBER = (1 << _FILE_BITS) - 1


class Cursor:
    """The place of the next event. Artificial events and heartbeats are in no file and take no room."""

    def __init__(self, place: BinlogPosition) -> None:
        self.place = place

    def advance(self, data: bytes, starts: Offsets, lengths: Offsets, types: NDArray[np.uint8]) -> Offsets:
        """The position of each event in the current file; the cursor moves past them.

        Raises MalformedEvent when an event says that it stands before the one ahead of it.
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
