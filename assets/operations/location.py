"""The operations of a code location: a few jobs and schedules, however many pipelines it has."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import dagster as dg

from tidegate.assets.operations.operation import PREFIX, Operation
from tidegate.assets.operations.operations import (
    backfill,
    dry_run,
    maintenance,
    quarantine_discard,
    quarantine_list,
    quarantine_release,
    reconcile,
)
from tidegate.assets.operations.partitions import fillable
from tidegate.assets.presentation import OnLake, Presentation
from tidegate.pipelines.errors import PlanningError

WEEKLY = "30 3 * * 0"
"""Sundays at 03:30: the schedule of maintenance, which is stopped until it is turned on."""
_OF_ALL = (dry_run, quarantine_list, quarantine_release, quarantine_discard, maintenance)
_USUAL = {WEEKLY, Presentation().reconcile_cron}


def operations(pipelines: Sequence[OnLake], prefix: str = PREFIX) -> dg.Definitions:
    """The jobs of all these pipelines, and their schedules: one for each time that pipelines are looked after at.

    Raises PlanningError where a pipeline's own job has the name of one of them.
    """
    if not pipelines:
        return dg.Definitions()
    jobs = [operation.job(pipelines, prefix) for operation in _OF_ALL]
    by_zone: dict[str, list[OnLake]] = {}
    for on in pipelines:
        by_zone.setdefault(on.look.timezone, []).append(on)
    stopped, running = dg.DefaultScheduleStatus.STOPPED, dg.DefaultScheduleStatus.RUNNING
    schedules = [_schedule(maintenance, jobs[-1], WEEKLY, zone, ons, stopped) for zone, ons in by_zone.items()]
    if filled := [on for on in pipelines if fillable(on)]:
        jobs.append(backfill.job(filled, prefix))
    compared = [on for on in pipelines if on.parts.comparable]
    if compared:
        jobs.append(reconcile.job(compared, prefix))
        times: dict[tuple[str, str], list[OnLake]] = {}
        for on in compared:
            if on.look.reconcile_cron is not None:
                times.setdefault((on.look.reconcile_cron, on.look.timezone), []).append(on)
        schedules += [_schedule(reconcile, jobs[-1], cron, zone, ons, running) for (cron, zone), ons in times.items()]
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
