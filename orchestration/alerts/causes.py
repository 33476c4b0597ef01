"""One incident a cause: if a table is behind because a run was lost, waits in the queue, or could not be started while
the daemon was away, that is no incident of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import dagster as dg

from tidegate.assets.jobs import PIPELINE_TAG
from tidegate.assets.names import Names
from tidegate.assets.watched import Watched, WatchedTable, run_link
from tidegate.orchestration.alerts.incident import Incident
from tidegate.orchestration.alerts.memory import Memory, Open, Seen
from tidegate.orchestration.alerts.options import AlertOptions
from tidegate.pipelines.text import moment, seconds

QUEUED_S = 300.0
"""A run that has waited longer in Dagster's queue is an incident."""
AWAY_S = 120.0
"""A longer time between two ticks means that the daemon was away."""

_PLANNED = {dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED, dg.DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED}
_OF_RUNS = ("run-failed", "check-not-run")


def queued(
    instance: dg.DagsterInstance, found: Watched, options: AlertOptions, now: float, known: dict[str, str]
) -> Incident | None:
    """Watched runs that have waited too long in Dagster's queue: the queue is the cause, not the runs.

    `known`: the pipelines of queued runs that say only in their history what they make, by run id. It is updated, so
    that each of these histories is read once.
    """
    records = instance.get_run_records(dg.RunsFilter(statuses=[dg.DagsterRunStatus.QUEUED]), ascending=True)
    before, of = dict(known), dict[str, str]()
    known.clear()
    for run in (item.dagster_run for item in records if now - item.create_timestamp.timestamp() > QUEUED_S):
        of[run.run_id] = pipeline_of(run, found)
        if not of[run.run_id]:
            read = before.get(run.run_id)
            of[run.run_id] = known[run.run_id] = pipeline_of(run, found, instance) if read is None else read
    late = [record for record in records if of.get(record.dagster_run.run_id) in found.pipelines]
    if not late:
        return None
    oldest, pipelines = late[0], sorted({of[record.dagster_run.run_id] for record in late})
    since = oldest.create_timestamp.timestamp()
    number = f"{len(late):,} runs have" if len(late) > 1 else "1 run has"
    return Incident(
        key="runs-queued",
        kind="runs-queued",
        title=f"{number} waited in Dagster's queue for up to {seconds(round((now - since) * 1000))}.",
        said=(f"Until they start, what {', '.join(pipelines)} would land is behind; nothing is lost.",),
        run=run_link(options.dagster_url, oldest.dagster_run.run_id),
        next=(
            "see which runs are in progress, and end one that hangs",
            "or allow more of them: concurrency.runs.max_concurrent_runs in dagster.yaml",
        ),
        details={"runs": [record.dagster_run.run_id for record in late[:20]], "pipelines": pipelines},
        subject="Dagster's queue of runs",
    )


def rooted(seen: Seen, memory: Memory, found: Watched, now: float, bound: timedelta) -> Seen:
    """`seen` without lag that another incident explains, open or seen; and with the daemon's absence, if that explains
    lag. An absence explains lag for at most `bound` after it."""
    tables = {str(table.subject): table for table in found.tables}
    # A look at the sources alone sees no queue and no step: what is open of them still holds.
    causes = [*seen.incidents, *(item for item in memory.open if item.kind not in seen.kinds)]
    queue = next((item for item in causes if item.kind == "runs-queued"), None)
    waiting = set(queue.details["pipelines"]) if queue is not None else set()
    away = memory.away if memory.away is not None and now - memory.away[1] < bound.total_seconds() else None
    taken: list[Incident] = []
    late: list[Incident] = []
    for item in seen.incidents:
        if item.kind != "lag":
            continue
        table = tables.get(item.key.removeprefix("lag ").rpartition(" ")[0])
        stuck = table is not None and any(other.key.startswith(f"stuck {table.subject} ") for other in causes)
        if stuck or item.pipeline in waiting or (table is not None and any(_held_up(table, o) for o in memory.open)):
            taken.append(item)
        elif away is not None:
            late.append(item)
    gone = {item.key for item in (*taken, *late)}
    incidents = [item for item in seen.incidents if item.key not in gone]
    if late and away is not None:
        incidents.append(_absence(away, late))
    kinds = (*seen.kinds, "daemon-away") if "lag" in seen.kinds else seen.kinds
    return replace(seen, incidents=incidents, kinds=kinds, taken=gone)


def pipeline_of(run: dg.DagsterRun, found: Watched | None = None, instance: dg.DagsterInstance | None = None) -> str:
    """The pipeline that a run works on: by its job's tag, else by the assets that it was asked to make, possibly beside
    others. A whole job of a team's own names no assets: what it was to make is in its events, in `instance`."""
    if PIPELINE_TAG in run.tags:
        return run.tags[PIPELINE_TAG]
    keys = set(run.asset_selection or ()) | {key.asset_key for key in run.asset_check_selection or ()}
    if not keys and instance is not None:
        planned = instance.get_records_for_run(run.run_id, of_type=_PLANNED).records
        events = [record.event_log_entry.get_dagster_event().event_specific_data for record in planned]
        keys = {key for event in events if (key := getattr(event, "asset_key", None)) is not None}
    known = {found.keys[key] for key in keys if key in found.keys} if found else set()
    return min(known or {key.path[0] for key in keys}, default="")


def _held_up(table: WatchedTable, item: Open) -> bool:
    """Whether an open incident of a run explains why this table does not go on: its step failed, or the run was
    lost."""
    if item.kind not in _OF_RUNS or item.pipeline != table.pipeline:
        return False
    failed = item.details.get("failed_steps") or ()
    names = Names(table.pipeline)
    own = {table.step, names.op(names.source(table.table)), names.aligned}
    return not failed or bool(own.intersection(failed))


def _absence(away: tuple[float, float], late: Sequence[Incident]) -> Incident:
    since, until = (moment(round(at * 1000)) for at in away)
    return Incident(
        key=f"daemon-away {away[0]:.0f}",
        kind="daemon-away",
        title=f"Dagster's daemon was away from {since} to {until} UTC: no schedule, sensor or alert ran.",
        said=(
            "It is there again, and what it starts goes on where it stopped; nothing is lost. Behind meanwhile:",
            *(item.title for item in late),
        ),
        next=("let a service keep it running: systemd, or whatever starts your processes",),
        details={"tables": [item.details.get("table") for item in late]},
        subject=f"what was behind after the daemon's absence from {since} UTC",
    )
