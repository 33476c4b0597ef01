"""The epochs of a process. They are like an INSERT's, with further commits for the state and the outputs' watermark:

  plan n -> staged files and their row -> verdict -> second output -> quarantine -> state -> target -> watermark

The target's commit publishes the epoch, as always. State is committed before it, but read up to the last published
epoch only: what a crash leaves half done is done again, each commit once.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import Any

from py4j.protocol import Py4JError
from pyspark import cloudpickle
from pyspark.errors import PySparkException

from tidegate.pipelines.commands import either
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import PlanningError, TidegateError
from tidegate.pipelines.frames import settings
from tidegate.pipelines.joins.outcome import DISCARDED
from tidegate.pipelines.lake import StagedRow, WatermarkRow
from tidegate.pipelines.lake.adopt import Epochs, survey
from tidegate.pipelines.lake.records import StagedFile, restored
from tidegate.pipelines.location import Location
from tidegate.pipelines.process.engine.rows import InputShape
from tidegate.pipelines.process.engine.task import TaskPlan
from tidegate.pipelines.process.errors import ProcessError
from tidegate.pipelines.progress import step
from tidegate.pipelines.runtime import faults
from tidegate.pipelines.runtime.epochs import ReleasePlan
from tidegate.pipelines.runtime.epochs.commits import Commit, EpochCommits, FileCommit, LogCommit, in_no_place
from tidegate.pipelines.runtime.epochs.processed import NOT_HAVING
from tidegate.pipelines.runtime.failures import first_line
from tidegate.pipelines.runtime.processes.columns import ensure_state, input_columns, output_schema, output_types
from tidegate.pipelines.runtime.processes.inputs import PROCESS_COLUMNS, EpochInputs, ProcessTables, planned_steps
from tidegate.pipelines.runtime.processes.outputs import FACT as TIME_FACT
from tidegate.pipelines.runtime.processes.outputs import (
    LATE,
    PROCESSED,
    REPORTS,
    EpochOutputs,
    OutputsTime,
    read_reports,
    same_on_every_task,
    state_files,
)
from tidegate.pipelines.runtime.processes.planning import ProcessPlanner
from tidegate.pipelines.runtime.processes.state import (
    FACT,
    StateBefore,
    StateFiles,
    check_unchanged,
    merged,
    published_rows,
    state_before,
)
from tidegate.pipelines.runtime.releasing.doubled import doubled
from tidegate.pipelines.runtime.releasing.insert_runner import InsertRunner
from tidegate.pipelines.runtime.releasing.violations import counted as counted_violations
from tidegate.pipelines.sinks.protocol import TableSink

Reports = Sequence[Mapping[str, Any]]
"""What each task has reported, in their order."""


def staged_row(
    outputs: EpochOutputs, state: StateBefore, counted: Sequence[Mapping[str, Any]], staged_at: int
) -> StagedRow:
    """The row of an epoch that began with `state`: what was written, and what was `counted` of each output. `staged_at`
    in ms, UTC.

    Raises ProcessError if tasks have not reported what they did, or have reported different results.
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
        **counted_violations(_paths(outputs, 0, files), tables.on_lake.insert.constraints),
        **_doubled(outputs, 0, files),
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


def time_after(tables: ProcessTables, plan: ReleasePlan, reports: Reports) -> OutputsTime:
    """The outputs' watermark and idleness once this epoch is published."""
    assert plan.state is not None
    before = published_rows(tables.on_lake, plan.epoch, plan.state.base)
    stood = OutputsTime.of(before[-1]) if before else OutputsTime()
    return stood.after(tables.spec, plan.state.watermark[1], [report["emitted"] for report in reports])


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
    """The facts of the second output; only the first has a staged row."""
    files, numbers = _files(outputs, 1), _numbers(counted)
    return {
        "files": [asdict(file) for file in files],
        **numbers,
        **_doubled(outputs, 1, files),
        DISCARDED: _given_up(outputs.inputs.plan, numbers),
        "emitted": _handed(reports, 1),
    }


def _broadcast_rows(tables: ProcessTables, plan: ReleasePlan, task: TaskPlan) -> int:
    inputs = zip(tables.spec.inputs, plan.takes, strict=True)
    return sum(span.rows for item, span in inputs if item.broadcast and task.broadcast is not None)


def _numbers(counted: Mapping[str, Any]) -> dict[str, int]:
    return {name: int(value) for name, value in counted.items() if "@" not in name}


def _given_up(plan: ReleasePlan, counted: Mapping[str, int]) -> int:
    return counted["to:quarantine"] if plan.kind == "discard" else 0


