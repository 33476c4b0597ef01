"""Timers of one key, and what a function sees of them (FLIP-499, `EventTimeManager`)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from numbers import Integral

from tidegate.pipelines.process.errors import InvalidDeclaration, NotKeyed
from tidegate.pipelines.process.state.stores import CurrentKey
from tidegate.pipelines.watermarks import MAX_TIMESTAMP, MIN_TIMESTAMP


class TimerQueue:
    """The times (ms, UTC) at which a key wants to be called, each once, in order."""

    __slots__ = ("times",)

    def __init__(self, times: Iterable[int] = ()) -> None:
        self.times = list(times)

    def add(self, time: int) -> None:
        place = bisect_left(self.times, time)
        if place == len(self.times) or self.times[place] != time:
            self.times.insert(place, time)

    def remove(self, time: int) -> None:
        place = bisect_left(self.times, time)
        if place < len(self.times) and self.times[place] == time:
            del self.times[place]


def _time(timestamp: int) -> int:
    if type(timestamp) is int or (isinstance(timestamp, Integral) and not isinstance(timestamp, bool)):
        time = int(timestamp)
        if MIN_TIMESTAMP <= time <= MAX_TIMESTAMP:
            return time
    raise InvalidDeclaration(f"a timer's time is a number of ms of 64 bits, not {timestamp!r}")


class EventTimeManager:
    """Timers of the current key, and the time.

    A timer at t fires once the watermark has reached t: with the next one that moves, where t is in the past. One that
    is set twice fires once. In processing time (FLIP-326) the time is the system's, and nothing else changes.
    """

    __slots__ = ("_current", "landed_at", "now", "queue")

    def __init__(self, current: CurrentKey) -> None:
        self._current = current
        self.now = self.landed_at = MIN_TIMESTAMP
        self.queue = TimerQueue()

    def register_timer(self, timestamp: int) -> None:
        """Call `on_event_timer` for the current key at `timestamp` (ms, UTC). Raises NotKeyed, InvalidDeclaration."""
        if self._current.cells is None:
            raise NotKeyed("a timer")
        self.queue.add(_time(timestamp))

    def delete_timer(self, timestamp: int) -> None:
        """Do not call at `timestamp` (ms, UTC); nothing happens if no timer is set there, or it has fired. Raises
        NotKeyed, InvalidDeclaration."""
        if self._current.cells is None:
            raise NotKeyed("a timer")
        self.queue.remove(_time(timestamp))

    def current_time(self) -> int:
        """The watermark (ms, UTC) that is reached; MIN_TIMESTAMP before the first."""
        return self.now

    def processed_at(self) -> int:
        """The time of a record that has none of its own (ms, UTC): `current_time()`, and before the first watermark the
        moment at which it landed."""
        return self.landed_at if self.now == MIN_TIMESTAMP else self.now
