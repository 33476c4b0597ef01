"""A process function and all that it runs with: its states, its contexts, its timers, its outputs. The four kinds of
functions are called through one interface."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import Any

from tidegate.pipelines.process.contexts import (
    ApplyPartition,
    EventTimeManager,
    NonPartitionedContext,
    PartitionedContext,
    State,
    StateManager,
    WatermarkManager,
)
from tidegate.pipelines.process.engine.outputs import ListCollector
from tidegate.pipelines.process.errors import InvalidDeclaration, NotWrapped, cut
from tidegate.pipelines.process.extension import WrappedProcessFunction
from tidegate.pipelines.process.functions import (
    EventTimeProcessFunction,
    OneInputStreamProcessFunction,
    ProcessFunction,
    TwoInputBroadcastStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
    TwoOutputStreamProcessFunction,
)
from tidegate.pipelines.process.state.declared import (
    BroadcastStateDeclaration,
    KeyedStateDeclaration,
    ListStateDeclaration,
    MapStateDeclaration,
    ReducingStateDeclaration,
    StateDeclaration,
    checked,
    state_types,
)
from tidegate.pipelines.process.state.stores import (
    BroadcastState,
    CurrentKey,
    ListState,
    MapState,
    ReducingState,
    Values,
    ValueState,
)
from tidegate.pipelines.process.watermarks.combining import BUILT_IN, by_identifier
from tidegate.pipelines.process.watermarks.declarations import (
    EVENT_TIME_WATERMARK_DECLARATION,
    GeneralizedWatermark,
    WatermarkDeclaration,
    WatermarkHandlingResult,
    WatermarkHandlingStrategy,
)

KINDS = (
    OneInputStreamProcessFunction,
    TwoInputBroadcastStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
    TwoOutputStreamProcessFunction,
)


CALLBACKS = (
    "init_event_time_process_function",
    "open",
    "process_record",
    "process_record_from_first_input",
    "process_record_from_second_input",
    "process_record_from_non_broadcast_input",
    "process_record_from_broadcast_input",
    "on_watermark",
    "on_event_time_watermark",
    "on_event_timer",
    "close",
)


@dataclass(frozen=True)
class Shape:
    """The properties of a function that are known without running it. `event_time`: it has timers. `broadcast`: every
    task sees the whole of its second input. `watermarks`: what it may emit."""

    name: str
    inputs: int
    outputs: int
    broadcast: bool
    event_time: bool
    states: tuple[StateDeclaration, ...]
    watermarks: tuple[WatermarkDeclaration, ...] = ()

    @property
    def tells_time(self) -> bool:
        """Whether the function itself emits the event time of its outputs."""
        return EVENT_TIME_WATERMARK_DECLARATION in self.watermarks

    @property
    def keyed(self) -> tuple[KeyedStateDeclaration, ...]:
        return tuple(item for item in self.states if not isinstance(item, BroadcastStateDeclaration))

    @property
    def broadcast_states(self) -> tuple[BroadcastStateDeclaration, ...]:
        return tuple(item for item in self.states if isinstance(item, BroadcastStateDeclaration))


def shape_of(function: Any) -> Shape:
    """The shape of `function`. Raises NotWrapped, InvalidDeclaration."""
    inner = unwrapped(function)
    name = type(inner).__name__
    if isinstance(inner, EventTimeProcessFunction) and inner is function:
        raise NotWrapped(name)
    kinds = [kind for kind in KINDS if isinstance(inner, kind)]
    if len(kinds) != 1:
        raise InvalidDeclaration(f"{name} is no process function: derive it from one of the classes of FLIP-409 or 499")
    two = issubclass(kinds[0], TwoInputBroadcastStreamProcessFunction | TwoInputNonBroadcastStreamProcessFunction)
    _refuse_generators(inner, name)
    states = checked(inner.uses_states(), name)
    broadcast = kinds[0] is TwoInputBroadcastStreamProcessFunction
    if not broadcast and any(isinstance(item, BroadcastStateDeclaration) for item in states):
        raise InvalidDeclaration(f"{name} declares broadcast state, and has no broadcast input to write it from")
    outputs = 2 if kinds[0] is TwoOutputStreamProcessFunction else 1
    watermarks = tuple(by_identifier(inner.watermark_declarations()).values())
    by_identifier([*BUILT_IN.values(), *watermarks])
    event_time = isinstance(inner, EventTimeProcessFunction)
    return Shape(name, 2 if two else 1, outputs, broadcast, event_time, states, watermarks)


def _refuse_generators(function: ProcessFunction, name: str) -> None:
    """Refuse callbacks that are generators: nothing would read what they yield, so records would be lost silently."""
    for callback in CALLBACKS:
        found = getattr(function, callback, None)
        if isgeneratorfunction(found) or iscoroutinefunction(found) or isasyncgenfunction(found):
            raise InvalidDeclaration(f"{callback} of {name} yields or waits: hand records to output.collect instead")


def unwrapped(function: Any) -> ProcessFunction:
    """The user's function."""
    return function.function if isinstance(function, WrappedProcessFunction) else function


