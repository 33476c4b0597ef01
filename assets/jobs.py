"""The job of a pipeline, and the schedule that starts it."""

from __future__ import annotations

import json
from collections.abc import Collection
from time import time

import dagster as dg

from tidegate.assets.failures import NO_RETRY
from tidegate.assets.names import Names
from tidegate.assets.presentation import Presentation
from tidegate.assets.selection import Parts
from tidegate.assets.ticks import HELD_TAG, NOTHING_NEW, Ticks

PIPELINE_TAG = "tidegate/pipeline"
"""Run tag: whose job it is."""

IN_PROGRESS = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def job_tags(names: Names, look: Presentation | None = None) -> dict[str, str]:
    """The tags of every job. A crashed run may be tried again, a failed step is not."""
    own = {PIPELINE_TAG: names.pipeline, **NO_RETRY}
    return {**own, **(look.tags if look else {})}


def _keys(names: Names, parts: Parts, held: Collection[str] = ()) -> list[dg.AssetKey]:
    """The assets of the job; without those of `held` INSERTs."""
    released = [insert for insert in parts.inserts if insert.id not in held]
    sources = [names.source(table.name) for table in parts.sources]
    return [*sources, *(key for insert in released for key in (names.staged(insert), names.published(insert)))]


def pipeline_job(names: Names, parts: Parts, look: Presentation) -> dg.JobDefinition:
    """Sources, staged, checks and published of one pipeline, in one process: their Spark steps share a session."""
    unresolved = dg.define_asset_job(
        names.job,
        selection=dg.AssetSelection.assets(*_keys(names, parts)),
        executor_def=dg.in_process_executor,
        description="Land what the sources have, then stage, judge and publish the next epoch of every INSERT.",
        tags=job_tags(names, look),
    )
    return unresolved  # type: ignore[return-value]


def pipeline_schedule(
    names: Names, parts: Parts, job: dg.JobDefinition, look: Presentation, ticks: Ticks
) -> dg.ScheduleDefinition:
    """Starts the job at every tick of `cron`, unless its last run is still going or a run would find nothing to do.
    What the gate holds is left out until a person has decided: its check stays failed, and no run asks it again.
    Stopped until it is turned on."""

    @dg.schedule(
        name=names.schedule,
        job=job,
        cron_schedule=look.cron,
        execution_timezone=look.timezone,
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description=f"Runs {names.job} by cron ({look.cron}, {look.timezone}); a tick is passed over while a run is in "
        "progress, and where a run would find nothing to do.",
    )
    def tick(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        going = context.instance.get_runs(dg.RunsFilter(job_name=names.job, statuses=IN_PROGRESS), limit=1)
        if going:
            return dg.SkipReason(f"run {going[0].run_id} is still in progress")
        last = context.instance.get_run_records(dg.RunsFilter(job_name=names.job), limit=1)
        found = ticks.answer(last[0] if last else None, time())
        held = ", ".join(found.held)
        left_out = f"; left out, until a person decides what the gate holds: {held}" if held else ""
        if not found.reason:
            return dg.SkipReason(NOTHING_NEW + left_out)
        context.log.info(f"{names.job} is started: {found.reason}{left_out}")
        if not held:
            return dg.RunRequest()
        tags = {HELD_TAG: json.dumps(found.held)}
        return dg.RunRequest(asset_selection=_keys(names, parts, found.held), tags=tags)

    return tick
