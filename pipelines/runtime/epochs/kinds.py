"""The kinds of epochs beside the plain one (`StreamPlan`), each with what it adds to a plan."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

from tidegate.pipelines.lake.records import later
from tidegate.pipelines.lake.releasable import Area, Part, micros, released, settled
from tidegate.pipelines.location import Location
from tidegate.pipelines.runtime.epochs.plan import (
    InputRange,
    Landed,
    Lot,
    ReleasePlan,
    Span,
    StreamPlan,
    no_rows,
)
from tidegate.pipelines.watermarks import MIN_TIMESTAMP, Watermark


@dataclass(frozen=True)
class TimeSpan:
    """What an event-time release adds to its plan; times in ms, UTC.

    Attributes:
        before, watermark: The combined watermark of the release before, and of this one. It never goes back; a backfill
            does not move it.
        since: The probe epoch up to which no row was waiting when this was planned.
        rows: The rows that it releases for the first time.
        earlier: All rows that the releases before it took.
        ahead: What backfills up to this plan have released beyond the watermark: later releases leave it out.
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
        """The TimeSpan with which the next epoch begins, before it takes any rows."""
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


def union(spans: Iterable[Span]) -> tuple[Span, ...]:
    """The same time as spans that neither overlap nor follow one another, in order."""
    found: list[Span] = []
    for low, high in sorted(spans):
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    return tuple(found)


@dataclass(frozen=True)
class Backfill:
    """What a backfill takes instead of new rows: the rows of spans of time, released before or not.

    Attributes:
        low, high: The requested span; of several, where the first begins and the last ends.
        replaces: The published epochs that it replaces, as (first, last) of each run of consecutive ones. They are
            whole epochs, so that no single row has to be looked up in the table.
        again, lots: The rows of those epochs, `rows_again` of them: landed rows, and lots that they had taken out of
            the quarantine of epochs that stay.
        new: Rows of the spans that no epoch has released before, less those of `without`.
        oldest: No row that it takes lies before this (ms, UTC).
        several: The requested spans, if they are more than one.
    """

    low: int
    high: int
    replaces: tuple[tuple[int, int], ...] = ()
    again: tuple[Part, ...] = ()
    rows_again: int = 0
    new: tuple[Area, ...] = ()
    without: tuple[Area, ...] = ()
    oldest: int = MIN_TIMESTAMP
    lots: tuple[Lot, ...] = later(())
    several: tuple[Span, ...] = later(())

    @property
    def spans(self) -> tuple[Span, ...]:
        """What was asked for, as a `union`."""
        return self.several or ((self.low, self.high),)

    @property
    def parts(self) -> tuple[Part, ...]:
        """All that it takes."""
        return (*self.again, *self.fresh)

    @property
    def fresh(self) -> tuple[Part, ...]:
        """What it takes for the first time."""
        return tuple(Part((area,), self.without) for area in self.new)

    def replaced(self, epoch: int) -> bool:
        """Whether it replaces an epoch."""
        return any(first <= epoch <= last for first, last in self.replaces)


@dataclass(frozen=True, kw_only=True)
class BackfillPlan(EventTimePlan):
    """An epoch that takes the rows of spans of time, and does not move P and W."""

    backfill: Backfill

    @property
    def parts(self) -> tuple[Part, ...]:
        return self.backfill.parts

    @property
    def reads(self) -> tuple[int, int]:
        return 0, max((taken.upto for taken in (*self.parts, *self.lots)), default=0)

    @property
    def follows(self) -> bool:
        return False

    @property
    def lots(self) -> tuple[Lot, ...]:
        return self.backfill.lots

    @property
    def spans(self) -> tuple[Span, ...]:
        return self.backfill.spans

    def takes_the_place_of(self, other: ReleasePlan) -> bool:
        return self.generation == other.generation and self.backfill.replaced(other.epoch)

    @property
    def oldest(self) -> int:
        return self.backfill.oldest

    @property
    def late_upto(self) -> int | None:
        return None

    def rows(self, landed: Landed = no_rows) -> int:
        return self.time.rows + self.backfill.rows_again

    def rows_landed(self, landed: Landed = no_rows) -> int:
        return self.rows() - sum(lot.rows for lot in self.lots)

    @property
    def when_discarded(self) -> str:
        return "gives the backfill up; what is published stays"

    def given_up(self) -> Self:
        """The epochs that it would have replaced stay, and rows that it would have released first go on waiting."""
        fill, ahead = self.backfill, self.ahead[: len(self.ahead) - len(self.backfill.new)]
        nothing = Backfill(fill.low, fill.high, oldest=fill.oldest, several=fill.several)
        return replace(self, time=replace(self.time, rows=0, ahead=ahead), backfill=nothing)


