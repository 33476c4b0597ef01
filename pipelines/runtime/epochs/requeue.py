"""Epochs that take rows out of quarantine: to join them again, or to discard them for good."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

from tidegate.pipelines.lake.areas import Part
from tidegate.pipelines.lake.records import stored
from tidegate.pipelines.runtime.epochs.event_time import EventTimePlan
from tidegate.pipelines.runtime.epochs.plan import Landed, Lot, ReleasePlan, StreamPlan, no_rows
from tidegate.pipelines.watermarks import MIN_TIMESTAMP


@dataclass(frozen=True)
class FromQuarantine:
    """What a plan takes out of quarantine instead of landed rows: to release it again, or (`discards`) to discard it
    for good.

    Attributes:
        reasons, epochs: What was asked for; empty: all.
        lots: The rows that this meant when it was planned.
        oldest: No row of theirs that has a time lies before this (ms, UTC).
        upto: Only what epochs up to this one have quarantined: what a person has seen. None: all there is.
        by, because: Who asked, and the reason that they gave.
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
        """Whether it does what a request asks for."""
        return self.kind != "discard" and request.same(self.from_quarantine)

    def _own(self) -> dict[str, Any]:
        return {**super()._own(), "from_quarantine": stored(self.from_quarantine)}


@dataclass(frozen=True, kw_only=True)
class StreamRequeue(RequeuePlan, StreamPlan):
    """Of an INSERT in processing time."""


@dataclass(frozen=True, kw_only=True)
class EventTimeRequeue(RequeuePlan, EventTimePlan):
    """Of an INSERT in event time; it carries on what the releases have reached."""


def requeued(plan: ReleasePlan, last: ReleasePlan, taken: FromQuarantine) -> RequeuePlan:
    """`plan`, the epoch after `last`, as a plan that takes rows out of quarantine."""
    if isinstance(last, EventTimePlan):
        return plan.as_kind(EventTimeRequeue, time=last.time.then(), from_quarantine=taken)
    return plan.as_kind(StreamRequeue, from_quarantine=taken)
