"""Problems of runs: runs that failed, checks that were planned and have no result, and checks that failed. A run that
failed only because a gate holds is reported as the held gate, as are the checks that make up its verdict, and the check
that rows add up as the rows.

Runs that fail one after another in the same place are one problem: it is over when what failed has been done.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg
from dagster import DagsterEventType as Type
from dagster import DagsterInstance, DagsterRun, DagsterRunStatus

from tidegate.assets.checks import fails
from tidegate.assets.failures import ERROR_KIND
from tidegate.assets.names import ADDS_UP, GATE, VERDICT, WILL_RETRY, Names
from tidegate.assets.operations.operation import OPERATION_TAG
from tidegate.assets.watched import Watched, WatchedTable
from tidegate.orchestration.alerts.dagster_problems import pipeline_of
from tidegate.pipelines.commands import unsaid
from tidegate.pipelines.errors import GateHeld
from tidegate.pipelines.facts.problem import Kind, Problem
from tidegate.pipelines.text import counted, sentence

_OF_NO_JOB = "__"
"""Prefixes of Dagster's own job names: of runs that are started from the asset graph, and by automation."""
_PARTITION_TAGS = ("partition", "asset_partition_range_start", "asset_partition_range_end")
_SAME = ("job", "asked", "failed_steps", "checks_not_run", "failed_checks")
_READ = {
    *(Type.ASSET_MATERIALIZATION_PLANNED, Type.ASSET_CHECK_EVALUATION_PLANNED, Type.ASSET_CHECK_EVALUATION),
    *(Type.STEP_SUCCESS, Type.STEP_FAILURE),
}


@dataclass(frozen=True)
class Ran:
    """What a finished run did: the steps that succeeded and the checks that have a result (`done`), the checks that
    passed, and its problem, if any. Names are without secrets, as those of stored problems are."""

    run: DagsterRun
    job: str
    pipeline: str
    done: frozenset[str]
    passed: frozenset[str]
    problem: Problem | None

    def ends(self, item: Problem) -> bool:
        """Whether this run ends a problem of a run, as it did what had failed. One without a failed step (a lost
        process) ends when a run of the same job succeeds."""
        if item.pipeline != self.pipeline or not _covers(asked_of(self.run), item.details.get("asked") or {}):
            return False
        undone = {*item.details["failed_steps"], *item.details["checks_not_run"]}
        bad = {*item.details["failed_checks"]}
        if not undone and not bad:
            succeeded = self.run.status == DagsterRunStatus.SUCCESS and self.problem is None
            return item.details["job"] == self.job and succeeded
        return undone <= self.done and bad <= self.passed


def same(item: Problem, problem: Problem) -> bool:
    """Whether a run's problem is open already: the same steps and checks of the same job and pipeline; jobs of
    operations belong to several pipelines."""
    return (item.kind, item.pipeline) == (problem.kind, problem.pipeline) and all(
        (item.details.get(name) or None) == (problem.details.get(name) or None) for name in _SAME
    )


def will_be_retried(run: DagsterRun) -> bool:
    """Whether Dagster will retry this failed run."""
    return run.status == DagsterRunStatus.FAILURE and run.tags.get(WILL_RETRY) == "true"


def asked_of(run: DagsterRun) -> dict[str, Any]:
    """What a run was to make of its pipeline: `spans`, [from, to] each, of its partitions or its config; and `target`
    and `tables` of an operation. What is left out means all."""
    one, first, last = (run.tags.get(f"dagster/{tag}") for tag in _PARTITION_TAGS)
    found: dict[str, Any] = {"spans": [[one or first, one or last]]} if one or (first and last) else {}
    of_run: Mapping[str, Any] = run.run_config if OPERATION_TAG in run.tags else {}
    for config in (step.get("config") or {} for step in (of_run.get("ops") or {}).values()):
        found |= {name: config[name] for name in ("target", "tables") if config.get(name)}
        if config.get("spans"):
            found["spans"] = [[span["from"], span["to"]] for span in config["spans"]]
    return found


def _covers(done: Mapping[str, Any], missed: Mapping[str, Any]) -> bool:
    """Whether a run that was asked for `done` did all of `missed`. Partitions and moments sort as text."""
    if done.get("target") not in (None, missed.get("target")) or bool(done.get("spans")) != bool(missed.get("spans")):
        return False
    if done.get("tables") and not (missed.get("tables") and {*missed["tables"]} <= {*done["tables"]}):
        return False
    spans = done.get("spans") or ()
    return all(any(low <= first and last <= high for low, high in spans) for first, last in missed.get("spans") or ())


def _of_spans(run: DagsterRun, asked: Mapping[str, Any]) -> str:
    spans = asked.get("spans") or ()
    if OPERATION_TAG in run.tags:
        return "".join(f", from {low} to {high}" for low, high in spans)
    return "".join(f", partition {low}" if low == high else f", partitions {low} to {high}" for low, high in spans)


