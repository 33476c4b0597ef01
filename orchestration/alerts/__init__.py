"""Alerts: what a person must know, sent once when it begins and once when it is over.

    conditions of a tick (gates, builds, lag, logs, runs)  ->  Incident
    Memory (the sensor's cursor) knows which are open and what is still to be delivered
    channels (Apprise, a JSON webhook) take the messages; one that does not is itself reported to the others

Sending happens in the daemon's sensor (tidegate.orchestration.alerting), never in a run: no channel can fail one.
"""

from tidegate.orchestration.alerts.incident import Incident, Kind, Message, scrub
from tidegate.orchestration.alerts.options import AlertOptions

__all__ = ["AlertOptions", "Incident", "Kind", "Message", "scrub"]
