"""What goes wrong with watermarks, as types."""

from __future__ import annotations

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
    """A generator or a timestamp assigner of one's own failed. One line, since it comes out of a worker process."""

    def __init__(self, split: str, offset: int | None, error: BaseException) -> None:
        self.split = split
        self.offset = offset
        place = f"split {split!r}" if offset is None else f"split {split!r} at offset {offset}"
        cause = " ".join(str(error).split())
        super().__init__(f"the watermark generator of {place} failed: {type(error).__name__}: {cause}")
