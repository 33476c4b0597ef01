"""What is decided before an epoch runs, as the `epochs` table stores it: immutable, and all that a rerun needs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from tidegate.pipelines.lake import EpochRow
from tidegate.pipelines.lake.areas import Area, Part, areas_of, micros
from tidegate.pipelines.lake.records import canonical
from tidegate.pipelines.lake.releasable import Releasable, released
from tidegate.pipelines.watermarks import MAX_TIMESTAMP, MIN_TIMESTAMP

if TYPE_CHECKING:  # a look at plans needs neither
    from tidegate.pipelines.connectors.protocol import Step, StoredStep
    from tidegate.pipelines.sql.model import OnUnmatched

ReleaseKind = Literal["release", "re-release", "discard", "backfill", "quarantine-release", "quarantine-discard"]


def insert_owner(insert_id: str) -> str:
    """The owner name of an INSERT in control tables: no source table can be called like it."""
    return f"insert {insert_id}"


def digest(plan: Mapping[str, Any]) -> str:
    """Identifies a plan. 16 hex digits."""
    return hashlib.sha256(canonical(plan).encode()).hexdigest()[:16]


def source_row(
    owner: str, generation: int, epoch: int, planned_at: int, step: Step, definition: int | None = None
) -> EpochRow:
    """A source's plan as a control row. `definition`: the number of the one that it is made under."""
    plan = {"ranges": step.ranges, "phase": step.phase, "flips": step.flips, "summary": step.summary}
    if step.quiet:
        plan["quiet"] = True
    if step.blocked:
        plan["blocked"] = list(step.blocked)
    if step.next_rowtimes:
        plan["next_rowtimes"] = dict(step.next_rowtimes)
    if definition is not None:
        plan["definition"] = definition
    return EpochRow(owner, generation, epoch, "source", planned_at, plan, digest(plan))


def stored_step(row: EpochRow) -> StoredStep:
    """A source's plan, read back."""
    plan = {**row.plan, "blocked": tuple(row.plan.get("blocked", ()))}
    plan.pop("definition", None)
    from tidegate.pipelines.connectors.protocol import Step, StoredStep

    return StoredStep(Step(**plan), row.generation, row.epoch, row.planned_at)


@dataclass(frozen=True)
class Pin:
    """The build (generation, epoch) that a release joins against, and the epoch of that generation's flip.

    `horizon`: of an event-time release, how far retention had gone when it was planned: a row before this (ms, UTC)
    finds nothing. None where no version was removed.
    """

    table: str
    generation: int
    epoch: int
    flip_epoch: int
    horizon: int | None = None

    @property
    def horizon_us(self) -> int | None:
        """The same in us, UTC."""
        return None if self.horizon is None else micros(self.horizon)


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
    ahead: tuple[Area, ...] = ()
    least: int | None = None

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> TimeSpan:
        """Read back from a plan."""
        return cls(**{**stored, "ahead": areas_of(stored.get("ahead", ()))})


@dataclass(frozen=True)
class Lot:
    """All rows that the epochs from `first` to `last` sent to quarantine for one reason (as `_reason` tells it): `rows`
    of them, landed in probe epochs after < epoch <= upto. A published epoch gains no rows, so a lot is the same
    whenever it is read."""

    reason: str
    first: int
    last: int
    rows: int
    after: int
    upto: int

    def holds(self, epoch: int, reason: str) -> bool:
        """Whether what an epoch has quarantined for a reason is in it."""
        return self.reason == reason and self.first <= epoch <= self.last


def stored_lots(stored: Sequence[Mapping[str, Any]]) -> tuple[Lot, ...]:
    """Lots, read back from a plan."""
    return tuple(Lot(**lot) for lot in stored)


