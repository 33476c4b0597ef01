"""One epoch of a process function on one task: keys one after another, each through its records, timers and time.

Keys do not see each other, so each is taken through the whole epoch at once: its state is read once and written once,
however many keys there are. What belongs to no key (records of a broadcast input, watermarks) runs before them, and
every key sees it at the step at which it came.
"""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tidegate.pipelines.process.contexts import ApplyPartition
from tidegate.pipelines.process.engine.binding import Binding, described, shape_of
from tidegate.pipelines.process.engine.steps import Steps
from tidegate.pipelines.process.errors import FunctionRaised, NotKeyed, shown
from tidegate.pipelines.process.generator import EventTimeGeneratorFunction
from tidegate.pipelines.process.state.stores import Cells, fresh
from tidegate.pipelines.process.watermarks.combining import by_identifier, combined
from tidegate.pipelines.process.watermarks.declarations import EVENT_TIME_WATERMARK_DECLARATION, GeneralizedWatermark
from tidegate.pipelines.watermarks import MAX_TIMESTAMP

KeyedRecord = tuple[int, Any]
"""(step, record); of one key, in order."""

Entries = Mapping[str, Mapping[Any, Any]]
"""Broadcast states by name."""

MOST_FIRINGS = 1_000_000
"""How many timers of one key may fire when the time moves once: a callback that sets them again and again would not
end."""

RAISED = (Exception, SystemExit)
"""What a function may raise, including what would end a worker without naming the key and the record."""

_NO_KEY = object()


@dataclass
class KeyState:
    """The stored state of one key: its cells, and its timers (ms, UTC) in order."""

    cells: Cells
    timers: list[int] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        """Whether nothing is left to store."""
        return not self.timers and all(cell.empty for cell in self.cells)


@dataclass(frozen=True)
class _Applied:
    """A function that is applied to every key: before the records of `step`, at `time`, with broadcast state as of
    `version`. `landed_at`: when the record landed that applied it."""

    step: int
    time: int
    version: int
    function: ApplyPartition
    landed_at: int


