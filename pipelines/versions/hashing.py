"""A 64-bit number of every row's key, computed for whole columns at a time.

Keys are equal as Spark's `=` has it: NaN equals NaN, and -0.0 equals 0.0. A key of one number is hashed one to one;
any other is compared itself where the hash was found.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]
Word = Numbers | pa.Array
"""Whole numbers, or bytes (large_binary)."""

SALT = 0x2545F4914F6CDD1D
_MIX = np.uint64(0x9E3779B97F4A7C15)


def flags(values: pa.Array) -> Flags:
    """Booleans without NULLs, for numpy."""
    return values.to_numpy(zero_copy_only=False)


def words(keys: Sequence[pa.Array]) -> list[Word]:
    """The columns of a key as words; what stands for NULL is any value."""
    return [word for column in keys for word in _words(column)]


def one_to_one(parts: Sequence[Word]) -> bool:
    """Whether keys of these words are equal where their hashes are."""
    return len(parts) == 1 and isinstance(parts[0], np.ndarray)


def hashed(parts: Sequence[Word], salt: int = SALT) -> Hashes:
    """The hash of each key."""
    found = np.full(len(parts[0]), salt, np.uint64)
    for part in parts:
        found = _mixed(found ^ (part.view(np.uint64) if isinstance(part, np.ndarray) else _hashed_bytes(part)))
    return found


def taken(part: Word, places: Numbers) -> Word:
    """The words at these places."""
    return part[places] if isinstance(part, np.ndarray) else part.take(pa.array(places))


def same(one: Word, other: Word) -> Flags:
    """Which words are equal."""
    if isinstance(one, np.ndarray):
        return np.asarray(one == other)
    return flags(pc.equal(one, other))  # type: ignore[attr-defined]


def _words(column: pa.Array) -> list[Word]:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _words(column.dictionary_decode())
    if pa.types.is_floating(kind):
        values = column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
        values = np.where(np.isnan(values), np.nan, values + 0.0)  # -0.0 + 0.0 is 0.0
        return [values.view(np.int64)]
    if pa.types.is_decimal(kind):
        held = column.cast(pa.decimal128(38, kind.scale))
        halves = np.frombuffer(held.buffers()[1] or b"", np.int64)
        halves = halves[2 * held.offset : 2 * (held.offset + len(held))].reshape(-1, 2)
        return [np.ascontiguousarray(halves[:, 0]), np.ascontiguousarray(halves[:, 1])]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return [column.cast(pa.large_string()).fill_null("").view(pa.large_binary())]
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return [column.cast(pa.large_binary()).fill_null(b"")]
    if pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    return [column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)]


def _mixed(values: Hashes) -> Hashes:
    """One to one: each step can be undone."""
    values = values * _MIX
    values ^= values >> np.uint64(32)
    values *= _MIX
    values ^= values >> np.uint64(29)
    return values


def _hashed_bytes(column: pa.Array) -> Hashes:
    """Eight bytes at a time, all rows in lockstep."""
    offsets = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]
    first, last = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
    held = column.buffers()[2]
    data = np.zeros(last - first + 8, np.uint8)
    if held is not None:
        data[: last - first] = np.frombuffer(held, np.uint8)[first:last]
    starts, lengths = offsets[:-1] - first, np.diff(offsets)
    eights = np.lib.stride_tricks.sliding_window_view(data, 8)
    found = lengths.astype(np.uint64)
    for begin in range(0, int(lengths.max(initial=0)), 8):
        live = np.flatnonzero(lengths > begin)
        word = np.ascontiguousarray(eights[starts[live] + begin]).view(np.uint64)[:, 0]
        short = np.minimum(lengths[live] - begin, 8).astype(np.uint64)
        word &= np.uint64(0xFFFFFFFFFFFFFFFF) >> (np.uint64(64) - short * np.uint64(8))
        found[live] = _mixed(found[live] ^ word)
    return found
