"""Where watermarks go: the contract of an output, and the guard at a source's end of the stream."""

from __future__ import annotations

from typing import Protocol

from tidegate.pipelines.clock import Clock
from tidegate.pipelines.watermarks.errors import ProcessingTimeBehind, ProcessingTimeRevoked
from tidegate.pipelines.watermarks.watermark import MIN_TIMESTAMP, Watermark


class WatermarkOutput(Protocol):
    """What a generator, a valve or a multiplexer writes to (Flink's WatermarkOutput)."""

    def emit_watermark(self, watermark: Watermark) -> None:
        """Tell `watermark`. This also ends idleness."""
        ...

    def mark_idle(self) -> None:
        """Say that nobody needs to wait for this stream until its next watermark."""
        ...

    def mark_active(self) -> None:
        """Say that this stream must be waited for again."""
        ...


class WatermarkToDataOutput:
    """Sends on what moves time forward, so that what leaves a source never goes back (FLIP-326, change 5).

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
        """Send `watermark` if it moves time forward; idleness ends either way.

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
