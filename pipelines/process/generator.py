"""FLIP-499's WatermarkGeneratorBuilder: event time taken from the records themselves, as a process function.

In a pipeline it defines how the event time of an input is found (`strategy`), since the watermarks that drive Tidegate
come from its watermark log; the function can also be run by itself, like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from numbers import Integral
from typing import Any, Literal

from tidegate.pipelines.clock import Clock, system_clock
from tidegate.pipelines.process.contexts import NonPartitionedContext, PartitionedContext
from tidegate.pipelines.process.errors import InvalidDeclaration, NoEventTime
from tidegate.pipelines.process.functions import Collector, OneInputStreamProcessFunction
from tidegate.pipelines.process.values import record_of
from tidegate.pipelines.process.watermarks.declarations import (
    EVENT_TIME_WATERMARK_DECLARATION,
    IDLE_STATUS_WATERMARK_DECLARATION,
    WatermarkDeclaration,
)
from tidegate.pipelines.watermarks import MIN_TIMESTAMP, Watermark, WatermarkOutput, WatermarkStrategy, WithIdleness
from tidegate.pipelines.watermarks.watermark import milliseconds

EventTimeExtractor = Callable[[Any], int | None]
"""record -> its event time in ms, UTC; None for a record that has none: it moves no watermark, and is never late."""

Emission = Literal["never", "periodic", "per-event"]

AUTO_WATERMARK_INTERVAL = timedelta(milliseconds=200)
"""Flink's `pipeline.auto-watermark-interval`."""


class GreatestEventTime:
    """Emits, periodically, the greatest event time so far - `delay`, exactly: no ms less, unlike FLIP-126's own."""

    def __init__(self, delay: timedelta) -> None:
        self._behind = milliseconds(delay, "the maximum out-of-order time", zero=True)
        self._greatest = MIN_TIMESTAMP

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        self._greatest = max(self._greatest, event_timestamp)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        if self._greatest > MIN_TIMESTAMP:
            output.emit_watermark(Watermark(max(self._greatest - self._behind, MIN_TIMESTAMP)))

    def state(self) -> dict[str, int]:
        return {"greatest": self._greatest}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._greatest = state["greatest"]


@dataclass(frozen=True)
class WatermarkGeneratorBuilder:
    """How event time is found. Immutable: every step gives a new builder, and their order does not matter.

    Raises InvalidDeclaration where the extractor cannot be called, InvalidWatermark for a duration that cannot be.
    """

    extractor: EventTimeExtractor
    idle_timeout: timedelta | None = None
    max_out_of_order_time: timedelta = timedelta(0)
    emission: Emission = "periodic"
    interval: timedelta = AUTO_WATERMARK_INTERVAL

    def __post_init__(self) -> None:
        if not callable(self.extractor):
            raise InvalidDeclaration(f"an event time extractor is called with a record, {self.extractor!r} cannot be")

    def with_idleness(self, timeout: timedelta) -> WatermarkGeneratorBuilder:
        """Report the input as idle after `timeout` without records."""
        milliseconds(timeout, "the idle timeout")
        return replace(self, idle_timeout=timeout)

    def with_max_out_of_order_time(self, duration: timedelta) -> WatermarkGeneratorBuilder:
        """Records may come up to `duration` after ones that are younger; 0 unless given."""
        milliseconds(duration, "the maximum out-of-order time", zero=True)
        return replace(self, max_out_of_order_time=duration)

    def no_watermark(self) -> WatermarkGeneratorBuilder:
        """Emit no watermarks. Idleness is emitted all the same, and what the source itself emits goes on."""
        return replace(self, emission="never")

    def periodic_watermark(self, interval: timedelta | None = None) -> WatermarkGeneratorBuilder:
        """Emit a watermark every `interval` (200 ms by default). In a pipeline: at the end of every landed epoch."""
        chosen = AUTO_WATERMARK_INTERVAL if interval is None else interval
        milliseconds(chosen, "the interval of watermarks")
        return replace(self, emission="periodic", interval=chosen)

    def per_event_watermark(self) -> WatermarkGeneratorBuilder:
        """Emit a watermark after every record. A landed epoch emits one watermark: in a pipeline records meet the same
        time as with periodic ones."""
        return replace(self, emission="per-event")

    def build_as_process_function(self, clock: Clock = system_clock) -> EventTimeGeneratorFunction:
        """The function that forwards records and emits their watermarks. `clock`: ms, UTC."""
        return EventTimeGeneratorFunction(self, clock)