@dataclass(frozen=True)
class FromQuarantine:
    """What a plan takes out of quarantine instead of what has landed: to release it again, or (`discards`) for good.

    Attributes:
        reasons, epochs: What was asked for; none: all of them.
        lots: What that was when it was planned.
        oldest: No row of theirs that has a time lies before (ms, UTC).
        upto: Only what was kept out by epochs up to this one: what a person has seen. None: whatever there is.
        by, because: Who asked, and why, in their own words.
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

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> FromQuarantine:
        """Read back from a plan."""
        told = {"reasons": tuple(stored["reasons"]), "epochs": tuple(stored["epochs"])}
        return cls(**{**stored, **told, "lots": stored_lots(stored["lots"])})


Span = tuple[int, int]
"""low <= time < high, in ms, UTC; MIN and MAX where it is open."""


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
    """What a plan takes instead of what is new: the rows of spans of time, whoever has released them before.

    Attributes:
        low, high: The span that was asked for; of several, where the first begins and the last ends.
        replaces: The published epochs, first and last of each row of them, whose place it takes: as wholes, so that no
            row of a table has to be looked up.
        again, lots: The rows of those epochs, `rows_again` of them; lots are those that they had taken out of the
            quarantine of epochs that stay.
        new: Rows of the span that nothing has released before, less those of `without`.
        oldest: No row that it takes lies before (ms, UTC).
        several: The spans that were asked for, where they are more than one.
    """

    low: int
    high: int
    replaces: tuple[tuple[int, int], ...] = ()
    again: tuple[Part, ...] = ()
    rows_again: int = 0
    new: tuple[Area, ...] = ()
    without: tuple[Area, ...] = ()
    oldest: int = MIN_TIMESTAMP
    lots: tuple[Lot, ...] = ()
    several: tuple[Span, ...] = ()

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
        """Whether it takes the place of an epoch."""
        return any(first <= epoch <= last for first, last in self.replaces)

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Backfill:
        """Read back from a plan."""
        return cls(
            low=stored["low"],
            high=stored["high"],
            replaces=tuple((first, last) for first, last in stored["replaces"]),
            again=tuple(map(Part.of, stored["again"])),
            rows_again=stored["rows_again"],
            new=areas_of(stored["new"]),
            without=areas_of(stored["without"]),
            oldest=stored["oldest"],
            lots=stored_lots(stored.get("lots", ())),
            several=tuple((low, high) for low, high in stored.get("several", ())),
        )


@dataclass(frozen=True)
class InputSpan:
    """The landed epochs of one input that a process takes: after < epoch <= upto, `rows` rows in all. Those up to
    `loaded` it takes before any other input's: they have landed before the flip, which the process has waited for."""

    table: str
    generation: int
    after: int
    upto: int
    rows: int
    loaded: int = 0


