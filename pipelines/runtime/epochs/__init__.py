"""What an epoch is, as it is stored before it runs: a record for each kind of plan, with what it reads and counts.

StreamPlan      in processing time: what has landed
EventTimePlan   what the combined watermark has reached
BackfillPlan    spans of time released again, replacing earlier epochs
RequeuePlan     rows out of quarantine
ProcessPlan     what has landed of all inputs of a process
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from tidegate.pipelines.errors import LakeError
from tidegate.pipelines.lake import EpochRow
from tidegate.pipelines.lake.records import read_from, restored
from tidegate.pipelines.runtime.epochs.kinds import (
    NOTHING_RELEASED,
    Backfill,
    BackfillPlan,
    EventTimePlan,
    EventTimeRequeue,
    FromQuarantine,
    InputSpan,
    ProcessPlan,
    ProcessSpan,
    RequeuePlan,
    StreamRequeue,
    TimeSpan,
    requeued,
    union,
)
from tidegate.pipelines.runtime.epochs.plan import (
    InputRange,
    Landed,
    Lot,
    Pin,
    ReleaseKind,
    ReleasePlan,
    Span,
    StreamPlan,
    digest,
    insert_of,
    insert_owner,
)

if TYPE_CHECKING:
    from tidegate.pipelines.connectors.protocol import Step, StoredStep

_FIELDS: dict[str, type[Any]] = {
    "time": TimeSpan,
    "backfill": Backfill,
    "from_quarantine": FromQuarantine,
    "process": ProcessSpan,
}
"""The fields that only some kinds store, and the type that each is read back as."""

_KINDS: dict[frozenset[str], type[ReleasePlan]] = {
    frozenset(): StreamPlan,
    frozenset({"time"}): EventTimePlan,
    frozenset({"time", "backfill"}): BackfillPlan,
    frozenset({"from_quarantine"}): StreamRequeue,
    frozenset({"time", "from_quarantine"}): EventTimeRequeue,
    frozenset({"process"}): ProcessPlan,
}
"""The kind of a plan by which of _FIELDS it stores."""


def stored_plan(row: EpochRow) -> ReleasePlan:
    """A plan of an INSERT or a process, read back as its kind. Raises LakeError if the kind is not known."""
    plan: dict[str, Any] = {name: value for name, value in row.plan.items() if name not in _FIELDS}
    own = [name for name in _FIELDS if row.plan.get(name)]
    insert, kind = row.owner.removeprefix("insert "), _KINDS.get(frozenset(own))
    unknown = plan.keys() - {item.name for item in fields(ReleasePlan)}
    if kind is None or unknown:
        raise LakeError(
            f"the plan of epoch {row.epoch} of {insert} is of no kind that this Tidegate has: "
            f"{', '.join(sorted(unknown) or own)}",
            where=f"{insert}, generation {row.generation}, epoch {row.epoch}",
            state="nothing was changed",
            next_command="install the Tidegate that has planned it, or a newer one",
        )
    with read_from(row):
        plan |= {name: restored(_FIELDS[name], row.plan[name]) for name in own}
        plan["pins"] = tuple(restored(Pin, pin) for pin in plan["pins"])
    return kind(insert=insert, generation=row.generation, epoch=row.epoch, **plan)


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
    "NOTHING_RELEASED",
    "Backfill",
    "BackfillPlan",
    "EventTimePlan",
    "EventTimeRequeue",
    "FromQuarantine",
    "InputRange",
    "InputSpan",
    "Landed",
    "Lot",
    "Pin",
    "ProcessPlan",
    "ProcessSpan",
    "ReleaseKind",
    "ReleasePlan",
    "RequeuePlan",
    "Span",
    "StreamPlan",
    "StreamRequeue",
    "TimeSpan",
    "digest",
    "insert_of",
    "insert_owner",
    "requeued",
    "source_row",
    "stored_plan",
    "stored_step",
    "union",
]