class _Sent:
    """Turns what a generator emits into generalised watermarks of a context. `silent`: only idleness."""

    def __init__(self, silent: bool) -> None:
        self.ctx: NonPartitionedContext | None = None
        self._silent = silent
        self._greatest = MIN_TIMESTAMP

    def emit_watermark(self, watermark: Watermark) -> None:
        if self.ctx is not None and not self._silent and watermark.timestamp > self._greatest:
            self._greatest = watermark.timestamp
            emitted = EVENT_TIME_WATERMARK_DECLARATION.new_watermark(watermark.timestamp)
            self.ctx.get_watermark_manager().emit_watermark(emitted)

    def mark_idle(self) -> None:
        self._idle(True)

    def mark_active(self) -> None:
        self._idle(False)

    def _idle(self, idle: bool) -> None:
        if self.ctx is not None:
            emitted = IDLE_STATUS_WATERMARK_DECLARATION.new_watermark(idle)
            self.ctx.get_watermark_manager().emit_watermark(emitted)


class EventTimeGeneratorFunction(OneInputStreamProcessFunction):
    """Forwards every record, and emits event-time watermarks as its builder configures."""

    def __init__(self, builder: WatermarkGeneratorBuilder, clock: Clock = system_clock) -> None:
        self.builder = builder
        self._clock = clock
        self._sent = _Sent(builder.emission == "never")
        generator: GreatestEventTime | WithIdleness = GreatestEventTime(builder.max_out_of_order_time)
        if builder.idle_timeout is not None:
            generator = WithIdleness(generator, builder.idle_timeout, clock)
        self._generator = generator
        self._due = clock() + milliseconds(builder.interval, "the interval of watermarks")

    def watermark_declarations(self) -> Collection[WatermarkDeclaration]:
        return (EVENT_TIME_WATERMARK_DECLARATION, IDLE_STATUS_WATERMARK_DECLARATION)

    def process_record(self, record: Any, output: Collector, ctx: PartitionedContext) -> None:
        self._sent.ctx = ctx.get_non_partitioned_context()
        output.collect(record)
        self._generator.on_event(record, self._time(record), self._sent)
        if self.builder.emission == "per-event":
            self._generator.on_periodic_emit(self._sent)
        elif self._clock() >= self._due:
            self.tick(self._sent.ctx)

    def tick(self, ctx: NonPartitionedContext) -> None:
        """Time has passed: emit periodic watermarks. The caller calls it at least at the end of every epoch."""
        self._sent.ctx = ctx
        self._due = self._clock() + milliseconds(self.builder.interval, "the interval of watermarks")
        self._generator.on_periodic_emit(self._sent)

    def _time(self, record: Any) -> int:
        time = event_time(self.builder.extractor, record)
        return MIN_TIMESTAMP if time is None else time

    @property
    def strategy(self) -> WatermarkStrategy:
        """The same for a table of a pipeline, split by split."""
        if self.builder.emission == "never":
            strategy = WatermarkStrategy.from_source()
        else:
            strategy = WatermarkStrategy.for_generator(partial(GreatestEventTime, self.builder.max_out_of_order_time))
            strategy = strategy.with_timestamp_assigner(partial(_extracted, self.builder.extractor))
        if self.builder.idle_timeout is not None:
            strategy = strategy.with_idleness(self.builder.idle_timeout)
        return strategy.with_emission_on_event() if self.builder.emission == "per-event" else strategy


def event_time(extractor: EventTimeExtractor, record: Any) -> int | None:
    """A record's event time; None where it has none. Raises NoEventTime that names the record."""
    try:
        found = extractor(record)
    except Exception as error:
        raise NoEventTime(record, f"{type(error).__name__}: {error}") from error
    if type(found) is int or found is None:
        return found
    if isinstance(found, bool) or not isinstance(found, Integral):
        raise NoEventTime(record, f"it is a number of ms, and not {found!r}")
    return int(found)


def _extracted(extractor: EventTimeExtractor, element: Mapping[str, Any], timestamp: int) -> int:
    found = event_time(extractor, record_of(element))
    return MIN_TIMESTAMP if found is None else found