class TaskRun:
    """Runs a process function over the keys of one task in one epoch. `close` ends it.

    Args:
        function: A plain function, or a wrapped event-time one; an instance of this run's own.
        steps: How time passes in the epoch.
        broadcast: The broadcast states as the epoch before left them.
        broadcast_records: (step, record) of the broadcast input, in order.
        first: Whether this is the task whose output without a key counts; that output is the same on every task.
        keyed: Whether records have keys. If not, `key` is called for each split of the input.
        taken: For each output, makes a collected record the engine's own, since the function may change it afterwards.
            By default a deep copy; None for a function that changes none.

    Raises FunctionRaised, here and from `key`.
    """

    def __init__(
        self,
        function: Any,
        steps: Steps,
        broadcast: Entries | None = None,
        broadcast_records: Iterable[KeyedRecord] = (),
        first: bool = True,
        keyed: bool = True,
        taken: Sequence[Callable[[Any], Any] | None] | None = None,
    ) -> None:
        self._keyed = keyed
        self._steps = steps
        self._applied: list[_Applied] = []
        self._sent: dict[str, int | bool] = {}  # by callbacks of no key, the last of each
        self._sent_by_key: dict[str, int | bool] = {}  # by the current key, the last of each
        self._sent_by_keys: dict[str, int | bool] = {}  # by the keys before it, combined
        self._key: Any = _NO_KEY
        copies = [copy.deepcopy] * shape_of(function).outputs if taken is None else taken
        self._binding = Binding(
            function, broadcast or {}, self._apply, self._send, copies, self._forward, steps.declarations
        )
        self._name = self._binding.shape.name
        self._declared = by_identifier([*self._binding.shape.watermarks, *steps.declarations])
        self._of_step = [self._binding.of_input(place) for place in steps.inputs]
        self._versions: list[tuple[int, Entries]] = [(-1, self._binding.broadcast_entries())]
        self._place = (0, steps.before)
        self._binding.manager.now = steps.before
        self._guarded("init_event_time_process_function", self._binding.init_event_time)
        self._guarded("open", lambda: self._binding.function.open(self._binding.non_partitioned))
        self._run_unkeyed(list(broadcast_records))
        if not first:
            for collector in self._binding.collectors:
                collector.records.clear()

    @property
    def outputs(self) -> tuple[list[Any], ...]:
        """What was collected, by output. The caller may empty the lists."""
        return tuple(collector.records for collector in self._binding.collectors)

    @property
    def broadcast(self) -> Entries:
        """The broadcast states at the end of the epoch."""
        return self._versions[-1][1]

    @property
    def every_key(self) -> bool:
        """Whether every key must be read, even without records: a function was applied to all of them."""
        return bool(self._applied)

    def emitted(self) -> dict[str, int | bool]:
        """The last value of every forwarded watermark, by its declaration; values emitted for several keys are combined
        like those of several channels."""
        return {**self._sent, **self._sent_by_keys}

    def close(self) -> None:
        function = self._binding.function
        if isinstance(function, EventTimeGeneratorFunction):
            self._guarded("the end of the epoch", lambda: function.tick(self._binding.non_partitioned))
        self._guarded("close", function.close)

    # --- what is of no key ---------------------------------------------------------------------------------------

    def _apply(self, function: ApplyPartition) -> None:
        if self._key is not _NO_KEY:
            raise NotKeyed("apply_to_all_partitions is for callbacks that are of no key: what it asks")
        if not self._keyed:
            raise NotKeyed("apply_to_all_partitions")
        step, time = self._place
        landed_at = self._binding.manager.landed_at
        self._applied.append(_Applied(step, time, len(self._versions) - 1, function, landed_at))

    def _send(self, watermark: GeneralizedWatermark) -> None:
        sent = self._sent if self._key is _NO_KEY else self._sent_by_key
        sent[watermark.identifier] = watermark.value

    def _forward(self, watermark: GeneralizedWatermark) -> None:
        if not (self._steps.processing_time and watermark.identifier == EVENT_TIME_WATERMARK_DECLARATION.identifier):
            self._send(watermark)

    def _run_unkeyed(self, records: Sequence[KeyedRecord]) -> None:
        """Run all callbacks that belong to no key, in order: the time of a step is forwarded before its records are
        processed."""
        manager, landed_at, next_record = self._binding.manager, self._steps.landed_at, 0
        for step in range(len(self._steps.at) + 1):
            for watermark in self._steps.handed_on[step] if self._steps.handed_on else ():
                self._hand(watermark, step)
            for time in self._steps.times(step):
                if time > manager.now:
                    manager.now = time
                    self._hand(EVENT_TIME_WATERMARK_DECLARATION.new_watermark(time), step)
            if step < len(landed_at):  # what was emitted until here had landed with the step before
                manager.landed_at = landed_at[step]
            first = next_record
            while next_record < len(records) and records[next_record][0] == step:
                self._broadcast_record(step, records[next_record][1])
                next_record += 1
            if next_record > first:
                self._keep_version(step)

    def _hand(self, watermark: GeneralizedWatermark, step: int) -> None:
        self._place = (step, self._binding.manager.now)
        self._guarded(f"watermark {watermark.value}", lambda: self._binding.watermark(watermark))

    def _broadcast_record(self, step: int, record: Any) -> None:
        self._place = (step, self._binding.manager.now)
        already = len(self._applied)
        self._binding.broadcast_writable(True)
        self._guarded(f"broadcast record {shown(record)}", lambda: self._of_step[step](record))
        self._binding.broadcast_writable(False)
        if len(self._applied) == already:
            return
        latest = self._keep_version(step)  # the rest of the step is not for what this record asks of every key
        self._applied[already:] = [replace(item, version=latest) for item in self._applied[already:]]

    def _keep_version(self, step: int) -> int:
        """Remember broadcast state as it is now; returns its number. One version a step is enough: no other record
        comes between."""
        self._versions.append((step, self._binding.broadcast_entries()))
        return len(self._versions) - 1

    # --- what is of a key ----------------------------------------------------------------------------------------

    def key(self, key: Any, state: KeyState | None, records: Iterable[KeyedRecord]) -> KeyState:
        """Take `key` through the epoch: its records in order, its timers as time reaches them. Returns its new state.

        `state` None: the key has no state yet.
        """
        current, manager = self._binding.current, self._binding.manager
        current.key = self._key = key
        if self._keyed:
            current.cells = fresh(self._binding.shape.keyed) if state is None else state.cells
        manager.times = [] if state is None else list(state.timers)
        manager.now = self._steps.before
        at, landed_at, step_now, applied = self._steps.at, self._steps.landed_at, -1, 0
        call: Callable[[Any], None] | None = None
        several, asked = len(self._versions) > 1, bool(self._applied)
        for step, record in records:
            if step != step_now:
                applied = self._apply_upto(step, applied) if asked else 0
                self._come_to(at[step])
                if landed_at:
                    manager.landed_at = landed_at[step]
                if several:
                    self._see(bisect_right(self._versions, step - 1, key=_step) - 1)
                step_now, call = step, self._of_step[step]
            try:
                call(record)  # type: ignore[misc]
            except RAISED as error:
                raise self._failed(f"key {shown(key)}, record {shown(record)}", error) from error
        if asked:
            self._apply_upto(len(at), applied)
        self._come_to(self._steps.end)
        left = KeyState(current.cells or [], manager.times)
        current.cells, self._key = None, _NO_KEY
        if self._sent_by_key:
            self._fold_sent()
        return left

    def _fold_sent(self) -> None:
        """Combine the watermarks that this key emitted with those of the keys before it: one value for all keys."""
        for identifier, value in self._sent_by_key.items():
            before = self._sent_by_keys.get(identifier)
            values = [value] if before is None else [before, value]
            self._sent_by_keys[identifier] = combined(self._declared, identifier, values)
        self._sent_by_key.clear()

    def _come_to(self, time: int) -> None:
        """Fire the timers up to `time`, each at the watermark that reaches it."""
        manager = self._binding.manager
        times = manager.times
        while times and times[0] <= time:
            reached = self._steps.reaching(times[0], manager.now)
            if reached is None or reached > time:
                break
            manager.now = reached
            if len(self._versions) > 1:
                self._see(bisect_right(self._versions, self._steps.first_at(reached) - 1, key=_step) - 1)
            fired = 0
            while times and times[0] <= reached:
                timer = times.pop(0)
                fired += 1
                if fired > MOST_FIRINGS:
                    raise self._endless(timer, reached)
                try:
                    self._binding.timer(timer)
                except RAISED as error:
                    raise self._failed(f"key {shown(self._key)}, timer {timer}", error) from error
        if time > manager.now:
            manager.now = time

    def _apply_upto(self, step: int, done: int) -> int:
        """Apply to the current key the functions that non-keyed callbacks applied before the records of `step`; returns
        how many of all are applied now."""
        while done < len(self._applied) and self._applied[done].step <= step:
            asked = self._applied[done]
            self._come_to(asked.time)
            done += 1
            if KeyState(self._binding.current.cells or [], self._binding.manager.times).empty:
                continue  # a key that comes later: cut into other epochs, nobody would know of it here
            self._see(asked.version)
            self._binding.manager.landed_at = asked.landed_at
            place = f"key {shown(self._key)}, a function applied to all partitions"
            self._guarded(place, lambda asked=asked: self._binding.apply(asked.function))
        return done

    def _see(self, version: int) -> None:
        self._binding.see_broadcast(self._versions[version][1])

    # --- errors --------------------------------------------------------------------------------------------------

    def _guarded(self, place: str, call: Callable[[], Any]) -> None:
        try:
            call()
        except RAISED as error:
            raise self._failed(place, error) from error

    def _endless(self, timer: int, reached: int) -> FunctionRaised:
        what = f"{MOST_FIRINGS} timers have fired as the time came to {reached}, and the next is set to {timer}: "
        end = "the end of input" if reached == MAX_TIMESTAMP else "that time"
        return FunctionRaised(self._name, f"key {shown(self._key)}, timer {timer}", f"{what}set none again at {end}")

    def _failed(self, place: str, error: BaseException) -> FunctionRaised:
        return FunctionRaised(self._name, place, described(error))


def _step(version: tuple[int, Entries]) -> int:
    return version[0]
