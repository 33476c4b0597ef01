"""The sensor that shows what is published outside of Dagster: its definition, which loads with a code location."""

from __future__ import annotations

from collections.abc import Sequence
from time import time

import dagster as dg

LOOK_EVERY_S = 5
"""Dagster asks sensors every five seconds: so a look is ten seconds after the last one at the latest."""


def continuous_sensor(prefix: str, pipelines: Sequence[str]) -> dg.SensorDefinition:
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

        return look(context, frozenset(pipelines), time())

    return shown
