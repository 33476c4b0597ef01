"""What turns the rows of a stream into watermarks, with or without idleness (FLIP-126; `NoWatermarks` as FLIP-326,
change 3, has it).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Protocol, runtime_checkable

from tidegate.pipelines.clock import Clock
from tidegate.pipelines.watermarks.watermark import (
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    PROCESSING_TIME,
    Watermark,
    WatermarkOutput,
    milliseconds,
)


class WatermarkGenerator(Protocol):
    """Emits watermarks on rows, or periodically, or both."""

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        """Look at a row and its rowtime (ms, UTC); emit if the row itself is a signal to."""
        ...

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Emit what the rows so far allow. Called once after the rows of an epoch, or from time to time."""
        ...


@runtime_checkable
class StatefulGenerator(Protocol):
    """A generator whose state can be stored between epochs. The built-in ones are; a user's may be."""

    def state(self) -> dict[str, Any]:
        """Its whole state, as JSON."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what `state()` returned."""
        ...


class _Greatest:
    """A generator whose state is the greatest value so far (ms, UTC)."""

    def __init__(self) -> None:
        self._greatest = MIN_TIMESTAMP

    def state(self) -> dict[str, int]:
        return {"greatest": self._greatest}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._greatest = state["greatest"]


class _Stateless:
    """A generator that rows do not move, and that has no state."""

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        """Does nothing."""

    def state(self) -> dict[str, int]:
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Does nothing."""


class BoundedOutOfOrderness(_Greatest):
    """Emits, periodically, the greatest rowtime so far - `delay` - 1 ms: rows may be up to `delay` late.

    Raises:
        InvalidWatermark: `delay` is negative.
    """

    def __init__(self, delay: timedelta) -> None:
        super().__init__()
        self.behind = milliseconds(delay, "the delay", zero=True) + 1
        """How many ms a watermark is behind the greatest rowtime."""

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        self._greatest = max(self._greatest, event_timestamp)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        output.emit_watermark(Watermark(max(self._greatest - self.behind, MIN_TIMESTAMP)))


class ExpressionWatermarks(_Greatest):
    """The generator of `WATERMARK FOR … AS expression` (FLIP-66): emits, periodically, the greatest value of the
    expression.

    The expression is a row's watermark, computed by whoever reads the row, so an event is that value: ms, UTC, or None
    where the expression is NULL.

    Args:
        expression: Spark SQL over the columns of the table.
        type: What it gives: BIGINT (ms, UTC), TIMESTAMP(p) or TIMESTAMP_LTZ(p).
    """

    def __init__(self, expression: str, type: str) -> None:
        super().__init__()
        self.expression = expression
        self.type = type

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        if event is not None:
            self._greatest = max(self._greatest, event)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        output.emit_watermark(Watermark(self._greatest))


class SourceWatermarks(_Stateless):
    """Passes on the source's own watermarks (FLIP-66, SYSTEM_WATERMARK()).

    Args:
        expression: For a source that emits none, as its times ascend: the Spark SQL whose greatest value is then the
            watermark. None: such a source has no watermark.
        type: The expression's, as in ExpressionWatermarks.
        delay: By how much all watermarks are later, as rows may be so late. Not part of FLIP-66.

    Raises:
        InvalidWatermark: `delay` is negative.
    """

    def __init__(
        self, expression: str | None = None, type: str = "TIMESTAMP(3)", delay: timedelta = timedelta(0)
    ) -> None:
        self.expression = expression
        self.type = type
        self.behind = milliseconds(delay, "the delay", zero=True)
        """How many ms a watermark is behind the source's."""

    def delayed(self, watermark: Watermark) -> Watermark:
        """The source's watermark, delayed. MIN_TIMESTAMP, MAX_TIMESTAMP and processing time stay as they are."""
        if watermark.use_processing_time or watermark.timestamp == MAX_TIMESTAMP:
            return watermark
        return Watermark(max(watermark.timestamp - self.behind, MIN_TIMESTAMP))

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Does nothing: the source emits."""


class NoWatermarks(_Stateless):
    """Emits, periodically, (MIN_TIMESTAMP, true): the stream's time is the system's time."""

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        output.emit_watermark(PROCESSING_TIME)


class WithIdleness:
    """Marks the output idle at the first periodic emit at which `timeout` has passed since the last row, or the start.

    While idle the wrapped generator is not asked. The next row ends idleness at once.

    Args:
        generator: What emits the watermarks.
        timeout: How long without rows.
        clock: The system's time in ms, UTC.

    Raises:
        InvalidWatermark: `timeout` is not positive.
    """

    def __init__(self, generator: WatermarkGenerator, timeout: timedelta, clock: Clock) -> None:
        self._generator = generator
        self._timeout = milliseconds(timeout, "the idle timeout")
        self._clock = clock
        self._last_row = clock()
        self._idle = False

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        self._last_row = self._clock()
        if self._idle:
            self._idle = False
            output.mark_active()
        self._generator.on_event(event, event_timestamp, output)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        if self._idle:
            return
        if self._clock() - self._last_row >= self._timeout:
            self._idle = True
            output.mark_idle()
        else:
            self._generator.on_periodic_emit(output)

    def state(self) -> dict[str, Any]:
        """With the wrapped generator's own state, where it has one."""
        inner = self._generator.state() if isinstance(self._generator, StatefulGenerator) else {}
        return {"last_row": self._last_row, "idle": self._idle, "generator": inner}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._last_row = state["last_row"]
        self._idle = state["idle"]
        if isinstance(self._generator, StatefulGenerator):
            self._generator.restore(state["generator"])
