"""Durations as Flink's options spell them: a number and a unit.

>>> parse_duration("1 min"), parse_duration("500")
(datetime.timedelta(seconds=60), datetime.timedelta(microseconds=500000))
"""

from __future__ import annotations

import re
from datetime import timedelta

_MICROSECONDS = {
    **dict.fromkeys(("d", "day", "days"), 86_400_000_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000_000),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1_000_000),
    **dict.fromkeys(("", "ms", "milli", "millis", "millisecond", "milliseconds"), 1_000),
    **dict.fromkeys(("us", "µs", "micro", "micros", "microsecond", "microseconds"), 1),
}
_DURATION = re.compile(r"\s*(\d+)\s*([a-zµ]*)\s*")


def parse_duration(text: str) -> timedelta:
    """The duration that `text` spells; a bare number is ms. Raises ValueError."""
    found = _DURATION.fullmatch(text.lower())
    if found is None or found[2] not in _MICROSECONDS:
        raise ValueError(f"{text!r} is no duration such as '30 s', '500 ms' or '1 d'")
    try:
        return timedelta(microseconds=int(found[1]) * _MICROSECONDS[found[2]])
    except OverflowError as error:
        raise ValueError(f"{text!r} is too long a duration") from error
