"""What a run would do next, as a job of Dagster. It is no asset: nothing is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegate.assets.operations.operation import Operation, OperationConfig, Started
from tidegate.assets.text import listed

if TYPE_CHECKING:
    from tidegate.pipelines.runtime.dry_run import DryRun


class DryRunConfig(OperationConfig):
    """What is planned (in the launchpad).

    Attributes:
        resnapshot: Names of tables that are planned as if they began a new generation.
    """

    resnapshot: list[str] = []  # noqa: RUF012 pydantic copies it


def _plan_only(started: Started, config: DryRunConfig) -> int:
    from tidegate.pipelines.runtime.dry_run import dry_run

    found = dry_run(started.runner, config.resnapshot)
    started.context.add_output_metadata(of_dry_run(found))
    moving = [item for item in found.inserts if item.state in ("next", "unfinished")]
    return sum(item.step is not None for item in found.sources) + len(moving)


DRY_RUN = Operation(
    name="dry_run",
    title="Tell what a run would do next: nothing is read, stored or released.",
    step="plan_only",
    description="Asks every source for its next step and plans every INSERT's next epoch, and stores neither.",
    gives="Sources and INSERTs that have something to do.",
    config=DryRunConfig,
    run=_plan_only,
)
"""It takes no lease and stores nothing in the lake."""


def of_dry_run(found: DryRun) -> dict[str, Any]:
    """A line for each source and each INSERT."""
    sources = [
        (
            item.table,
            f"{item.generation}/{item.epoch}" if item.step else None,
            item.step.phase if item.step else None,
            item.step.summary if item.step else "nothing to land",
            item.step.flips if item.step else None,
            item.unfinished,
        )
        for item in found.sources
    ]
    inserts = [
        (
            item.insert,
            item.state,
            f"{item.plan.generation}/{item.plan.epoch}" if item.plan else None,
            item.rows,
            ", ".join(f"{pin.table} {pin.generation}/{pin.epoch}" for pin in item.plan.pins) if item.plan else None,
            item.reason,
        )
        for item in found.inserts
    ]
    of_sources = ("source", "next epoch", "phase", "what", "flips", "unfinished")
    of_inserts = ("INSERT", "state", "next epoch", "rows", "pins", "why")
    return listed("sources", "source", of_sources, sources) | listed("INSERTs", "INSERT", of_inserts, inserts)
