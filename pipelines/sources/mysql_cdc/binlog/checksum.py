"""CRC32 of events: every event of the range is verified before a byte of it is believed.

One CRC32 over many small events in a row, in place of one each: CRC32 is linear, crc(A + B) = shift(crc(A), len(B)) ^
crc(B), where shift(c, n) is what n zero bytes make of c. And an event with its own checksum behind it always has the
same CRC, the residue. So what the CRC of a whole run of events must be follows from their lengths (and from the few
bytes that stand between them) alone, and one pass over the run shows whether all are right. It does not show which one
is wrong; a wrong one hides as often as one checksum does, once in 2^32.
"""

from __future__ import annotations

from functools import cache
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from tidegate.pipelines.sources.mysql_cdc.binlog.events import (
    CHECKSUM_BYTES,
    FLAGS_AT,
    IN_USE,
    Offsets,
    unsigned_at,
)

NONE, CRC32 = 0, 1
_MANY = 64
"""From so many events on, one checksum over all of them is looked at first."""

_ALGORITHM_FROM_END = CHECKSUM_BYTES + 1


def algorithm_of(format_description: bytes) -> int:
    """NONE or CRC32 for the events of a file, from its whole format-description event. Other numbers are not known."""
    return format_description[-_ALGORITHM_FROM_END]


def first_mismatch(data: bytes, starts: Offsets, ends: Offsets) -> int | None:
    """Index of the first event whose CRC32 is wrong; `ends` are the ends of whole events. None when all are right."""
    if len(starts) >= _MANY and all_match(data, starts, ends):
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


U32 = NDArray[np.uint32]

_RESIDUE = np.uint32(crc32(b"\0" * 4 + crc32(b"\0" * 4).to_bytes(4, "little")))
_WIDEST_GAP = 8
_BLOCK_BITS = 8
_BLOCK = 1 << _BLOCK_BITS


def all_match(data: bytes, starts: Offsets, ends: Offsets) -> bool | None:
    """Whether every event ends with the CRC32 of what comes before in it; `ends` are the ends of whole events.

    None when this way does not show it: the bytes between the events are too many, or not the same number everywhere.
    """
    widths = starts[1:] - ends[:-1]
    width = int(widths[0]) if len(widths) else 0
    if not 0 <= width <= _WIDEST_GAP or bool(np.any(widths != width)):
        return None
    end = int(ends[-1])
    found = crc32(memoryview(data)[int(starts[0]) : end])
    behind = end - ends
    expected = _chained(_residues()[behind & (_BLOCK - 1)], behind)
    if width:
        behind = end - starts[1:]
        inside = (behind & (_BLOCK - 1)).astype(np.intp)
        expected ^= _chained(_shifted(_zero_bytes(), _short(data, ends[:-1], width), inside), behind)
    return found == expected


def _short(data: bytes, at: Offsets, width: int) -> U32:
    """The CRC32 of the `width` bytes at each place."""
    raw, table = np.frombuffer(data, np.uint8), _zero_bytes()[1][0]
    crc = np.full(len(at), 0xFFFFFFFF, np.uint32)
    for offset in range(width):
        crc = table[(crc ^ raw[at + offset]) & 0xFF] ^ (crc >> 8)
    return ~crc


def _chained(moved: U32, behind: Offsets) -> int:
    """The XOR of shift(value, behind[i]) of values that are `moved` through what of `behind` is no whole block already;
    `behind` falls. Blocks of 256 bytes first, then pairs of blocks."""
    block = behind >> _BLOCK_BITS
    borders = np.flatnonzero(np.diff(block, prepend=-1))
    blocks = np.zeros(1 << int(block[0]).bit_length(), np.uint32)
    blocks[block[borders]] = np.bitwise_xor.reduceat(moved, borders)
    level = 0
    while len(blocks) > 1:
        blocks = blocks[0::2] ^ _shifted(_zero_blocks(level), blocks[1::2])
        level += 1
    return int(blocks[0])


def _shifted(tables: U32, values: U32, number: NDArray[np.intp] | None = None) -> U32:
    """`values` through a linear map that is given by what it makes of each of the four bytes; or through map `number`
    of several."""
    if number is None:
        return (
            tables[0][values & 0xFF]
            ^ tables[1][(values >> 8) & 0xFF]
            ^ tables[2][(values >> 16) & 0xFF]
            ^ tables[3][values >> 24]
        )
    flat, at = tables.reshape(-1), number * 1024
    return (
        flat[at + (values & 0xFF)]
        ^ flat[at + 256 + ((values >> 8) & 0xFF)]
        ^ flat[at + 512 + ((values >> 16) & 0xFF)]
        ^ flat[at + 768 + (values >> 24)]
    )


@cache
def _zero_bytes() -> U32:
    """[n, j, b]: shift(b << 8j, n) for n up to a block."""
    byte = np.arange(256, dtype=np.uint32)
    table = byte.copy()
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0xEDB88320), table >> 1)
    maps = np.empty((_BLOCK, 4, 256), np.uint32)
    maps[0] = [byte << (8 * j) for j in range(4)]
    for number in range(1, _BLOCK):
        maps[number] = table[maps[number - 1] & 0xFF] ^ (maps[number - 1] >> 8)
    return maps


@cache
def _residues() -> U32:
    """[n]: shift(the residue, n) for n up to a block. Every event has the residue, so one look-up moves it."""
    return _shifted(_zero_bytes(), np.full(_BLOCK, _RESIDUE, np.uint32), np.arange(_BLOCK))


@cache
def _zero_blocks(level: int) -> U32:
    """[j, b]: shift(b << 8j, 256 * 2 ** level)."""
    if level:
        half = _zero_blocks(level - 1)
        return _shifted(half, half)
    last = _zero_bytes()[-1]
    return _zero_bytes()[1][0][last & 0xFF] ^ (last >> 8)
