"""The emit of a table in processing time: (MIN, true), told by whoever owns it (FLIP-326, SourceOperator)."""

from __future__ import annotations

from tidegate.pipelines.clock import Clock
from tidegate.pipelines.connectors.protocol import Source
from tidegate.pipelines.lake import WatermarkRow
from tidegate.pipelines.runtime.watermarking.running import Recorder
from tidegate.pipelines.watermarks import MIN_TIMESTAMP, Watermark, WatermarkStrategy, WatermarkToDataOutput


class SignalEmit:
    """Made once an epoch. What it tells is shown from the table's flip on, not before.

    A source that delegates calls it when its bounded phase is over. One that does not emits nothing progressive here,
    so it is called once, before the table's first record.

    Args:
        clock: The system's time in ms, UTC.
        before: The log row of the epoch before: a clock behind what the table has told is ProcessingTimeBehind.
    """

    def __init__(self, clock: Clock, before: WatermarkRow | None = None) -> None:
        self._recorder = Recorder()
        self._output = WatermarkToDataOutput(self._recorder, clock)
        if before is not None:
            self._output.emit_watermark(Watermark(max(before.timestamp, MIN_TIMESTAMP)))
            self._recorder.last = None
        self._generator = WatermarkStrategy.no_watermarks().create_generator(clock)
        self._first = before is None or not any(split["use_processing_time"] for split in before.splits)
        self.owned = False

    @property
    def told(self) -> Watermark | None:
        """What was emitted in this epoch."""
        return self._recorder.last

    def offer(self, source: Source) -> None:
        """Let the source own the periodic emit if it wants to."""
        self.owned = source.delegate_watermark_periodic_emit(self.emit)

    def before_first_record(self) -> None:
        """Called before an epoch is read: emits before the first one of all, unless the source owns the emit."""
        if self._first and not self.owned:
            self.emit()

    def emit(self) -> None:
        """WatermarkGenerator#onPeriodicEmit. Raises ProcessingTimeBehind."""
        self._generator.on_periodic_emit(self._output)
