"""What a person must hear of: a held epoch, a failed run, a check that was planned and did not run.

Found by what the assets' definitions say (assets.specs), so any code location with Tidegate's assets can be watched. An
incident has one key for ever; it never holds a secret.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self

import dagster as dg
from dagster import DagsterEventType, DagsterInstance, DagsterRun, DagsterRunStatus, EventLogEntry

from assets.failures import ERROR_KIND
from assets.jobs import PIPELINE_TAG
from assets.names import GATE
from assets.specs import INSERT, LAKE, SCRIPT
from pipelines.errors import GateHeld, LakeError
from pipelines.lake import Lake
from pipelines.runtime.plans import insert_owner
from pipelines.sql.model import is_secret

Kind = Literal["gate-held", "run-failed", "check-not-run"]

SHORTEST_SECRET = 4
"""Shorter values of secret variables are not looked for: they would blank out half of any text."""


@dataclass(frozen=True)
class Incident:
    """One thing to tell, once. `text` is for people, `details` are small JSON values for programs."""

    key: str
    kind: Kind
    text: str
    details: Mapping[str, Any] = field(default_factory=dict)

    def payload(self) -> dict[str, Any]:
        """What a webhook gets. `text` alone is enough for a chat."""
        return {"text": self.text, "kind": self.kind, "key": self.key, **self.details}

    def stored(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def restored(cls, stored: Mapping[str, Any]) -> Self:
        return cls(**stored)


@dataclass(frozen=True)
class WatchedInsert:
    """An INSERT as the definitions of a code location describe it."""

    pipeline: str
    insert: str
    lake: str
    script: str
    staged: dg.AssetKey


def watched_inserts(repository: dg.RepositoryDefinition) -> list[WatchedInsert]:
    """Every INSERT of a code location: the assets that have the gate's check."""
    graph = repository.asset_graph
    gated = sorted({key.asset_key for key in graph.asset_check_keys if key.name == GATE})
    found = []
    for key in gated:
        metadata = graph.get(key).metadata
        if INSERT in metadata and LAKE in metadata:
            told = {name: str(getattr(value, "value", value)) for name, value in metadata.items()}
            found.append(WatchedInsert(key.path[0], told[INSERT], told[LAKE], told.get(SCRIPT, "SCRIPT"), key))
    return found


def held_epoch(watched: WatchedInsert) -> Incident | None:
    """The epoch of this INSERT that the gate holds now, whoever ran it: read from the lake, without Spark."""
    try:
        lake = Lake(watched.lake, create=False)
    except LakeError:  # nothing has run yet
        return None
    owner = insert_owner(watched.insert)
    plan = lake.epochs.last(owner)
    if plan is None:
        return None
    verdicts = lake.verdicts.rows(owner, generation=plan.generation, epoch=plan.epoch)
    verdict = next((row for row in verdicts if row.plan_digest == plan.digest), None)
    if verdict is None or verdict.passed:
        return None
    staged = lake.staged.rows(owner, generation=plan.generation, epoch=plan.epoch)
    rows = staged[0].counts.get("rows", 0) if staged else 0
    commands = [f"tidegate {verb} {watched.script} {watched.insert}" for verb in ("release", "discard")]
    return Incident(
        key=f"gate-held {watched.lake} {watched.insert} {plan.generation}/{plan.epoch}",
        kind="gate-held",
        text=f"Tidegate: the gate holds epoch {plan.epoch} of {watched.pipeline}/{watched.insert} ({rows:,} rows). "
        f"{' '.join(verdict.reasons)} The target is unchanged; the rows are staged. "
        f"Next: {commands[0]} (joins again against newer pins), or {commands[1]} (quarantines them).",
        details={
            "pipeline": watched.pipeline,
            "insert": watched.insert,
            "generation": plan.generation,
            "epoch": plan.epoch,
            "rows": rows,
            "reasons": list(verdict.reasons),
            "lake": watched.lake,
            "next": commands,
        },
    )


def is_watched(run: DagsterRun, watched: Iterable[WatchedInsert]) -> bool:
    """Whether a run works on a watched pipeline: one of its jobs, or some of its assets or checks."""
    pipelines = {item.pipeline for item in watched}
    if run.tags.get(PIPELINE_TAG) in pipelines:
        return True
    keys = set(run.asset_selection or ()) | {key.asset_key for key in run.asset_check_selection or ()}
    return any(key.path[0] in pipelines for key in keys)