@dataclass(frozen=True)
class FromQuarantine:
    """What a plan takes out of quarantine instead of landed rows: to release it again, or (`discards`) to discard it
    for good.

    Attributes:
        reasons, epochs: The person's selection; empty for all.
        lots: The rows that it selected when it was planned.
        oldest: No row of theirs that has a time lies before this (ms, UTC).
        upto: Only rows that epochs up to this one have quarantined, which are those that the person has seen; None for
            all.
        by, because: Who requested it, and the reason that they gave.
    """

    discards: bool
    reasons: tuple[str, ...] = ()
    epochs: tuple[int, ...] = ()
    lots: tuple[Lot, ...] = ()
    oldest: int = MIN_TIMESTAMP
    upto: int | None = None
    by: str = ""
    because: str = ""

    @property
    def rows(self) -> int:
        """How many rows it takes."""
        return sum(lot.rows for lot in self.lots)

    def same(self, other: FromQuarantine) -> bool:
        """Whether both ask for the same."""
        return (self.discards, self.reasons, self.epochs) == (other.discards, other.reasons, other.epochs)


@dataclass(frozen=True, kw_only=True)
class RequeuePlan(ReleasePlan):
    """An epoch that takes rows which earlier releases have quarantined; it does not move P and W."""

    from_quarantine: FromQuarantine

    @property
    def parts(self) -> tuple[Part, ...]:
        return ()

    @property
    def reads(self) -> tuple[int, int]:
        return min((lot.after for lot in self.lots), default=0), max((lot.upto for lot in self.lots), default=0)

    @property
    def follows(self) -> bool:
        return False

    @property
    def lots(self) -> tuple[Lot, ...]:
        return () if self.from_quarantine.discards else self.from_quarantine.lots

    @property
    def claims(self) -> tuple[Lot, ...]:
        return self.from_quarantine.lots

    @property
    def oldest(self) -> int:
        return self.from_quarantine.oldest

    @property
    def late_upto(self) -> int | None:
        return None

    def rows(self, landed: Landed = no_rows) -> int:
        return sum(lot.rows for lot in self.lots)

    def rows_landed(self, landed: Landed = no_rows) -> int:
        return 0

    @property
    def discards(self) -> bool:
        return self.kind == "discard" or self.from_quarantine.discards

    @property
    def when_discarded(self) -> str:
        return "gives it up; the rows stay in quarantine"

    def given_up(self) -> Self:
        """The rows stay where they were."""
        return replace(self, from_quarantine=replace(self.from_quarantine, lots=()))

    def answers(self, request: FromQuarantine) -> bool:
        """Whether it is the plan that a request asks for."""
        return self.kind != "discard" and request.same(self.from_quarantine)


@dataclass(frozen=True, kw_only=True)
class StreamRequeue(RequeuePlan, StreamPlan):
    """Of an INSERT in processing time."""


@dataclass(frozen=True, kw_only=True)
class EventTimeRequeue(RequeuePlan, EventTimePlan):
    """Of an INSERT in event time; the watermark that the releases have reached stays as it was."""


def requeued(plan: ReleasePlan, last: ReleasePlan, taken: FromQuarantine) -> RequeuePlan:
    """`plan`, the epoch after `last`, as a plan that takes rows out of quarantine."""
    if isinstance(last, EventTimePlan):
        return plan.as_kind(EventTimeRequeue, time=last.time.then(), from_quarantine=taken)
    return plan.as_kind(StreamRequeue, from_quarantine=taken)


NOT_HAVING = "not-having"
"""The count of a staged epoch for emitted windows that HAVING leaves out."""


@dataclass(frozen=True)
class InputSpan(InputRange):
    """What a process takes of one input: `rows` rows. The epochs up to `loaded` landed before the flip that the process
    has waited for, and are taken before those of any other input."""

    rows: int
    loaded: int = later(0)


@dataclass(frozen=True)
class ProcessSpan:
    """What an epoch of a process adds to its plan; times in ms, UTC.

    Attributes:
        inputs: What it takes of every input, in the function's order.
        before, end: The process's time at the end of the epoch before, and of this one.
        last, watermark: The combined watermark before and after, (timestamp, use_processing_time).
        base: The epoch that last wrote all of the state: what was written before does not count any more; 0 if none
            has.
        rewrite: This epoch writes all of the state, and is the next one's base.
    """

    inputs: tuple[InputSpan, ...]
    before: int
    end: int
    last: tuple[int, bool]
    watermark: tuple[int, bool]
    base: int
    rewrite: bool = False

    @property
    def rows(self) -> int:
        return sum(item.rows for item in self.inputs)


@dataclass(frozen=True, kw_only=True)
class ProcessPlan(ReleasePlan):
    """An epoch that hands the landed rows of all inputs to a function. Its probe is the first input."""

    process: ProcessSpan

    @property
    def inputs(self) -> tuple[InputRange, ...]:
        return self.process.inputs

    def complete_until(self, inputs: Watermark) -> Watermark:
        return Watermark(*self.process.watermark)

    def rows(self, landed: Landed = no_rows) -> int:
        return self.process.rows

    @property
    def next_base(self) -> int:
        """The epoch from which state has to be read afterwards."""
        return self.epoch if self.process.rewrite else self.process.base
