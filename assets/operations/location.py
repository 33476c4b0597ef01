"""The operations of a code location: a few jobs and schedules, however many pipelines it has."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from tidegate.assets.operations.backfill import BACKFILL, fillable
from tidegate.assets.operations.operation import PREFIX, Operation, OperationConfig, Started
from tidegate.assets.operations.quarantine import QUARANTINE_DISCARD, QUARANTINE_LIST, QUARANTINE_RELEASE
from tidegate.assets.operations.upkeep import MAINTENANCE, RECONCILE, WEEKLY
from tidegate.assets.presentation import OnLake, Presentation
from tidegate.assets.text import listed
from tidegate.pipelines.errors import PlanningError

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
    title="Show what a run would do next. Nothing is read, stored or released.",
    step="plan_only",
    description="Asks every source for its next step and plans every INSERT's next epoch. Stores neither.",
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
            ", ".join(map(str, item.plan.pins)) if item.plan else None,
            item.reason,
        )
        for item in found.inserts
    ]
    of_sources = ("source", "next epoch", "phase", "what", "flips", "unfinished")
    of_inserts = ("INSERT", "state", "next epoch", "rows", "pins", "why")
    return listed("sources", "source", of_sources, sources) | listed("INSERTs", "INSERT", of_inserts, inserts)


_LOOKS_AND_QUARANTINE = (DRY_RUN, QUARANTINE_LIST, QUARANTINE_RELEASE, QUARANTINE_DISCARD)
_USUAL = {WEEKLY, Presentation().reconcile_cron}


def operations(pipelines: Sequence[OnLake], prefix: str = PREFIX) -> dg.Definitions:
    """The jobs of all these pipelines, and their schedules: one for each time that pipelines are looked after at.

    Raises PlanningError where a pipeline's own job has the name of one of them.
    """
    if not pipelines:
        return dg.Definitions()
    jobs = [operation.job(pipelines, prefix) for operation in (*_LOOKS_AND_QUARANTINE, MAINTENANCE)]
    by_zone: dict[str, list[OnLake]] = {}
    for on in pipelines:
        by_zone.setdefault(on.look.timezone, []).append(on)
    stopped, running = dg.DefaultScheduleStatus.STOPPED, dg.DefaultScheduleStatus.RUNNING
    schedules = [_schedule(MAINTENANCE, jobs[-1], WEEKLY, zone, ons, stopped) for zone, ons in by_zone.items()]
    if filled := [on for on in pipelines if fillable(on)]:
        jobs.append(BACKFILL.job(filled, prefix))
    compared = [on for on in pipelines if on.parts.comparable]
    if compared:
        jobs.append(RECONCILE.job(compared, prefix))
        times: dict[tuple[str, str], list[OnLake]] = {}
        for on in compared:
            if on.look.reconcile_cron is not None:
                times.setdefault((on.look.reconcile_cron, on.look.timezone), []).append(on)
        schedules += [_schedule(RECONCILE, jobs[-1], cron, zone, ons, running) for (cron, zone), ons in times.items()]
    taken = {job.name for job in jobs}
    for on in pipelines:
        if on.names.job in taken:
            raise PlanningError(
                f"the pipeline {on.pipeline.name} has the name of the job {on.names.job} of this code location, which "
                "is an operation of all its pipelines",
                where=str(on.look.script or ""),
                state="nothing was loaded",
                next_command=f"give it another `name`, such as {on.pipeline.name}_2, or its script another file name",
            )
    return dg.Definitions(jobs=jobs, schedules=schedules)


def _schedule(
    operation: Operation,
    job: dg.JobDefinition,
    cron: str,
    timezone: str,
    pipelines: Sequence[OnLake],
    status: dg.DefaultScheduleStatus,
) -> dg.ScheduleDefinition:
    """A run for each of these pipelines at every tick. Another time than the usual is in the schedule's name, so that
    one that was turned on stays so whatever other pipelines are added."""
    usual = cron in _USUAL and timezone == "UTC"
    suffix = "" if usual else f"_{hashlib.sha256(f'{cron} {timezone}'.encode()).hexdigest()[:8]}"
    names = ", ".join(on.pipeline.name for on in pipelines)

    @dg.schedule(
        name=f"{job.name}{suffix}_schedule",
        job=job,
        cron_schedule=cron,
        execution_timezone=timezone,
        default_status=status,
        description=f"Of {names}, one run each ({cron}, {timezone}).",
    )
    def tick() -> list[dg.RunRequest]:
        return [operation.request(on) for on in pipelines]

    return tick
