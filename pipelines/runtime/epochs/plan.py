"""What is decided before an epoch of an INSERT runs, as the `epochs` table stores it. It never changes, and holds all
that a rerun needs. Which rows an epoch takes, and how they are counted, depends on its kind (`kinds`)."""

from __future__ import annotations

import hashlib
import uuid
from abc import ABC
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar

from tidegate.pipelines.lake import EpochRow
from tidegate.pipelines.lake.records import canonical, later, stored
from tidegate.pipelines.lake.releasable import Area, Part, Releasable, micros
from tidegate.pipelines.location import Location
from tidegate.pipelines.watermarks import MAX_TIMESTAMP, MIN_TIMESTAMP, Watermark

if TYPE_CHECKING:  # a look at plans does not need it
    from tidegate.pipelines.connectors.options import OnUnmatched

ReleaseKind = Literal["release", "re-release", "discard", "backfill", "quarantine-release", "quarantine-discard"]
"""The purpose of an epoch. Its class decides how its rows are chosen: a discard has the class of the epoch that it
gives up."""

Landed = Callable[[int, int], int]
"""(after, upto) -> the landed rows of the probe with after < epoch <= upto, by the watermark log."""

Span = tuple[int, int]
"""low <= time < high, in ms, UTC; MIN and MAX for no bound."""

Kind = TypeVar("Kind", bound="ReleasePlan")


def no_rows(after: int, upto: int) -> int:
    """For plans that have stored how many rows they take: an empty watermark log."""
    return 0


def insert_owner(insert_id: str) -> str:
    """The owner name of an INSERT in control tables; no source table can have such a name."""
    return f"insert {insert_id}"


def insert_of(owner: str) -> str | None:
    """The id of the INSERT with this owner name; None for the name of a source table."""
    return owner.removeprefix("insert ") if owner.startswith("insert ") else None


