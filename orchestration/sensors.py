"""The sensors that alert: one reads the lakes for held epochs, one reads finished runs. One message per incident.

What was told is remembered in the sensor's cursor, and so is what a webhook did not take: it is tried again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from orchestration import webhook
from orchestration.incidents import Incident, held_epoch, is_watched, run_incident, scrub, watched_inserts

INTERVAL_S = 10
ATTEMPTS = 30
"""Ticks over which an undelivered alert is tried again."""
REMEMBERED = 200
"""Runs whose incidents are remembered; more than can end between two ticks."""
FINISHED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]

_logger = logging.getLogger("tidegate.alerts")


@dataclass(frozen=True)
class Pending:
    """An alert that is still to be delivered, after `attempts` that failed."""

    incident: Incident
    attempts: int = 0


@dataclass(frozen=True)
class Memory:
    """A sensor's cursor. `told`: keys of incidents; `since`: when the newest run that was looked at was updated (s,
    UTC), None before the first tick."""

    told: tuple[str, ...] = ()
    pending: tuple[Pending, ...] = ()
    since: float | None = None

    @classmethod
    def of(cls, cursor: str | None) -> Memory:
        if not cursor:
            return cls()
        stored: dict[str, Any] = json.loads(cursor)
        pending = tuple(Pending(Incident.restored(item["incident"]), item["attempts"]) for item in stored["pending"])
        return cls(tuple(stored["told"]), pending, stored["since"])

    def cursor(self) -> str:
        pending = [{"incident": item.incident.stored(), "attempts": item.attempts} for item in self.pending]
        return json.dumps({"told": self.told, "pending": pending, "since": self.since})


def tell(incidents: Iterable[Incident], pending: Sequence[Pending], log: logging.Logger) -> tuple[Pending, ...]:
    """Log the incidents and send them, and what is pending, to the webhook. What it did not take is given back."""
    queue = list(pending)
    for incident in incidents:
        text = scrub(incident.text)
        log.error(text)
        _logger.error(text)
        queue.append(Pending(incident))
    url = webhook.address()
    return () if url is None else tuple(item for item in (_send(url, item, log) for item in queue) if item is not None)


def _send(url: str, item: Pending, log: logging.Logger) -> Pending | None:
    try:
        webhook.post(url, item.incident)
    except webhook.Undelivered as error:
        attempts = item.attempts + 1
        again = "it is tried again" if attempts < ATTEMPTS else "it is given up"
        told = f"the webhook did not take the alert [{item.incident.key}]: {error}; {again}"
        log.warning(told)
        _logger.warning(told)
        return replace(item, attempts=attempts) if attempts < ATTEMPTS else None
    log.info(f"the webhook took the alert [{item.incident.key}]")
    return None


def _answer(memory: Memory, incidents: Sequence[Incident]) -> dg.SensorResult:
    said = f"told: {', '.join(incident.key for incident in incidents)}" if incidents else "nothing new to tell"
    return dg.SensorResult(skip_reason=dg.SkipReason(said), cursor=memory.cursor())


@dg.sensor(
    name="tidegate_held_gates",
    minimum_interval_seconds=INTERVAL_S,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Alerts once for every epoch that a gate holds, whoever staged it (log, and $TIDEGATE_WEBHOOK_URL).",
)
def held_gates(context: dg.SensorEvaluationContext) -> dg.SensorResult:
    """An epoch is told once; it is forgotten when a person has released or discarded it."""
    memory = Memory.of(context.cursor)
    assert context.repository_def is not None
    held = [found for found in map(held_epoch, watched_inserts(context.repository_def)) if found is not None]
    new = [incident for incident in held if incident.key not in memory.told]
    pending = tell(new, memory.pending, context.log)
    return _answer(Memory(tuple(incident.key for incident in held), pending), new)


@dg.sensor(
    name="tidegate_runs",
    minimum_interval_seconds=INTERVAL_S,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Alerts once for every run that failed, or that left a planned check without a result "
    "(log, and $TIDEGATE_WEBHOOK_URL).",
)
def finished_runs(context: dg.SensorEvaluationContext) -> dg.SensorResult:
    """Looks at every run that has finished since the last tick; the first tick only takes the time."""
    memory = Memory.of(context.cursor)
    if memory.since is None:
        return _answer(replace(memory, since=datetime.now(UTC).timestamp()), [])
    assert context.repository_def is not None
    watched = watched_inserts(context.repository_def)
    records = context.instance.get_run_records(
        dg.RunsFilter(statuses=FINISHED, updated_after=datetime.fromtimestamp(memory.since, UTC)),
        order_by="update_timestamp",
        ascending=True,
        limit=REMEMBERED,
    )
    found = [
        run_incident(context.instance, record.dagster_run, watched)
        for record in records
        if is_watched(record.dagster_run, watched)
    ]
    new = [incident for incident in found if incident is not None and incident.key not in memory.told]
    pending = tell(new, memory.pending, context.log)
    # A hair before the newest: runs that were updated in that very instant are looked at again, and told once.
    since = max([memory.since, *(record.update_timestamp.timestamp() - 0.001 for record in records)])
    told = (*memory.told, *(incident.key for incident in new))[-REMEMBERED:]
    return _answer(Memory(told, pending, since), new)


ALERTS = (held_gates, finished_runs)
"""Both sensors; they watch every Tidegate asset of the code location they are put into."""
