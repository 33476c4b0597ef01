"""The job of a pipeline, and the schedule that starts it."""

from __future__ import annotations

from collections.abc import Sequence
from time import time

import dagster as dg

from tidegate.assets.failures import NO_RETRY
from tidegate.assets.names import Names
from tidegate.assets.presentation import Presentation
from tidegate.assets.ticks import NOTHING_NEW, Ticks

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


def pipeline_job(names: Names, keys: Sequence[dg.AssetKey], look: Presentation) -> dg.JobDefinition:
    """Sources, staged, checks and published of one pipeline, in one process: their Spark steps share a session."""
    unresolved = dg.define_asset_job(
        names.job,
        selection=dg.AssetSelection.assets(*keys),
        executor_def=dg.in_process_executor,
        description="Land what the sources have, then stage, judge and publish the next epoch of every INSERT.",
        tags=job_tags(names, look),
    )
    return unresolved  # type: ignore[return-value]


def pipeline_schedule(names: Names, job: dg.JobDefinition, look: Presentation, ticks: Ticks) -> dg.ScheduleDefinition:
    """Starts the job at every tick of `cron`, unless its last run is still going or a run would find nothing to do.
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
        reason = ticks.reason(last[0] if last else None, time())
        if not reason:
            return dg.SkipReason(NOTHING_NEW)
        context.log.info(f"{names.job} is started: {reason}")
        return dg.RunRequest()

    return tick
