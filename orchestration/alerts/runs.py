"""Problems of runs: runs that failed, checks that were planned and have no result, and checks that failed. A run that
failed only because a gate holds is reported as the held gate, as are the checks that make up its verdict, and the check
that rows add up as the rows.

Runs that fail one after another in the same place are one problem: it is over when what failed has been done.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import dagster as dg
from dagster import DagsterEventType, DagsterInstance, DagsterRun, DagsterRunStatus, EventLogEntry

from tidegate.assets.checks import fails
from tidegate.assets.failures import ERROR_KIND
from tidegate.assets.names import ADDS_UP, GATE, VERDICT, WILL_RETRY, Names
from tidegate.assets.operations.operation import OPERATION_TAG
from tidegate.assets.watched import Watched, WatchedTable
from tidegate.orchestration.alerts.dagster_problems import pipeline_of
from tidegate.orchestration.alerts.memory import Open
from tidegate.orchestration.alerts.scrubbing import scrub, scrubbed
from tidegate.pipelines.commands import Commands, unsaid
from tidegate.pipelines.errors import GateHeld, LakeError
from tidegate.pipelines.facts.at import At
from tidegate.pipelines.facts.problem import Kind, Problem, Scope
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.text import counted, sentence

_OF_NO_JOB = "__"
"""Prefixes of Dagster's own job names: of runs that are started from the asset graph, and by automation."""
_PARTITION_TAGS = ("partition", "asset_partition_range_start", "asset_partition_range_end")
_SAME = ("job", "partition", "asked", "failed_steps", "checks_not_run", "failed_checks")
_NOTHING_KNOWN: dict[str, Any] = {"partition": None, "failed_steps": [], "checks_not_run": [], "failed_checks": []}


@dataclass(frozen=True)
class Outcome:
    """The outcome of a finished run: its job, the steps that succeeded, the checks that have a result, those that
    passed, and its problem, if any."""

    run: DagsterRun
    job: str
    steps: frozenset[str]
    checks: frozenset[str]
    passed: frozenset[str]
    problem: Problem | None
    pipeline: str = ""

    def scrubbed(self, secrets: Iterable[str]) -> Outcome:
        """The same without secrets, in names too: open problems are stored without secrets, and a name must be the same
        in both to be found again."""
        clean = partial(scrub, secrets=tuple(secrets))
        return replace(
            self,
            job=clean(self.job),
            steps=frozenset(map(clean, self.steps)),
            checks=frozenset(map(clean, self.checks)),
            passed=frozenset(map(clean, self.passed)),
            problem=self.problem and scrubbed(self.problem, secrets),
        )

    def ends(self, item: Open) -> bool:
        """Whether this run ends an open problem, as it did what had failed. One without a failed step (a lost process)
        ends when a run of the same job succeeds."""
        failed, unrun = set(item.details.get("failed_steps", ())), set(item.details.get("checks_not_run", ()))
        bad = set(item.details.get("failed_checks", ()))
        own = self.pipeline or pipeline_of(self.run)
        if item.pipeline != own or not _covers(partition_of(self.run), item.details.get("partition")):
            return False
        if not _asks_for(asked_of(self.run), item.details.get("asked") or {}):
            return False
        if not failed and not unrun and not bad:
            same = item.details.get("job") == self.job
            return same and self.run.status == DagsterRunStatus.SUCCESS and self.problem is None
        return failed <= self.steps and unrun <= self.checks and bad <= self.passed


def is_watched(instance: DagsterInstance, run: DagsterRun, watched: Watched) -> bool:
    """Whether a run works on a watched pipeline: one of its jobs, or some of its assets or checks."""
    return pipeline_of(run, watched, instance) in watched.pipelines


def will_be_retried(run: DagsterRun) -> bool:
    """Whether Dagster will retry this failed run."""
    return run.status == DagsterRunStatus.FAILURE and run.tags.get(WILL_RETRY) == "true"


def partition_of(run: DagsterRun) -> list[str] | None:
    """The first and the last partition that a run makes; None where it makes none."""
    one, first, last = (run.tags.get(f"dagster/{tag}") for tag in _PARTITION_TAGS)
    if one:
        return [one, one]
    return [first, last] if first and last else None


