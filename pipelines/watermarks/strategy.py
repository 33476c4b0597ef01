"""How a stream gets its timestamps and watermarks, defined once and applied to every split (FLIP-126); and how the
splits of a group stay together: one that is too far ahead of the slowest waits (FLIP-182)."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any

from tidegate.pipelines.clock import Clock
from tidegate.pipelines.watermarks.generators import (
    BoundedOutOfOrderness,
    ExpressionWatermarks,
    NoWatermarks,
    SourceWatermarks,
    WatermarkGenerator,
    WithIdleness,
)
from tidegate.pipelines.watermarks.watermark import MAX_TIMESTAMP, InvalidWatermark, Watermark, milliseconds

TimestampAssigner = Callable[[Any, int], int]
"""(element, the timestamp it has: ms, or MIN_TIMESTAMP for none) -> its timestamp in ms, UTC."""


def keep_timestamp(element: Any, timestamp: int) -> int:
    """The timestamp that the element has already (Flink's RecordTimestampAssigner)."""
    return timestamp


@dataclass(frozen=True)
class WatermarkAlignment:
    """Sources and splits of `group` may not run ahead of its slowest by more than `max_drift` (FLIP-182)."""

    group: str
    max_drift: timedelta
    update_interval: timedelta


@dataclass(frozen=True)
class WatermarkStrategy:
    """Makes the generators of a stream. Immutable: every `with_*` gives a new one, and their order does not matter.

    >>> strategy = WatermarkStrategy.for_monotonous_timestamps().with_idleness(timedelta(minutes=1))
    >>> strategy.idle_timeout
    datetime.timedelta(seconds=60)
    """

    generator_factory: Callable[[], WatermarkGenerator]
    timestamp_assigner: TimestampAssigner = keep_timestamp
    idle_timeout: timedelta | None = None
    alignment: WatermarkAlignment | None = None
    gap: int | None = None
    """After how many rows each time a watermark is emitted; None emits periodically."""

    @classmethod
    def for_bounded_out_of_orderness(cls, delay: timedelta) -> WatermarkStrategy:
        """Rows may be up to `delay` late: emits max - delay - 1 ms. Raises InvalidWatermark if `delay` is negative."""
        BoundedOutOfOrderness(delay)
        return cls(partial(BoundedOutOfOrderness, delay))

    @classmethod
    def for_monotonous_timestamps(cls) -> WatermarkStrategy:
        """Rowtimes never go back: emits max - 1 ms."""
        return cls.for_bounded_out_of_orderness(timedelta(0))

    @classmethod
    def no_watermarks(cls) -> WatermarkStrategy:
        """Processing time: emits (MIN_TIMESTAMP, true)."""
        return cls(NoWatermarks)

    @classmethod
    def for_expression(cls, expression: str, type: str = "TIMESTAMP(3)") -> WatermarkStrategy:
        """The strategy of WATERMARK FOR: the greatest value of a Spark SQL `expression` over the table's columns,
        exactly.

        `type` is the expression's type, in Flink's spelling: BIGINT (ms, UTC), TIMESTAMP(p) or TIMESTAMP_LTZ(p).
        """
        return cls(partial(ExpressionWatermarks, expression, type))

    @classmethod
    def from_source(
        cls, expression: str | None = None, type: str = "TIMESTAMP(3)", delay: timedelta = timedelta(0)
    ) -> WatermarkStrategy:
        """The watermarks that the source itself emits; where it emits none, as its times ascend, the greatest value of
        `expression`, which is as of `for_expression`, or nothing. Either is emitted `delay` later. Raises
        InvalidWatermark if `delay` is negative."""
        SourceWatermarks(delay=delay)
        return cls(partial(SourceWatermarks, expression, type, delay))

    @classmethod
    def for_generator(cls, factory: Callable[[], WatermarkGenerator]) -> WatermarkStrategy:
        """A user's generator; `factory()` makes one for every split. Raises InvalidWatermark if not callable."""
        if not callable(factory):
            raise InvalidWatermark(f"a generator's factory is called without arguments, {factory!r} cannot be called")
        return cls(factory)

    def with_timestamp_assigner(self, assigner: TimestampAssigner) -> WatermarkStrategy:
        """Take each element's timestamp from `assigner(element, timestamp)`."""
        if not callable(assigner):
            raise InvalidWatermark(f"a timestamp assigner is called with (element, timestamp), {assigner!r} cannot be")
        return replace(self, timestamp_assigner=assigner)

    def with_idleness(self, timeout: timedelta) -> WatermarkStrategy:
        """Mark a split idle after `timeout` without rows. Raises InvalidWatermark if it is not positive."""
        milliseconds(timeout, "the idle timeout")
        return replace(self, idle_timeout=timeout)

    def with_watermark_alignment(
        self, group: str, max_drift: timedelta, update_interval: timedelta = timedelta(seconds=1)
    ) -> WatermarkStrategy:
        """Hold back splits that run ahead of the slowest of `group` by more than `max_drift`.

        `update_interval` is how often that is looked at. Raises InvalidWatermark if it is not positive, if `max_drift`
        is negative or `group` is empty.
        """
        if not group:
            raise InvalidWatermark("a watermark alignment group needs a name")
        milliseconds(max_drift, "the drift", zero=True)
        milliseconds(update_interval, "the update interval")
        return replace(self, alignment=WatermarkAlignment(group, max_drift, update_interval))

    def with_emission_on_event(self, gap: int = 1) -> WatermarkStrategy:
        """Emit after every `gap` rows (punctuated) instead of periodically. Raises InvalidWatermark if below 1."""
        if isinstance(gap, bool) or not isinstance(gap, int) or gap < 1:
            raise InvalidWatermark(f"the gap between two emissions is a number of rows, at least 1, not {gap!r}")
        return replace(self, gap=gap)

    def create_generator(self, clock: Clock) -> WatermarkGenerator:
        """A new generator for one split. `clock` (ms, UTC) measures idleness."""
        generator = self.generator_factory()
        return generator if self.idle_timeout is None else WithIdleness(generator, self.idle_timeout, clock)


class AlignmentCoordinator:
    """Blocks each split whose watermark is more than `max_drift` ahead of the least one in the group.

    A split that has emitted MAX_TIMESTAMP (it has ended) or processing time takes no part: it neither waits nor is
    waited for. Nor does one that was withdrawn because it is idle or gone.

    Args:
        group: The group's name, for people.
        max_drift: How far ahead a split may be.

    Raises:
        InvalidWatermark: `group` is empty or `max_drift` negative.
    """

    def __init__(self, group: str, max_drift: timedelta) -> None:
        if not group:
            raise InvalidWatermark("a watermark alignment group needs a name")
        self.group = group
        self.max_drift = max_drift
        self._drift = milliseconds(max_drift, "the drift", zero=True)
        self._timestamps: dict[tuple[Hashable, Hashable], int] = {}

    def report(self, source: Hashable, split: Hashable, watermark: Watermark | int) -> None:
        """The last watermark of `split` of `source`; a number is the ms of one in event time."""
        watermark = watermark if isinstance(watermark, Watermark) else Watermark(watermark)
        if watermark.use_processing_time or watermark.timestamp == MAX_TIMESTAMP:
            self.withdraw(source, split)
        else:
            self._timestamps[(source, split)] = watermark.timestamp

    def withdraw(self, source: Hashable, split: Hashable) -> None:
        """`split` of `source` is idle or gone: nobody waits for it. A report brings it back."""
        self._timestamps.pop((source, split), None)

    @property
    def slowest(self) -> tuple[tuple[Hashable, Hashable], int] | None:
        """The (source, split) that the group waits for, and its watermark in ms; None when nobody takes part."""
        if not self._timestamps:
            return None
        return min(self._timestamps.items(), key=lambda item: item[1])

    @property
    def limit(self) -> int | None:
        """The greatest watermark in ms that is not too far ahead; None when nobody takes part."""
        return None if self.slowest is None else self.slowest[1] + self._drift

    def reach(self, source: Hashable, split: Hashable) -> int | None:
        """How far `split` of `source` may come, in ms: to the least watermark of all others plus the drift. Its own
        watermark does not limit it, even if it is the slowest. None if no other takes part."""
        others = [timestamp for pair, timestamp in self._timestamps.items() if pair != (source, split)]
        return min(others) + self._drift if others else None

    def blocked(self) -> set[tuple[Hashable, Hashable]]:
        """The (source, split) pairs that must not be read further now. Never all of them."""
        limit = self.limit
        return {pair for pair, timestamp in self._timestamps.items() if limit is not None and timestamp > limit}