class Binding:
    """One instance of a function, ready to be called.

    Args:
        function: Plain, or wrapped.
        broadcast: The entries of its broadcast states.
        apply: Implements `apply_to_all_partitions`.
        send: Gets the watermarks that the function emits.
        taken: For each output, makes a collected record the engine's own.
        forward: Gets the watermarks that were received and go on; by default `send`.
        declarations: Of the watermarks that inputs bring.
    """

    def __init__(
        self,
        function: Any,
        broadcast: Mapping[str, Mapping[Any, Any]],
        apply: Callable[[ApplyPartition], None],
        send: Callable[[GeneralizedWatermark], None],
        taken: Sequence[Callable[[Any], Any] | None],
        forward: Callable[[GeneralizedWatermark], None] | None = None,
        declarations: Iterable[WatermarkDeclaration] = (),
    ) -> None:
        self.shape = shape_of(function)
        types = state_types(self.shape.states, self.shape.name)
        values = {item.name: Values(item, types[item.name]) for item in self.shape.states}
        self.function: Any = unwrapped(function)
        self.current = CurrentKey()
        self.manager = EventTimeManager(self.current)
        self.collectors = tuple(map(ListCollector, taken))
        self.watermarks = WatermarkManager(self.shape.watermarks, send)
        self.broadcasts = {
            item.name: BroadcastState(item.name, values[item.name], broadcast.get(item.name, {}))
            for item in self.shape.broadcast_states
        }
        states: dict[str, tuple[StateDeclaration, State]] = {
            item.name: (item, self._state(item, place, values[item.name]))
            for place, item in enumerate(self.shape.keyed)
        }
        for item in self.shape.broadcast_states:
            states[item.name] = (item, self.broadcasts[item.name])
        self.states = StateManager(self.current, states)
        self.non_partitioned = NonPartitionedContext(self.states, self.watermarks, apply)
        self.partitioned = PartitionedContext(self.states, self.non_partitioned)
        self._forward = forward or send
        self._declared = {**by_identifier([*self.shape.watermarks, *declarations]), **BUILT_IN}
        self.timer = self._keyed(self.function.on_event_timer) if self.shape.event_time else _no_timers

    def init_event_time(self) -> None:
        """Give the function its timers, if it uses event time. Raises what the function raises."""
        if isinstance(self.function, EventTimeProcessFunction):
            self.function.init_event_time_process_function(self.manager)

    def _state(self, declaration: KeyedStateDeclaration, place: int, values: Values) -> State:
        name = declaration.name
        if isinstance(declaration, ListStateDeclaration):
            return ListState(self.current, place, name, values)
        if isinstance(declaration, MapStateDeclaration):
            return MapState(self.current, place, name, values)
        if isinstance(declaration, ReducingStateDeclaration):
            return ReducingState(self.current, place, name, values, declaration.reduce)
        return ValueState(self.current, place, name, values)

    # --- broadcast state -----------------------------------------------------------------------------------------

    def broadcast_entries(self) -> dict[str, Mapping[Any, Any]]:
        """The broadcast states as they are now; later writes do not change them."""
        return {name: state.version() for name, state in self.broadcasts.items()}

    def see_broadcast(self, entries: Mapping[str, Mapping[Any, Any]]) -> None:
        """Show the function broadcast states of an earlier moment."""
        for name, state in self.broadcasts.items():
            state.entries = entries[name]

    def broadcast_writable(self, writable: bool) -> None:
        """Whether the running callback may write broadcast state."""
        for state in self.broadcasts.values():
            state.writable = writable

    # --- calls ---------------------------------------------------------------------------------------------------

    def of_input(self, place: int) -> Callable[[Any], None]:
        """The function that takes a record of an input."""
        if self.shape.inputs == 1:
            return self._keyed(self.function.process_record)
        if not self.shape.broadcast:
            both = self.function.process_record_from_first_input, self.function.process_record_from_second_input
            return self._keyed(both[place])
        if place == 0:
            return self._keyed(self.function.process_record_from_non_broadcast_input)
        return lambda record: self.function.process_record_from_broadcast_input(record, self.non_partitioned)

    def _keyed(self, call: Callable[..., None]) -> Callable[[Any], None]:
        """A callback that belongs to a key, called with the record or timer alone."""
        ctx = self.partitioned
        if len(self.collectors) == 2:
            first, second = self.collectors
            return lambda what: call(what, first, second, ctx)
        (output,) = self.collectors
        return lambda what: call(what, output, ctx)

    def apply(self, function: ApplyPartition) -> None:
        """Call, for the current key, the function that a non-keyed callback applied to every key."""
        function(*self.collectors, self.partitioned)

    def watermark(self, watermark: GeneralizedWatermark) -> None:
        """Give the function a combined watermark, and forward it if it goes on."""
        event_time = watermark.identifier == EVENT_TIME_WATERMARK_DECLARATION.identifier
        if event_time and self.shape.event_time:
            self.function.on_event_time_watermark(watermark.value, *self.collectors, self.non_partitioned)
            self._forward(watermark)
            return
        answer = self.function.on_watermark(watermark, *self.collectors, self.non_partitioned)
        if not isinstance(answer, WatermarkHandlingResult):
            raise InvalidDeclaration(f"on_watermark must return PEEK or POP, not {answer!r}")
        declaration = self._declared.get(watermark.identifier)
        forward = declaration is None or declaration.strategy is WatermarkHandlingStrategy.FORWARD
        if answer is WatermarkHandlingResult.PEEK and forward:
            self._forward(watermark)


def _no_timers(timestamp: int) -> None:
    raise InvalidDeclaration(f"a timer at {timestamp} is stored, and the function has no event time any more")


LONGEST = 300
"""Characters of a function's own message that are shown."""


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