def _handed(reports: Reports, output: int) -> int:
    """How many rows the function has emitted to an output, as counted by the tasks."""
    return sum(report["handed"][output] for report in reports)


def _files(outputs: EpochOutputs, output: int) -> list[StagedFile]:
    """The staged files of an output, without what the tasks have reported."""
    found = [file for folder in outputs.folders(output).values() for file in survey(folder)]
    return [file for file in found if file.disposition != REPORTS]


def _paths(outputs: EpochOutputs, output: int, files: Iterable[StagedFile]) -> list[Location]:
    """Where files of an output lie."""
    folders = outputs.folders(output)
    return [folders[file.disposition] / file.path for file in files]


def _doubled(outputs: EpochOutputs, output: int, files: Sequence[StagedFile]) -> dict[str, int]:
    """How many rows of an output have a key that another one has."""
    published = _paths(outputs, output, (file for file in files if file.disposition == "publish"))
    return doubled(published, outputs.inputs.tables.targets[output].primary_key)


PER_TASK = 200_000
"""About how many rows a task of an epoch takes."""


def task_plan(inputs: EpochInputs, state: StateBefore, folder: Location) -> TaskPlan:
    """The plan of an epoch's tasks, which write their state into `folder`.

    Raises PlanningError if the function cannot be pickled.
    """
    tables, plan, steps = inputs.tables, inputs.plan, inputs.found.steps
    spec, span = tables.spec, plan.state
    assert span is not None
    return TaskPlan(
        function=_pickled(spec.function, plan.insert),
        path=tuple(entry or os.getcwd() for entry in sys.path),
        steps=steps,
        inputs=tuple(_shape(tables, place) for place in range(len(spec.inputs))),
        keys=len(tables.state.keys),
        outputs=tuple(map(output_schema, tables.given)),
        columns=tables.state,
        groups=state.groups(),
        due=state.due(steps.end),
        tasks=max(1, min(spec.buckets, (plan.rows + state.living) // PER_TASK + 1)),
        folder=str(folder),
        generation=plan.generation,
        epoch=plan.epoch,
        rewrite=span.rewrite,
        broadcast=inputs.broadcast(),
        keyed=bool(spec.inputs[0].key),
        types=() if spec.windowed else tuple(map(output_types, tables.targets)),
    )


def _shape(tables: ProcessTables, place: int) -> InputShape:
    pipeline, spec = tables.on_lake.pipeline, tables.spec
    columns = input_columns(pipeline, spec, place)
    generators = [] if spec.windowed else pipeline.generators(spec.inputs[place].table)
    extractor = _pickled(generators[0].extractor, tables.on_lake.insert.id) if generators else None
    return InputShape(tuple(columns), extractor)


def _pickled(function: Any, insert: str) -> bytes:
    try:
        return cloudpickle.dumps(function)
    except Exception as error:  # whatever its attributes raise when they are pickled
        raise PlanningError(
            f"the function of {insert} cannot be sent to a worker: {type(error).__name__}: {error}",
            where=f"process {insert}",
            state="the epoch is planned and not staged",
            next_command="keep connections and files out of its attributes: make them in open()",
        ) from error


_MEND_WINDOWS = either(
    "change SELECT or HAVING where they fail, then run the same command again: it takes the same rows",
    "where an aggregate does not fit its type, write another INSERT, into another target, in the place of this one",
)
_MESSAGE = re.compile(r"^\S*pipelines\.process\.errors\.\w+: (?P<message>.+)$", re.MULTILINE)


def _explained(error: BaseException, plan: ReleasePlan, *, windowed: bool) -> TidegateError:
    found = _MESSAGE.search(str(error))
    what, own = found["message"].strip() if found else first_line(error), plan.first
    return ProcessError(
        what,
        where=f"process {plan.insert}, epoch {plan.epoch}: {own.table}, epochs {own.after + 1} to {own.upto}",
        state="the epoch is planned and not staged; what is published, and the state, stand at the epoch before",
        next_command=_MEND_WINDOWS
        if windowed
        else "mend the function, then run the same command again: it takes the same rows",
    )


@dataclass(frozen=True)
class ProcessRunner(InsertRunner):
    """The runner of one process. `until`: see `ProcessPlanner`."""

    until: int | None = None

    @property
    def planner(self) -> ProcessPlanner:
        return ProcessPlanner(self, self.clock, self.until)

    @cached_property
    def tables(self) -> ProcessTables:
        return ProcessTables(self)

    @property
    def targets(self) -> tuple[Table, ...]:
        return self.tables.targets

    def write(self, plan: ReleasePlan) -> StagedRow:
        """Run the plan's epoch and write its outputs and its state; returns the row that describes the files.

        Raises ProcessError with the function's key and record if it failed, LakeError if state is lost.
        """
        if plan.state is None:
            raise PlanningError(
                f"epoch {plan.epoch} of {plan.insert} was planned for an INSERT, and the script has a process",
                where=f"process {plan.insert}",
                state="the epoch is planned and not staged",
                next_command="give the process a new name: it then begins at the first row",
            )
        tables, spec, spark = self.tables, self.tables.spec, self.spark()
        found = planned_steps(self.lake, spec, plan)
        state = state_before(self, plan.epoch, plan.state.base)
        check_unchanged(plan.insert, state, spec.buckets, tables.key, spec.definition)
        for target in self.targets:
            self._prepare(target, PROCESS_COLUMNS, {"_rowtime": PROCESS_COLUMNS["_rowtime"]})
        if state.path not in self.ready:  # now that it is known that no state is lost: it must not be made anew
            ensure_state(state.path, tables.state, plan.insert)
            self.ready.add(state.path)
        name = plan.new_attempt()
        Location(state.path / name).make()
        inputs = EpochInputs(tables, spark, plan, found)
        outputs = EpochOutputs(inputs, task_plan(inputs, state, state.path / name), name)
        try:
            with (
                step(self.progress, f"process {plan.insert}, epoch {plan.epoch}"),
                settings(spark, {"spark.sql.adaptive.enabled": "false"}),
            ):
                counted = outputs.write()
        except (PySparkException, Py4JError) as error:
            raise _explained(error, plan, windowed=self.tables.spec.windowed is not None) from error
        faults.point("insert.written", plan.insert)
        return staged_row(outputs, state, counted, self.clock())

    @property
    def _places(self) -> list[Location]:
        return [self.lake.state_path(self.insert), *super()._places]

    @property
    def is_logged(self) -> bool:
        return True

    def commits(self, plan: ReleasePlan, staged: StagedRow) -> EpochCommits:
        found: list[FileCommit] = []
        for target in self.targets[1:]:
            files = [restored(StagedFile, file, staged.place) for file in staged.facts["second"]["files"]]
            quarantined = [file for file in files if file.disposition == "quarantine"]
            published = [file for file in files if file.disposition == "publish"]
            found += [
                self._commit(staged, target, "quarantine", quarantined, "process.second-quarantined"),
                self._commit(staged, target, "publish", published, "process.second", always=True),
            ]
        own = self.target
        target = self._commit(staged, own, "publish", staged.of("publish"), "insert.published", always=True)
        quarantine = self._commit(staged, own, "quarantine", staged.of("quarantine"), "insert.quarantined")
        after = [*self._log(plan, staged), *self._notifications(target, *found[1::2])]
        return EpochCommits([*found, quarantine, self._state(plan, staged)], target, after)

    def _state(self, plan: ReleasePlan, staged: StagedRow) -> FileCommit:
        """The state that the epoch has written. A base replaces everything before it."""
        path, state = self.lake.state_path(self.insert), StateFiles.of(staged)
        files = [StagedFile(file["path"], "", file["size"], file["rows"], file["stats"]) for file in state.files]
        rewrites = plan.state is not None and plan.state.rewrite and plan.epoch > 1
        instead_of = partial(Epochs, plan.generation, [(1, plan.epoch - 1)]) if rewrites else in_no_place
        folder, name = path / state.folder, self.target.name
        return FileCommit(
            "state", name, TableSink(path), folder, files, "process.state", always=True, instead_of=instead_of
        )

    def _log(self, plan: ReleasePlan, staged: StagedRow) -> list[Commit]:
        """The outputs' rows of the watermark log: with them this epoch has landed for readers of the outputs."""
        return [LogCommit(partial(self._log_rows, plan, staged, number)) for number in range(len(self.targets))]

    def _log_rows(self, plan: ReleasePlan, staged: StagedRow, output: int) -> list[WatermarkRow]:
        time = OutputsTime.of(staged)
        row = WatermarkRow(
            owner=self.targets[output].log_name,
            generation=plan.generation,
            epoch=plan.epoch,
            landed_at=staged.staged_at,
            rows=(staged.facts["second"] if output else staged.counts)["to:publish"],
            timestamp=time.timestamp,
            use_processing_time=time.use_processing_time,
            idle=time.idle,
            flip_epoch=1,
            flipped_at=staged.staged_at,
            late=0,
            told=time.declared or None,
        )
        return [row]
