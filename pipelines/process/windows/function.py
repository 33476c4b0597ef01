"""Windows over event or processing time, as process functions: TUMBLE, HOP, CUMULATE and SESSION.

A window [start, end) is emitted once the time has reached its end. Timers and state are used like those of any other
function, so windows work in event time and in processing time (FLIP-326 promises that for windows).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, NamedTuple, TypeVar

from tidegate.pipelines.process.contexts import EventTimeManager, PartitionedContext
from tidegate.pipelines.process.errors import InvalidDeclaration
from tidegate.pipelines.process.functions import Collector, TwoOutputEventTimeStreamProcessFunction
from tidegate.pipelines.process.state.declared import StateDeclarations
from tidegate.pipelines.watermarks.watermark import milliseconds

A = TypeVar("A")


class Window(NamedTuple):
    """From `start` up to, and without, `end`; ms, UTC."""

    start: int
    end: int


@dataclass(frozen=True)
class Windows:
    """Which windows a time belongs to. `merging`: overlapping ones become one."""

    name: str
    of: Callable[[int], Sequence[Window]]
    merging: bool = False


def tumble(size: timedelta, offset: timedelta = timedelta(0)) -> Windows:
    """One after the other, each `size` long; they begin at multiples of it, moved by `offset`."""
    length, shift = milliseconds(size, "the size of windows"), offset // timedelta(milliseconds=1)

    def of(time: int) -> Sequence[Window]:
        start = time - (time - shift) % length
        return (Window(start, start + length),)

    return Windows("TUMBLE", of)


def hop(slide: timedelta, size: timedelta, offset: timedelta = timedelta(0)) -> Windows:
    """One every `slide`, each `size` long, so that they overlap. Raises InvalidDeclaration unless it fits."""
    step, length = milliseconds(slide, "the slide of windows"), milliseconds(size, "the size of windows")
    shift = offset // timedelta(milliseconds=1)
    if length % step:
        raise InvalidDeclaration(f"the size of hopping windows ({size}) is a multiple of their slide ({slide})")

    def of(time: int) -> Sequence[Window]:
        last = time - (time - shift) % step
        return [Window(start, start + length) for start in range(last, time - length, -step)]

    return Windows("HOP", of)


def cumulate(step: timedelta, size: timedelta, offset: timedelta = timedelta(0)) -> Windows:
    """Windows of `size` that are emitted every `step`, from their start to there. Raises InvalidDeclaration unless size
    is a multiple."""
    width, length = milliseconds(step, "the step of windows"), milliseconds(size, "the size of windows")
    shift = offset // timedelta(milliseconds=1)
    if length % width:
        raise InvalidDeclaration(f"the size of cumulating windows ({size}) is a multiple of their step ({step})")

    def of(time: int) -> Sequence[Window]:
        start = time - (time - shift) % length
        first = start + ((time - start) // width + 1) * width
        return [Window(start, end) for end in range(first, start + length + 1, width)]

    return Windows("CUMULATE", of)


def session(gap: timedelta) -> Windows:
    """As long as no two neighbours are further apart than `gap`."""
    length = milliseconds(gap, "the gap of sessions")
    return Windows("SESSION", lambda time: (Window(time, time + length),), merging=True)


@dataclass(frozen=True)
class Aggregate(Generic[A]):
    """What is stored of a window's records, and what is emitted for it.

    Attributes:
        type: Of what is stored, in Flink SQL's spelling.
        create: What an empty window has.
        add: (stored, record) -> stored.
        result: (key, window, stored) -> an output record.
        merge: (stored, stored) -> stored; sessions need it.
    """

    type: str
    create: Callable[[], A]
    add: Callable[[A, Any], A]
    result: Callable[[Any, Window, A], Any]
    merge: Callable[[A, A], A] | None = None


class WindowFunction(TwoOutputEventTimeStreamProcessFunction):
    """Aggregates the records of each key by windows. Records that come when their window has been emitted go to the
    second output, and so do those without a time, which are in no window: nothing is dropped.

    Args:
        windows: Which windows.
        aggregate: What is stored of them.
        time: A record's time (ms, UTC), or None for one without; None: the time at which it is processed, as
            `EventTimeManager.processed_at` has it.

    Raises InvalidDeclaration for sessions of an aggregate that cannot be merged.
    """

    def __init__(self, windows: Windows, aggregate: Aggregate, time: Callable[[Any], int | None] | None = None) -> None:
        if windows.merging and aggregate.merge is None:
            raise InvalidDeclaration("windows that merge need an aggregate with `merge`")
        self._windows, self._aggregate, self._time = windows, aggregate, time
        self._open = StateDeclarations.map_state("windows", "BIGINT", f"ROW<begin BIGINT, kept {aggregate.type}>")

    def uses_states(self):
        return (self._open,)

    def init_event_time_process_function(self, event_time_manager: EventTimeManager) -> None:
        self._manager = event_time_manager

    def process_record(self, record: Any, output1: Collector, output2: Collector, ctx: PartitionedContext) -> None:
        windows = ctx.get_state_manager().get_state(self._open)
        time = self._manager.processed_at() if self._time is None else self._time(record)
        late = True
        for window in self._windows.of(time) if time is not None else ():
            stored = self._aggregate.create()
            if self._windows.merging:
                window, stored = self._merged(windows, window)
            elif (known := windows.get(window.end)) is not None:
                stored = known["kept"]
            if window.end <= self._manager.current_time():
                continue
            late = False
            windows.put(window.end, {"begin": window.start, "kept": self._aggregate.add(stored, record)})
            self._manager.register_timer(window.end)
        if late:
            output2.collect(record)

    def on_event_timer(self, timestamp: int, output1: Collector, output2: Collector, ctx: PartitionedContext) -> None:
        states = ctx.get_state_manager()
        found = states.get_state(self._open).get(timestamp)
        states.get_state(self._open).remove(timestamp)
        window = Window(found["begin"], timestamp)
        output1.collect(self._aggregate.result(states.get_current_key(), window, found["kept"]))

    def _merged(self, windows: Any, window: Window) -> tuple[Window, Any]:
        """`window` merged with the open sessions that it overlaps; they are removed from the open ones."""
        assert self._aggregate.merge is not None
        stored, end = self._aggregate.create(), windows.first_from(window.start)
        # Open sessions do not meet: those that `window` meets are neighbours, by their ends as by their beginnings.
        while end is not None and (other := windows.get(end))["begin"] <= window.end:
            stored = self._aggregate.merge(stored, other["kept"])
            window = Window(min(window.start, other["begin"]), max(window.end, end))
            windows.remove(end)
            self._manager.delete_timer(end)
            end = windows.first_from(end)
        return window, stored
