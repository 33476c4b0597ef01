"""Runs that failed, and checks that were planned and have no result. A run that failed only because a gate holds is
told as the held gate.

Runs that fail one after another in the same place are one incident: it is over when what failed has been done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import dagster as dg
from dagster import DagsterEventType, DagsterInstance, DagsterRun, DagsterRunStatus, EventLogEntry

from assets.failures import ERROR_KIND
from assets.jobs import PIPELINE_TAG
from assets.names import GATE
from orchestration.alerts.incident import Incident
from orchestration.alerts.memory import Open
from orchestration.alerts.options import AlertOptions
from orchestration.alerts.watched import Watched, opened, positions, run_link
from pipelines.errors import GateHeld


@dataclass(frozen=True)
class Outcome:
    """What a finished run did: the steps that succeeded, the checks that have a result, and what is wrong with it."""

    run: DagsterRun
    steps: frozenset[str]
    checks: frozenset[str]
    incident: Incident | None

    def mends(self, item: Open) -> bool:
        """Whether an open incident is over with this run: it did what was not done. One without a failed step (a lost
        process) is over when a run of the same job is well."""
        failed, unrun = set(item.details.get("failed_steps", ())), set(item.details.get("checks_not_run", ()))
        if item.pipeline != _pipeline(self.run):
            return False
        if not failed and not unrun:
            same = item.details.get("job") == self.run.job_name
            return same and self.run.status == DagsterRunStatus.SUCCESS and self.incident is None
        return failed <= self.steps and unrun <= self.checks


def is_watched(run: DagsterRun, watched: Watched) -> bool:
    """Whether a run works on a watched pipeline: one of its jobs, or some of its assets or checks."""
    return _pipeline(run) in watched.pipelines


def _pipeline(run: DagsterRun) -> str:
    if PIPELINE_TAG in run.tags:
        return run.tags[PIPELINE_TAG]
    keys = set(run.asset_selection or ()) | {key.asset_key for key in run.asset_check_selection or ()}
    return min((key.path[0] for key in keys), default="")


def outcome(instance: DagsterInstance, run: DagsterRun, watched: Watched, options: AlertOptions) -> Outcome:
    """Read what a finished run did from its events."""
    gates = {item.staged for item in watched.inserts}
    planned = [
        event.get_dagster_event().asset_check_planned_data.asset_check_key
        for event in _events(instance, run, DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED)
    ]
    evaluated = _events(instance, run, DagsterEventType.ASSET_CHECK_EVALUATION)
    results = [_evaluation(event) for event in evaluated]
    done = {result.asset_check_key for result in results}
    unrun = sorted(_named(key) for key in planned if key.asset_key in gates and key not in done)
    failures = _events(instance, run, DagsterEventType.STEP_FAILURE)
    holding = {result.asset_key for result in results if result.check_name == GATE and not result.passed}
    explained = {event.step_key for event in failures if _told(event).get(ERROR_KIND) == GateHeld.__name__}
    explained |= {event.step_key for event in evaluated if _evaluation(event).asset_key in holding}
    broken = [event for event in failures if event.step_key not in explained]
    failed = run.status == DagsterRunStatus.FAILURE and (bool(broken) or not failures)
    steps = {event.step_key or "" for event in _events(instance, run, DagsterEventType.STEP_SUCCESS)}
    incident = _incident(run, broken, unrun, failed, options) if failed or unrun else None
    if incident is not None:
        incident = _placed(incident, watched)
    return Outcome(run, frozenset(steps), frozenset(map(_named, done)), incident)


def _incident(
    run: DagsterRun, broken: list[EventLogEntry], unrun: list[str], failed: bool, options: AlertOptions
) -> Incident:
    steps = {event.step_key or "": _said(event) for event in broken}
    said = [f"Step {step} failed{f': {told}' if told else '.'}" for step, told in steps.items()]
    if failed and not steps:
        said.append("No step failed: the process that ran it was lost, or could not start.")
    if unrun:
        said.append(f"Checks that were planned and did not run: {', '.join(unrun)}. What they guard is not published.")
    pipeline = _pipeline(run) or run.job_name
    return Incident(
        key=f"run {run.run_id}",
        kind="run-failed" if failed else "check-not-run",
        title=f"run {run.run_id} of {pipeline} {_ended(run)}"
        + ("." if failed else f", and {len(unrun)} planned checks never ran."),
        pipeline=pipeline,
        said=tuple(said),
        counts={"checks not run": len(unrun)} if unrun else {},
        run=run_link(options.dagster_url, run.run_id),
        next=(*_mending(broken), f"then run it again: dg launch --job {run.job_name}"),
        details={
            "run_id": run.run_id,
            "job": run.job_name,
            "status": run.status.value,
            "failed_steps": list(steps),
            "checks_not_run": unrun,
        },
    )


def _placed(incident: Incident, watched: Watched) -> Incident:
    """With the positions of the pipeline's sources."""
    tables = watched.tables_of(incident.pipeline)
    lake = opened(tables[0].lake) if tables else None
    return replace(incident, positions=positions(lake, [table.table for table in tables])) if lake else incident


def same(item: Open, incident: Incident) -> bool:
    """Whether a run's incident is one that is open already: the same steps and the same checks of the same job."""
    return item.kind == incident.kind and all(
        item.details.get(name) == incident.details[name] for name in ("job", "failed_steps", "checks_not_run")
    )


def _mending(broken: list[EventLogEntry]) -> tuple[str, ...]:
    """What typed errors say to type next, each once."""
    return tuple(dict.fromkeys(str(told) for event in broken if (told := _told(event).get("next"))))


def _ended(run: DagsterRun) -> str:
    return {
        DagsterRunStatus.FAILURE: "failed",
        DagsterRunStatus.CANCELED: "was cancelled",
    }.get(run.status, "ended")


def _events(instance: DagsterInstance, run: DagsterRun, kind: DagsterEventType) -> list[EventLogEntry]:
    records = instance.get_records_for_run(run.run_id, of_type=kind).records
    return [record.event_log_entry for record in records]


def _named(key: dg.AssetCheckKey) -> str:
    return f"{key.asset_key.to_user_string()}: {key.name}"


def _evaluation(event: EventLogEntry) -> dg.AssetCheckEvaluation:
    return event.get_dagster_event().asset_check_evaluation_data


def _told(event: EventLogEntry) -> Mapping[str, Any]:
    data = event.get_dagster_event().step_failure_data.user_failure_data
    return {} if data is None else {name: value.value for name, value in data.metadata.items()}


def _said(event: EventLogEntry) -> str:
    """What a typed error said. Nothing of any other: nobody has seen to it that it holds no secret."""
    data = event.get_dagster_event().step_failure_data.user_failure_data
    if data is None or ERROR_KIND not in data.metadata:
        return ""
    return " ".join(part for part in (data.description, _told(event).get("where"), _told(event).get("next")) if part)
