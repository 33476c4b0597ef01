"""What turns the rows of a stream into watermarks (FLIP-126; `NoWatermarks` as FLIP-326, change 3, has it)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Protocol, runtime_checkable

from pipelines.watermarks.duration import milliseconds
from pipelines.watermarks.output import WatermarkOutput
from pipelines.watermarks.watermark import MIN_TIMESTAMP, PROCESSING_TIME, Watermark


class WatermarkGenerator(Protocol):
    """Emits watermarks on rows, or periodically, or both."""

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        """Look at a row and its rowtime (ms, UTC); emit if the row itself says so."""
        ...

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Emit what the rows so far allow. Called once after the rows of an epoch, or from time to time."""
        ...


@runtime_checkable
class StatefulGenerator(Protocol):
    """A generator whose state can be stored between epochs. Those of this package are; one's own may be."""

    def state(self) -> dict[str, Any]:
        """All that it remembers, as JSON."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Remember what `state()` gave."""
        ...


class BoundedOutOfOrderness:
    """Emits, periodically, the greatest rowtime so far - `delay` - 1 ms: rows may be up to `delay` late.

    Raises:
        InvalidWatermark: `delay` is negative.
    """

    def __init__(self, delay: timedelta) -> None:
        self._behind = milliseconds(delay, "the delay", zero=True) + 1
        self._greatest = MIN_TIMESTAMP

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        self._greatest = max(self._greatest, event_timestamp)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        output.emit_watermark(Watermark(max(self._greatest - self._behind, MIN_TIMESTAMP)))

    def state(self) -> dict[str, int]:
        return {"greatest": self._greatest}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._greatest = state["greatest"]


class NoWatermarks:
    """Emits, periodically, (MIN_TIMESTAMP, true): the stream's time is the system's time."""

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        """Rows say nothing here."""

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        output.emit_watermark(PROCESSING_TIME)

    def state(self) -> dict[str, int]:
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """There is nothing to remember."""
