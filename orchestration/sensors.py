"""The alerting sensor. What a tick does is in tidegate.orchestration.alerting, which is imported by the tick, so that a
code location does not wait for it."""

from __future__ import annotations

import dagster as dg

from tidegate.orchestration.alerts.options import AlertOptions

NAME = "tidegate_alerts"
INTERVAL_S = 5
"""Dagster asks sensors every five seconds: so a look is ten seconds after the last one at the latest."""


def alerts_sensor(options: AlertOptions | None = None) -> dg.SensorDefinition:
    """The sensor with these options; what they leave open is taken from the environment, at every tick."""
    given = options or AlertOptions()

    @dg.sensor(
        name=NAME,
        minimum_interval_seconds=INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="One message for every problem, and one when it is over: a held gate, a failed run, a check that "
        "never ran, a build that does not flip, lag, a log about to be deleted, a quarantine that grows, rows that do "
        "not add up, an epoch that nobody finishes.",
    )
    def alert(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        from tidegate.orchestration.alerting import tick

        return tick(context, given.of_environment())

    return alert


ALERTS = (alerts_sensor(),)
"""It watches every Tidegate asset of the code location it is put into."""
