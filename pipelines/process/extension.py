"""The entry point of event time (FLIP-499, `EventTimeExtension`), and the wrappers that turn an event-time function
into a plain one. The engine unwraps it again; its timers are state like any other."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tidegate.pipelines.process.contexts import NonPartitionedContext, PartitionedContext
from tidegate.pipelines.process.errors import InvalidDeclaration
from tidegate.pipelines.process.functions import (
    Collector,
    EventTimeProcessFunction,
    OneInputEventTimeStreamProcessFunction,
    OneInputStreamProcessFunction,
    ProcessFunction,
    TwoInputBroadcastEventTimeStreamProcessFunction,
    TwoInputBroadcastStreamProcessFunction,
    TwoInputNonBroadcastEventTimeStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
    TwoOutputEventTimeStreamProcessFunction,
    TwoOutputStreamProcessFunction,
)
from tidegate.pipelines.process.generator import EventTimeExtractor, WatermarkGeneratorBuilder
from tidegate.pipelines.process.state.declared import StateDeclaration
from tidegate.pipelines.process.watermarks.declarations import (
    EVENT_TIME_WATERMARK_DECLARATION,
    IDLE_STATUS_WATERMARK_DECLARATION,
    GeneralizedWatermark,
    WatermarkDeclaration,
    WatermarkHandlingResult,
)


class WrappedProcessFunction(ProcessFunction):
    """An event-time function, wrapped. `function`: the user's own."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def uses_states(self) -> Collection[StateDeclaration]:
        return self.function.uses_states()

    def watermark_declarations(self) -> Collection[WatermarkDeclaration]:
        return self.function.watermark_declarations()

    def open(self, ctx: NonPartitionedContext) -> None:
        self.function.open(ctx)

    def close(self) -> None:
        self.function.close()

    def on_watermark(self, watermark: GeneralizedWatermark, *arguments: Any) -> WatermarkHandlingResult:
        """Event time is passed to `on_event_time_watermark` and forwarded; any other watermark is passed to the
        function's `on_watermark`. `arguments`: the outputs and the context."""
        if watermark.identifier != EVENT_TIME_WATERMARK_DECLARATION.identifier:
            return self.function.on_watermark(watermark, *arguments)
        self.function.on_event_time_watermark(watermark.value, *arguments)
        return WatermarkHandlingResult.PEEK


class WrappedOneInput(WrappedProcessFunction, OneInputStreamProcessFunction):
    """Of a OneInputEventTimeStreamProcessFunction."""

    def process_record(self, record: Any, output: Collector, ctx: PartitionedContext) -> None:
        self.function.process_record(record, output, ctx)


class WrappedTwoInputBroadcast(WrappedProcessFunction, TwoInputBroadcastStreamProcessFunction):
    """Of a TwoInputBroadcastEventTimeStreamProcessFunction."""

    def process_record_from_non_broadcast_input(self, record: Any, output: Collector, ctx: PartitionedContext) -> None:
        self.function.process_record_from_non_broadcast_input(record, output, ctx)

    def process_record_from_broadcast_input(self, record: Any, ctx: NonPartitionedContext) -> None:
        self.function.process_record_from_broadcast_input(record, ctx)


class WrappedTwoInputNonBroadcast(WrappedProcessFunction, TwoInputNonBroadcastStreamProcessFunction):
    """Of a TwoInputNonBroadcastEventTimeStreamProcessFunction."""

    def process_record_from_first_input(self, record: Any, output: Collector, ctx: PartitionedContext) -> None:
        self.function.process_record_from_first_input(record, output, ctx)

    def process_record_from_second_input(self, record: Any, output: Collector, ctx: PartitionedContext) -> None:
        self.function.process_record_from_second_input(record, output, ctx)


class WrappedTwoOutput(WrappedProcessFunction, TwoOutputStreamProcessFunction):
    """Of a TwoOutputEventTimeStreamProcessFunction."""

    def process_record(self, record: Any, output1: Collector, output2: Collector, ctx: PartitionedContext) -> None:
        self.function.process_record(record, output1, output2, ctx)


_KINDS: dict[type, type[WrappedProcessFunction]] = {
    OneInputEventTimeStreamProcessFunction: WrappedOneInput,
    TwoInputBroadcastEventTimeStreamProcessFunction: WrappedTwoInputBroadcast,
    TwoInputNonBroadcastEventTimeStreamProcessFunction: WrappedTwoInputNonBroadcast,
    TwoOutputEventTimeStreamProcessFunction: WrappedTwoOutput,
}


def wrapped(function: EventTimeProcessFunction) -> WrappedProcessFunction:
    """`function` as a plain one. Raises InvalidDeclaration for one that is of none of the four kinds, or of several."""
    kinds = [wrapper for kind, wrapper in _KINDS.items() if isinstance(function, kind)]
    if len(kinds) != 1:
        one_of = ", ".join(kind.__name__ for kind in _KINDS)
        raise InvalidDeclaration(f"{type(function).__name__} is derived from one of {one_of}, and of one alone")
    return kinds[0](function)


class EventTimeExtension:
    """Defines the watermarks of event time, generates them, and brings event time to process functions."""

    EVENT_TIME_WATERMARK_DECLARATION = EVENT_TIME_WATERMARK_DECLARATION
    IDLE_STATUS_WATERMARK_DECLARATION = IDLE_STATUS_WATERMARK_DECLARATION

    @staticmethod
    def is_event_time_watermark(watermark: GeneralizedWatermark | str) -> bool:
        """Whether a watermark, or an identifier, is event time's."""
        return _identifier(watermark) == EVENT_TIME_WATERMARK_DECLARATION.identifier

    @staticmethod
    def is_idle_status_watermark(watermark: GeneralizedWatermark | str) -> bool:
        """Whether a watermark, or an identifier, is the idle status."""
        return _identifier(watermark) == IDLE_STATUS_WATERMARK_DECLARATION.identifier

    @staticmethod
    def new_watermark_generator_builder(extractor: EventTimeExtractor) -> WatermarkGeneratorBuilder:
        """Event time is what `extractor(record)` gives (ms, UTC)."""
        return WatermarkGeneratorBuilder(extractor)

    @staticmethod
    def wrap_process_function(function: EventTimeProcessFunction) -> WrappedProcessFunction:
        """Bring timers and the event time to `function`. Raises InvalidDeclaration for any other function."""
        if isinstance(function, WrappedProcessFunction):
            raise InvalidDeclaration(f"{type(function.function).__name__} is wrapped already")
        if not isinstance(function, EventTimeProcessFunction):
            raise InvalidDeclaration(f"{function!r} is no event-time process function")
        return wrapped(function)


def _identifier(watermark: GeneralizedWatermark | str) -> str:
    return watermark if isinstance(watermark, str) else watermark.identifier
