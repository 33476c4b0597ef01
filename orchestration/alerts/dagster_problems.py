"""Problems that only Dagster knows: runs that wait in its queue, the daemon's absence. And the runs behind the others:
a step that failed in a run of Dagster is reported as that run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

import dagster as dg

from tidegate.assets.jobs import PIPELINE_TAG
from tidegate.assets.resources import OF_DAGSTER
from tidegate.assets.watched import Watched, WatchedInsert, WatchedTable, last_run, run_link
from tidegate.pipelines.commands import NextCommand
from tidegate.pipelines.facts.problem import Problem
from tidegate.pipelines.text import counted, moment, seconds

QUEUED_S = 300.0
"""A run that has waited longer in Dagster's queue is a problem."""
AWAY_S = 120.0
"""A longer time between two ticks means that the daemon was away."""


def queued(instance: dg.DagsterInstance, found: Watched, now: float) -> Problem | None:
    """Watched runs that have waited too long in Dagster's queue: the queue is the cause, not the runs."""
    records = instance.get_run_records(dg.RunsFilter(statuses=[dg.DagsterRunStatus.QUEUED]), ascending=True)
    of = {record.dagster_run.run_id: pipeline_of(record.dagster_run, found) for record in records}
    late = [
        record
        for record in records
        if of[record.dagster_run.run_id] in found.pipelines and now - record.create_timestamp.timestamp() > QUEUED_S
    ]
    if not late:
        return None
    pipelines = sorted({of[record.dagster_run.run_id] for record in late})
    since = round(late[0].create_timestamp.timestamp() * 1000)
    return Problem(
        key="runs-queued",
        kind="runs-queued",
        title=f"{counted(len(late), 'run')} {'has' if len(late) == 1 else 'have'} waited in Dagster's queue for up to "
        f"{seconds(round(now * 1000) - since)}.",
        subject="Dagster's queue of runs",
        since=since,
        text=(f"Until they start, what {', '.join(pipelines)} would land is behind; nothing is lost.",),
        next=(
            "see which runs are in progress, and end one that hangs",
            "or allow more of them: concurrency.runs.max_concurrent_runs in dagster.yaml",
        ),
        details={"runs": [record.dagster_run.run_id for record in late[:20]], "pipelines": pipelines},
        explains=tuple(f"lag {table.subject}" for table in found.tables if table.pipeline in pipelines),
    )


def with_runs(problems: Sequence[Problem], instance: dg.DagsterInstance) -> list[Problem]:
    """The problems. A step that failed in a run that this Dagster has is explained by that run."""

    def run_of(problem: Problem) -> str:
        by = str(problem.details.get("by", "")) if problem.kind in ("stuck", "refused") else ""
        run_id = by.removeprefix(f"{OF_DAGSTER} ")
        return run_id if run_id != by and instance.get_run_by_id(run_id) else ""

    return [replace(each, explained_by=f"run {run}" if (run := run_of(each)) else "") for each in problems]


def with_absence(
    problems: Sequence[Problem], away: tuple[float, float] | None, now: float, bound: timedelta
) -> list[Problem]:
    """The problems. Lag that nothing else explains is the daemon's, for at most `bound` after it was `away`."""
    late = [each for each in problems if each.kind == "lag" and not each.explained_by]
    if not late or away is None or now - away[1] >= bound.total_seconds():
        return [*problems]
    since, until = (moment(round(at * 1000)) for at in away)
    absence = Problem(
        key=f"daemon-away {away[0]:.0f}",
        kind="daemon-away",
        title=f"Dagster's daemon was away from {since} to {until} UTC: no schedule, sensor or alert ran.",
        subject=f"what was behind after the daemon's absence from {since} UTC",
        since=round(away[0] * 1000),
        text=(
            "It is there again, and what it starts goes on where it stopped; nothing is lost. Behind meanwhile:",
            *(item.title for item in late),
        ),
        next=("let a service keep it running: systemd, or whatever starts your processes",),
        details={"tables": [item.details.get("table") for item in late]},
        explains=tuple(item.key for item in late),
    )
    return [*(replace(each, explained_by=absence.key) if each in late else each for each in problems), absence]


def pipeline_of(run: dg.DagsterRun, found: Watched, planned: Iterable[dg.AssetKey] = ()) -> str:
    """The pipeline that a run works on: by its job's tag, else by the assets that it was asked to make, possibly beside
    others. A whole job of a team's own names no assets: what it had `planned` is in its events."""
    if PIPELINE_TAG in run.tags:
        return run.tags[PIPELINE_TAG]
    chosen = {*(run.asset_selection or ()), *(key.asset_key for key in run.asset_check_selection or ())}
    keys = chosen or {*planned}
    return min({found.keys[key] for key in keys if key in found.keys} or {key.path[0] for key in keys}, default="")


@dataclass(frozen=True)
class Links:
    """What Dagster adds to a problem: the address of its run, and what its schedule does."""

    instance: dg.DagsterInstance
    found: Watched
    url: str

    def run(self, problem: Problem) -> str:
        """The address of the run that a problem is about; empty where none is known."""
        details = problem.details
        run_id = details.get("run_id") or next(iter(details.get("runs") or ()), "")
        if run_id:
            return run_link(self.url, run_id)
        item = self._item(problem)
        if item is None:
            return ""
        key = item.staged if isinstance(item, WatchedInsert) else item.key
        return last_run(self.instance, item.pipeline, self.url, key)

    def completed(self, problem: Problem) -> Problem:
        """The problem; of one that is behind, with what its schedule does."""
        item = self._item(problem)
        if problem.kind != "lag" or not isinstance(item, WatchedTable):
            return problem
        return replace(problem, next=(*problem.next[:-1], self._start(item)))

    def _item(self, problem: Problem) -> WatchedTable | WatchedInsert | None:
        tables = [item for item in self.found.tables if item.table == problem.owner]
        inserts = [item for item in self.found.inserts if item.owner == problem.owner]
        return next((item for item in (*tables, *inserts) if item.pipeline == problem.pipeline), None)

    def _start(self, watched: WatchedTable) -> NextCommand:
        """How to bring the source up to date; for a schedule that is on (as stored by Dagster, else by default), what
        its last tick did."""
        stored = self.instance.all_instigator_state() if self.instance.schedule_storage is not None else ()
        known = {
            state.instigator_name: state
            for state in sorted(stored, key=lambda state: state.is_running)
            if state.instigator_type.name == "SCHEDULE"
        }
        on = [name for name, running in watched.schedules if (known[name].is_running if name in known else running)]
        if not on:
            return NextCommand("run", does="or turn its schedule on" if watched.schedules else "")
        state = known.get(on[0])
        ticks = [] if state is None else self.instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=1)
        if not ticks:
            return NextCommand("run", does="its schedule is on, and has not come round yet")
        (last,) = ticks
        started = f"it started run {last.run_ids[0]}" if last.run_ids else last.status.value.lower()
        at = moment(round(last.timestamp * 1000))
        return NextCommand("run", does=f"its schedule is on; its last tick, {at} UTC: {last.skip_reason or started}")