def digest(plan: Mapping[str, Any]) -> str:
    """Identifies a plan. 16 hex digits."""
    return hashlib.sha256(canonical(plan).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Pin:
    """The build (generation, epoch) that a release joins against, and the epoch of that generation's flip.

    `horizon`: for an event-time release, how far retention had gone when it was planned: rows before this (ms, UTC)
    find nothing. None if no version was removed.
    """

    OPTIONAL: ClassVar = ("horizon",)
    """What its JSON has only if there is one."""

    table: str
    generation: int
    epoch: int
    flip_epoch: int
    horizon: int | None = later(None)

    def __str__(self) -> str:
        return f"{self.table} {self.generation}/{self.epoch}"

    @property
    def horizon_us(self) -> int | None:
        """The same in us, UTC."""
        return None if self.horizon is None else micros(self.horizon)


@dataclass(frozen=True)
class InputRange:
    """The landed epochs of one input that a plan reads: after < epoch <= upto."""

    table: str
    generation: int
    after: int
    upto: int


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
class ReleasePlan(ABC):
    """What one epoch of an INSERT or a process releases, against the pins: probe rows with after < epoch <= upto, of
    which its kind takes all or some.

    `instant` (ms, UTC) is what PROCTIME() and CURRENT_TIMESTAMP mean in it. `computes` identifies what the INSERT
    computes; `definition` is the number of the definition that it was made under, None if the plan is older than
    definitions. `supersedes` is the epoch that it replaces: the held one of a re-release or a discard, or one that was
    planned for another text of the INSERT and never staged.
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
    definition: int | None = later(None)

    # --- what it reads -------------------------------------------------------------------------------------------

    @property
    def parts(self) -> tuple[Part, ...]:
        """The landed rows of the probe that it takes, as areas; without those out of quarantine."""
        return (Part((Area(self.after, self.upto, MIN_TIMESTAMP, MAX_TIMESTAMP, nulls=True),)),)

    @property
    def releasable(self) -> Releasable:
        """The same rows, of the probe's generation."""
        return Releasable(self.probe_generation, self.parts)

    @property
    def inputs(self) -> tuple[InputRange, ...]:
        """How far it takes each table that it reads row by row: the probe; for a process, all of its inputs."""
        return (InputRange(self.probe, self.probe_generation, self.after, self.upto),)

    @property
    def tables(self) -> list[str]:
        """The names of these tables."""
        return [item.table for item in self.inputs]

    @property
    def reads(self) -> tuple[int, int]:
        """(after, upto): its rows landed in probe epochs after < epoch <= upto."""
        return self.after, self.upto

    @property
    def follows(self) -> bool:
        """Whether it begins where the release before it ended, and does not look back."""
        return True

    @property
    def lots(self) -> tuple[Lot, ...]:
        """The lots that it joins again, quarantined by epochs which it does not replace."""
        return ()

    @property
    def claims(self) -> tuple[Lot, ...]:
        """What it takes out of quarantine, to join it again or to discard it."""
        return self.lots

    @property
    def spans(self) -> tuple[Span, ...]:
        """The spans of time that it was asked to release again, as a `union`; empty for other plans."""
        return ()

    def takes_the_place_of(self, other: ReleasePlan) -> bool:
        """Whether it replaces another published epoch."""
        return False

    # --- time ----------------------------------------------------------------------------------------------------

    @property
    def in_event_time(self) -> bool:
        """Whether its INSERT releases rows by the combined watermark."""
        return False

    @property
    def before(self) -> int:
        """The watermark of the release before it (ms, UTC); MIN if its rows are not chosen by time."""
        return MIN_TIMESTAMP

    @property
    def watermark(self) -> int:
        """The watermark that the releases have reached with it (ms, UTC); MIN if its rows are not chosen by time."""
        return MIN_TIMESTAMP

    @property
    def since(self) -> int:
        """The probe epoch up to which no row was waiting when it was planned."""
        return self.after

    @property
    def ahead(self) -> tuple[Area, ...]:
        """The areas beyond the watermark that backfills up to it have released: later releases leave them out."""
        return ()

    @property
    def oldest(self) -> int:
        """In event time: no row of it that has a time lies before this (ms, UTC); MIN if that is not known."""
        return MIN_TIMESTAMP

    @property
    def late_upto(self) -> int | None:
        """Rows with a rowtime (us) up to this are late. None before the first release, and for a plan that releases
        rows again."""
        return None

    def complete_until(self, inputs: Watermark) -> Watermark:
        """The watermark of what is published with it; `inputs` is the combined watermark of its inputs."""
        return inputs

    def horizon_of(self, table: str, generation: int) -> int:
        """The horizon of its pin of a build's generation; MIN if it has none."""
        found = (pin.horizon for pin in self.pins if (pin.table, pin.generation) == (table, generation))
        horizon = next(found, None)
        return MIN_TIMESTAMP if horizon is None else horizon

    # --- how many rows -------------------------------------------------------------------------------------------

    def rows(self, landed: Landed = no_rows) -> int:
        """How many rows it takes in all, including those that it takes again."""
        return self.rows_landed(landed)

    def rows_landed(self, landed: Landed = no_rows) -> int:
        """How many rows it takes from the landed table, and not out of a quarantine."""
        return landed(self.after, self.upto)

    def rows_waiting(self, landed: Landed = no_rows) -> int:
        """How many probe rows wait until it is published. Rows that it releases again do not wait: they are still where
        the earlier epoch put them."""
        return self.rows_landed(landed)

    def rows_taken(self, upto: int) -> int:
        """How many rows of one input all releases up to this one have taken, if `upto` rows have landed up to its last
        epoch."""
        return upto

    def rows_left(self, landed: Landed, upto: int, *, published: bool) -> int:
        """How many probe rows of epochs up to `upto` are in no commit, if this is the newest plan."""
        return landed(self.upto if published else self.after, upto)

    def settled_upto(self, probe: Location) -> int:
        """The probe epoch up to which no row waits once it is published. `probe`: the landed table."""
        return self.upto

    # --- what a person decides -----------------------------------------------------------------------------------

    @property
    def discards(self) -> bool:
        """Whether nothing of it is published, because a person has given up the rows that it takes."""
        return self.kind == "discard"

    @property
    def when_discarded(self) -> str:
        """What `tidegate discard` does to it while it is held, as text."""
        return "quarantines them"

    def given_up(self) -> Self:
        """The plan that takes its place where a person discards it: which rows are discarded."""
        return self

    def fills(self, spans: Sequence[Span]) -> bool:
        """Whether it is the backfill of these spans."""
        return self.kind != "discard" and self.spans == tuple(spans)

    @property
    def attempts(self) -> str:
        """How the names of its attempts' folders begin; what follows has no "-"."""
        return f"g{self.generation}-e{self.epoch}-"

    def new_attempt(self) -> str:
        """A name for the folders of one attempt at it."""
        return f"{self.attempts}{uuid.uuid4().hex[:8]}"

    # --- its stored form -----------------------------------------------------------------------------------------

    @property
    def digest(self) -> str:
        return digest(self._plan())

    def row(self) -> EpochRow:
        """The plan as a control row."""
        return EpochRow(
            insert_owner(self.insert), self.generation, self.epoch, "insert", self.instant, self._plan(), self.digest
        )

    def _plan(self) -> dict[str, Any]:
        """The plan as it is stored. The fields that only its kind has decide the kind when it is read back."""
        return {name: value for name, value in stored(self).items() if name not in ("insert", "generation", "epoch")}

    def as_kind(self, kind: type[Kind], /, **changed: Any) -> Kind:
        """The same epoch as a plan of another kind, with the fields `changed`."""
        return kind(**{item.name: getattr(self, item.name) for item in fields(ReleasePlan)} | changed)


@dataclass(frozen=True)
class StreamPlan(ReleasePlan):
    """An epoch in processing time, which takes rows in the order in which they landed, whatever their time."""
