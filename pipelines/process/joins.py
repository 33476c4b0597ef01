"""Joins of two streams as process functions: by an interval of time, or by windows.

A record that waits for its match is state; a timer removes it once time proves that no match can come. Timers and state
are used like those of any other function, so the joins work in event time and in processing time (FLIP-326). Records
are joined by their key; a key with a NULL in it matches nothing, as in SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from tidegate.pipelines.process.contexts import EventTimeManager, PartitionedContext
from tidegate.pipelines.process.errors import InvalidDeclaration
from tidegate.pipelines.process.functions import Collector, TwoInputNonBroadcastEventTimeStreamProcessFunction
from tidegate.pipelines.process.state.declared import StateDeclarations
from tidegate.pipelines.process.values import record_of
from tidegate.pipelines.process.windows.function import Windows
from tidegate.pipelines.watermarks import MAX_TIMESTAMP

Result = Callable[[Any, Any], Any]
"""(left record, right record) -> an output record; in an outer join the right one may be None."""

_MS = timedelta(milliseconds=1)


@dataclass(frozen=True)
class Side:
    """One input of a join.

    Attributes:
        columns: What is stored of a record, which is all of it: its columns, as in a CREATE TABLE, in any order. Names
            that Python can say.
        time: A record's time (ms, UTC), or None for one without; None: the time at which it is processed, as
            `EventTimeManager.processed_at` has it.
    """

    columns: str
    time: Callable[[Any], int | None] | None = None


class _Join(TwoInputNonBroadcastEventTimeStreamProcessFunction):
    """What both joins share.

    The state of each side: `_held`, the records, and `_numbers`, how many expire at a time. A record is found by its
    expiry time and its number, and the times in their order, so that storing or matching a record does not read the
    others.
    """

    def __init__(self, left: Side, right: Side, result: Result, outer: bool) -> None:
        self._sides, self._result, self._outer = (left, right), result, outer
        names = ("left_waiting", "right_waiting")
        self._held = tuple(
            StateDeclarations.map_state(name, "STRING", f"ROW<met BOOLEAN, record ROW<{side.columns}>>")
            for name, side in zip(names, self._sides, strict=True)
        )
        self._numbers = tuple(StateDeclarations.map_state(f"{name}_until", "BIGINT", "INT") for name in names)

    def uses_states(self):
        return (*self._held, *self._numbers)

    def init_event_time_process_function(self, event_time_manager: EventTimeManager) -> None:
        self._manager = event_time_manager

    def process_record_from_first_input(self, record: Any, output: Collector, ctx: PartitionedContext) -> None:
        self._arrived(0, record, output, ctx)

    def process_record_from_second_input(self, record: Any, output: Collector, ctx: PartitionedContext) -> None:
        self._arrived(1, record, output, ctx)

    def _arrived(self, side: int, record: Any, output: Collector, ctx: PartitionedContext) -> None:
        own, key = self._sides[side].time, ctx.get_state_manager().get_current_key()
        time = self._manager.processed_at() if own is None else own(record)
        if time is None or key is None or (isinstance(key, tuple) and None in key):
            self._alone(side, record, output)
        else:
            self._timely(side, record, time, output, ctx)

    def _timely(self, side: int, record: Any, time: int, output: Collector, ctx: PartitionedContext) -> None:
        raise NotImplementedError

    def _alone(self, side: int, record: Any, output: Collector) -> None:
        """A record that will have no match."""
        if self._outer and side == 0:
            output.collect(self._result(record, None))

    def _keep(self, side: int, until: int, record: Any, met: bool, ctx: PartitionedContext) -> None:
        states = ctx.get_state_manager()
        held, numbers = states.get_state(self._held[side]), states.get_state(self._numbers[side])
        number = numbers.get(until, 0)
        # By name: the input's columns may be in another order than the declared ones. One that is not declared is an
        # error there.
        held.put(_place(until, number), {"met": met, "record": record._asdict()})
        numbers.put(until, number + 1)
        self._manager.register_timer(until)

    def _waiting(self, side: int, until: int, ctx: PartitionedContext) -> Iterator[tuple[str, dict[str, Any]]]:
        """A stored record of a side that expires at `until`: its place in the state, and its content, `met` and
        `record`."""
        states = ctx.get_state_manager()
        held = states.get_state(self._held[side])
        for number in range(states.get_state(self._numbers[side]).get(until, 0)):
            place = _place(until, number)
            yield place, held.get(place)

    def _given_up(self, side: int, until: int, ctx: PartitionedContext) -> list[tuple[bool, Any]]:
        states, found = ctx.get_state_manager(), []
        for place, item in self._waiting(side, until, ctx):
            states.get_state(self._held[side]).remove(place)
            found.append((item["met"], record_of(item["record"])))
        states.get_state(self._numbers[side]).remove(until)
        return found


def _place(until: int, number: int) -> str:
    return f"{until}/{number}"


class IntervalJoin(_Join):
    """Every pair with right.time - before <= left.time <= right.time + after, as soon as both are there.

    A record is stored until the time is past the last one that it may meet, so state is as large as the interval. In an
    outer join a left record that has met none is emitted with None when it is given up, and no sooner. A late record
    (its time is before the watermark) meets what is still stored.

    Args:
        before, after: How much earlier, and how much later, the left record may be than the right one.
        left, right: The inputs.
        result: What is emitted for a pair.
        outer: Left records without a match are emitted, too.

    Raises InvalidDeclaration for an interval that holds no time.
    """

    def __init__(
        self, before: timedelta, after: timedelta, left: Side, right: Side, result: Result, outer: bool = False
    ) -> None:
        super().__init__(left, right, result, outer)
        self._before, self._after = before // _MS, after // _MS
        if self._before + self._after < 0:
            raise InvalidDeclaration(f"no time is between {before} before and {after} after another one")

    def _timely(self, side: int, record: Any, time: int, output: Collector, ctx: PartitionedContext) -> None:
        # Of the other side: from where to where it may be, and how long after its time one is given up.
        low, high, other = (
            (time - self._after, time + self._before, self._after + 1)
            if side == 0
            else (time - self._before, time + self._after, self._before + 1)
        )
        states, met = ctx.get_state_manager(), False
        held, numbers = states.get_state(self._held[1 - side]), states.get_state(self._numbers[1 - side])
        until = numbers.first_from(low + other)
        while until is not None and until - other <= high:
            for place, item in self._waiting(1 - side, until, ctx):
                pair, met = (record, record_of(item["record"])), True
                output.collect(self._result(*(pair if side == 0 else reversed(pair))))
                if side == 1 and self._outer and not item["met"]:
                    held.put(place, {**item, "met": True})
            until = numbers.first_from(until + 1)
        until = min(high + 1, MAX_TIMESTAMP)
        if until > self._manager.current_time():
            self._keep(side, until, record, met, ctx)
        elif not met:
            self._alone(side, record, output)

    def on_event_timer(self, timestamp: int, output: Collector, ctx: PartitionedContext) -> None:
        for met, record in self._given_up(0, timestamp, ctx):
            if not met:
                self._alone(0, record, output)
        self._given_up(1, timestamp, ctx)


class WindowJoin(_Join):
    """Every pair of a window, emitted at its end. With HOP and CUMULATE a pair is emitted in each window that both are
    in.

    In an outer join a left record whose window has no right one is emitted with None. A record that comes when its
    window was emitted has no match there.

    Args:
        windows: Which windows; not those that merge.
        left, right: The inputs.
        result: What is emitted for a pair.
        outer: Left records without a match are emitted, too.

    Raises InvalidDeclaration for sessions.
    """

    def __init__(self, windows: Windows, left: Side, right: Side, result: Result, outer: bool = False) -> None:
        super().__init__(left, right, result, outer)
        if windows.merging:
            raise InvalidDeclaration("a join has no sessions: where one ends is known when all records of it are")
        self._windows = windows

    def _timely(self, side: int, record: Any, time: int, output: Collector, ctx: PartitionedContext) -> None:
        for window in self._windows.of(time):
            if window.end > self._manager.current_time():
                self._keep(side, window.end, record, False, ctx)
            else:
                self._alone(side, record, output)

    def on_event_timer(self, timestamp: int, output: Collector, ctx: PartitionedContext) -> None:
        left = [record for _, record in self._given_up(0, timestamp, ctx)]
        right = [record for _, record in self._given_up(1, timestamp, ctx)]
        self._emit(left, right, output)

    def _emit(self, left: Sequence[Any], right: Sequence[Any], output: Collector) -> None:
        for one in left:
            for other in right:
                output.collect(self._result(one, other))
            if not right:
                self._alone(0, one, output)
