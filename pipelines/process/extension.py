"""The entry point of event time (FLIP-499, `EventTimeExtension`), and the wrappers that turn an event-time function
into a plain one. The engine unwraps it again; its timers are state like any other."""

from __future__ import annotations

from typing import Any

from tidegate.pipelines.process.errors import InvalidDeclaration
from tidegate.pipelines.process.functions import (
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
from tidegate.pipelines.process.watermarks.declarations import (
    EVENT_TIME_WATERMARK_DECLARATION,
    IDLE_STATUS_WATERMARK_DECLARATION,
    GeneralizedWatermark,
)


class WrappedProcessFunction(ProcessFunction):
    """An event-time function, wrapped. `function`: the user's own, which the engine calls."""

    def __init__(self, function: Any) -> None:
        self.function = function


class WrappedOneInput(WrappedProcessFunction, OneInputStreamProcessFunction):
    """Of a OneInputEventTimeStreamProcessFunction."""


class WrappedTwoInputBroadcast(WrappedProcessFunction, TwoInputBroadcastStreamProcessFunction):
    """Of a TwoInputBroadcastEventTimeStreamProcessFunction."""


class WrappedTwoInputNonBroadcast(WrappedProcessFunction, TwoInputNonBroadcastStreamProcessFunction):
    """Of a TwoInputNonBroadcastEventTimeStreamProcessFunction."""


class WrappedTwoOutput(WrappedProcessFunction, TwoOutputStreamProcessFunction):
    """Of a TwoOutputEventTimeStreamProcessFunction."""


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
