"""A watermark (t, false) says that no row with a rowtime <= t is still to come; (t, true) says that time is now.

Source: FLIP-326, "Public Interfaces", change 1. With the errors of all rules here, the contract of what a watermark is
emitted to, and the guard at a source's end of the stream (change 5).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from tidegate.pipelines.clock import Clock
from tidegate.pipelines.errors import TidegateError


class WatermarkError(TidegateError):
    """Base of the errors of this package. The object that raises it has not changed."""


class InvalidWatermark(WatermarkError, ValueError):
    """A value that no watermark, delay or channel can have."""


class ProcessingTimeBehind(WatermarkError):
    """A watermark says "the time is now", but now is earlier than a time that was emitted before (FLIP-326, change
    5)."""

    def __init__(self, *, now: int, timestamp: int) -> None:
        self.now = now
        self.timestamp = timestamp
        super().__init__(
            f"a watermark in processing time was emitted at {now} ms, before {timestamp} ms, which was emitted already",
            where="watermark output",
            state="nothing was sent; the last watermark holds",
            next_command="check the clock of this machine, and the rowtimes of the table for times in the future",
        )


class ProcessingTimeRevoked(WatermarkError):
    """An event-time watermark after one in processing time (FLIP-326, change 5): true never turns back to false."""

    def __init__(self, *, timestamp: int) -> None:
        self.timestamp = timestamp
        super().__init__(
            f"an event-time watermark of {timestamp} ms was emitted after one in processing time",
            where="watermark output",
            state="nothing was sent; the last watermark holds",
            next_command="let the source emit only (t, true) once it has emitted it",
        )


class GeneratorError(WatermarkError):
    """A user's generator or timestamp assigner failed. One line, since it comes out of a worker process."""

    def __init__(self, split: str, offset: int | None, error: BaseException) -> None:
        self.split = split
        self.offset = offset
        place = f"split {split!r}" if offset is None else f"split {split!r} at offset {offset}"
        cause = " ".join(str(error).split())
        super().__init__(f"the watermark generator of {place} failed: {type(error).__name__}: {cause}")


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
"""Time is now: the combination of inputs that are all in processing time."""


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


class WatermarkOutput(Protocol):
    """What a generator, a valve or a multiplexer writes to (Flink's WatermarkOutput)."""

    def emit_watermark(self, watermark: Watermark) -> None:
        """Emit `watermark`, which also ends idleness."""
        ...

    def mark_idle(self) -> None:
        """This stream is idle: nobody waits for it until its next watermark."""
        ...

    def mark_active(self) -> None:
        """This stream is active: it is waited for again."""
        ...


class WatermarkToDataOutput:
    """Forwards watermarks that move time forward, so that what leaves a source never goes back (FLIP-326, change 5).

    A watermark is sent if its timestamp is greater than every one sent before, or if it is in processing time.
    Idleness is sent when it changes.

    Args:
        downstream: Where to send.
        clock: The system's time in ms, UTC.
    """

    def __init__(self, downstream: WatermarkOutput, clock: Clock) -> None:
        self._downstream = downstream
        self._clock = clock
        self._greatest = MIN_TIMESTAMP
        self._processing_time = False
        self._idle = False

    def emit_watermark(self, watermark: Watermark) -> None:
        """Forward `watermark` if it moves time forward; idleness ends either way.

        Raises:
            ProcessingTimeBehind: It is in processing time, and the clock is behind its timestamp or behind one sent
                before.
            ProcessingTimeRevoked: It is in event time, and one in processing time was sent before.
        """
        if watermark.use_processing_time:
            greatest = max(self._greatest, watermark.timestamp)
            now = self._clock()
            if now < greatest:
                raise ProcessingTimeBehind(now=now, timestamp=greatest)
        elif self._processing_time:
            raise ProcessingTimeRevoked(timestamp=watermark.timestamp)
        self.mark_active()
        if watermark.use_processing_time or watermark.timestamp > self._greatest:
            self._downstream.emit_watermark(watermark)
            self._greatest = max(self._greatest, watermark.timestamp)
            self._processing_time = watermark.use_processing_time

    def mark_idle(self) -> None:
        """Send idleness, unless the stream is idle already."""
        if not self._idle:
            self._downstream.mark_idle()
            self._idle = True

    def mark_active(self) -> None:
        """Send the end of idleness, if the stream is idle."""
        if self._idle:
            self._downstream.mark_active()
            self._idle = False