def _covers(done: list[str] | None, missed: list[str] | None) -> bool:
    """Whether a run of the partitions `done` did what one of `missed` did not. Keys of time sort as text."""
    if not missed or not done:
        return not missed and not done
    return done[0] <= missed[0] and missed[1] <= done[1]


def asked_of(run: DagsterRun) -> dict[str, Any]:
    """The part of its pipeline that a run of an operation is for, by its config: `target`, `tables` and `spans`, [from,
    to] each; what is left out means all."""
    if OPERATION_TAG not in run.tags:
        return {}
    found: dict[str, Any] = {}
    config_of_run: Mapping[str, Any] = run.run_config
    for step in (config_of_run.get("ops") or {}).values():
        config = step.get("config") or {}
        found |= {name: config[name] for name in ("target", "tables") if config.get(name)}
        if config.get("spans"):
            found["spans"] = [[span["from"], span["to"]] for span in config["spans"]]
    return found


def _asks_for(done: Mapping[str, Any], missed: Mapping[str, Any]) -> bool:
    """Whether one run of an operation covers everything that another one does. Moments sort as text."""
    if done.get("target") not in (None, missed.get("target")):
        return False
    if done.get("tables") and not (missed.get("tables") and set(missed["tables"]) <= set(done["tables"])):
        return False
    spans = done.get("spans") or ()
    return all(any(low <= first and last <= high for low, high in spans) for first, last in missed.get("spans") or ())


def _of_partition(partition: list[str] | None, asked: Mapping[str, Any]) -> str:
    spans = "".join(f", from {low} to {high}" for low, high in asked.get("spans") or ())
    if partition is None:
        return spans
    first, last = partition
    return f", partition {first}" if first == last else f", partitions {first} to {last}"


def outcome(instance: DagsterInstance, run: DagsterRun, watched: Watched) -> Outcome:
    """Read what a finished run did from its events."""
    gates = {item.staged for item in watched.inserts}
    published = {item.published for item in watched.inserts}
    planned = [
        event.get_dagster_event().asset_check_planned_data.asset_check_key
        for event in _events(instance, run, DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED)
    ]
    evaluated = _events(instance, run, DagsterEventType.ASSET_CHECK_EVALUATION)
    results = [_evaluation(event) for event in evaluated]
    done = {result.asset_check_key for result in results}
    unrun = sorted(_named(key) for key in planned if key.asset_key in gates and key not in done)
    bad = [result for result in results if fails(result) and not _is_reported(result, gates, published)]
    failures = _events(instance, run, DagsterEventType.STEP_FAILURE)
    holding = {result.asset_key for result in results if result.check_name in GATE and not result.passed}
    explained = {event.step_key for event in failures if _metadata(event).get(ERROR_KIND) == GateHeld.__name__}
    explained |= {event.step_key for event in evaluated if _evaluation(event).asset_key in holding}
    broken = [event for event in failures if event.step_key not in explained]
    failed = run.status == DagsterRunStatus.FAILURE and (bool(broken) or not failures)
    steps = {event.step_key or "" for event in _events(instance, run, DagsterEventType.STEP_SUCCESS)}
    advised = dict.fromkeys(str(result.metadata["next"].value) for result in bad if "next" in result.metadata)
    checks = _Checks(unrun, sorted(_named(result.asset_check_key) for result in bad), tuple(advised))
    pipeline = pipeline_of(run, watched, instance)
    problem = _problem(instance, run, pipeline, broken, checks, failed, watched) if failed or unrun or bad else None
    passed = frozenset(_named(result.asset_check_key) for result in results if result.passed)
    return Outcome(run, run.job_name, frozenset(steps), frozenset(map(_named, done)), passed, problem, pipeline)


def unread(run: DagsterRun, watched: Watched, error: Exception, now: float) -> Outcome:
    """The outcome of a finished run whose events cannot be read. It is a problem if the run works on what is watched,
    or has failed and may do so. Only the type of the error is shown: its text may hold a secret."""
    pipeline = pipeline_of(run, watched)
    problem = None
    if pipeline in watched.pipelines or (not pipeline and run.status == DagsterRunStatus.FAILURE):
        problem = Problem(
            key=f"run {run.run_id}",
            kind="run-failed",
            title=f"run {run.run_id} of {pipeline or run.job_name} has ended ({run.status.value}), and what it did "
            f"cannot be read in Dagster's history ({type(error).__name__}).",
            subject=f"the run that cannot be read of {pipeline or run.job_name}",
            pipeline=pipeline or run.job_name,
            since=round(now * 1000),
            text=("Whether its steps and its checks succeeded is not known here; the lake is as it left it.",),
            next=(f"run it again: {launching(run)}",),
            details={"run_id": run.run_id, "job": run.job_name, "status": run.status.value, **_NOTHING_KNOWN},
        )
    return Outcome(run, run.job_name, frozenset(), frozenset(), frozenset(), problem, pipeline)


