"""Any generator, with idleness: a stream without rows for some time is marked idle (FLIP-126, "Motivation")."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from tidegate.pipelines.clock import Clock
from tidegate.pipelines.watermarks.generators import StatefulGenerator, WatermarkGenerator
from tidegate.pipelines.watermarks.output import WatermarkOutput
from tidegate.pipelines.watermarks.watermark import milliseconds


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
