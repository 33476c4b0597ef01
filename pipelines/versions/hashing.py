"""A 64-bit number of every row's key, computed for whole columns at a time.

Keys are equal as Spark's `=` has it: NaN equals NaN, and -0.0 equals 0.0. A key of one number is hashed one to one;
any other is compared itself where the hash was found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Text:
    """Texts, or bytes, as numbers: the length of each, and its first 16 bytes with zeros behind. `whole` (large_binary)
    is all of them where one is longer."""

    numbers: tuple[Numbers, Numbers, Numbers]
    whole: pa.Array | None

    def __len__(self) -> int:
        return len(self.numbers[0])


Word = Numbers | Text
"""One column of keys, or half of one."""


def flags(values: pa.Array) -> Flags:
    """Booleans without NULLs, for numpy."""
    return values.to_numpy(zero_copy_only=False)


def masked(values: np.ndarray, valid: Flags | None = None) -> pa.Array:
    """Numbers for Arrow, without a copy, or booleans; NULL where they are not `valid`."""
    held = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    bits = np.packbits(values, bitorder="little") if values.dtype == bool else values
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [held, pa.py_buffer(bits)])


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
        for numbers in (part,) if isinstance(part, np.ndarray) else part.numbers:
            found = _mixed(found ^ numbers.view(np.uint64))
        if isinstance(part, Text) and part.whole is not None:
            eights, starts = _eights(part.whole)
            for begin in range(_SHORT, int(part.numbers[0].max(initial=0)), 8):
                live = np.flatnonzero(part.numbers[0] > begin)
                rest = eights[starts.take(live) + begin] & _first(part.numbers[0].take(live) - begin)
                found[live] = _mixed(found.take(live) ^ rest)
    return found


def taken(part: Word, places: Numbers) -> Word:
    """The words at these places."""
    if isinstance(part, np.ndarray):
        return part.take(places)
    one, two, three = (numbers.take(places) for numbers in part.numbers)
    return Text((one, two, three), None if part.whole is None else part.whole.take(pa.array(places)))


def same(one: Word, places: Numbers, other: Word, rows: Numbers) -> Flags:
    """Whether the words of `one` at these places are those of `other` in these rows."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.asarray(one.take(places) == other.take(rows))  # type: ignore[union-attr]
    found = np.ones(len(rows), bool)
    for mine, theirs in zip(one.numbers, other.numbers, strict=True):
        found &= mine.take(places) == theirs.take(rows)
    if one.whole is not None and other.whole is not None:
        long = np.flatnonzero(found & (one.numbers[0].take(places) > _SHORT))
        mine, theirs = one.whole.take(pa.array(places[long])), other.whole.take(pa.array(rows[long]))
        found[long] = flags(pc.equal(mine, theirs))  # type: ignore[attr-defined]
    return found


def stored(parts: Sequence[Word]) -> dict[str, pa.Array]:
    """Words as columns of a file, which `restored` makes words again."""
    found: dict[str, pa.Array] = {}
    for number, part in enumerate(parts):
        if isinstance(part, np.ndarray):
            found[f"{number}"] = pa.array(part)
            continue
        found |= {f"{number}.{place}": pa.array(numbers) for place, numbers in enumerate(part.numbers)}
        found |= {} if part.whole is None else {f"{number}.whole": part.whole}
    return found


def restored(columns: Mapping[str, pa.Array]) -> list[Word]:
    found: list[Word] = []
    while (number := str(len(found))) in columns or f"{number}.0" in columns:
        if number in columns:
            found.append(columns[number].to_numpy())
        else:
            one, two, three = (columns[f"{number}.{place}"].to_numpy() for place in range(3))
            found.append(Text((one, two, three), columns.get(f"{number}.whole")))
    return found


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
        return [_text(column.cast(pa.large_string()).fill_null("").view(pa.large_binary()))]
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return [_text(column.cast(pa.large_binary()).fill_null(b""))]
    if pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    return [column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)]


def _text(column: pa.Array) -> Text:
    eights, starts = _eights(column)
    lengths = np.diff(_offsets(column))
    one = eights[starts] & _first(lengths)
    two = eights[starts + np.minimum(lengths, 8)] & _first(lengths - 8)
    long = int(lengths.max(initial=0)) > _SHORT
    return Text((lengths, one.view(np.int64), two.view(np.int64)), column if long else None)


def _offsets(column: pa.Array) -> Numbers:
    return np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]


def _eights(column: pa.Array) -> tuple[Hashes, Numbers]:
    """The eight bytes from each place of the column's bytes on, and the place where each row's begin."""
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
    """One to one: each step can be undone."""
    values = values * _MIX
    values ^= values >> np.uint64(32)
    values *= _MIX
    values ^= values >> np.uint64(29)
    return values
