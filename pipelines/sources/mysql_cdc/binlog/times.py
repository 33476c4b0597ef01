"""When each event's transaction committed.

MySQL's GTID events carry it in microseconds; of MariaDB's it is the event's own second. Without GTID events it is the
second in the header of each event itself, when its statement began.
"""

from __future__ import annotations

import numpy as np

from tidegate.pipelines.sources.mysql_cdc.binlog.stream import Events
from tidegate.pipelines.sources.mysql_cdc.binlog.wire.events import HEADER_BYTES, Event
from tidegate.pipelines.sources.mysql_cdc.binlog.wire.gather import Offsets, unsigned_at

_MICROSECONDS = 1_000_000
_COMMIT_TIME_AT = HEADER_BYTES + 42
"""Past flags, server's UUID, number, and the two logical clocks of a MySQL GTID event."""
_COMMIT_TIME_BYTES = 7
_ORIGINAL_FOLLOWS = 1 << 55


def gtid_indices(events: Events) -> Offsets:
    """The events that begin a transaction."""
    types = events.types
    begins = (types == Event.MARIADB_GTID) | (types == Event.GTID)
    begins |= (types == Event.ANONYMOUS_GTID) | (types == Event.GTID_TAGGED)
    return np.flatnonzero(begins)


def begin_times(events: Events, begins: Offsets) -> Offsets:
    """The commit times of the transactions that begin at the events `begins`; microseconds, UTC."""
    starts = events.starts[begins]
    times = unsigned_at(events.data, starts, 4) * _MICROSECONDS
    types = events.types[begins]
    precise = (types == Event.GTID) | (types == Event.ANONYMOUS_GTID)
    precise &= events.ends[begins] >= starts + _COMMIT_TIME_AT + _COMMIT_TIME_BYTES
    if precise.any():
        at = starts[precise] + _COMMIT_TIME_AT
        committed = unsigned_at(events.data, at, _COMMIT_TIME_BYTES)
        # Of a replicated transaction the time at its first server follows, which is the change's; 0 when not known.
        replicated = committed & _ORIGINAL_FOLLOWS != 0
        original = unsigned_at(events.data, at + np.where(replicated, _COMMIT_TIME_BYTES, 0), _COMMIT_TIME_BYTES)
        committed &= _ORIGINAL_FOLLOWS - 1
        times[precise] = np.where(replicated & (original != 0), original, committed)
    return times


class CommitTimes:
    """Knows the running transaction's commit time from chunk to chunk."""

    def __init__(self) -> None:
        self._running: int | None = None

    def of(self, events: Events) -> Offsets:
        """The commit time of each event's transaction; microseconds, UTC."""
        begins = gtid_indices(events)
        times = unsigned_at(events.data, events.starts, 4) * _MICROSECONDS
        known = begin_times(events, begins)
        if self._running is not None:
            begins, known = np.append(0, begins), np.append(self._running, known)
        if len(begins):
            latest = np.searchsorted(begins, np.arange(len(events)), side="right") - 1
            times = np.where(latest >= 0, known[latest], times)
            self._running = int(known[-1])
        return times
