"""What a run would do next, as a job of Dagster. It is no asset: nothing is made."""

# No `from __future__ import annotations` here: Dagster reads the annotations of its functions as types.

from typing import Any

import dagster as dg

from assets.failures import explained
from assets.jobs import job_tags
from assets.names import Names
from assets.presentation import Presentation
from assets.resources import runner_of
from assets.text import markdown_table
from pipelines.commands import Commands
from pipelines.lake import Layout
from pipelines.runtime.dry_run import DryRun, dry_run
from pipelines.sql.pipeline import Pipeline


class DryRunConfig(dg.Config):
    """What is planned (in the launchpad).

    Attributes:
        resnapshot: Names of tables that are planned as if they began a new generation.
    """

    resnapshot: list[str] = []  # noqa: RUF012 pydantic copies it


def dry_run_job(pipeline: Pipeline, lake: Layout, names: Names, look: Presentation) -> dg.JobDefinition:
    """`<pipeline>_dry_run`. It takes no lease and stores nothing in the lake."""

    @dg.op(
        name=f"{names.job}_plan_only",
        out=dg.Out(int, description="Sources and INSERTs that have something to do."),
        required_resource_keys={names.resource},
        description="Asks every source for its next step and plans every INSERT's next epoch, and stores neither.",
    )
    def plan_only(context: dg.OpExecutionContext, config: DryRunConfig) -> int:
        with explained(Commands(look.script, lake.root)), runner_of(context, pipeline, names) as runner:
            found = dry_run(runner, config.resnapshot)
        context.add_output_metadata(of_dry_run(found))
        moving = [item for item in found.inserts if item.state in ("next", "unfinished")]
        return sum(item.step is not None for item in found.sources) + len(moving)

    @dg.job(name=f"{names.job}_dry_run", executor_def=dg.in_process_executor, tags=job_tags(names, look))
    def dry_run_job() -> None:
        """Tell what a run would do next: nothing is read, stored or released."""
        plan_only()

    return dry_run_job


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
    return {
        "sources": dg.MetadataValue.md(markdown_table(of_sources, sources)),
        "INSERTs": dg.MetadataValue.md(markdown_table(of_inserts, inserts)),
    }
