"""Durations as Flink's options spell them, or in ISO 8601.

    >>> parse_duration("7 d"), parse_duration("1min"), parse_duration("PT1H"), parse_duration("200")
    (datetime.timedelta(days=7), datetime.timedelta(seconds=60), datetime.timedelta(seconds=3600), \
datetime.timedelta(microseconds=200000))
"""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction

EXAMPLES = "'7 d', '1 h', '30 s', '200 ms' or 'PT1H'"

_MICROSECONDS: dict[str, Fraction] = {
    **dict.fromkeys(("d", "day", "days"), Fraction(86_400_000_000)),
    **dict.fromkeys(("h", "hour", "hours"), Fraction(3_600_000_000)),
    **dict.fromkeys(("m", "min", "minute", "minutes"), Fraction(60_000_000)),
    **dict.fromkeys(("s", "sec", "second", "seconds"), Fraction(1_000_000)),
    **dict.fromkeys(("", "ms", "milli", "millis", "millisecond", "milliseconds"), Fraction(1_000)),
    **dict.fromkeys(("us", "µs", "μs", "micro", "micros", "microsecond", "microseconds"), Fraction(1)),
    **dict.fromkeys(("ns", "nano", "nanos", "nanosecond", "nanoseconds"), Fraction(1, 1000)),
}
_AMOUNT = re.compile(r"(\d+)\s*([a-zµμ]*)")
_ISO = re.compile(r"p(?:(\d+)d)?(?:t(?=\d)(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d{1,9})?)s)?)?")
_ISO_UNITS = ("d", "h", "m", "s")


def parse_duration(text: str) -> timedelta:
    """The duration that `text` spells: a number and a unit, ms without one (Flink), or ISO 8601.

    Raises ValueError for anything else, for what is finer than a microsecond and for more than 999,999,999 days.
    """
    lowered = text.strip().lower()
    simple, iso = _AMOUNT.fullmatch(lowered), _ISO.fullmatch(lowered)
    if simple is not None and simple[2] in _MICROSECONDS:
        micros = int(simple[1]) * _MICROSECONDS[simple[2]]
    elif iso is not None and any(iso.groups()):
        parts = zip(iso.groups(), _ISO_UNITS, strict=True)
        micros = sum((Fraction(amount) * _MICROSECONDS[unit] for amount, unit in parts if amount), Fraction(0))
    else:
        raise ValueError(f"{text!r} is no duration such as {EXAMPLES}")
    if micros.denominator != 1:
        raise ValueError(f"{text!r} is finer than a microsecond")
    try:
        return timedelta(microseconds=int(micros))
    except OverflowError as error:
        raise ValueError(f"{text!r} is too long") from error


def format_duration(duration: timedelta) -> str:
    """A duration in the widest unit that gives a whole number, as `parse_duration` takes it."""
    micros = duration // timedelta(microseconds=1)
    if not micros:
        return "0 ms"
    for unit in ("d", "h", "min", "s", "ms"):
        size = int(_MICROSECONDS[unit])
        if micros % size == 0:
            return f"{micros // size} {unit}"
    return f"{micros} us"
