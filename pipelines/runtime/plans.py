"""What is decided before an epoch runs, as the `epochs` table stores it: immutable, and all that a rerun needs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pipelines.lake import EpochRow
from pipelines.lake.due import Due
from pipelines.lake.records import canonical
from pipelines.sources.protocol import Step, StoredStep
from pipelines.sql.model import OnUnmatched

ReleaseKind = Literal["release", "re-release", "discard"]


def insert_owner(insert_id: str) -> str:
    """The owner name of an INSERT in control tables: no source table can be called like it."""
    return f"insert {insert_id}"


def digest(plan: Mapping[str, Any]) -> str:
    """Identifies a plan. 16 hex digits."""
    return hashlib.sha256(canonical(plan).encode()).hexdigest()[:16]


def source_row(owner: str, generation: int, epoch: int, planned_at: int, step: Step) -> EpochRow:
    """A source's plan as a control row."""
    plan = {"ranges": step.ranges, "phase": step.phase, "flips": step.flips, "summary": step.summary}
    if step.quiet:
        plan["quiet"] = True
    if step.blocked:
        plan["blocked"] = list(step.blocked)
    return EpochRow(owner, generation, epoch, "source", planned_at, plan, digest(plan))


def stored_step(row: EpochRow) -> StoredStep:
    """A source's plan, read back."""
    plan = {**row.plan, "blocked": tuple(row.plan.get("blocked", ()))}
    return StoredStep(Step(**plan), row.generation, row.epoch, row.planned_at)


@dataclass(frozen=True)
class Pin:
    """The build (generation, epoch) that a release joins against, and the epoch of that generation's flip."""

    table: str
    generation: int
    epoch: int
    flip_epoch: int


@dataclass(frozen=True)
class TimeSpan:
    """What an event-time release adds to its plan; times in ms, UTC.

    Attributes:
        before, watermark: The combined watermark of the release before, and of this one. Never goes back.
        since: No row of a probe epoch up to it was waiting any more when this was planned.
        rows: The rows that are due.
        earlier: All rows that the releases before it took.
    """

    before: int
    watermark: int
    since: int
    rows: int
    earlier: int


@dataclass(frozen=True)
class ReleasePlan:
    """What one epoch of an INSERT releases, against the pins: probe rows with after < epoch <= upto.

    In event time (`time`) only those of them whose time the watermark has reached, or that have none; and of the epochs
    before, those that it has reached since (pipelines.lake.due).

    `instant` (ms, UTC) is what PROCTIME() and CURRENT_TIMESTAMP mean in it. `computes` identifies the INSERT's text.
    `supersedes` is the held epoch that a re-release or a discard takes the place of.
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

    @property
    def digest(self) -> str:
        return digest(self._plan())

    @property
    def due(self) -> Due:
        """The landed rows that an event-time plan takes."""
        assert self.time is not None
        span = self.time
        return Due(self.probe_generation, self.after, self.upto, span.before, span.watermark, span.since)

    def _plan(self) -> dict[str, Any]:
        plan = asdict(self)
        left_out = ("insert", "generation", "epoch", *(("time",) if self.time is None else ()))
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
        plan["time"] = TimeSpan(**plan["time"]) if plan.get("time") else None
        return cls(insert=row.owner.removeprefix("insert "), generation=row.generation, epoch=row.epoch, **plan)
