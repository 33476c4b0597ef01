"""A watermark (t, false) says that no row with a rowtime <= t is still to come; (t, true) says that time is now.

Source: FLIP-326, "Public Interfaces", change 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tidegate.pipelines.watermarks.errors import InvalidWatermark

MIN_TIMESTAMP = -(2**63)
"""Where every stream's time starts: Java's Long.MIN_VALUE."""

MAX_TIMESTAMP = 2**63 - 1
"""The end of time, which an ended input emits: Java's Long.MAX_VALUE."""


@dataclass(frozen=True)
class Watermark:
    """How far the time of a stream has come.

    Attributes:
        timestamp: ms since the epoch, UTC. With `use_processing_time` it only is the last time that held before;
            (t, true) means the same as (MIN_TIMESTAMP, true).
        use_processing_time: From here on the stream's time is the system's time. Once true it never turns back.

    Raises:
        InvalidWatermark: `timestamp` is no integer of 64 bits, or `use_processing_time` no bool.

    >>> Watermark(5)
    Watermark(timestamp=5, use_processing_time=False)
    """

    timestamp: int
    use_processing_time: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.timestamp, bool) or not isinstance(self.timestamp, int):
            raise InvalidWatermark(f"a watermark's timestamp is a number of ms, not {self.timestamp!r}")
        if not MIN_TIMESTAMP <= self.timestamp <= MAX_TIMESTAMP:
            raise InvalidWatermark(f"a watermark's timestamp has 64 bits, {self.timestamp} has more")
        if not isinstance(self.use_processing_time, bool):
            raise InvalidWatermark(f"use_processing_time is true or false, not {self.use_processing_time!r}")


BEGINNING = Watermark(MIN_TIMESTAMP)
"""What holds before a stream has emitted its first watermark."""

PROCESSING_TIME = Watermark(MIN_TIMESTAMP, True)
"""Time is now: what a combination of inputs says when all of them say it."""


def parse_moment(text: str) -> int:
    """ISO 8601 as ms, UTC; a day is its midnight, and what names no zone is UTC. Raises ValueError."""
    return milliseconds_of(datetime.fromisoformat(text.strip()))


def milliseconds_of(moment: datetime) -> int:
    """A time in ms, UTC, rounded down; what names no zone is UTC."""
    utc = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (utc - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def instant(ms: int) -> str:
    """A time in ms, UTC, as ISO 8601."""
    if ms <= MIN_TIMESTAMP:
        return "MIN"
    if ms >= MAX_TIMESTAMP:
        return "MAX"
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OverflowError, ValueError):
        return f"{ms} ms"


def milliseconds(duration: timedelta, name: str, *, zero: bool = False) -> int:
    """`duration` in ms, rounded up. Raises InvalidWatermark (`name` is …) if negative, or zero unless `zero`."""
    if not isinstance(duration, timedelta):
        raise InvalidWatermark(f"{name} is a timedelta, not {duration!r}")
    if duration < timedelta(0) or (not zero and not duration):
        raise InvalidWatermark(f"{name} must {'not be negative' if zero else 'be positive'}, it is {duration}")
    whole, rest = divmod(duration, timedelta(milliseconds=1))
    return whole + bool(rest)
