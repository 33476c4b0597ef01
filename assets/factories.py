"""From a compiled pipeline to Dagster's Definitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
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
from tidegate.assets.presentation import PipelineAsset, Presentation, zone_of
from tidegate.assets.resources import WAIT, TidegateResource
from tidegate.assets.selection import Parts, selected
from tidegate.assets.sources import source_assets
from tidegate.pipelines.lake import Layout
from tidegate.pipelines.sql.pipeline import Pipeline

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
    zone_of(look.timezone)
    folder = Layout(lake)
    names = Names(pipeline.name, steps=look.steps.name or "")
    names.keys(pipeline)
    parts = selected(pipeline, look)
    if look.translate is not None:
        names = names.with_keys(_translated(pipeline, parts, folder, names, look))
    assets, checks = _assets(pipeline, parts, folder, names, look)
    job = pipeline_job(names, _of_the_job(names, parts), look)
    schedules = [pipeline_schedule(names, job, look), maintenance_schedule(names, look)]
    if parts.comparable:
        schedules += reconcile_schedules(names, look)
    jobs = [job, *(operation.job(pipeline, folder, names, look) for operation in OPERATIONS)]
    if by_time := [insert for insert in parts.inserts if insert.time == "event" and look.partitions is not None]:
        jobs.append(by_time_job(by_time, names))
    return dg.Definitions(
        assets=assets,
        asset_checks=checks,
        jobs=jobs,
        schedules=schedules,
        resources={names.resource: TidegateResource.at(lake, master, dict(spark_config or {}), wait)},
    )


def _assets(
    pipeline: Pipeline, parts: Parts, lake: Layout, names: Names, look: Presentation
) -> tuple[list[dg.AssetsDefinition], list[dg.AssetChecksDefinition]]:
    """All assets of the selected parts, and the gate's checks."""
    assets = source_assets(pipeline, parts.sources, lake, names, look)
    checks = []
    for insert in parts.inserts:
        assets.append(staged_asset(pipeline, insert, lake, names, look))
        checks.append(gate_checks(pipeline, insert, lake, names, look))
        assets.append(published_asset(pipeline, insert, lake, names, look))
        if insert.time == "event" and look.partitions is not None:
            assets.append(by_time_asset(pipeline, insert, lake, names, look, look.partitions))
    assets.append(maintenance_asset(pipeline, parts.inserts, lake, names, look))
    if parts.comparable:
        assets.append(reconcile_asset(pipeline, parts.comparable, lake, names, look))
    return assets, checks


def _translated(
    pipeline: Pipeline, parts: Parts, lake: Layout, names: Names, look: Presentation
) -> dict[dg.AssetKey, dg.AssetKey]:
    """The key of every asset as a person has chosen it, by its own: asked for before any asset names another one."""
    keys: dict[dg.AssetKey, dg.AssetKey] = {}
    translate = look.translate
    assert translate is not None

    def noted(asset: PipelineAsset) -> dg.AssetSpec:
        spec = translate(asset)
        if isinstance(spec, dg.AssetSpec):
            keys[asset.spec.key] = spec.key
        return spec

    _assets(pipeline, parts, lake, names, replace(look, translate=noted))
    return keys


def _of_the_job(names: Names, parts: Parts) -> list[dg.AssetKey]:
    released = [key for insert in parts.inserts for key in (names.staged(insert), names.published(insert))]
    return [*(names.source(table.name) for table in parts.sources), *released]