@dataclass(frozen=True)
class _Checks:
    """Checks of a run: those planned and not run, those failed, and the next commands that the failed ones name."""

    unrun: list[str]
    failed: list[str]
    next: tuple[str, ...]


def _problem(
    instance: DagsterInstance,
    run: DagsterRun,
    pipeline: str,
    broken: list[EventLogEntry],
    checks: _Checks,
    failed: bool,
    watched: Watched,
) -> Problem:
    steps = {event.step_key or "": _said(event) for event in broken}
    sentences = [f"Step {step} failed{f': {text}' if text else ''}." for step, text in steps.items()]
    if failed and not steps:
        sentences.append("No step failed: the process that ran it was lost, or could not start.")
    attempt = run.tags.get("dagster/retry_number")
    if failed and attempt:
        sentences.append(f"It was retry {attempt} of run {run.root_run_id}; Dagster does not try again.")
    if checks.unrun:
        named = ", ".join(checks.unrun)
        sentences.append(f"Checks that were planned and did not run: {named}. What they guard is not published.")
    if checks.failed:
        sentences.append(f"Checks that failed: {', '.join(checks.failed)}.")
    pipeline = pipeline or run.job_name
    partition, asked = partition_of(run), asked_of(run)
    of = _of_partition(partition, asked)
    ends = {DagsterRunStatus.FAILURE: "failed", DagsterRunStatus.CANCELED: "was cancelled"}
    ended = ends.get(run.status, "ended")
    what = _what(failed, list(steps), checks)
    kind: Kind = "run-failed" if failed else "check-not-run" if checks.unrun else "check-failed"
    wrong = {
        "run-failed": ".",
        "check-not-run": f", and {counted(len(checks.unrun), 'planned check')} never ran.",
        "check-failed": f", and {len(checks.failed)} of its checks failed: {', '.join(checks.failed)}.",
    }
    counts = {"checks not run": len(checks.unrun), "checks failed": len(checks.failed)}
    record = instance.get_run_record_by_id(run.run_id)
    tables = watched.tables_of(pipeline)
    behind = [table for table in tables if failed and _held_up(table, steps)]
    own = {item.subject for item in (*tables, *watched.inserts) if failed and item.pipeline == pipeline}
    return Problem(
        key=f"run {run.run_id}",
        kind=kind,
        title=f"run {run.run_id} of {pipeline} {ended}{of}{wrong[kind]}",
        subject=f"{what} of {pipeline}{of}",
        pipeline=pipeline,
        since=round(record.update_timestamp.timestamp() * 1000) if record else 0,
        text=tuple(sentences),
        counts={name: count for name, count in counts.items() if count},
        positions=_positions(tables),
        next=(*_mending(broken, watched.commands_of(pipeline)), *checks.next, f"then run it again: {launching(run)}"),
        details={
            "run_id": run.run_id,
            "job": run.job_name,
            "status": run.status.value,
            "partition": partition,
            **({"asked": asked} if asked else {}),
            "failed_steps": list(steps),
            "checks_not_run": checks.unrun,
            "failed_checks": checks.failed,
        },
        explains=(
            *(f"lag {table.subject}" for table in behind),
            *(f"unfinished {subject}" for subject in sorted(own)),
        ),
    )


def _held_up(table: WatchedTable, steps: Iterable[str]) -> bool:
    """Whether a failed run explains why this table does not go on: its step failed, or the run was lost."""
    failed, names = [*steps], Names(table.pipeline)
    own = {table.step, names.op(names.source(table.table)), names.aligned}
    return not failed or bool(own.intersection(failed))


def _positions(tables: list[WatchedTable]) -> dict[str, str]:
    """The positions of the pipeline's sources; none if the lake cannot be read, of which the problem is, or another."""
    try:
        lake = Lake.found(tables[0].lake) if tables else None
    except LakeError:
        return {}
    return At(lake, 0, Scope()).positions([table.table for table in tables]) if lake else {}


