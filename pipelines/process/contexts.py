"""What a process function gets beside a record: its key, its state, its timers (FLIP-499, `EventTimeManager`), and the
manager through which it emits watermarks."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral
from typing import Any

from tidegate.pipelines.process.errors import InvalidDeclaration, NotKeyed, UndeclaredState, UndeclaredWatermark
from tidegate.pipelines.process.state.declared import StateDeclaration, described
from tidegate.pipelines.process.state.stores import (
    BroadcastState,
    CurrentKey,
    ListState,
    MapState,
    ReducingState,
    ValueState,
)
from tidegate.pipelines.process.watermarks.combining import by_identifier
from tidegate.pipelines.process.watermarks.declarations import GeneralizedWatermark, WatermarkDeclaration
from tidegate.pipelines.watermarks import MAX_TIMESTAMP, MIN_TIMESTAMP


class WatermarkManager:
    """Sends watermarks to the outputs of a process function.

    Args:
        declarations: What the function may emit.
        send: Where it goes.
    """

    def __init__(
        self, declarations: Iterable[WatermarkDeclaration], send: Callable[[GeneralizedWatermark], None]
    ) -> None:
        self._declared = by_identifier(declarations)
        self._send = send

    def emit_watermark(self, watermark: GeneralizedWatermark) -> None:
        """Send `watermark` to every output.

        Raises:
            UndeclaredWatermark: Its name is not among the function's declarations.
            InvalidDeclaration: It is no watermark, or of another type than its declaration.
        """
        if not isinstance(watermark, GeneralizedWatermark):
            raise InvalidDeclaration(f"{watermark!r} is no watermark: make one with new_watermark of its declaration")
        declaration = self._declared.get(watermark.identifier)
        if declaration is None:
            raise UndeclaredWatermark(watermark.identifier, sorted(self._declared))
        if type(declaration.new_watermark(watermark.value)) is not type(watermark):  # type: ignore[arg-type]
            raise InvalidDeclaration(f"watermark {watermark.identifier!r} was declared as another type")
        self._send(watermark)


State = ValueState | ListState | MapState | ReducingState | BroadcastState


class StateManager:
    """The declared states of a function, and the current key."""

    def __init__(self, current: CurrentKey, states: Mapping[str, tuple[StateDeclaration, State]]) -> None:
        self._current = current
        self._states = states

    def get_current_key(self) -> Any:
        """The key: a single value, or a named tuple if it has several columns. Raises NotKeyed."""
        if self._current.cells is None:
            raise NotKeyed("the current key")
        return self._current.key

    def get_state(self, declaration: StateDeclaration) -> Any:
        """The state that was declared. Every call returns the same object, so `open` may store it. Raises
        UndeclaredState, and InvalidDeclaration if another kind of state is declared, or a name is given."""
        try:
            declared, state = self._states[declaration.name]
        except (AttributeError, KeyError):
            raise self._unknown(declaration) from None
        if type(declared) is not type(declaration):
            raise _another(declared, declaration)
        return state

    def _unknown(self, asked: Any) -> UndeclaredState | InvalidDeclaration:
        name = asked.name if isinstance(asked, StateDeclaration) else str(asked)
        known = self._states.get(name)
        return UndeclaredState(name, sorted(self._states)) if known is None else _another(known[0], asked)


def _another(declared: StateDeclaration, asked: Any) -> InvalidDeclaration:
    what = f"is declared as {described(declared)}, and asked for as {described(asked)}"
    return InvalidDeclaration(f"state {declared.name!r} {what}")


ApplyPartition = Callable[..., None]
"""(output, context), or (output1, output2, context): called once for every key, in its keyed context."""


class NonPartitionedContext:
    """The context of callbacks that do not belong to a key."""

    def __init__(
        self, states: StateManager, watermarks: WatermarkManager, apply: Callable[[ApplyPartition], None]
    ) -> None:
        self._states = states
        self._watermarks = watermarks
        self._apply = apply

    def apply_to_all_partitions(self, function: ApplyPartition) -> None:
        """Call `function` for every key that has state or timers at this moment, in its keyed context.

        All keys are read for this. Raises NotKeyed if it is called in a keyed context, or if records have no key.
        """
        self._apply(function)

    def get_watermark_manager(self) -> WatermarkManager:
        return self._watermarks

    def get_state_manager(self) -> StateManager:
        """For broadcast state. Keyed state can be taken here, and used only in a keyed context."""
        return self._states


class PartitionedContext:
    """The context of callbacks that belong to one key."""

    def __init__(self, states: StateManager, non_partitioned: NonPartitionedContext) -> None:
        self._states = states
        self._non_partitioned = non_partitioned

    def get_state_manager(self) -> StateManager:
        return self._states

    def get_non_partitioned_context(self) -> NonPartitionedContext:
        return self._non_partitioned


TwoOutputNonPartitionedContext = NonPartitionedContext
"""FLIP-409's name for the context of functions with two outputs; a function that it applies to every key gets both."""

TwoOutputPartitionedContext = PartitionedContext
"""FLIP-409's name for the context of functions with two outputs."""


def _time(timestamp: int) -> int:
    if type(timestamp) is int or (isinstance(timestamp, Integral) and not isinstance(timestamp, bool)):
        time = int(timestamp)
        if MIN_TIMESTAMP <= time <= MAX_TIMESTAMP:
            return time
    raise InvalidDeclaration(f"a timer's time is a number of ms of 64 bits, not {timestamp!r}")


class EventTimeManager:
    """Timers of the current key, and the time.

    A timer at t fires once the watermark has reached t; if t is in the past, when the watermark next moves. A timer
    that is set twice fires once. In processing time (FLIP-326) the time is the system's; nothing else changes.
    """

    __slots__ = ("_current", "landed_at", "now", "times")

    def __init__(self, current: CurrentKey) -> None:
        self._current = current
        self.now = self.landed_at = MIN_TIMESTAMP
        self.times: list[int] = []
        """`current`: the times of the current key's timers (ms, UTC), each once, in order."""

    def register_timer(self, timestamp: int) -> None:
        """Set a timer of the current key: `on_event_timer` is called at `timestamp` (ms, UTC). Raises NotKeyed,
        InvalidDeclaration."""
        time, place = self._place(timestamp)
        if place == len(self.times) or self.times[place] != time:
            self.times.insert(place, time)

    def delete_timer(self, timestamp: int) -> None:
        """Remove the timer at `timestamp` (ms, UTC); does nothing if none is set there, or it has fired. Raises
        NotKeyed, InvalidDeclaration."""
        time, place = self._place(timestamp)
        if place < len(self.times) and self.times[place] == time:
            del self.times[place]

    def _place(self, timestamp: int) -> tuple[int, int]:
        """A checked time, and the place of its timer among the key's timers."""
        if self._current.cells is None:
            raise NotKeyed("a timer")
        time = _time(timestamp)
        return time, bisect_left(self.times, time)

    def current_time(self) -> int:
        """The watermark so far (ms, UTC); MIN_TIMESTAMP before the first."""
        return self.now

    def processed_at(self) -> int:
        """The time of a record that has none of its own (ms, UTC): `current_time()`, or, before the first watermark,
        when it landed."""
        return self.landed_at if self.now == MIN_TIMESTAMP else self.now
