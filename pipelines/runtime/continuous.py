"""The continuous mode: the same epochs as `Runner.run`, tick by tick in one warm process, until it is told to stop.

A tick lands one epoch of every source, then takes every INSERT as far as it goes: a process also to the timers that the
system's time has reached, where its time is that (FLIP-326's scheduler of system time is the tick).

Between two steps the loop looks whether it should stop; a step that is under way is finished, and if its engine is
taken away meanwhile it is abandoned, which is as safe as a crash: the next run finishes the epoch from its stored plan.
A step that fails by itself fails, whether the loop was to stop or not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from pipelines.errors import GateHeld, TidegateError
from pipelines.runtime.failures import engine_lost
from pipelines.runtime.landing.advances import Advance
from pipelines.runtime.runner import Released, Runner

ENGINE_GOES_S = 2.0
LOST_ENGINE = (TidegateError, PySparkException, Py4JError, OSError)
"""What a step raises whose engine or source is taken away under its hands."""

Ending = Literal["stopped", "abandoned", "limit"]


@dataclass(frozen=True)
class Tick:
    """One tick. `held` are the INSERTs that wait for a person, each with what to do; `seconds` is how long it took."""

    number: int
    advances: tuple[Advance, ...]
    releases: tuple[Released, ...]
    held: tuple[GateHeld, ...]
    seconds: float

    @property
    def behind(self) -> bool:
        """Whether a source has surely more to read: it is inside its bounded phase."""
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
        engine_lost: Whether Spark was taken away; asked where a step fails after `stop` was set.

    Attributes:
        held: The INSERTs whose gate held an epoch when they were asked last, each with what to do.
    """

    runner: Runner
    every: float = 1.0
    stop: threading.Event = field(default_factory=threading.Event)
    on_tick: Callable[[Tick], None] = lambda tick: None
    engine_lost: Callable[[], bool] = engine_lost
    abandoned_by: Exception | None = field(default=None, init=False)
    held: dict[str, GateHeld] = field(default_factory=dict, init=False)

    def run(self, max_ticks: int | None = None) -> Ending:
        """Tick until `stop` is set, or `max_ticks` are done.

        Raises what a step raises, except GateHeld: a held epoch stops its own INSERT only. Where the engine is taken
        away after `stop` was set, the step is abandoned, its error kept in `abandoned_by`, and that is no failure.
        """
        number = 0
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
            if not tick.behind:
                self.stop.wait(max(0.0, self._pause(tick) - (time.monotonic() - started)))
        return "stopped"

    def _engine_goes(self) -> bool:
        """Whether the engine is gone, or goes in a moment: a signal for all processes may reach its workers first."""
        end = time.monotonic() + ENGINE_GOES_S
        while not (lost := self.engine_lost()) and time.monotonic() < end:
            time.sleep(0.1)
        return lost

    def _pause(self, tick: Tick) -> float:
        """Seconds between two ticks: while splits are held back, their group is compared at its update interval."""
        held_back = [item.table for item in tick.advances if item.blocked]
        aligned = [self.runner.strategy(table).alignment for table in held_back]
        return min([self.every, *(found.update_interval.total_seconds() for found in aligned if found)])

    def _tick(self, number: int, started: float) -> Tick:
        advances: list[Advance] = []
        releases: list[Released] = []
        held: list[GateHeld] = []
        for table in self.runner.pipeline.sources:
            if self.stop.is_set():
                break
            advances.append(self.runner.advance(table.name, max_epochs=1))
        for insert in self.runner.pipeline.inserts:
            if self.stop.is_set():
                break
            try:
                releases.append(self.runner.release(insert.id))
            except GateHeld as error:
                held.append(error)
                self.held[insert.id] = error
            else:
                self.held.pop(insert.id, None)
        return Tick(number, tuple(advances), tuple(releases), tuple(held), time.monotonic() - started)
