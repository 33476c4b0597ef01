"""Whole numbers and floats; DECIMAL; and BIT, ENUM and SET, numbers that stand for bits or names.

DECIMAL has groups of nine decimal digits in four bytes, the outer groups in fewer. The first bit is the sign, inverted;
a negative number has all its bits inverted (MySQL `strings/decimal.cc`, decimal2bin).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidegate.pipelines.sources.mysql_cdc.binlog.events import Bytes2D, big_endian, little_endian, unsigned_at
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns.values import FixedValues, array_of, text_of
from tidegate.pipelines.sources.mysql_cdc.errors import MalformedEvent

_FIRST_YEAR = 1900


def decode_integer(values: FixedValues, kind: pa.DataType, *, unsigned: bool) -> pa.Array:
    """TINYINT to BIGINT as `kind`. BIGINT UNSIGNED is a DECIMAL(20,0): 128 bits, low half first."""
    numbers = little_endian(values.rows, signed=not unsigned)
    if pa.types.is_decimal(kind):
        wide = np.zeros((len(numbers), 2), np.uint64)
        wide[:, 0] = numbers
        return array_of(kind, wide, values.nulls)
    return array_of(kind, numbers.astype(kind.to_pandas_dtype()), values.nulls)


def decode_float(values: FixedValues, kind: pa.DataType) -> pa.Array:
    """FLOAT and DOUBLE are IEEE 754, little-endian: bit for bit."""
    return array_of(kind, values.rows.view(f"<f{values.rows.shape[1]}")[:, 0], values.nulls)


def decode_year(values: FixedValues, kind: pa.DataType) -> pa.Array:
    """YEAR is one byte from 1900 on; 0 is the year 0000."""
    years = values.rows[:, 0].astype(np.int32)
    return array_of(kind, np.where(years != 0, years + np.int32(_FIRST_YEAR), np.int32(0)), values.nulls)


_BYTES_OF_DIGITS = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_ONE_WORD_DIGITS = 18
_LOW_HALF = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True)
class DecimalShape:
    """DECIMAL(precision, scale)."""

    precision: int
    scale: int

    def groups(self) -> Iterator[int]:
        """The number of digits in each stored group, from the left."""
        whole = self.precision - self.scale
        sizes = [whole % 9, *[9] * (whole // 9), *[9] * (self.scale // 9), self.scale % 9]
        return (size for size in sizes if size)

    @property
    def width(self) -> int:
        """Bytes that one value takes."""
        return sum(_BYTES_OF_DIGITS[size] for size in self.groups())


Groups = list[tuple[int, NDArray[np.int64]]]


def _read(rows: Bytes2D, shape: DecimalShape) -> tuple[NDArray[np.bool_], Groups]:
    """Which values are negative, and the groups of digits of the values without sign, as (digits, numbers)."""
    negative = rows[:, 0] < 0x80
    plain = rows.copy()
    plain[:, 0] ^= 0x80
    plain[negative] ^= 0xFF
    groups, at = [], 0
    for size in shape.groups():
        width = _BYTES_OF_DIGITS[size]
        groups.append((size, big_endian(plain[:, at : at + width])))
        at += width
    return negative, groups


def decode_decimal(values: FixedValues, shape: DecimalShape) -> pa.Array:
    """Up to 38 digits, as decimal128."""
    negative, groups = _read(values.rows, shape)
    words = np.empty((len(values.rows), 2), np.int64)
    if shape.precision <= _ONE_WORD_DIGITS:
        value = np.zeros(len(values.rows), np.int64)
        for size, number in groups:
            value = value * 10**size + number
        words[:, 0] = np.where(negative, -value, value)
        words[:, 1] = words[:, 0] >> 63
    else:
        low, high = _multiply_up(groups, len(values.rows))
        words.view(np.uint64)[:, 0] = np.where(negative, ~low + np.uint64(1), low)
        words.view(np.uint64)[:, 1] = np.where(negative, ~high + (low == 0), high)
    return array_of(pa.decimal128(shape.precision, shape.scale), words, values.nulls)


def _multiply_up(groups: Groups, count: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """The groups as one 128-bit number (low half, high half), in four limbs of 32 bits so that no product overflows."""
    limbs = [np.zeros(count, np.uint64) for _ in range(4)]
    for size, number in groups:
        carry = number.astype(np.uint64)
        for index, limb in enumerate(limbs):
            product = limb * np.uint64(10**size) + carry
            limbs[index] = product & _LOW_HALF
            carry = product >> np.uint64(32)
    return limbs[0] | limbs[1] << np.uint64(32), limbs[2] | limbs[3] << np.uint64(32)


def decode_wide_decimal(values: FixedValues, shape: DecimalShape) -> pa.Array:
    """More than 38 digits, as the text that the server prints: all digits of the scale, no needless zeros before."""
    negative, groups = _read(values.rows, shape)
    digits = np.concatenate([_digits(number, size) for size, number in groups], axis=1)
    count, whole = len(digits), shape.precision - shape.scale
    if not whole:  # a zero stands before the point all the same
        digits, whole = np.insert(digits, 0, 0, axis=1), 1
    nonzero = digits[:, :whole] != 0
    first = np.where(nonzero.any(axis=1), nonzero.argmax(axis=1), whole - 1)
    parts = [np.full((count, 1), ord("-"), np.uint8), digits[:, :whole] + ord("0")]
    shown = [negative[:, None], np.arange(whole) >= first[:, None]]
    if shape.scale:
        parts += [np.full((count, 1), ord("."), np.uint8), digits[:, whole:] + ord("0")]
        shown.append(np.ones((count, 1 + shape.scale), bool))
    return text_of(np.concatenate(parts, axis=1), np.concatenate(shown, axis=1), values.nulls)


def _digits(numbers: NDArray[np.int64], size: int) -> Bytes2D:
    """The `size` decimal digits of each number, a matrix of 0 to 9."""
    powers = 10 ** np.arange(size - 1, -1, -1, dtype=np.int64)
    return (numbers[:, None] // powers % 10).astype(np.uint8)


def decode_boolean(values: FixedValues) -> pa.Array:
    """BIT(1)."""
    return pa.array(values.rows[:, 0] & 1 == 1, mask=values.nulls)


def decode_enum(values: FixedValues, members: Sequence[str], column: str, *, exact: bool = False) -> pa.Array:
    """ENUM: 1 names the first member; 0 is the empty string that the server keeps in place of an invalid value. Where
    that is a member's name, too, it is NULL if `exact`."""
    ordinals = _numbers(values)
    if len(ordinals) and ordinals.max() > len(members):
        raise MalformedEvent(f"column {column} holds member {ordinals.max()} of an ENUM of {len(members)}")
    invalid = None if exact and "" in members else ""
    return pa.array([invalid, *members], pa.string()).take(pa.array(ordinals, mask=values.nulls))


def decode_set(values: FixedValues, members: Sequence[str], column: str) -> pa.Array:
    """SET: a bit per member, the first member lowest; written as the names, comma between."""
    distinct, places = np.unique(_numbers(values).view(np.uint64), return_inverse=True)
    if len(distinct) and int(distinct[-1]) >> len(members):
        raise MalformedEvent(f"column {column} holds a bit that none of the SET's {len(members)} members has")
    texts = [
        ",".join(member for bit, member in enumerate(members) if number >> bit & 1) for number in distinct.tolist()
    ]
    return pa.array(texts, pa.string()).take(pa.array(places, mask=values.nulls))


def _numbers(values: FixedValues) -> np.ndarray:
    count, width = values.rows.shape
    numbers = unsigned_at(np.ascontiguousarray(values.rows).tobytes(), np.arange(count) * width, width)
    if values.nulls is not None:
        numbers[values.nulls] = 0  # the bytes of a NULL mean nothing
    return numbers
