"""A 64-bit hash of every row's key, computed for whole columns at a time.

Keys are equal as by Spark's `=`: NaN equals NaN, and -0.0 equals 0.0. The hash of a key of one number is unique; any
other key is compared itself once its hash was found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]

SALT = 0x2545F4914F6CDD1D
_MIX = np.uint64(0x9E3779B97F4A7C15)
_MASKS = np.array([0, *((1 << (8 * size)) - 1 for size in range(1, 9))], np.uint64)
"""The first so many bytes of eight."""
_SHORT = 16


Word = Numbers | pa.Array | None
"""One column of keys, or a part of one. A column of texts (or bytes) has four: their lengths; their first 16 bytes,
padded with zeros, as two numbers; and the whole texts (large_binary), or None if none is longer than that."""


def flags(values: pa.Array) -> Flags:
    """Booleans without NULLs, for numpy."""
    return values.to_numpy(zero_copy_only=False)


def masked(values: np.ndarray, valid: Flags | None = None) -> pa.Array:
    """Numbers for Arrow, without a copy, or booleans; NULL where they are not `valid`."""
    held = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    bits = np.packbits(values, bitorder="little") if values.dtype == bool else values
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [held, pa.py_buffer(bits)])


def words(keys: Sequence[pa.Array]) -> list[Word]:
    """The columns of a key as words; a NULL becomes any value."""
    return [word for column in keys for word in _words(column)]


def one_to_one(parts: Sequence[Word]) -> bool:
    """Whether keys of these words are equal where their hashes are."""
    return len(parts) == 1


def hashed(parts: Sequence[Word], salt: int = SALT) -> Hashes:
    """The hash of each key."""
    found = np.array([salt], np.uint64)
    for part in parts:
        if isinstance(part, np.ndarray):
            found = _mixed(found ^ part.view(np.uint64))
        elif part is not None:
            (eights, starts), lengths = _eights(part), _lengths(part)
            for begin in range(_SHORT, int(lengths.max(initial=0)), 8):
                live = np.flatnonzero(lengths > begin)
                rest = eights[starts.take(live) + begin] & _first(lengths.take(live) - begin)
                found[live] = _mixed(found.take(live) ^ rest)
    return found


def taken(part: Word, places: Numbers) -> Word:
    """The words at these places."""
    if part is None:
        return None
    return part.take(pa.array(places)) if isinstance(part, pa.Array) else part.take(places)


def same(one: Word, places: Numbers, other: Word, rows: Numbers) -> Flags:
    """Whether words at these places equal those of the other keys in these rows. Texts are compared only if all words
    before them are equal."""
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.take(places) == other.take(rows)
    found = np.ones(len(rows), bool)
    if one is not None and other is not None:
        long = np.flatnonzero(_lengths(other).take(rows) > _SHORT)
        mine, theirs = one.take(pa.array(places[long])), other.take(pa.array(rows[long]))
        found[long] = flags(pc.equal(mine, theirs))  # type: ignore[attr-defined]
    return found


def stored(parts: Sequence[Word]) -> dict[str, pa.Array]:
    """Words as columns of a file, which `restored` makes words again."""
    there = {f"{number}": part for number, part in enumerate(parts) if part is not None}
    return {name: part if isinstance(part, pa.Array) else pa.array(part) for name, part in there.items()}


def restored(columns: Mapping[str, pa.Array]) -> list[Word]:
    found = [columns.get(f"{number}") for number in range(1 + max(map(int, columns)))]
    return [part.to_numpy() if part is not None and pa.types.is_integer(part.type) else part for part in found]


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
        return _text(column.cast(pa.large_string()).fill_null("").view(pa.large_binary()))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _text(column.cast(pa.large_binary()).fill_null(b""))
    if pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    return [column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)]


def _text(column: pa.Array) -> list[Word]:
    (eights, starts), lengths = _eights(column), _lengths(column)
    one = eights[starts] & _first(lengths)
    two = eights[starts + np.minimum(lengths, 8)] & _first(lengths - 8)
    long = int(lengths.max(initial=0)) > _SHORT
    return [lengths, one.view(np.int64), two.view(np.int64), column if long else None]


def _offsets(column: pa.Array) -> Numbers:
    return np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]


def _lengths(column: pa.Array) -> Numbers:
    return np.diff(_offsets(column))


def _eights(column: pa.Array) -> tuple[Hashes, Numbers]:
    """The column's bytes as numbers of eight bytes each, one from every place on, and the place where each row
    begins."""
    offsets, held = _offsets(column), column.buffers()[2]
    first, last = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
    data = np.zeros(last - first + 8, np.uint8)
    if held is not None:
        data[: last - first] = np.frombuffer(held, np.uint8)[first:last]
    return np.ndarray((last - first + 1,), "<u8", data, 0, (1,)), offsets[:-1] - first


def _first(sizes: Numbers) -> Hashes:
    """A mask of so many bytes, of 0 to 8."""
    return _MASKS.take(np.clip(sizes, 0, 8))


def _mixed(values: Hashes) -> Hashes:
    """A mixing of the bits that is one to one: each step can be reversed."""
    values = values * _MIX
    values ^= values >> np.uint64(32)
    values *= _MIX
    values ^= values >> np.uint64(29)
    return values
