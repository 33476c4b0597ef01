"""What an epoch is, as it is stored before it runs: one record (`plan.ReleasePlan`), with what it reads and counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.pipelines.generations import insert_of, insert_owner
from tidegate.pipelines.lake import EpochRow
from tidegate.pipelines.lake.records import restored, stored
from tidegate.pipelines.runtime.epochs.plan import (
    Asked,
    Bounds,
    Lot,
    Pin,
    ReleaseKind,
    ReleasePlan,
    Span,
    StateSpan,
    Taken,
    all_of,
    digest,
    union,
)

if TYPE_CHECKING:
    from tidegate.pipelines.connectors.protocol import Step, StoredStep


def stored_plan(row: EpochRow) -> ReleasePlan:
    """A plan of a statement, read back. Raises LakeError if a newer Tidegate planned it."""
    return restored(ReleasePlan, {**row.plan, "insert": insert_of(row.owner) or "", "epoch": row.epoch}, row.place)


def source_row(owner: str, generation: int, epoch: int, planned_at: int, step: Step) -> EpochRow:
    """A source's plan as a control row."""
    plan = stored(step)
    return EpochRow(owner, generation, epoch, "source", planned_at, plan, digest(plan))


def stored_step(row: EpochRow) -> StoredStep:
    """A source's plan, read back. Raises LakeError if a newer Tidegate planned it."""
    from tidegate.pipelines.connectors.protocol import Step, StoredStep

    return StoredStep(restored(Step, row.plan, row.place), row.generation, row.epoch, row.planned_at)


__all__ = [
    "Asked", "Bounds", "Lot", "Pin", "ReleaseKind", "ReleasePlan", "Span", "StateSpan", "Taken", "all_of", "digest",
    "insert_of", "insert_owner", "source_row", "stored_plan", "stored_step", "union",
]  # fmt: skip
