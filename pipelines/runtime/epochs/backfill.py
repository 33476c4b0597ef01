"""Epochs that release spans of event time again, and replace the epochs that released them before."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Self

from tidegate.pipelines.lake.areas import Area, Part
from tidegate.pipelines.lake.records import later, stored
from tidegate.pipelines.runtime.epochs.event_time import EventTimePlan
from tidegate.pipelines.runtime.epochs.plan import Landed, Lot, ReleasePlan, Span, no_rows
from tidegate.pipelines.watermarks import MIN_TIMESTAMP


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
    """What a plan takes instead of new rows: the rows of spans of time, whoever has released them before.

    Attributes:
        low, high: The span that was asked for; of several, where the first begins and the last ends.
        replaces: The published epochs that it replaces, as (first, last) of each run of consecutive ones: whole epochs,
            so that no single row has to be looked up in the table.
        again, lots: The rows of those epochs, `rows_again` of them; lots are those that they had taken out of the
            quarantine of epochs that stay.
        new: Rows of the span that nothing has released before, less those of `without`.
        oldest: No row that it takes lies before this (ms, UTC).
        several: The spans that were asked for, if they are more than one.
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

    def _own(self) -> dict[str, Any]:
        return {**super()._own(), "backfill": stored(self.backfill)}