def _what(failed: bool, steps: list[str], checks: _Checks) -> str:
    """What a run failed to do, and what ends the problem."""
    if steps:
        return f"the failure of {', '.join(steps)}"
    if failed:
        return "the lost run"
    named = [*checks.unrun, *checks.failed]
    return f"what was open of the checks {', '.join(named)}"


def launching(run: DagsterRun) -> str:
    """The command that starts a run like this one; one of no job, started from the asset graph, names its assets."""
    of = _chosen(partition_of(run))
    if not run.job_name.startswith(_OF_NO_JOB):
        operation = run.run_config.get("ops") if OPERATION_TAG in run.tags else None
        of += f" --config-json {shlex.quote(json.dumps({'ops': operation}))}" if operation else ""
        return f"dg launch --job {run.job_name}{of}"
    chosen = set(run.asset_selection or ()) or {key.asset_key for key in run.asset_check_selection or ()}
    names = ",".join(f'key:"{key.to_user_string()}"' for key in sorted(chosen))
    return f"dg launch --assets {shlex.quote(names)}{of}"


def _chosen(partition: list[str] | None) -> str:
    """The options of `dg launch` for these partitions."""
    if partition is None:
        return ""
    first, last = partition
    if first == last:
        return f" --partition {shlex.quote(first)}"
    return f" --partition-range {shlex.quote(f'{first}...{last}')}"


def _is_reported(result: dg.AssetCheckEvaluation, gates: set[dg.AssetKey], published: set[dg.AssetKey | None]) -> bool:
    """Whether a failed check is reported as a problem of the lake: a held gate, or rows that do not add up."""
    if result.check_name == ADDS_UP:
        return result.asset_key in published
    return result.check_name == VERDICT or (result.asset_key in gates and result.check_name in GATE)


def same(item: Open, problem: Problem) -> bool:
    """Whether a run's problem is open already: the same steps and checks of the same job and pipeline; jobs of
    operations belong to several pipelines."""
    return (item.kind, item.pipeline) == (problem.kind, problem.pipeline) and all(
        (item.details.get(name) or None) == (problem.details.get(name) or None) for name in _SAME
    )


def _mending(broken: list[EventLogEntry], commands: Commands) -> tuple[str, ...]:
    """Advice on known causes, and the advice of typed errors, each once."""
    advised = [str(text) for event in broken if (text := _metadata(event).get("next"))]
    known = [commands.shown(mend) for event in broken for mend in unsaid(_all_text(event), *advised)]
    return tuple(dict.fromkeys([*known, *advised]))


def _all_text(event: EventLogEntry) -> str:
    """The whole text of a failure and its causes, for finding a known cause in it: it may hold secrets."""
    data = event.get_dagster_event().step_failure_data
    user, error, texts = data.user_failure_data, data.error, []
    if user is not None:
        texts += [user.description or "", *map(str, _metadata(event).values())]
    while error is not None:
        texts.append(error.message)
        error = error.cause
    return "\n".join(texts)


def _events(instance: DagsterInstance, run: DagsterRun, kind: DagsterEventType) -> list[EventLogEntry]:
    records = instance.get_records_for_run(run.run_id, of_type=kind).records
    return [record.event_log_entry for record in records]


def _named(key: dg.AssetCheckKey) -> str:
    return f"{key.asset_key.to_user_string()}: {key.name}"


def _evaluation(event: EventLogEntry) -> dg.AssetCheckEvaluation:
    return event.get_dagster_event().asset_check_evaluation_data


def _metadata(event: EventLogEntry) -> Mapping[str, Any]:
    data = event.get_dagster_event().step_failure_data.user_failure_data
    return {} if data is None else {name: value.value for name, value in data.metadata.items()}


def _said(event: EventLogEntry) -> str:
    """The message of a typed error, as one sentence. Empty for any other error: its text may hold a secret."""
    data = event.get_dagster_event().step_failure_data.user_failure_data
    if data is None or ERROR_KIND not in data.metadata:
        return ""
    what, where = sentence(data.description or ""), sentence(str(_metadata(event).get("where", "")))
    return f"{what} ({where})" if where and where not in what else what