def run_incident(instance: DagsterInstance, run: DagsterRun, watched: Iterable[WatchedInsert]) -> Incident | None:
    """What is wrong with a finished run: it failed, or one of its planned checks has no result.

    A run that failed for nothing but a held gate is told by `held_epoch` already.
    """
    gates = {item.staged for item in watched}
    planned = [
        _planned_check(event) for event in _events(instance, run, DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED)
    ]
    results = [_evaluation(event) for event in _events(instance, run, DagsterEventType.ASSET_CHECK_EVALUATION)]
    done = {result.asset_check_key for result in results}
    unrun = sorted(
        f"{key.asset_key.to_user_string()}: {key.name}" for key in planned if key.asset_key in gates and key not in done
    )
    failures = _events(instance, run, DagsterEventType.STEP_FAILURE)
    holding = {result.asset_key for result in results if result.check_name == GATE and not result.passed}
    explained = {event.step_key for event in failures if _is_held(event)}
    explained |= {
        event.step_key
        for event in _events(instance, run, DagsterEventType.ASSET_CHECK_EVALUATION)
        if _evaluation(event).asset_key in holding
    }
    broken = [event for event in failures if event.step_key not in explained]
    failed = run.status == DagsterRunStatus.FAILURE and (bool(broken) or not failures)
    if not failed and not unrun:
        return None
    return _run_incident(run, broken, unrun, failed)


def _run_incident(run: DagsterRun, broken: list[EventLogEntry], unrun: list[str], failed: bool) -> Incident:
    what = [f"Tidegate: run {run.run_id} of {run.tags.get(PIPELINE_TAG, run.job_name)} {_ended(run)}."]
    steps = {event.step_key or "": _said(event) for event in broken}
    what += [f"Step {step} failed{f': {said}' if said else '.'}" for step, said in steps.items()]
    if failed and not steps:
        what.append("No step failed: the process that ran it was lost, or could not start.")
    if unrun:
        what.append(f"Checks that were planned and did not run: {', '.join(unrun)}. What they guard is not published.")
    what.append(f"Next: look at /runs/{run.run_id} in Dagster, mend the cause, and run it again.")
    return Incident(
        key=f"run {run.run_id}",
        kind="run-failed" if failed else "check-not-run",
        text=" ".join(what),
        details={
            "run_id": run.run_id,
            "job": run.job_name,
            "pipeline": run.tags.get(PIPELINE_TAG, ""),
            "status": run.status.value,
            "failed_steps": list(steps),
            "checks_not_run": unrun,
        },
    )


def _ended(run: DagsterRun) -> str:
    return {
        DagsterRunStatus.FAILURE: "failed",
        DagsterRunStatus.CANCELED: "was cancelled",
    }.get(run.status, "ended")


def _events(instance: DagsterInstance, run: DagsterRun, kind: DagsterEventType) -> list[EventLogEntry]:
    records = instance.get_records_for_run(run.run_id, of_type=kind).records
    return [record.event_log_entry for record in records]


def _planned_check(event: EventLogEntry) -> dg.AssetCheckKey:
    return event.get_dagster_event().asset_check_planned_data.asset_check_key


def _evaluation(event: EventLogEntry) -> dg.AssetCheckEvaluation:
    return event.get_dagster_event().asset_check_evaluation_data


def _told(event: EventLogEntry) -> Mapping[str, Any]:
    data = event.get_dagster_event().step_failure_data.user_failure_data
    return {} if data is None else {name: value.value for name, value in data.metadata.items()}


def _is_held(event: EventLogEntry) -> bool:
    return _told(event).get(ERROR_KIND) == GateHeld.__name__


def _said(event: EventLogEntry) -> str:
    """What a typed error said. Nothing of any other: nobody has seen to it that it holds no secret."""
    data = event.get_dagster_event().step_failure_data.user_failure_data
    if data is None or ERROR_KIND not in data.metadata:
        return ""
    return " ".join(part for part in (data.description, _told(event).get("where"), _told(event).get("next")) if part)


def scrub(text: str, environment: Mapping[str, str] | None = None) -> str:
    """`text` without the values of variables that are called like secrets."""
    for name, value in (os.environ if environment is None else environment).items():
        if is_secret(name) and len(value) >= SHORTEST_SECRET:
            text = text.replace(value, "***")
    return text