def ran(
    instance: DagsterInstance,
    run: DagsterRun,
    watched: Watched,
    clean: Callable[[str], str] = str,
    unread: Exception | None = None,
) -> Ran | None:
    """Read what a finished run did from its events; None of a run that works on no watched pipeline. `unread`: why they
    cannot be read."""
    if (pipeline := pipeline_of(run, watched)) and pipeline not in watched.pipelines:
        return None
    events: dict[Type, list[dg.DagsterEvent]] = {kind: [] for kind in _READ}
    if unread is None:
        for record in instance.get_records_for_run(run.run_id, of_type=_READ).records:
            event = record.event_log_entry.get_dagster_event()
            events[event.event_type].append(event)
    planned = [event.asset_check_planned_data.asset_check_key for event in events[Type.ASSET_CHECK_EVALUATION_PLANNED]]
    made = [event.asset_key for event in events[Type.ASSET_MATERIALIZATION_PLANNED] if event.asset_key is not None]
    pipeline = pipeline_of(run, watched, [*made, *(key.asset_key for key in planned)])
    if pipeline not in watched.pipelines and (pipeline or unread is None):
        return None
    gates, published = ({getattr(item, kind) for item in watched.inserts} for kind in ("staged", "published"))
    evaluated = [(event.step_key, event.asset_check_evaluation_data) for event in events[Type.ASSET_CHECK_EVALUATION]]
    results = [result for _, result in evaluated]
    checked = {result.asset_check_key for result in results}
    holding = {result.asset_key for result in results if result.check_name in GATE and not result.passed}
    explained = {step for step, result in evaluated if result.asset_key in holding}
    failures = events[Type.STEP_FAILURE] if run.status == DagsterRunStatus.FAILURE else []
    explained |= {event.step_key for event in failures if _metadata(event).get(ERROR_KIND) == GateHeld.__name__}
    found = _Found(
        run,
        pipeline or run.job_name,
        [event for event in failures if event.step_key not in explained],
        run.status == DagsterRunStatus.FAILURE and not failures,
        sorted(_named(key) for key in planned if key.asset_key in gates and key not in checked),
        [each for each in results if fails(each) and not _is_reported(each, gates, published)],
        unread,
    )
    record = instance.get_run_record_by_id(run.run_id)
    problem = found.problem(watched, round(record.update_timestamp.timestamp() * 1000) if record else 0)
    passed = frozenset(clean(_named(each.asset_check_key)) for each in results if each.passed)
    steps = [event.step_key or "" for event in events[Type.STEP_SUCCESS]]
    done = frozenset(map(clean, [*steps, *map(_named, checked)]))
    return Ran(run, clean(run.job_name), pipeline, done, passed, problem)


@dataclass(frozen=True)
class _Found:
    """What went wrong in a run: the failures of steps that nothing else explains, whether its process was `lost`, the
    planned checks that never ran, the results of checks that failed, why its history cannot be read."""

    run: DagsterRun
    pipeline: str
    broken: Sequence[dg.DagsterEvent]
    lost: bool
    unrun: Sequence[str]
    bad: Sequence[dg.AssetCheckEvaluation]
    unread: Exception | None

    def problem(self, watched: Watched, since: int) -> Problem | None:
        """It as a problem; `since`: ms, UTC."""
        failed = bool(self.broken) or self.lost or self.unread is not None
        if not failed and not self.unrun and not self.bad:
            return None
        steps, bad = dict.fromkeys(event.step_key or "" for event in self.broken), self._bad
        asked, pipeline = asked_of(self.run), self.pipeline
        kind: Kind = "run-failed" if failed else "check-not-run" if self.unrun else "check-failed"
        ends = {DagsterRunStatus.FAILURE: "failed", DagsterRunStatus.CANCELED: "was cancelled"}
        wrong = {
            "run-failed": ".",
            "check-not-run": f", and {counted(len(self.unrun), 'planned check')} never ran.",
            "check-failed": f", and {len(bad)} of its checks failed: {', '.join(bad)}.",
        }
        of, ended = _of_spans(self.run, asked), ends.get(self.run.status, "ended")
        what = f"the failure of {', '.join(steps)}" if steps else "the lost run"
        what = what if failed else f"what was open of the checks {', '.join([*self.unrun, *bad])}"
        counts = {"checks not run": len(self.unrun), "checks failed": len(bad)}
        tables = [table for table in watched.tables_of(pipeline) if failed and _held_up(table, steps)]
        own = {item.subject for item in (*watched.tables, *watched.inserts) if failed and item.pipeline == pipeline}
        return Problem(
            key=f"run {self.run.run_id}",
            kind=kind,
            title=f"run {self.run.run_id} of {pipeline} {ended}{of}{wrong[kind]}",
            subject=f"{what} of {pipeline}{of}",
            pipeline=pipeline,
            since=since,
            text=tuple(self._sentences()),
            counts={name: count for name, count in counts.items() if count},
            next=(*self._mending(watched), f"then run it again: {launching(self.run)}"),
            details={
                "run_id": self.run.run_id,
                "job": self.run.job_name,
                "status": self.run.status.value,
                "asked": asked,
                "failed_steps": list(steps),
                "checks_not_run": list(self.unrun),
                "failed_checks": bad,
            },
            explains=(
                *(f"lag {table.subject}" for table in tables),
                *(f"unfinished {subject}" for subject in sorted(own)),
            ),
        )

    @property
    def _bad(self) -> list[str]:
        return sorted(_named(result.asset_check_key) for result in self.bad)

    def _sentences(self) -> Iterable[str]:
        for step, text in {event.step_key: _said(event) for event in self.broken}.items():
            yield f"Step {step} failed{f': {text}' if text else ''}."
        if self.unread is not None:
            yield f"What it did cannot be read in Dagster's history ({type(self.unread).__name__})."
        elif self.lost:
            yield "No step failed: the process that ran it was lost, or could not start."
        attempt = self.run.tags.get("dagster/retry_number")
        if attempt and self.run.status == DagsterRunStatus.FAILURE:
            yield f"It was retry {attempt} of run {self.run.root_run_id}; Dagster does not try again."
        if self.unrun:
            named = ", ".join(self.unrun)
            yield f"Checks that were planned and did not run: {named}. What they guard is not published."
        if self.bad:
            yield f"Checks that failed: {', '.join(self._bad)}."

    def _mending(self, watched: Watched) -> Iterable[str]:
        """Advice on known causes, and the advice of typed errors and of failed checks, each once."""
        advised = [str(text) for event in self.broken if (text := _metadata(event).get("next"))]
        known = [mend for event in self.broken for mend in unsaid(_all_text(event), *advised)]
        of_checks = [str(result.metadata["next"].value) for result in self.bad if "next" in result.metadata]
        return dict.fromkeys([*watched.commands_of(self.pipeline).all(known), *advised, *of_checks])


