"""The sensor that keeps Dagster true to the lakes: its definition, which loads with a code location."""

from __future__ import annotations

from collections.abc import Sequence
from time import time

import dagster as dg

LOOK_EVERY_S = 5
"""Dagster asks sensors every five seconds: so a look is ten seconds after the last one at the latest."""


def continuous_sensor(prefix: str, pipelines: Sequence[str]) -> dg.SensorDefinition:
    """Shows what `tidegate run` publishes of these pipelines as materialisations and check results, and ends the runs
    of this code location whose process was lost. What a look does is in `tidegate.assets.continuous`, which is loaded
    then: a code location is not to wait for it."""

    @dg.sensor(
        name=f"{prefix}_continuous",
        minimum_interval_seconds=LOOK_EVERY_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Shows what a process outside of Dagster publishes (tidegate run --continuous): a materialisation "
        "a minute and target at most, and the gate's verdicts. Ends runs whose process was lost.",
    )
    def shown(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        from tidegate.assets.continuous import look
        from tidegate.assets.lost_runs import UnknownRun, end_runs_that_were_lost

        origin, now = context.code_location_origin, time()
        unknown: list[str] = []
        for run in end_runs_that_were_lost(context.instance, now, origin.location_name if origin else ""):
            context.log.warning(str(run))
            unknown += [str(run)] if isinstance(run, UnknownRun) else []
        return look(context, frozenset(pipelines), now, unknown)

    return shown
