"""The four kinds of functions behind one set of calls, each made once so that a record costs one."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterable
from typing import Any

from tidegate.pipelines.process.contexts import ApplyPartition
from tidegate.pipelines.process.engine.binding import Binding
from tidegate.pipelines.process.errors import InvalidDeclaration, cut
from tidegate.pipelines.process.watermarks.combining import BUILT_IN, by_identifier
from tidegate.pipelines.process.watermarks.declarations import (
    EVENT_TIME_WATERMARK_DECLARATION,
    GeneralizedWatermark,
    WatermarkDeclaration,
    WatermarkHandlingResult,
    WatermarkHandlingStrategy,
)

LONGEST = 300
"""Characters of a function's own message that are shown."""


class Calls:
    """How to call a bound function.

    Args:
        binding: The function.
        send: Where a watermark goes that is forwarded.
        declarations: Of the watermarks that inputs bring.
    """

    def __init__(
        self,
        binding: Binding,
        send: Callable[[GeneralizedWatermark], None],
        declarations: Iterable[WatermarkDeclaration] = (),
    ) -> None:
        self._binding = binding
        self._send = send
        self._function: Any = binding.function
        self._outputs = binding.collectors
        self._declared = {**by_identifier([*binding.shape.watermarks, *declarations]), **BUILT_IN}
        self.timer = self._timer()

    def of_input(self, place: int) -> Callable[[Any], None]:
        """What takes a record of an input."""
        shape, function, ctx = self._binding.shape, self._function, self._binding.partitioned
        if shape.outputs == 2:
            process, (first, second) = function.process_record, self._outputs
            return lambda record: process(record, first, second, ctx)
        (output,) = self._outputs
        if shape.inputs == 1:
            process = function.process_record
        elif shape.broadcast:
            if place == 1:
                return lambda record: function.process_record_from_broadcast_input(
                    record, self._binding.non_partitioned
                )
            process = function.process_record_from_non_broadcast_input
        elif place == 0:
            process = function.process_record_from_first_input
        else:
            process = function.process_record_from_second_input
        return lambda record: process(record, output, ctx)

    def _timer(self) -> Callable[[int], None]:
        if not self._binding.shape.event_time:
            return _no_timers
        call, outputs, ctx = self._function.on_event_timer, self._outputs, self._binding.partitioned
        if len(outputs) == 2:
            first, second = outputs
            return lambda timestamp: call(timestamp, first, second, ctx)
        (output,) = outputs
        return lambda timestamp: call(timestamp, output, ctx)

    def apply(self, function: ApplyPartition) -> None:
        """Call what a callback of no key asked of every key, for the current one."""
        function(*self._outputs, self._binding.partitioned)

    def watermark(self, watermark: GeneralizedWatermark) -> None:
        """Hand the function a combined watermark, and forward it where it goes on."""
        event_time = watermark.identifier == EVENT_TIME_WATERMARK_DECLARATION.identifier
        if event_time and self._binding.shape.event_time:
            self._function.on_event_time_watermark(watermark.value, *self._outputs, self._binding.non_partitioned)
            self._send(watermark)
            return
        answer = self._function.on_watermark(watermark, *self._outputs, self._binding.non_partitioned)
        if not isinstance(answer, WatermarkHandlingResult):
            raise InvalidDeclaration(f"on_watermark answers PEEK or POP, not {answer!r}")
        declaration = self._declared.get(watermark.identifier)
        forward = declaration is None or declaration.strategy is WatermarkHandlingStrategy.FORWARD
        if answer is WatermarkHandlingResult.PEEK and forward:
            self._send(watermark)


def _no_timers(timestamp: int) -> None:
    raise InvalidDeclaration(f"a timer at {timestamp} is stored, and the function has no event time any more")


def described(error: BaseException) -> str:
    """An exception on one line, with the line of the function that it came out of; files by their last name only."""
    # Through traceback, which knows of exceptions that raise when they are to be shown.
    message = cut(str(traceback.TracebackException(type(error), error, None)), LONGEST)
    what = f"{type(error).__name__}: {message}" if message else type(error).__name__
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if _of_the_user(frame.filename)]
    return f"{what} ({os.path.basename(own[-1].filename)}:{own[-1].lineno})" if own else what


_PROCESS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _of_the_user(filename: str) -> bool:
    return not os.path.abspath(filename).startswith(_PROCESS + os.sep)
