"""Timers by watermark and by system time, behind one interface: who sets a timer need not know which (FLIP-326, change
2).

A timer at t fires when the time of the stream has reached t. As long as watermarks are (t, false) that is the
watermark; from (t, true) on it is the system's clock, which a scheduler then has to check.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from typing import Protocol

from tidegate.pipelines.clock import Clock
from tidegate.pipelines.watermarks.watermark import (
    BEGINNING,
    MIN_TIMESTAMP,
    ProcessingTimeBehind,
    ProcessingTimeRevoked,
    Watermark,
)

OnTimer = Callable[[Hashable, int], None]
"""(key, the time in ms that it was set to)."""


class Scheduler(Protocol):
    """Calls the given function repeatedly, from the moment it is given."""

    def start(self, look: Callable[[], None]) -> None:
        """Call `look` from now on."""
        ...


class TickScheduler:
    """Calls at every tick of its owner."""

    def __init__(self) -> None:
        self._looks: list[Callable[[], None]] = []

    def start(self, look: Callable[[], None]) -> None:
        self._looks.append(look)

    def tick(self) -> None:
        """Call all that was started."""
        for look in list(self._looks):
            look()


class Timers:
    """The timers of one operator, fired in order of their time, then in the order in which they were set.

    Args:
        on_timer: Called for every timer that fires; it may set others, which fire in their turn.
        clock: The system's time in ms, UTC.
        scheduler: Started once, at the first watermark in processing time.
    """

    def __init__(self, on_timer: OnTimer, clock: Clock, scheduler: Scheduler) -> None:
        self._on_timer = on_timer
        self._clock = clock
        self._scheduler = scheduler
        self._queue: list[tuple[int, int, Hashable]] = []
        self._set: dict[tuple[Hashable, int], int] = {}
        self._number = 0
        self._watermark = BEGINNING
        self._seen = MIN_TIMESTAMP

    @property
    def now(self) -> int:
        """The time reached so far, in ms: the last watermark, or the clock when it was last read."""
        return self._seen

    def register(self, key: Hashable, time: int) -> None:
        """Fire (key, time) once time has reached `time` ms; one that is set twice fires once. One in the past fires at
        the next watermark or tick."""
        if (key, time) not in self._set:
            self._number += 1
            self._set[(key, time)] = self._number
            heapq.heappush(self._queue, (time, self._number, key))

    def delete(self, key: Hashable, time: int) -> None:
        """Do not fire (key, time); nothing happens if it is not set."""
        self._set.pop((key, time), None)

    def advance(self, watermark: Watermark) -> None:
        """Time has come as far as `watermark`. One that does not move it fires nothing.

        Raises:
            ProcessingTimeBehind: It is in processing time and the clock is behind a time that has been reached.
            ProcessingTimeRevoked: It is in event time, after one in processing time.
        """
        if watermark.use_processing_time:
            self._at_clock(watermark.timestamp)
            if not self._watermark.use_processing_time:
                self._watermark = watermark
                self._scheduler.start(self.look)
        elif self._watermark.use_processing_time:
            raise ProcessingTimeRevoked(timestamp=watermark.timestamp)
        elif watermark.timestamp > self._watermark.timestamp:
            self._watermark = watermark
            self._fire(watermark.timestamp)

    def look(self) -> None:
        """Fire what the clock has reached. Before processing time this does nothing. Raises ProcessingTimeBehind."""
        if self._watermark.use_processing_time:
            self._at_clock(MIN_TIMESTAMP)

    def _at_clock(self, time: int) -> None:
        now, reached = self._clock(), max(self._seen, time)
        if now < reached:
            raise ProcessingTimeBehind(now=now, timestamp=reached)
        self._fire(now)

    def _fire(self, upto: int) -> None:
        self._seen = max(self._seen, upto)
        while self._queue and self._queue[0][0] <= upto:
            time, number, key = heapq.heappop(self._queue)
            if self._set.get((key, time)) == number:
                del self._set[(key, time)]
                self._on_timer(key, time)
