"""Who calls on_periodic_emit of a table in processing time, and when (FLIP-326, SourceOperator)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tidegate.pipelines.lake import WatermarkRow
from tidegate.pipelines.runtime.watermarking import SignalEmit
from tidegate.pipelines.watermarks import MIN_TIMESTAMP, PROCESSING_TIME, ProcessingTimeBehind


class Delegates:
    """A source that owns the emit, or does not."""

    def __init__(self, owns: bool) -> None:
        self.owns = owns
        self.emit: Callable[[], None] = lambda: None

    def delegate_watermark_periodic_emit(self, on_watermark_emit: Callable[[], None]) -> bool:
        self.emit = on_watermark_emit
        return self.owns


def signal(source: Delegates, before: WatermarkRow | None = None, now: int = 100) -> SignalEmit:
    made = SignalEmit(lambda: now, before)
    made.offer(source)  # type: ignore[arg-type]
    return made


def row(timestamp: int, **split: Any) -> WatermarkRow:
    splits = [{"split": "table", "timestamp": timestamp, "use_processing_time": False, **split}]
    return WatermarkRow("t", 1, 1, 0, 0, timestamp, bool(split.get("use_processing_time")), splits=splits)


def test_a_source_that_does_not_delegate_is_called_once_before_the_first_record() -> None:
    first = signal(Delegates(False))
    assert first.told is None
    first.before_first_record()
    assert first.told == PROCESSING_TIME
    later = signal(Delegates(False), row(MIN_TIMESTAMP, use_processing_time=True))
    later.before_first_record()
    assert later.told is None


def test_a_source_that_delegates_calls_it_itself() -> None:
    source = Delegates(True)
    made = signal(source)
    made.before_first_record()
    assert made.told is None
    source.emit()
    assert made.told == PROCESSING_TIME


def test_a_table_that_told_a_time_in_the_future_can_not_turn_to_processing_time() -> None:
    made = signal(Delegates(False), row(500), now=499)
    with pytest.raises(ProcessingTimeBehind):
        made.before_first_record()
    made = signal(Delegates(False), row(500), now=500)
    made.before_first_record()
    assert made.told == PROCESSING_TIME
