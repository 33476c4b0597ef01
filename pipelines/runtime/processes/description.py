"""The row that describes a staged epoch of a process: its files, what was counted, its state and its time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tidegate.pipelines.joins.outcome import DISCARDED
from tidegate.pipelines.lake import StagedRow
from tidegate.pipelines.lake.adopt import survey
from tidegate.pipelines.lake.records import StagedFile
from tidegate.pipelines.location import Location
from tidegate.pipelines.process.engine.task import TaskPlan
from tidegate.pipelines.runtime.epochs import ProcessPlan, ReleasePlan
from tidegate.pipelines.runtime.epochs.process import NOT_HAVING
from tidegate.pipelines.runtime.processes.inputs import ProcessTables
from tidegate.pipelines.runtime.processes.outputs import FACT as TIME_FACT
from tidegate.pipelines.runtime.processes.outputs import (
    PROCESSED,
    REPORTS,
    OutputsTime,
    read_reports,
    same_on_every_task,
    state_files,
)
from tidegate.pipelines.runtime.processes.state import FACT, StateBefore, StateFiles, merged, published_rows
from tidegate.pipelines.runtime.processes.writing import LATE, EpochOutputs
from tidegate.pipelines.runtime.releasing.violations import counted as counted_violations

Reports = Sequence[Mapping[str, Any]]
"""What each task has reported, in their order."""


def staged_row(
    outputs: EpochOutputs, state: StateBefore, counted: Sequence[Mapping[str, Any]], staged_at: int
) -> StagedRow:
    """What was written of an epoch that began with `state`; `counted` of each output. `staged_at` in ms, UTC.

    Raises ProcessError where tasks have not reported what they did, or not the same.
    """
    tables, plan, task, attempt = outputs.inputs.tables, outputs.inputs.plan, outputs.task, outputs.attempt
    reports = read_reports(outputs.folders(0)["publish"])
    same_on_every_task(plan.insert, reports, task.tasks)
    files = _files(outputs, 0)
    first, windowed = _numbers(counted[0]), tables.spec.windowed is not None
    if windowed:
        late, seen = first.pop(LATE), [first[PROCESSED]]
    else:
        late = sum(sum(report["late"]) for report in reports)
        seen = [sum(report["seen"][place] for report in reports) for place in range(len(reports[0]["seen"]))]
    facts: dict[str, Any] = {
        f"late@{tables.on_lake.insert.probe_alias}": late,
        "emitted": _handed(reports, 0),
        TIME_FACT: time_after(tables, plan, reports).fact(),
        "broadcast": reports[0]["broadcast"],
        FACT: _state_files(tables, state, attempt, reports).fact(),
        **counted_violations(_paths(outputs, files), tables.on_lake.insert.constraints),
    }
    if windowed:
        facts[NOT_HAVING] = first.pop(NOT_HAVING)
    if len(tables.targets) > 1:
        facts["second"] = _second(outputs, reports, counted[1])
    return StagedRow(
        owner=tables.on_lake.owner,
        generation=plan.generation,
        epoch=plan.epoch,
        plan_digest=plan.digest,
        staged_at=staged_at,
        folder=attempt,
        files=[asdict(file) for file in files],
        counts={
            "rows": sum(seen) + _broadcast_rows(tables, plan, task),
            PROCESSED: seen[0],
            **first,
            "to:drop": sum(number for name, number in first.items() if name.startswith("dropped:")),
            DISCARDED: _given_up(plan, first),
        },
        facts=facts,
    )


def time_after(tables: ProcessTables, plan: ProcessPlan, reports: Reports) -> OutputsTime:
    """What the outputs say of time once this epoch is published."""
    before = published_rows(tables.on_lake, plan.epoch, plan.process.base)
    stood = OutputsTime.of(before[-1]) if before else OutputsTime()
    return stood.after(tables.spec, plan.process.watermark[1], [report["emitted"] for report in reports])


def _state_files(tables: ProcessTables, state: StateBefore, folder: str, reports: Reports) -> StateFiles:
    return StateFiles(
        folder=folder,
        files=state_files(state.path / folder, reports),
        buckets=merged(state.buckets, reports),
        buckets_of=tables.spec.buckets,
        key=tables.key,
        definition=tables.spec.definition,
    )


def _second(outputs: EpochOutputs, reports: Reports, counted: Mapping[str, Any]) -> dict[str, Any]:
    """What is stored of the second output, which has no row of its own."""
    files, numbers = [asdict(file) for file in _files(outputs, 1)], _numbers(counted)
    return {
        "files": files,
        **numbers,
        DISCARDED: _given_up(outputs.inputs.plan, numbers),
        "emitted": _handed(reports, 1),
    }


def _broadcast_rows(tables: ProcessTables, plan: ProcessPlan, task: TaskPlan) -> int:
    inputs = zip(tables.spec.inputs, plan.process.inputs, strict=True)
    return sum(span.rows for item, span in inputs if item.broadcast and task.broadcast is not None)


def _numbers(counted: Mapping[str, Any]) -> dict[str, int]:
    return {name: int(value) for name, value in counted.items() if "@" not in name}


def _given_up(plan: ReleasePlan, counted: Mapping[str, int]) -> int:
    return counted["to:quarantine"] if plan.kind == "discard" else 0


def _handed(reports: Reports, output: int) -> int:
    """How many rows the tasks have handed on to an output, by their own count."""
    return sum(report["handed"][output] for report in reports)


def _files(outputs: EpochOutputs, output: int) -> list[StagedFile]:
    """The staged files of an output, without what the tasks have reported."""
    found = [file for folder in outputs.folders(output).values() for file in survey(folder)]
    return [file for file in found if file.disposition != REPORTS]


def _paths(outputs: EpochOutputs, files: Sequence[StagedFile]) -> list[Location]:
    """Where files of the first output lie."""
    folders = outputs.folders(0)
    return [folders[file.disposition] / file.path for file in files]
