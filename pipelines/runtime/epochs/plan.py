"""What is decided before an epoch of a statement runs, as the `epochs` table stores it. It never changes, and holds all
that a rerun, a look at the lake and `verify` need.

One record. A release in processing time or in event time, a backfill, rows out of quarantine, a discard, an epoch of a
process and of a rebuild are values of it:

                    takes                lots     replaces          bounds            asked      state
    release         (P0, P1], all or     -        -                 W0 -> W1, or None -          -
                    by time
    re-release      as the held one      the same its own supersedes as the held one  the same   the same
    backfill        areas, again+fresh   some     published epochs  W stays           spans      -
    out of          nothing              some     -                 W stays           reasons,   -
      quarantine                                                                      epochs
    process         one span an input    -        -                 None              -          base, time
    rebuild         from the first row   -        a generation      W0 -> W1, or None -          -
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

from tidegate.pipelines.generations import generation_of, insert_owner
from tidegate.pipelines.lake import EpochRow
from tidegate.pipelines.lake.records import canonical, stored
from tidegate.pipelines.lake.releasable import Area, Part, Releasable, micros, released, settled
from tidegate.pipelines.location import Location
from tidegate.pipelines.watermarks import MAX_TIMESTAMP, MIN_TIMESTAMP, Watermark

OnUnmatched = Literal["quarantine", "block", "publish"]

ReleaseKind = Literal["release", "re-release", "discard", "backfill", "quarantine-release", "quarantine-discard"]
"""What people call it; nothing but `discard` decides anything."""

Span = tuple[int, int]
"""low <= time < high, in ms, UTC; MIN and MAX for no bound."""


def digest(plan: Mapping[str, Any]) -> str:
    """Identifies a plan. 16 hex digits."""
    return hashlib.sha256(canonical(plan).encode()).hexdigest()[:16]


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
class Pin:
    """The build (generation, epoch) that a release joins against, and the epoch of that generation's flip.

    `horizon`: for an event-time release, how far retention had gone when it was planned: rows before this (ms, UTC)
    find nothing. None if no version was removed. `latest`: of an event-time release, whether its rows meet the latest
    versions of the build, in all joins with it ("alone") or in some ("too"); None in no join.
    """

    OPTIONAL: ClassVar = ("horizon", "latest")
    """What its JSON has only if there is one."""

    table: str
    generation: int
    epoch: int
    flip_epoch: int
    horizon: int | None = None
    latest: Literal["alone", "too"] | None = None

    def __str__(self) -> str:
        return f"{self.table} {self.generation}/{self.epoch}"

    @property
    def horizon_us(self) -> int | None:
        """The same in us, UTC."""
        return None if self.horizon is None else micros(self.horizon)

    @property
    def timed(self) -> bool:
        """Of an event-time release: whether rows meet versions of their own times, so that its watermark counts."""
        return self.latest != "alone"


@dataclass(frozen=True)
class Lot:
    """All rows that the epochs from `first` to `last` sent to quarantine for one reason (as `_reason` stores it):
    `rows` of them, landed in probe epochs after < epoch <= upto. A published epoch gains no rows, so a lot is the same
    whenever it is read."""

    reason: str
    first: int
    last: int
    rows: int
    after: int
    upto: int

    def holds(self, epoch: int, reason: str) -> bool:
        """Whether the lot includes what an epoch has quarantined for a reason."""
        return self.reason == reason and self.first <= epoch <= self.last


@dataclass(frozen=True)
class Taken:
    """The landed rows of one table that a plan takes, and how far releases have come in it.

    Attributes:
        after, upto: P before and after it: releases have seen the epochs up to there. The same where it looks back.
        fresh: The rows that it takes for the first time, `rows` of them.
        again: The rows of published epochs that it replaces, `rows_again` of them.
        earlier: All rows that the releases before it took.
        loaded: Of an input that a process has waited for: the epochs up to this one landed before its flip.
        since: In event time, the epoch up to which no row was waiting when this was planned.
        ahead: What backfills before this plan have released beyond the watermark: releases leave it out.
    """

    table: str
    generation: int
    after: int
    upto: int
    rows: int = 0
    earlier: int = 0
    fresh: tuple[Part, ...] = ()
    again: tuple[Part, ...] = ()
    rows_again: int = 0
    loaded: int = 0
    since: int = 0
    ahead: tuple[Area, ...] = ()

    @property
    def parts(self) -> tuple[Part, ...]:
        return (*self.again, *self.fresh)

    @property
    def taken(self) -> int:
        """All rows that the releases have taken, this one included."""
        return self.earlier + self.rows

    @property
    def releasable(self) -> Releasable:
        """These rows."""
        return Releasable(self.generation, self.parts)

    def nothing(self) -> Self:
        """The same place in the table, and no row of it."""
        return replace(self, after=self.upto, earlier=self.taken, rows=0, fresh=(), again=(), rows_again=0, loaded=0)

    def between(self, bounds: Bounds) -> Self:
        """The same place, and what a release takes there between bounds, uncounted."""
        found = released(self.after, self.upto, bounds.before, bounds.watermark, self.since, self.ahead)
        return replace(self, fresh=(found,))


def all_of(after: int, upto: int) -> tuple[Part, ...]:
    """Every landed row of after < epoch <= upto, whatever its time."""
    return (Part((Area(after, upto, MIN_TIMESTAMP, MAX_TIMESTAMP, nulls=True),)),)


@dataclass(frozen=True)
class Bounds:
    """How far an event-time statement has come; times in ms, UTC.

    Attributes:
        before, watermark: The combined watermark of the release before, and of this one. It never goes back, and stays
            where a plan looks back.
    """

    before: int = MIN_TIMESTAMP
    watermark: int = MIN_TIMESTAMP


@dataclass(frozen=True)
class Asked:
    """What a person asked for, where a plan looks back.

    Attributes:
        spans: Of a backfill: the spans of time, as a `union`.
        reasons, epochs: Of rows out of quarantine: the selection; empty for all.
        upto: Only rows that epochs up to this one have quarantined, which are those that the person has seen.
        by, because: Who asked, and the reason that they gave.
    """

    spans: tuple[Span, ...] = ()
    reasons: tuple[str, ...] = ()
    epochs: tuple[int, ...] = ()
    upto: int | None = None
    discards: bool = False
    by: str = ""
    because: str = ""

    def same(self, other: Asked) -> bool:
        """Whether both ask for the same."""
        mine, theirs = ((item.spans, item.reasons, item.epochs, item.discards) for item in (self, other))
        return mine == theirs


@dataclass(frozen=True)
class StateSpan:
    """What a process's epoch does with its time and its state; times in ms, UTC.

    Attributes:
        before, end: The process's time at the end of the epoch before, and of this one.
        last, watermark: The combined watermark before and after, (timestamp, use_processing_time).
        base: The epoch that last wrote all of the state; 0 if none has.
        rewrite: This epoch writes all of the state, and is the next one's base.
    """

    before: int
    end: int
    last: tuple[int, bool]
    watermark: tuple[int, bool]
    base: int
    rewrite: bool = False


@dataclass(frozen=True, kw_only=True)
class ReleasePlan:
    """What one epoch of a statement takes and replaces, against what, under which definition, between which bounds.

    `insert` is the id of the INSERT, which names a generation of its statement. `instant` (ms, UTC) is what PROCTIME()
    and CURRENT_TIMESTAMP mean in it. `computes` identifies what the INSERT computes; `definition` is the number of the
    definition that it was made under; 0 before it is stored. `replaces` are epochs of its generation, as (first, last):
    a held or never staged one is dead at once, a published one when this is published. `oldest`: in event time, no row
    of it that has a time lies before this (ms, UTC).
    """

    insert: str
    epoch: int
    kind: ReleaseKind
    instant: int
    takes: tuple[Taken, ...]
    pins: tuple[Pin, ...]
    on_unmatched: OnUnmatched
    computes: str
    definition: int = 0
    lots: tuple[Lot, ...] = ()
    replaces: tuple[tuple[int, int], ...] = ()
    supersedes: int | None = None
    bounds: Bounds | None = None
    asked: Asked | None = None
    state: StateSpan | None = None
    oldest: int = MIN_TIMESTAMP

    @property
    def owner(self) -> str:
        """The owner of it and of all that its epoch stores: the generation of the statement that `insert` names."""
        return insert_owner(self.insert)

    @property
    def generation(self) -> int:
        """The number of that generation, which its rows carry."""
        return generation_of(self.insert)

    # --- what it takes -------------------------------------------------------------------------------------------

    @property
    def first(self) -> Taken:
        """What it takes of the probe; of a process, of its first input; of a UNION ALL, of its first branch."""
        return self.takes[0]

    @property
    def probe(self) -> str:
        """The table of the first input of a process; else those of all branches, as `Insert.probe` has them."""
        return " and ".join(item.table for item in self.branches)

    @property
    def branches(self) -> tuple[Taken, ...]:
        """What it takes of each branch of a UNION ALL; else of the probe alone, or of a process's first input."""
        return self.takes[:1] if self.state is not None else self.takes

    @property
    def reads(self) -> tuple[int, int]:
        """(after, upto): its rows landed in epochs after < epoch <= upto of what it takes from."""
        found = [self.reads_of(item) for item in self.branches]
        return min(low for low, _ in found), max(high for _, high in found)

    def reads_of(self, item: Taken) -> tuple[int, int]:
        """The same of one of `takes`."""
        if self.looks_back:
            places = (*item.parts, *self.joined)
            low = 0 if item.parts else min((lot.after for lot in self.joined), default=0)
            return low, max((place.upto for place in places), default=0)
        return item.since if self.bounds else item.after, item.upto

    @property
    def looks_back(self) -> bool:
        """Whether a person has asked for it, so that it does not begin where the release before it ended."""
        return self.asked is not None

    @property
    def spans(self) -> tuple[Span, ...]:
        """Of a backfill: the spans of time that it was asked to release again, as a `union`."""
        return self.asked.spans if self.asked else ()

    @property
    def out_of_quarantine(self) -> bool:
        """Whether it takes rows out of quarantine alone, because a person has asked for them."""
        return self.asked is not None and not self.asked.spans

    @property
    def joined(self) -> tuple[Lot, ...]:
        """The lots that it joins again: those of a discard are only marked."""
        return () if self.asked and self.asked.discards else self.lots

    def takes_the_place_of(self, other: ReleasePlan) -> bool:
        """Whether it replaces another published epoch."""
        return self.generation == other.generation and any(low <= other.epoch <= up for low, up in self.replaces)

    def without_rows(self) -> Self:
        """The same plan, of which it is known that no row is in it: it only says how far its statement has come."""
        return replace(
            self, takes=tuple(replace(item, rows=0, fresh=(), again=(), rows_again=0) for item in self.takes)
        )

    @property
    def says_only_how_far(self) -> bool:
        """Whether it is such a plan. A process may give rows, as of its timers, without taking any."""
        return not (self.rows or self.looks_back or self.discards) and self.state is None

    # --- time ----------------------------------------------------------------------------------------------------

    @property
    def late_upto(self) -> int | None:
        """Rows with a rowtime (us) up to this are late. None before the first release, and where it looks back."""
        if self.looks_back or self.bounds is None or self.bounds.before == MIN_TIMESTAMP:
            return None
        return micros(self.bounds.before)

    @property
    def watermark(self) -> int:
        """The watermark (ms, UTC) that releases have reached with it; MIN if its rows are not chosen by time."""
        return self.bounds.watermark if self.bounds else MIN_TIMESTAMP

    @property
    def before(self) -> int:
        return self.bounds.before if self.bounds else MIN_TIMESTAMP

    def complete_until(self, inputs: Watermark) -> Watermark:
        """The watermark of what is published with it; `inputs` is the combined watermark of its inputs."""
        if self.state is not None:
            return Watermark(*self.state.watermark)
        if self.bounds is None or (inputs.use_processing_time and self.watermark >= self.instant):
            return inputs
        return Watermark(self.watermark)

    def horizon_of(self, table: str, generation: int) -> int:
        """The horizon of its pin of a build's generation; MIN if it has none."""
        found = (pin.horizon for pin in self.pins if (pin.table, pin.generation) == (table, generation))
        horizon = next(found, None)
        return MIN_TIMESTAMP if horizon is None else horizon

    def settled_upto(self, item: Taken, path: Location) -> int:
        """The epoch of one of `takes` up to which no row waits once it is published. `path`: the landed table."""
        if self.bounds is None:
            return item.upto
        return settled(path, item.generation, item.since, item.upto, self.bounds.watermark)

    def then(self) -> Bounds | None:
        """The bounds with which the next epoch begins."""
        return None if self.bounds is None else replace(self.bounds, before=self.watermark)

    def ahead_of(self, item: Taken) -> tuple[Area, ...]:
        """What is released beyond the watermark of one of `takes`, once it is published."""
        return (*item.ahead, *(area for part in item.fresh for area in part.areas)) if self.asked else item.ahead

    def nothing_more(self) -> tuple[Taken, ...]:
        """The place in each table that it leaves, and no row of it."""
        return tuple(replace(item.nothing(), ahead=self.ahead_of(item)) for item in self.takes)

    # --- how many rows -------------------------------------------------------------------------------------------

    @property
    def rows(self) -> int:
        """How many rows it takes in all, including those that it takes again."""
        return self.rows_landed + sum(lot.rows for lot in self.joined)

    @property
    def rows_landed(self) -> int:
        """How many rows it takes from landed tables, and not out of a quarantine."""
        return sum(item.rows + item.rows_again for item in self.takes)

    @property
    def rows_again(self) -> int:
        """How many of them earlier epochs had taken."""
        return sum(item.rows_again for item in self.takes) + sum(lot.rows for lot in self.joined)

    @property
    def rows_claimed(self) -> int:
        """How many rows it takes out of quarantine; a discard only marks them."""
        return sum(lot.rows for lot in self.lots)

    @property
    def rows_waiting(self) -> int:
        """How many rows wait until it is published: those that it releases again are still where they were."""
        return sum(item.rows for item in self.branches)

    # --- what a person decides -----------------------------------------------------------------------------------

    @property
    def discards(self) -> bool:
        """Whether nothing of it is published, because a person has given up the rows that it takes."""
        return self.kind == "discard" or bool(self.asked and self.asked.discards)

    @property
    def when_discarded(self) -> str:
        """What `tidegate discard` does to it while it is held, as text."""
        if not self.looks_back:
            return "quarantines them"
        if self.spans:
            return "gives the backfill up; what is published stays"
        return "gives it up; the rows stay in quarantine"

    def given_up(self) -> Self:
        """The plan that takes its place where a person discards it: what it looked back at stays where it was, and what
        it would have released first goes on waiting."""
        if not self.looks_back:
            return self
        return replace(self.without_rows(), lots=(), replaces=())

    def answers(self, request: Asked) -> bool:
        """Whether it is the plan that a request asks for."""
        return self.kind != "discard" and self.asked is not None and self.asked.same(request)

    # --- its stored form -----------------------------------------------------------------------------------------

    @property
    def attempts(self) -> str:
        """How the names of its attempts' folders begin; what follows has no "-"."""
        return f"g{self.generation}-e{self.epoch}-"

    def new_attempt(self) -> str:
        """A name for the folders of one attempt at it."""
        return f"{self.attempts}{uuid.uuid4().hex[:8]}"

    @property
    def digest(self) -> str:
        return digest(self._plan())

    def row(self) -> EpochRow:
        """The plan as a control row."""
        return EpochRow(self.owner, self.generation, self.epoch, "insert", self.instant, self._plan(), self.digest)

    def _plan(self) -> dict[str, Any]:
        return {name: value for name, value in stored(self).items() if name not in ("insert", "epoch")}
