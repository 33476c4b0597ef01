"""A process function that does what its records say, and the same in plain Python, one element after another."""

from __future__ import annotations

import heapq
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tidegate.pipelines.process import (
    EventTimeManager,
    OneInputEventTimeStreamProcessFunction,
    StateDeclarations,
)
from tidegate.pipelines.watermarks import MIN_TIMESTAMP

SEEN = StateDeclarations.list_state("seen", "BIGINT")
AGAIN = StateDeclarations.map_state("again", "BIGINT", "BIGINT")
CANCEL = StateDeclarations.map_state("cancel", "BIGINT", "BIGINT")
TOTAL = StateDeclarations.reducing_state("total", "BIGINT", lambda old, new: old + new)
LAST = StateDeclarations.value_state("last", "BIGINT")
STATES = (SEEN, AGAIN, CANCEL, TOTAL, LAST)


class Order(NamedTuple):
    """What a record asks for: `set` or `delete` a timer at that time. The callback of the one that is set sets another
    one at `again`, then deletes the one at `cancel`, where they are given. `clear` forgets all state."""

    key: str
    number: int
    set: int | None = None
    delete: int | None = None
    again: int | None = None
    cancel: int | None = None
    clear: bool = False


class Scripted(OneInputEventTimeStreamProcessFunction):
    """Does what orders say, and tells what it sees."""

    def uses_states(self):
        return STATES

    def init_event_time_process_function(self, event_time_manager: EventTimeManager) -> None:
        self.time = event_time_manager

    def process_record(self, record: Order, output, ctx) -> None:
        states = ctx.get_state_manager()
        states.get_state(SEEN).add(record.number)
        states.get_state(TOTAL).add(record.number)
        states.get_state(LAST).update(record.number)
        if record.clear:
            for declaration in STATES:
                states.get_state(declaration).clear()
        if record.set is not None:
            self.time.register_timer(record.set)
            if record.again is not None:
                states.get_state(AGAIN).put(record.set, record.again)
            if record.cancel is not None:
                states.get_state(CANCEL).put(record.set, record.cancel)
        if record.delete is not None:
            self.time.delete_timer(record.delete)
        output.collect((record.key, "record", record.number, self.time.current_time(), states.get_state(TOTAL).get()))

    def on_event_timer(self, timestamp: int, output, ctx) -> None:
        states = ctx.get_state_manager()
        for declaration, act in ((AGAIN, self.time.register_timer), (CANCEL, self.time.delete_timer)):
            other = states.get_state(declaration).get(timestamp)
            if other is not None:
                states.get_state(declaration).remove(timestamp)
                act(other)
        key, seen = states.get_current_key(), tuple(states.get_state(SEEN).get())
        output.collect((key, "timer", timestamp, self.time.current_time(), seen, states.get_state(LAST).value()))


class Asking(Scripted):
    """Asks every key what it has seen, at every watermark that 3 divides."""

    def on_event_time_watermark(self, watermark_timestamp: int, output, ctx) -> None:
        if watermark_timestamp % 3 == 0:
            ctx.apply_to_all_partitions(self.tell)

    def tell(self, output, ctx) -> None:
        states = ctx.get_state_manager()
        key, seen = states.get_current_key(), tuple(states.get_state(SEEN).get())
        output.collect((key, "asked", None, self.time.current_time(), seen, states.get_state(LAST).value()))


@dataclass
class Plain:
    """What `Asking` has to do: all keys together, in the order in which things arrive."""

    out: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    seen: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    total: dict[str, int | None] = field(default_factory=dict)
    last: dict[str, int | None] = field(default_factory=dict)
    again: dict[tuple[str, int], int] = field(default_factory=dict)
    cancel: dict[tuple[str, int], int] = field(default_factory=dict)
    timers: set[tuple[int, str]] = field(default_factory=set)
    now: int = MIN_TIMESTAMP

    def record(self, order: Order) -> None:
        key = order.key
        self.seen[key].append(order.number)
        before = self.total.get(key)
        self.total[key] = order.number if before is None else before + order.number
        self.last[key] = order.number
        if order.clear:
            self.seen[key], self.total[key], self.last[key] = [], None, None
            self.again = {place: time for place, time in self.again.items() if place[0] != key}
            self.cancel = {place: time for place, time in self.cancel.items() if place[0] != key}
        if order.set is not None:
            self.timers.add((order.set, key))
            if order.again is not None:
                self.again[key, order.set] = order.again
            if order.cancel is not None:
                self.cancel[key, order.set] = order.cancel
        if order.delete is not None:
            self.timers.discard((order.delete, key))
        self.out[key].append((key, "record", order.number, self.now, self.total[key]))

    def watermark(self, time: int) -> None:
        if time <= self.now:
            return
        self.now = time
        due = [timer for timer in self.timers if timer[0] <= time]
        heapq.heapify(due)
        while due:
            at, key = heapq.heappop(due)
            if (at, key) not in self.timers:  # deleted by another one that was due
                continue
            self.timers.remove((at, key))
            again = self.again.pop((key, at), None)
            if again is not None and (again, key) not in self.timers:
                self.timers.add((again, key))
                if again <= time:
                    heapq.heappush(due, (again, key))
            if (key, at) in self.cancel:
                self.timers.discard((self.cancel.pop((key, at)), key))
            self.out[key].append((key, "timer", at, time, tuple(self.seen[key]), self.last.get(key)))
        if time % 3 == 0:
            for key in {key for _, key in self.timers} | {key for key, _ in [*self.again, *self.cancel]} | self.kept:
                self.out[key].append((key, "asked", None, time, tuple(self.seen[key]), self.last.get(key)))

    @property
    def kept(self) -> set[str]:
        """The keys that have a last record: what forgets that forgets all."""
        return {key for key, last in self.last.items() if last is not None}
