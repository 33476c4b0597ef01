"""The continuous mode: the same epochs as `Runner.run`, tick by tick in one warm process, until it is asked to stop.

A tick lands one epoch of every source, by one Spark job as far as possible, then takes every INSERT as far as it goes.
A process in processing time also gets the timers that the clock has reached (FLIP-326's scheduler of system time is the
tick). After a tick comes upkeep: one piece at least, and more while there is time until the next tick.

Stopping: the loop looks between two steps whether it should stop, and finishes the step that is under way. If Spark is
taken away meanwhile, the step is abandoned; that is as safe as a crash, since the next run finishes the epoch from its
stored plan. Any other failure of that step is raised.

Failing: a step that fails stops its own table or INSERT alone. It is tried again after a second, then after longer and
longer pauses, while the others go on. In processing time an INSERT waits for its builds that are stuck, since its rows
would join to a table that is behind; in event time the watermark holds back what must wait. What ends the loop:
another runner works on the same tables; the lake's definitions refuse the script; in the first tick no source can be
read, and one of them for another reason than that its server does not answer.

Holding: while the gate holds an epoch, its INSERT's lease is free, so that a person can decide by a command beside the
loop. The loop looks at the lake without the lease, and goes on once the decision has been carried out.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from tidegate.pipelines.errors import (
    ConcurrentRun,
    DefinitionChanged,
    GateHeld,
    LakeError,
    LeaseHeld,
    SourceUnreachable,
    TidegateError,
)
from tidegate.pipelines.lake import delta_log
from tidegate.pipelines.runtime.epochs import insert_owner
from tidegate.pipelines.runtime.failures import engine_lost
from tidegate.pipelines.runtime.landing.advances import Advance
from tidegate.pipelines.runtime.runner import Released, Runner
from tidegate.pipelines.runtime.upkeep import Upkeep
from tidegate.pipelines.sql.model import Insert

log = logging.getLogger(__name__)

ENGINE_GOES_S = 2.0
LOST_ENGINE = (TidegateError, PySparkException, Py4JError, OSError)
"""What a step raises when its engine or source is taken away while it runs."""

FIRST_RETRY_S, LONGEST_RETRY_S = 1.0, 60.0
"""Pauses before a failed step is tried again: the first, doubled each time up to the second."""
SHOWN_EVERY_S = 10.0
"""How often `<lake>/completeness` is updated while ticks go on."""
ENDS_ALL = (GateHeld, LeaseHeld, ConcurrentRun, DefinitionChanged)
"""Errors that end the loop: they are no failure of one step, or affect all steps."""

Ending = Literal["stopped", "abandoned", "limit"]
T = TypeVar("T")


@dataclass(frozen=True)
class Stuck:
    """A source table or an INSERT (`insert_owner`) whose step has failed `attempts` times since `since`; the next
    attempt is at `retry_at`. Both in seconds, by the loop's `now`."""

    owner: str
    error: TidegateError
    attempts: int
    since: float
    retry_at: float


@dataclass(frozen=True)
class Tick:
    """One tick. `held`: the INSERTs that wait for a person, each with what to do. `stuck`: what failed and is tried
    again. `seconds`: how long it took."""

    number: int
    advances: tuple[Advance, ...]
    releases: tuple[Released, ...]
    held: tuple[GateHeld, ...]
    seconds: float
    stuck: tuple[Stuck, ...] = ()

    @property
    def behind(self) -> bool:
        """Whether a source is inside its bounded phase, and so surely has more to read."""
        return any(epoch.phase == "bounded" and not epoch.flipped for item in self.advances for epoch in item.epochs)

    @property
    def moved(self) -> bool:
        """Whether anything landed or was published."""
        return any(item.epochs for item in self.advances) or any(item.published for item in self.releases)


