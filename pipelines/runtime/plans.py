"""What is decided before an epoch runs, as the `epochs` table stores it: immutable, and all that a rerun needs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pipelines.lake import EpochRow
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
class ReleasePlan:
    """What one epoch of an INSERT releases: probe rows with after < epoch <= upto, against the pins.

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

    @property
    def digest(self) -> str:
        return digest(self._plan())

    def _plan(self) -> dict[str, Any]:
        plan = asdict(self)
        for name in ("insert", "generation", "epoch"):
            del plan[name]
        return plan

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
        return cls(insert=row.owner.removeprefix("insert "), generation=row.generation, epoch=row.epoch, **plan)
