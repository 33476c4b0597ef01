"""The alerts as a component, for a project of your own.

type: orchestration.components.TidegateAlerts
"""

from __future__ import annotations

import dagster as dg

from orchestration.sensors import ALERTS


class TidegateAlerts(dg.Component, dg.Model, dg.Resolvable):
    """Two sensors that alert, once per incident, on held gates, failed runs and checks that did not run.

    They log, and post to the webhook that $TIDEGATE_WEBHOOK_URL names; they watch every Tidegate asset of the code
    location."""

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        return dg.ComponentTypeSpec(
            description="Alerts on held gates, failed runs and checks that did not run.", tags=["alerts"]
        )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        return dg.Definitions(sensors=list(ALERTS))
