"""Epochs in event time: what the combined watermark has reached."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tidegate.pipelines.lake.areas import Area, Part, micros
from tidegate.pipelines.lake.records import later, stored
from tidegate.pipelines.lake.releasable import released, settled
from tidegate.pipelines.location import Location
from tidegate.pipelines.runtime.epochs.plan import Landed, ReleasePlan, no_rows
from tidegate.pipelines.watermarks import MIN_TIMESTAMP, Watermark


@dataclass(frozen=True)
class TimeSpan:
    """What an event-time release adds to its plan; times in ms, UTC.

    Attributes:
        before, watermark: The combined watermark of the release before, and of this one. Never goes back; a backfill
            does not move it.
        since: No row of a probe epoch up to it was waiting any more when this was planned.
        rows: The rows that are releasable and were in no release before.
        earlier: All rows that the releases before it took.
        ahead: What backfills have released beyond the watermark, up to this plan: later releases leave it out.
        least: No row that it takes, however late, has a time before this; MAX where none has a time. None in plans of
            an older lake, and where the plan looks back (`Backfill`, `FromQuarantine`).
    """

    before: int
    watermark: int
    since: int
    rows: int
    earlier: int
    ahead: tuple[Area, ...] = later(())
    least: int | None = later(None)

    @property
    def taken(self) -> int:
        """All rows that the releases have taken, this one included."""
        return self.earlier + self.rows

    def then(self) -> TimeSpan:
        """The TimeSpan of the next epoch, as long as it takes nothing."""
        return replace(self, before=self.watermark, rows=0, earlier=self.taken, least=None)


NOTHING_RELEASED = TimeSpan(MIN_TIMESTAMP, MIN_TIMESTAMP, 0, 0, 0)
"""Before the first release."""


@dataclass(frozen=True, kw_only=True)
class EventTimePlan(ReleasePlan):
    """An epoch that takes the rows whose time the watermark has reached, and those without a time; also rows of earlier
    probe epochs that the watermark has reached since (`tidegate.pipelines.lake.releasable`)."""

    time: TimeSpan

    @property
    def parts(self) -> tuple[Part, ...]:
        span = self.time
        return (released(self.after, self.upto, span.before, span.watermark, span.since, span.ahead),)

    @property
    def reads(self) -> tuple[int, int]:
        return self.time.since, self.upto

    @property
    def in_event_time(self) -> bool:
        return True

    @property
    def before(self) -> int:
        return self.time.before

    @property
    def watermark(self) -> int:
        return self.time.watermark

    @property
    def since(self) -> int:
        return self.time.since

    @property
    def ahead(self) -> tuple[Area, ...]:
        return self.time.ahead

    @property
    def oldest(self) -> int:
        return MIN_TIMESTAMP if self.time.least is None else self.time.least

    @property
    def late_upto(self) -> int | None:
        return None if self.before == MIN_TIMESTAMP else micros(self.before)

    def complete_until(self, inputs: Watermark) -> Watermark:
        now = inputs.use_processing_time and self.watermark >= self.instant
        return inputs if now else Watermark(self.watermark)

    def rows_landed(self, landed: Landed = no_rows) -> int:
        return self.time.rows

    def rows_waiting(self, landed: Landed = no_rows) -> int:
        return self.time.rows

    def rows_taken(self, upto: int) -> int:
        return self.time.taken

    def rows_left(self, landed: Landed, upto: int, *, published: bool) -> int:
        return landed(0, upto) - (self.time.taken if published else self.time.earlier)

    def settled_upto(self, probe: Location) -> int:
        return settled(probe, self.probe_generation, self.since, self.upto, self.watermark)

    def _own(self) -> dict[str, Any]:
        return {"time": stored(self.time)}
