"""From a compiled pipeline to Dagster's Definitions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import dagster as dg

from tidegate.assets.inserts import gate_checks, published_asset, staged_asset
from tidegate.assets.jobs import pipeline_job, pipeline_schedule
from tidegate.assets.names import Names
from tidegate.assets.operations.backfill import by_time_asset, by_time_job
from tidegate.assets.operations.dry_run import DRY_RUN
from tidegate.assets.operations.maintenance import maintenance_asset, maintenance_schedule
from tidegate.assets.operations.quarantine import QUARANTINE_DISCARD, QUARANTINE_RELEASE
from tidegate.assets.operations.quarantine_list import QUARANTINE_LIST
from tidegate.assets.operations.reconcile import reconcile_asset, reconcile_schedules
from tidegate.assets.presentation import Presentation
from tidegate.assets.resources import WAIT, TidegateResource
from tidegate.assets.sources import source_assets
from tidegate.pipelines.lake import Layout
from tidegate.pipelines.sql.pipeline import Pipeline
from tidegate.quality_checks.against_source import comparable

OPERATIONS = (DRY_RUN, QUARANTINE_LIST, QUARANTINE_RELEASE, QUARANTINE_DISCARD)


def build_pipeline_definitions(
    pipeline: Pipeline,
    *,
    lake: str | Path,
    master: str | None = None,
    spark_config: Mapping[str, str] | None = None,
    look: Presentation | None = None,
    wait: str = WAIT,
) -> dg.Definitions:
    """The assets, checks, job, schedule and resource of one pipeline. Starts nothing and reads no data.

    Args:
        pipeline: What compile_script gave; its name prefixes every key.
        lake: The lake's folder; made at the first run.
        master: A Spark master URL; $TIDEGATE_MASTER, else this machine, when None.
        spark_config: Laid over the session's settings; no secrets.
        look: Owners, tags, cron and the like.
        wait: How long a step waits for a table or an INSERT that another runner works on ("0 s": it fails at once).

    Raises PlanningError when two parts would be the same asset, a secret would be shown, or `wait` is no duration.
    """
    look = look or Presentation()
    names = Names(pipeline.name)
    keys = names.keys(pipeline)
    folder = Layout(lake)
    assets = source_assets(pipeline, folder, names, look)
    checks = []
    for insert in pipeline.inserts:
        assets.append(staged_asset(pipeline, insert, folder, names, look))
        checks.append(gate_checks(pipeline, insert, folder, names, look))
        assets.append(published_asset(pipeline, insert, folder, names, look))
        if insert.time == "event" and look.partitions is not None:
            assets.append(by_time_asset(pipeline, insert, folder, names, look, look.partitions))
    assets.append(maintenance_asset(pipeline, folder, names, look))
    schedules = [maintenance_schedule(names)]
    if tables := comparable(pipeline):
        assets.append(reconcile_asset(pipeline, tables, folder, names, look))
        schedules += reconcile_schedules(names, look)
    job = pipeline_job(names, keys, look)
    jobs = [job, *(operation.job(pipeline, folder, names, look) for operation in OPERATIONS)]
    if look.partitions is not None and any(insert.time == "event" for insert in pipeline.inserts):
        jobs.append(by_time_job(pipeline, names))
    return dg.Definitions(
        assets=assets,
        asset_checks=checks,
        jobs=jobs,
        schedules=[pipeline_schedule(names, job, look), *schedules],
        resources={names.resource: TidegateResource.at(lake, master, dict(spark_config or {}), wait)},
    )
