"""The alerts as a component, for a project of your own.

type: tidegate.TidegateAlerts
attributes:
  channels: ["${OPS_MAIL}", "slack://${SLACK_TOKEN}/#data"]
  flip_within: 30 min
"""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated

import dagster as dg
from pydantic import Field

from tidegate.assets.components import Alerting
from tidegate.orchestration.alerts.options import AlertOptions, parsed
from tidegate.orchestration.sensors import alerts_sensor
from tidegate.pipelines.syntax.durations import EXAMPLES


class TidegateAlerts(Alerting, dg.Model, dg.Resolvable):
    """A sensor that reports every incident once, and once its end, of every Tidegate asset of the code location.

    Each option that is left out is taken from $TIDEGATE_ALERT_<OPTION>, else it is as by default."""

    channels: Annotated[
        list[str],
        Field(
            default_factory=list,
            description="Apprise URLs, with ${VARIABLE} for what is secret. Beside them: $TIDEGATE_ALERT_URLS.",
            examples=[["${OPS_MAIL}"]],
        ),
    ]
    flip_within: Annotated[
        str | None, Field(description="A build that has not flipped so long after its first plan; 30 min.")
    ] = None
    max_lag: Annotated[str | None, Field(description="A source that is further behind; 15 min.")] = None
    retention_left: Annotated[
        float | None,
        Field(description="The part of the binlog's retention that is left when it is reported; 0.25.", ge=0, le=1),
    ] = None
    quarantine_rows: Annotated[
        int | None, Field(description="Rows that may go to a quarantine within quarantine_window; 100.", ge=0)
    ] = None
    quarantine_window: Annotated[str | None, Field(description="1 h.")] = None
    keys: Annotated[
        int | None, Field(description="Keys in a message; 0 keeps data out of messages. 10.", ge=0, le=100)
    ] = None
    dagster_url: Annotated[
        str | None, Field(description="Where the UI is, for links. $TIDEGATE_DAGSTER_URL, else port 3000 of loopback.")
    ] = None

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        return dg.ComponentTypeSpec(
            description="Alerts on held gates, failed runs, builds that do not flip, lag and growing quarantines.",
            tags=["alerts"],
        )

    def options(self) -> AlertOptions:
        """What was given, over the defaults. Raises PlanningError."""
        written = {item.name: getattr(self, item.name, None) for item in fields(AlertOptions)}
        given = {name: value for name, value in written.items() if value not in (None, "")}
        spans = {name: given[name] for name in ("flip_within", "max_lag", "quarantine_window") if name in given}
        mend = f"write a duration, such as {EXAMPLES}"
        given |= parsed(spans, "TidegateAlerts", "nothing was loaded", mend)
        return AlertOptions(**{**given, "channels": tuple(self.channels), "given": frozenset(given)})

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        return dg.Definitions(sensors=[alerts_sensor(self.options())])
