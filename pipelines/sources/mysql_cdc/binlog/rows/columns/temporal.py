"""DATE, DATETIME, TIMESTAMP and TIME of MySQL 5.6 and later, which MariaDB writes too.

Formats: MySQL `mysys/my_time.cc` (my_datetime_packed_to_binary and its kin). A date with a zero part, or of the year 0,
is NULL; a day that its month does not have (ALLOW_INVALID_DATES) counts on into the next, as in the server's own
arithmetic, or is NULL where values must be `exact`.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidegate.pipelines.sources.mysql_cdc.binlog.events import Bytes2D, big_endian, little_endian
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns.values import FixedValues, array_of, merged, text_of

_SECOND = 1_000_000
_FRACTION_UNITS = (0, 10_000, 100, 1)
"""Microseconds in one unit of a fraction of 1, 2 or 3 bytes."""

DATETIME_BYTES, TIMESTAMP_BYTES, TIME_BYTES = 5, 4, 3


def fraction_bytes(digits: int) -> int:
    """Bytes that `digits` (0 to 6) after the second take."""
    return (digits + 1) // 2


def _microseconds(rows: Bytes2D, base: int) -> NDArray[np.int64] | int:
    """The fraction that follows the first `base` bytes of each row."""
    width = rows.shape[1] - base
    return big_endian(rows[:, base:]) * _FRACTION_UNITS[width] if width else 0


def days_since_epoch(
    year: NDArray[np.integer], month: NDArray[np.integer], day: NDArray[np.integer]
) -> NDArray[np.int32]:
    """Days since 1970-01-01, proleptic Gregorian. Years are counted from March, so that leap days come last."""
    year, month, day = (part.astype(np.int32) for part in (year, month, day))  # divides in half the time of 64 bits
    year -= month <= 2
    month_from_march = (month + 9) % 12
    era = year // 400
    year_of_era = year - era * 400
    day_of_year = (153 * month_from_march + 2) // 5 + day - 1
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    return era * 146_097 + day_of_era - 719_468


def _no_dates(
    year: NDArray[np.integer], month: NDArray[np.integer], day: NDArray[np.integer], *, exact: bool
) -> NDArray[np.bool_]:
    """Which are no dates; if `exact`, also days that their month does not have."""
    none = (year == 0) | (month == 0) | (day == 0)
    if exact:
        next_month = days_since_epoch(year + (month == 12), month % 12 + 1, np.ones_like(day))
        none |= days_since_epoch(year, month, day) >= next_month
    return none


def decode_date(values: FixedValues, *, exact: bool = False) -> pa.Array:
    """DATE: day in 5 bits, month in 4, year in 15."""
    packed = little_endian(values.rows, signed=False).astype(np.int64)
    year, month, day = packed >> 9, packed >> 5 & 15, packed & 31
    days = days_since_epoch(year, month, day)
    return array_of(pa.date32(), days, merged(values.nulls, _no_dates(year, month, day, exact=exact)))


def decode_datetime(values: FixedValues, *, exact: bool = False) -> pa.Array:
    """DATETIME(n), a local time: 1 bit sign, 17 bits year * 13 + month, 5 day, 5 hour, 6 minute, 6 second."""
    packed = big_endian(values.rows[:, :DATETIME_BYTES]) - (1 << 39)
    date, time = packed >> 17, packed & 0x1FFFF
    months, day = date >> 5, date & 31
    year = months // 13
    month = months - year * 13
    seconds = days_since_epoch(year, month, day).astype(np.int64) * 86_400
    seconds += (time >> 12) * 3_600 + (time >> 6 & 63) * 60 + (time & 63)
    micros = seconds * _SECOND + _microseconds(values.rows, DATETIME_BYTES)
    return array_of(pa.timestamp("us"), micros, merged(values.nulls, _no_dates(year, month, day, exact=exact)))


def decode_timestamp(values: FixedValues) -> pa.Array:
    """TIMESTAMP(n): seconds since 1970 UTC. Zero is the zero date, which is NULL."""
    seconds = big_endian(values.rows[:, :TIMESTAMP_BYTES])
    micros = seconds * _SECOND + _microseconds(values.rows, TIMESTAMP_BYTES)
    return array_of(pa.timestamp("us", "UTC"), micros, merged(values.nulls, micros == 0))


def decode_time(values: FixedValues, digits: int) -> pa.Array:
    """TIME(n), up to 838 hours either way, as the server prints it: [-]HH:MM:SS[.f…], hours of two or three digits."""
    fraction = fraction_bytes(digits)
    packed = big_endian(values.rows) - (1 << (8 * values.rows.shape[1] - 1))
    negative = packed < 0
    packed = np.abs(packed)
    whole = packed >> (8 * fraction)
    hours, minutes, seconds = whole >> 12 & 1023, whole >> 6 & 63, whole & 63
    count = len(packed)
    columns: list[NDArray[np.int64] | int] = [ord("-"), hours // 100 + 48, hours // 10 % 10 + 48, hours % 10 + 48]
    for part in (minutes, seconds):
        columns += [ord(":"), part // 10 + 48, part % 10 + 48]
    if digits:
        micros = (packed & ((1 << 8 * fraction) - 1)) * _FRACTION_UNITS[fraction]
        columns.append(ord("."))
        columns += [micros // 10 ** (5 - place) % 10 + 48 for place in range(digits)]
    characters = np.empty((count, len(columns)), np.uint8)
    for place, column in enumerate(columns):
        characters[:, place] = column
    shown = np.ones(characters.shape, bool)
    shown[:, 0] = negative
    shown[:, 1] = hours >= 100
    return text_of(characters, shown, values.nulls)