@dataclass
class Continuous:
    """Ticks a pipeline.

    Args:
        runner: Holds its leases from the first tick until it is closed.
        every: Seconds from the start of one tick to the start of the next; a source that is still in its bounded phase
            is not kept waiting.
        stop: Set it (from a signal handler, or another thread) to leave after the step that is under way.
        on_tick: Called after every tick.
        upkeep: What is done between ticks; nothing, where it is None.
        engine_lost: Whether Spark was taken away; asked where a step fails: without it none can go on.
        give_up_after: Seconds for which a table or an INSERT is tried again before its error ends the loop; None: for
            as long as it takes.
        now: Seconds of any origin that only grow.

    Attributes:
        stuck: Who failed and is tried again, by owner.
        held: The INSERTs whose gate held an epoch when they were asked last, each with what to do.
    """

    runner: Runner
    every: float = 1.0
    stop: threading.Event = field(default_factory=threading.Event)
    on_tick: Callable[[Tick], None] = lambda tick: None
    upkeep: Upkeep | None = None
    engine_lost: Callable[[], bool] = engine_lost
    give_up_after: float | None = None
    now: Callable[[], float] = time.monotonic
    stuck: dict[str, Stuck] = field(default_factory=dict, init=False)
    abandoned_by: Exception | None = field(default=None, init=False)
    held: dict[str, GateHeld] = field(default_factory=dict, init=False)
    _unreleased: set[str] = field(default_factory=set, init=False)
    _shown_at: float = field(default=float("-inf"), init=False)

    def run(self, max_ticks: int | None = None) -> Ending:
        """Tick until `stop` is set, or `max_ticks` are done.

        A step that fails stops only its own table or INSERT, and so does a held epoch. Raises LeaseHeld, ConcurrentRun
        and DefinitionChanged; what a step raises once `give_up_after` is over; in the first tick, what a source raises
        if none can be read. If the engine is taken away after `stop` was set, the step is abandoned and its error
        stored in `abandoned_by`; that is no failure.
        """
        number = 0
        self.runner.stores_failures = False  # a step that fails because it is to stop is no failure: `_fails` stores
        while not self.stop.is_set():
            if number == max_ticks:
                return "limit"
            number += 1
            started = time.monotonic()
            try:
                tick = self._tick(number, started)
            except LOST_ENGINE as error:
                if not self.stop.is_set() or not self._engine_goes():
                    raise
                self.abandoned_by = error
                return "abandoned"
            self.on_tick(tick)
            self._show()
            next_one = started if tick.behind else started + self._pause(tick)
            self._upkeep(next_one)
            if not tick.behind:
                self.stop.wait(max(0.0, next_one - time.monotonic()))
        return "stopped"

    def still_held(self) -> list[str]:
        """The INSERTs whose gate holds an epoch now, by the lake: a person may have decided since the last tick. Where
        the lake cannot be read, the last tick's answer counts."""
        return [insert.id for insert in self.runner.pipeline.inserts if self._holds(insert.id)]

    def _holds(self, insert: str) -> bool:
        try:
            return self.runner.held(insert) is not None
        except (*delta_log.unreadable(), LakeError) as error:
            log.warning("whether the gate holds %s could not be looked up: %s", insert, error)
            return insert in self.held

    def _show(self) -> None:
        if self.now() - self._shown_at >= SHOWN_EVERY_S:
            self.runner.show_completeness()
            self._shown_at = self.now()

    def _upkeep(self, end: float) -> None:
        """Do one piece of upkeep, and more until `end`."""
        if self.upkeep is None:
            return
        while not self.stop.is_set() and self.upkeep.piece() and time.monotonic() < end:
            pass

    def _engine_goes(self) -> bool:
        """Whether the engine is gone, or about to go: a signal for all processes may reach its workers first."""
        end = time.monotonic() + ENGINE_GOES_S
        while not (lost := self.engine_lost()) and time.monotonic() < end:
            time.sleep(0.1)
        return lost

    def _pause(self, tick: Tick) -> float:
        """Seconds until the next tick: while splits are held back, their group is compared at its update interval."""
        held_back = [item.table for item in tick.advances if item.blocked]
        aligned = [self.runner.strategy(table).alignment for table in held_back]
        return min([self.every, *(found.update_interval.total_seconds() for found in aligned if found)])

    def _tick(self, number: int, started: float) -> Tick:
        advances: list[Advance] = []
        releases: list[Released] = []
        held: list[GateHeld] = []
        names = (table.name for table in self.runner.pipeline.sources)
        going = (name for name in names if not self.stop.is_set() and self._is_tried(name))
        for name, found in self.runner.advance_together(going).items():
            landed = self._tried(name, partial(_given, found))
            advances += [landed] if landed else []
        if number == 1 and not advances:
            self._refuse_to_begin()
        for insert in self.runner.pipeline.inserts:
            if self.stop.is_set():
                break
            if self._waits_for_stuck(insert) or not self._is_tried(insert_owner(insert.id)):
                continue
            try:
                done = self._tried(insert_owner(insert.id), partial(self._release, insert.id))
            except GateHeld as error:
                held.append(error)
                self.held[insert.id] = error
            else:
                releases += [done] if done else []
                if done is not None:  # of one that failed nobody knows yet
                    self.held.pop(insert.id, None)
        stuck = tuple(self.stuck.values())
        return Tick(number, tuple(advances), tuple(releases), tuple(held), time.monotonic() - started, stuck)

    def _release(self, insert: str) -> Released:
        """Take an INSERT as far as it goes. Raises GateHeld until a person has decided about its held epoch, and the
        decision has been carried out."""
        before = self.held.get(insert)
        looks = before is not None and insert not in self._unreleased
        if looks and (still := self.runner.held(insert)) is not None:
            raise still
        self._unreleased.discard(insert)
        try:
            return self.runner.release(insert)
        except GateHeld:
            self._hand_on(insert)
            raise
        except LeaseHeld as error:
            if before is None:
                raise
            raise before from error

    def _hand_on(self, insert: str) -> None:
        """Let the lease of a held INSERT go. Where that cannot be written, the next tick takes it and tries again."""
        try:
            self.runner.hand_on(insert)
        except (*delta_log.unreadable(), LakeError) as error:
            log.warning("%s is held, and the end of its lease was not written (%s); tried again", insert, error)
            self._unreleased.add(insert)

    def _is_tried(self, owner: str) -> bool:
        """Whether it has not failed, or its pause is over."""
        before = self.stuck.get(owner)
        return before is None or self.now() >= before.retry_at

    def _tried(self, owner: str, step: Callable[[], T]) -> T | None:
        """The result of a step of `owner`; None if it fails."""
        before = self.stuck.get(owner)
        try:
            done = step()
        except ENDS_ALL:
            self.stuck.pop(owner, None)
            raise
        except TidegateError as error:
            if self.stop.is_set() or self.engine_lost():
                raise
            self._fails(owner, error, before)
            return None
        self.stuck.pop(owner, None)
        return done

    def _fails(self, owner: str, error: TidegateError, before: Stuck | None) -> None:
        """Record that a step of `owner` failed, in the lake too, where alerts look. Raises the error when it is given
        up."""
        now = self.now()
        attempts = before.attempts + 1 if before else 1
        since = before.since if before else now
        if before is None or before.error.what != error.what:
            self.runner.stuck(owner, error)
        if self.give_up_after is not None and now - since >= self.give_up_after:
            raise error
        retry_at = now + min(FIRST_RETRY_S * 2 ** min(attempts - 1, 10), LONGEST_RETRY_S)
        self.stuck[owner] = Stuck(owner, error, attempts, since, retry_at)

    def _refuse_to_begin(self) -> None:
        """In a first tick in which no source could be read, raise the first error that is no unreachable server: a
        wrong script or setting shows at once."""
        for item in self.stuck.values():
            if not isinstance(item.error, SourceUnreachable):
                raise item.error

    def _waits_for_stuck(self, insert: Insert) -> bool:
        """Whether rows of an INSERT would meet, by processing time, a table that is stuck, and so behind."""
        beside = insert.beside if insert.time != "event" else insert.by_latest
        return any(table in self.stuck for table in beside)


def _given(found: Advance | TidegateError) -> Advance:
    """The result of an advance, or its error."""
    if isinstance(found, TidegateError):
        raise found
    return found
