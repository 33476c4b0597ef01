"""What an epoch is, as it is stored before it runs: one record (`plan.ReleasePlan`), with what it reads and counts."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from tidegate.pipelines.errors import LakeError
from tidegate.pipelines.generations import insert_of, insert_owner
from tidegate.pipelines.lake import EpochRow
from tidegate.pipelines.lake.records import read_from, restored
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
    """A plan of a statement, read back. Raises LakeError if it has a field that is not known."""
    insert, unknown = insert_of(row.owner) or "", row.plan.keys() - {item.name for item in fields(ReleasePlan)}
    if unknown:
        raise LakeError(
            f"the plan of epoch {row.epoch} of {insert} has what this Tidegate does not know: "
            f"{', '.join(sorted(unknown))}",
            where=f"{insert}, generation {row.generation}, epoch {row.epoch}",
            state="nothing was changed",
            next_command="install the Tidegate that has planned it, or a newer one",
        )
    with read_from(row):
        return restored(ReleasePlan, {**row.plan, "insert": insert, "epoch": row.epoch})


def source_row(
    owner: str, generation: int, epoch: int, planned_at: int, step: Step, definition: int | None = None
) -> EpochRow:
    """A source's plan as a control row. `definition`: the number of the definition that it is made under."""
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
    """A source's plan, read back. Raises LakeError if a newer Tidegate planned it."""
    plan = {name: value for name, value in row.plan.items() if name != "definition"}
    from tidegate.pipelines.connectors.protocol import Step, StoredStep

    return StoredStep(restored(Step, plan, row.place), row.generation, row.epoch, row.planned_at)


__all__ = [
    "Asked",
    "Bounds",
    "Lot",
    "Pin",
    "ReleaseKind",
    "ReleasePlan",
    "Span",
    "StateSpan",
    "Taken",
    "all_of",
    "digest",
    "insert_of",
    "insert_owner",
    "source_row",
    "stored_plan",
    "stored_step",
    "union",
]