@dataclass(frozen=True)
class ProcessSpan:
    """What an epoch of a process adds to its plan; times in ms, UTC.

    Attributes:
        inputs: What it takes of every input, in the function's order.
        before, end: The time that the epoch before has come to, and the one that this comes to.
        last, watermark: The combined watermark before and after, (timestamp, use_processing_time).
        base: No state was written before this epoch that still counts; 0 before the first.
        rewrite: All state is written anew, so that this epoch is the next one's base.
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

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> ProcessSpan:
        """Read back from a plan."""
        inputs = tuple(InputSpan(**item) for item in stored["inputs"])
        last, watermark = tuple(stored["last"]), tuple(stored["watermark"])
        return cls(**{**stored, "inputs": inputs, "last": last, "watermark": watermark})


_LATER = ("time", "backfill", "from_quarantine", "process", "definition")
"""What older plans have no word for."""


@dataclass(frozen=True)
class ReleasePlan:
    """What one epoch of an INSERT releases, against the pins: probe rows with after < epoch <= upto.

    In event time (`time`) only those of them whose time the watermark has reached, or that have none; and of the epochs
    before, those that it has reached since (`tidegate.pipelines.lake.releasable`). A `backfill` takes the rows of spans
    of time instead, and one `from_quarantine` takes rows that releases before it have kept out; both leave P and W as
    they are.

    `instant` (ms, UTC) is what PROCTIME() and CURRENT_TIMESTAMP mean in it. `computes` identifies what the INSERT
    computes, `definition` is the number of the definition that it was made under; None where it is older than those.
    `supersedes` is the epoch whose place it takes: the held one of a re-release or a discard, or one that was planned
    for another text of the INSERT and never staged.
    """

    insert: str
    generation: int
    epoch: int
    kind: ReleaseKind
    instant: int
    probe: str
    probe_generation: int
    after: int
    upto: int
    pins: tuple[Pin, ...]
    on_unmatched: OnUnmatched
    computes: str
    supersedes: int | None = None
    time: TimeSpan | None = None
    backfill: Backfill | None = None
    from_quarantine: FromQuarantine | None = None
    process: ProcessSpan | None = None
    definition: int | None = None

    @property
    def digest(self) -> str:
        return digest(self._plan())

    @property
    def releasable(self) -> Releasable:
        """The landed rows that a plan takes, but for those out of quarantine."""
        return Releasable(self.probe_generation, self.parts)

    @property
    def parts(self) -> tuple[Part, ...]:
        """The same as areas."""
        if self.backfill is not None:
            return self.backfill.parts
        if self.from_quarantine is not None:
            return ()
        if self.time is None:
            return (Part((Area(self.after, self.upto, MIN_TIMESTAMP, MAX_TIMESTAMP, nulls=True),)),)
        span = self.time
        return (released(self.after, self.upto, span.before, span.watermark, span.since, span.ahead),)

    @property
    def follows(self) -> bool:
        """Whether it goes on where the release before it stood, and is no look back."""
        return self.backfill is None and self.from_quarantine is None

    @property
    def lots(self) -> tuple[Lot, ...]:
        """What it joins again of what epochs that stay have quarantined."""
        if self.backfill is not None:
            return self.backfill.lots
        again = self.from_quarantine
        return () if again is None or again.discards else again.lots

    @property
    def discards(self) -> bool:
        """Whether nothing of it is published: a person has given up what it takes."""
        return self.kind == "discard" or (self.from_quarantine is not None and self.from_quarantine.discards)

    @property
    def late_upto(self) -> int | None:
        """A row with a rowtime (us) up to here is late; None before the first release, and where rows that were
        released before are released again."""
        again = self.backfill is not None or self.from_quarantine is not None
        if self.time is None or again or self.time.before == MIN_TIMESTAMP:
            return None
        return micros(self.time.before)

    @property
    def reads(self) -> tuple[int, int]:
        """After which and up to which probe epoch its rows may lie."""
        if self.backfill is not None:
            return 0, max((taken.upto for taken in (*self.backfill.parts, *self.lots)), default=0)
        if self.from_quarantine is not None:
            return min((lot.after for lot in self.lots), default=0), max((lot.upto for lot in self.lots), default=0)
        return (self.after if self.time is None else self.time.since), self.upto

    @property
    def oldest(self) -> int:
        """In event time: no row of it that has a time lies before this (ms, UTC); MIN where that is not known."""
        assert self.time is not None
        again = self.backfill or self.from_quarantine
        if again is not None:
            return again.oldest
        return MIN_TIMESTAMP if self.time.least is None else self.time.least

    def horizon_of(self, table: str, generation: int) -> int:
        """The horizon of its pin of a build's generation; MIN where it has none."""
        found = (pin.horizon for pin in self.pins if (pin.table, pin.generation) == (table, generation))
        horizon = next(found, None)
        return MIN_TIMESTAMP if horizon is None else horizon

    def takes_the_place_of(self, other: ReleasePlan) -> bool:
        """Whether it is a backfill that replaces another published epoch."""
        return self.generation == other.generation and self.backfill is not None and self.backfill.replaced(other.epoch)

    def _plan(self) -> dict[str, Any]:
        """The plan as it is stored. What an older one has no word for is left out, so that its digest stands."""
        plan = asdict(self)
        left_out = ["insert", "generation", "epoch"]
        left_out += [name for name in _LATER if plan[name] is None]
        if self.time is not None:
            unknown = {"ahead": not self.time.ahead, "least": self.time.least is None}
            plan["time"] = {name: value for name, value in plan["time"].items() if not unknown.get(name)}
        plan["pins"] = [
            {name: value for name, value in pin.items() if name != "horizon" or value is not None}
            for pin in plan["pins"]
        ]
        if self.backfill is not None:
            later = {"lots": self.backfill.lots, "several": self.backfill.several}
            plan["backfill"] = {name: value for name, value in plan["backfill"].items() if later.get(name, True)}
        for span in plan["process"]["inputs"] if self.process is not None else ():
            if not span["loaded"]:
                del span["loaded"]
        return {name: value for name, value in plan.items() if name not in left_out}

    def row(self) -> EpochRow:
        """The plan as a control row."""
        return EpochRow(
            insert_owner(self.insert), self.generation, self.epoch, "insert", self.instant, self._plan(), self.digest
        )

    @classmethod
    def of(cls, row: EpochRow) -> ReleasePlan:
        """A release plan, read back."""
        plan = dict(row.plan)
        plan["pins"] = tuple(Pin(**pin) for pin in plan["pins"])
        plan["time"] = TimeSpan.of(plan["time"]) if plan.get("time") else None
        plan["backfill"] = Backfill.of(plan["backfill"]) if plan.get("backfill") else None
        again = plan.get("from_quarantine")
        plan["from_quarantine"] = FromQuarantine.of(again) if again else None
        plan["process"] = ProcessSpan.of(plan["process"]) if plan.get("process") else None
        return cls(insert=row.owner.removeprefix("insert "), generation=row.generation, epoch=row.epoch, **plan)


def given_up_by(plan: ReleasePlan) -> str:
    """What `tidegate discard` does to a held plan."""
    if plan.from_quarantine is not None:
        return "gives it up; the rows stay in quarantine"
    return "quarantines them" if plan.backfill is None else "gives the backfill up; what is published stays"
