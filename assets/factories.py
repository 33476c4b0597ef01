"""From a compiled pipeline to Dagster's Definitions."""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import time

import dagster as dg
import yaml

from tidegate.assets.inserts import gate_checks, published_asset, staged_asset
from tidegate.assets.jobs import Ticks, pipeline_job, pipeline_schedule, rest_of
from tidegate.assets.names import Names, refuse_equal_names
from tidegate.assets.operations.location import operations as operations_of
from tidegate.assets.operations.operation import PREFIX
from tidegate.assets.operations.partitions import by_time_asset
from tidegate.assets.operations.upkeep import reconcile_checks, upkeep_specs
from tidegate.assets.presentation import OnLake, PipelineAsset, Presentation, selected, zone_of
from tidegate.assets.resources import WAIT, TidegateResource
from tidegate.assets.sources import source_assets
from tidegate.pipelines.lake import Layout
from tidegate.pipelines.location import Address
from tidegate.pipelines.sql.compile import Pipeline

_log = logging.getLogger("dagster.tidegate")
"""Code servers show its warnings as they show Dagster's own."""


def build_pipeline_definitions(
    pipeline: Pipeline,
    *,
    lake: Address,
    master: str | None = None,
    spark_config: Mapping[str, str] | None = None,
    look: Presentation | None = None,
    wait: str = WAIT,
    operations: str = PREFIX,
) -> dg.Definitions:
    """The assets, checks, job, schedule and resource of one pipeline. Starts nothing and reads no data.

    Args:
        pipeline: What compile_script gave; its name prefixes every key.
        lake: The lake's folder; made at the first run.
        master: A Spark master URL; $TIDEGATE_MASTER, else this machine, when None.
        spark_config: Laid over the session's settings; no secrets.
        look: Owners, tags, cron and the like.
        wait: How long a step waits for a table or an INSERT that another runner works on ("0 s": it fails at once).
        operations: What the jobs of its operations begin with (`tidegate_dry_run`); another word where other pipelines
            of the code location have jobs of these names.

    Raises PlanningError when two parts would be the same asset, a secret would be shown, or `wait` is no duration.
    """
    own = on_lake(pipeline, lake=lake, master=master, spark_config=spark_config, look=look, wait=wait)
    return definitions_of(own, [own], operations)


def on_lake(
    pipeline: Pipeline,
    *,
    lake: Address,
    master: str | None = None,
    spark_config: Mapping[str, str] | None = None,
    look: Presentation | None = None,
    wait: str = WAIT,
) -> OnLake:
    """The input of the definitions; arguments and errors as in `build_pipeline_definitions`."""
    look = look or Presentation()
    zone_of(look.timezone)
    names = Names(pipeline.name, steps=look.steps.name or "")
    names.keys(pipeline)
    resource = TidegateResource.at(lake, master, dict(spark_config or {}), wait)
    made = OnLake(pipeline, Layout(lake), names, look, selected(pipeline, look), resource)
    return made if look.translate is None else replace(made, names=names.with_keys(_translated(made, look.translate)))


def is_first_load() -> bool:
    """Whether definitions are made for a code location, and not again for a run or a step of it: these are processes
    that multiprocessing starts, or `dagster api execute_run` and `execute_step`."""
    is_command_of_a_run = any(argument.startswith("execute_") for argument in sys.argv[1:])
    return multiprocessing.parent_process() is None and not is_command_of_a_run


def _is_queued_by_dagster() -> bool:
    """Whether dagster.yaml has a limit for pools, or lets one run go on at a time; False where it cannot be read."""
    home = os.environ.get("DAGSTER_HOME")
    if not home:
        return False
    try:
        text = Path(home, "dagster.yaml").read_text(encoding="utf-8")
        found = (yaml.safe_load(text) or {}).get("concurrency") or {}
        pools, runs = found.get("pools") or {}, found.get("runs") or {}
        return pools.get("default_limit") is not None or runs.get("max_concurrent_runs") == 1
    except (OSError, ValueError, AttributeError, yaml.YAMLError):  # Dagster itself says what is wrong with it
        return False


