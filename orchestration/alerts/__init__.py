"""Alerts: problems that have begun or ended since the last tick of the sensor, sent once.

    pipelines/facts           ->  the problems of the lakes
    runs, dagster_problems    ->  those that only Dagster knows: failed runs, checks that never ran, queue, daemon
    Memory (the cursor)           knows which are open
    channels                      take the messages: Apprise, a JSON webhook

Sending happens in the daemon's sensor (tidegate.orchestration.alerting), never in a run: no channel can fail one.
"""

from tidegate.orchestration.alerts.options import AlertOptions

__all__ = ["AlertOptions"]
