"""The entry point of event time (FLIP-499, `EventTimeExtension`)."""

from __future__ import annotations

from tidegate.pipelines.process.errors import InvalidDeclaration
from tidegate.pipelines.process.functions import EventTimeProcessFunction
from tidegate.pipelines.process.generator import EventTimeExtractor, WatermarkGeneratorBuilder
from tidegate.pipelines.process.watermarks.declarations import (
    EVENT_TIME_WATERMARK_DECLARATION,
    IDLE_STATUS_WATERMARK_DECLARATION,
    GeneralizedWatermark,
)
from tidegate.pipelines.process.wrapped import WrappedProcessFunction, wrapped


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