def definitions_of(own: OnLake, operated: Sequence[OnLake], prefix: str = PREFIX) -> dg.Definitions:
    """The definitions of one pipeline, with the operations for the pipelines `operated`: for one pipeline of a code
    location these are all of the location's, for the others none. The former also has the location's sensor, and warns
    if steps cannot be queued."""
    if operated and is_first_load() and not _is_queued_by_dagster():
        _log.warning(
            "Steps of %s that work on one table or INSERT wait for each other by its lease, and this process finds no "
            "limit for pools in $DAGSTER_HOME. Next, to have Dagster start one at a time and show which waits, in "
            "dagster.yaml: `concurrency: {pools: {default_limit: 1}}`.",
            ", ".join(on.pipeline.name for on in operated),
        )
    parts, job = own.parts, pipeline_job(own)
    assets, checks = _assets(own)
    tables, inserts = tuple(table.name for table in parts.sources), tuple(insert.id for insert in parts.inserts)
    ticks = Ticks(own.pipeline, tables, inserts, own.resource, rest_of(assets))
    made = dg.Definitions(
        assets=assets,
        asset_checks=checks,
        jobs=[job],
        schedules=[pipeline_schedule(own, job, ticks)],
        sensors=[continuous_sensor(prefix, [on.pipeline for on in operated])] if operated else [],
        resources={own.names.resource: own.resource},
    )
    return dg.Definitions.merge(made, operations_of(operated, prefix))


def location_definitions(pipelines: Sequence[OnLake]) -> dg.Definitions:
    """The definitions of several pipelines in one code location. Raises PlanningError where two have one name."""
    refuse_equal_names((on.pipeline.name, f"{on.look.script or 'a script'} (lake: {on.lake.root})") for on in pipelines)
    found = [definitions_of(on, () if number else pipelines) for number, on in enumerate(pipelines)]
    return dg.Definitions.merge(*found)


def _assets(on: OnLake) -> tuple[list[dg.AssetsDefinition | dg.AssetSpec], list[dg.AssetChecksDefinition]]:
    """All assets of the selected parts, and their checks."""
    assets: list[dg.AssetsDefinition | dg.AssetSpec] = [*source_assets(on)]
    checks: list[dg.AssetChecksDefinition] = []
    for insert in on.parts.inserts:
        assets.append(staged_asset(on, insert))
        checks.append(gate_checks(on, insert))
        assets.append(published_asset(on, insert))
        if insert.by_spans and on.look.partitions is not None:
            assets.append(by_time_asset(on, insert, on.look.partitions))
    assets += upkeep_specs(on)
    if on.parts.comparable:
        checks.append(reconcile_checks(on))
    return assets, checks


def _translated(on: OnLake, translate: Callable[[PipelineAsset], dg.AssetSpec]) -> dict[dg.AssetKey, dg.AssetKey]:
    """The key of every asset as a person has changed it, by Tidegate's own key: computed before any asset names another
    one."""
    keys: dict[dg.AssetKey, dg.AssetKey] = {}

    def noted(asset: PipelineAsset) -> dg.AssetSpec:
        spec = translate(asset)
        if isinstance(spec, dg.AssetSpec):
            keys[asset.spec.key] = spec.key
        return spec

    _assets(replace(on, look=replace(on.look, translate=noted)))
    return keys


LOOK_EVERY_S = 5
"""Dagster asks sensors every five seconds: so a look is ten seconds after the last one at the latest."""


def continuous_sensor(prefix: str, pipelines: Sequence[Pipeline]) -> dg.SensorDefinition:
    """Shows what `tidegate run` publishes of these pipelines as materialisations and check results. What a look does is
    in `tidegate.assets.continuous`, which is loaded then: a code location is not to wait for it."""

    @dg.sensor(
        name=f"{prefix}_continuous",
        minimum_interval_seconds=LOOK_EVERY_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Shows what a process outside of Dagster publishes (tidegate run --continuous): a materialisation "
        "a minute and target at most, and the gate's verdicts.",
    )
    def shown(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        from tidegate.assets.continuous import look

        return look(context, {pipeline.name for pipeline in pipelines}, time())

    return shown