def _held_up(table: WatchedTable, steps: Iterable[str]) -> bool:
    """Whether a failed run explains why this table does not go on: its step failed, or the run was lost."""
    failed, names = [*steps], Names(table.pipeline)
    return not failed or not {table.step, names.op(names.source(table.table)), names.aligned}.isdisjoint(failed)


def launching(run: DagsterRun) -> str:
    """The command that starts a run like this one; one of no job, started from the asset graph, names its assets."""
    of = ""
    if OPERATION_TAG in run.tags and (ops := run.run_config.get("ops")):
        of = f" --config-json {shlex.quote(json.dumps({'ops': ops}))}"
    else:
        for first, last in asked_of(run).get("spans", ()):
            of = f"-range {shlex.quote(f'{first}...{last}')}" if first != last else f" {shlex.quote(first)}"
            of = f" --partition{of}"
    if not run.job_name.startswith(_OF_NO_JOB):
        return f"dg launch --job {run.job_name}{of}"
    chosen = {*(run.asset_selection or ())} or {key.asset_key for key in run.asset_check_selection or ()}
    names = ",".join(f'key:"{key.to_user_string()}"' for key in sorted(chosen))
    return f"dg launch --assets {shlex.quote(names)}{of}"


def _is_reported(result: dg.AssetCheckEvaluation, gates: set[Any], published: set[Any]) -> bool:
    """Whether a failed check is reported as a problem of the lake: a held gate, or rows that do not add up."""
    if result.check_name == ADDS_UP:
        return result.asset_key in published
    return result.check_name == VERDICT or (result.asset_key in gates and result.check_name in GATE)


def _all_text(event: dg.DagsterEvent) -> str:
    """The whole text of a failure and its causes, for finding a known cause in it: it may hold secrets."""
    data = event.step_failure_data
    texts = [data.user_failure_data.description or ""] if data.user_failure_data else []
    texts += map(str, _metadata(event).values())
    error = data.error
    while error is not None:
        texts.append(error.message)
        error = error.cause
    return "\n".join(texts)


def _named(key: dg.AssetCheckKey) -> str:
    return f"{key.asset_key.to_user_string()}: {key.name}"


def _metadata(event: dg.DagsterEvent) -> Mapping[str, Any]:
    data = event.step_failure_data.user_failure_data
    return {} if data is None else {name: value.value for name, value in data.metadata.items()}


def _said(event: dg.DagsterEvent) -> str:
    """The message of a typed error, as one sentence. Empty for any other error: its text may hold a secret."""
    data = event.step_failure_data.user_failure_data
    if data is None or ERROR_KIND not in data.metadata:
        return ""
    what, where = sentence(data.description or ""), sentence(str(_metadata(event).get("where", "")))
    return f"{what} ({where})" if where and where not in what else what
