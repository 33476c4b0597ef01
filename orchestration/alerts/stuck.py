"""A table or an INSERT whose step fails in the continuous mode, which goes on with the others. Read from the lake."""

from __future__ import annotations

import dagster as dg

from tidegate.orchestration.alerts.incident import Incident
from tidegate.orchestration.alerts.options import AlertOptions
from tidegate.orchestration.alerts.watched import WatchedInsert, WatchedTable, last_run, opened, positions
from tidegate.orchestration.text import moment, sentence
from tidegate.pipelines.commands import NextCommand
from tidegate.pipelines.remedies import unsaid


def stuck(
    watched: WatchedTable | WatchedInsert, instance: dg.DagsterInstance, options: AlertOptions
) -> Incident | None:
    """What failed and is tried again, until a step of it has worked, whoever ran it."""
    lake = opened(watched.lake)
    table = watched.table if isinstance(watched, WatchedTable) else None
    owner = watched.table if isinstance(watched, WatchedTable) else watched.owner
    last = lake.stuck.last(owner) if lake else None
    if lake is None or last is None or last.over:
        return None
    key = watched.key if isinstance(watched, WatchedTable) else watched.staged
    return Incident(
        key=f"stuck {watched.subject} {last.since}",
        kind="stuck",
        title=f"{watched.name} is stuck since {moment(last.since)} UTC: {sentence(last.what)}.",
        pipeline=watched.pipeline,
        said=(
            "What it had committed is safe, and it is tried again. Others go on; an INSERT that joins to a stuck table "
            "in processing time waits, in event time its watermark holds it.",
            *((f"where: {last.where}",) if last.where else ()),
        ),
        positions=positions(lake, [table]) if table else {},
        run=last_run(instance, watched.pipeline, options.dagster_url, key),
        next=watched.commands.all(
            [*unsaid(last.what, str(last.advice)), *([last.advice] if last.advice else []), NextCommand("status")]
        ),
        details={"owner": owner, "error": last.kind, "since": last.since, "lake": watched.lake},
        subject=f"what {watched.name} was stuck at",
    )
