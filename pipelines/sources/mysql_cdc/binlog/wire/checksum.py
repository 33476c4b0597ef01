"""CRC32 of events: every event of the range is verified before a byte of it is believed."""

from __future__ import annotations

from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from tidegate.pipelines.sources.mysql_cdc.binlog.wire import crc_chain
from tidegate.pipelines.sources.mysql_cdc.binlog.wire.events import CHECKSUM_BYTES, FLAGS_AT, IN_USE
from tidegate.pipelines.sources.mysql_cdc.binlog.wire.gather import Offsets, unsigned_at

NONE, CRC32 = 0, 1
_MANY = 64
"""From so many events on, one checksum over all of them is looked at first."""

_ALGORITHM_FROM_END = CHECKSUM_BYTES + 1


def algorithm_of(format_description: bytes) -> int:
    """NONE or CRC32 for the events of a file, from its whole format-description event. Other numbers are not known."""
    return format_description[-_ALGORITHM_FROM_END]


def first_mismatch(data: bytes, starts: Offsets, ends: Offsets) -> int | None:
    """Index of the first event whose CRC32 is wrong; `ends` are the ends of whole events. None when all are right."""
    if len(starts) >= _MANY and crc_chain.all_match(data, starts, ends):
        return None
    view = memoryview(data)
    contents = ends - CHECKSUM_BYTES
    computed = [crc32(view[start:end]) for start, end in zip(starts.tolist(), contents.tolist(), strict=True)]
    wrong: NDArray[np.intp] = np.flatnonzero(
        unsigned_at(data, contents, CHECKSUM_BYTES) != np.array(computed, np.int64)
    )
    return int(wrong[0]) if len(wrong) else None


def format_description_matches(event: bytes) -> bool:
    """Whether a format-description event's CRC32 is right. The in-use flag of an open file is not part of it."""
    cleared = bytearray(event)
    cleared[FLAGS_AT] &= ~IN_USE & 0xFF
    return crc32(cleared[:-CHECKSUM_BYTES]) == int.from_bytes(event[-CHECKSUM_BYTES:], "little")
