"""The epochs of a process: as for an INSERT, with commits of their own for the state and the outputs' watermark.

    plan n -> staged files and their row -> verdict -> second output -> quarantine -> state -> target -> watermark

The target's commit publishes the epoch, as always. State comes before it and is read up to the last published epoch
only: what a crash leaves half done is done again, each commit once.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from py4j.protocol import Py4JError
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidegate.pipelines.clock import Clock
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import PlanningError, TidegateError
from tidegate.pipelines.frames import settings
from tidegate.pipelines.lake import StagedRow, WatermarkRow
from tidegate.pipelines.lake.adopt import Epochs
from tidegate.pipelines.lake.records import StagedFile, restored
from tidegate.pipelines.location import Location
from tidegate.pipelines.process.engine.rows import InputShape
from tidegate.pipelines.process.engine.task import TaskPlan
from tidegate.pipelines.process.errors import ProcessError
from tidegate.pipelines.progress import Progress, step
from tidegate.pipelines.runtime import faults
from tidegate.pipelines.runtime.definitions import Definitions
from tidegate.pipelines.runtime.epochs import ProcessPlan, ReleasePlan
from tidegate.pipelines.runtime.epochs.commits import Commit, FileCommit, LogCommit, in_no_place
from tidegate.pipelines.runtime.epochs.position import InsertOnLake
from tidegate.pipelines.runtime.failures import first_line
from tidegate.pipelines.runtime.processes.columns import input_columns, output_schema, output_types
from tidegate.pipelines.runtime.processes.description import staged_row
from tidegate.pipelines.runtime.processes.inputs import EpochInputs, ProcessTables, planned_steps
from tidegate.pipelines.runtime.processes.outputs import OutputsTime
from tidegate.pipelines.runtime.processes.planning import ProcessPlanner
from tidegate.pipelines.runtime.processes.state import StateBefore, StateFiles, check_unchanged, state_before
from tidegate.pipelines.runtime.processes.writing import EpochOutputs
from tidegate.pipelines.runtime.releasing.staging import new_attempt, remove_attempts, sweep_attempts
from tidegate.pipelines.runtime.releasing.work import EpochWork
from tidegate.pipelines.sinks.protocol import TableSink

PER_TASK = 200_000
"""About how many rows a task of an epoch takes."""


def task_plan(inputs: EpochInputs, state: StateBefore, folder: Location) -> TaskPlan:
    """The plan of an epoch's tasks, which write their state into `folder`.

    Raises PlanningError where the function cannot be sent to them.
    """
    tables, plan, steps = inputs.tables, inputs.plan, inputs.found.steps
    spec, span = tables.spec, plan.process
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
        tasks=max(1, min(spec.buckets, (span.rows + state.living) // PER_TASK + 1)),
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


_MESSAGE = re.compile(r"^\S*pipelines\.process\.errors\.\w+: (?P<message>.+)$", re.MULTILINE)


@dataclass(frozen=True)
class ProcessStager:
    """Stages the plans of one process. `ready`: the tables that this runner has found to be there and as declared."""

    on_lake: InsertOnLake
    spark: Callable[[], SparkSession]
    clock: Clock
    progress: Progress
    ready: set[Location]
    definitions: Definitions | None = None

    @cached_property
    def tables(self) -> ProcessTables:
        return ProcessTables(self.on_lake, self.definitions)

    @property
    def targets(self) -> tuple[Table, ...]:
        return self.tables.targets

    def stage(self, plan: ReleasePlan) -> StagedRow:
        """Run the plan's epoch and write its outputs and its state; the row that describes the files.

        Raises ProcessError with the function's key and record where it failed, LakeError where state is lost.
        """
        if not isinstance(plan, ProcessPlan):
            raise PlanningError(
                f"epoch {plan.epoch} of {plan.insert} was planned for an INSERT, and the script has a process",
                where=f"process {plan.insert}",
                state="the epoch is planned and not staged",
                next_command="give the process a new name: it then begins at the first row",
            )
        tables, spec, spark = self.tables, self.tables.spec, self.spark()
        found = planned_steps(self.on_lake.lake, spec, plan.process)
        state = state_before(self.on_lake, plan.epoch, plan.process.base)
        check_unchanged(plan.insert, state, spec.buckets, tables.key, spec.definition)
        tables.prepare(self.ready)  # now that it is known that no state is lost: its table must not be made anew
        name = new_attempt(plan)
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
            raise _explained(error, plan) from error
        faults.point("insert.written", plan.insert)
        return staged_row(outputs, state, counted, self.clock())

    def sweep(self, plan: ReleasePlan, keep: str) -> None:
        """Remove what crashed attempts at this very epoch left behind: no row names those folders."""
        lake, insert = self.on_lake.lake, self.on_lake.insert
        remove_attempts(lake.state_path(insert), plan, keep)
        for target in self.targets:
            sweep_attempts(lake, target, insert, plan, keep)


def _explained(error: BaseException, plan: ReleasePlan) -> TidegateError:
    found = _MESSAGE.search(str(error))
    what = found["message"].strip() if found else first_line(error)
    return ProcessError(
        what,
        where=f"process {plan.insert}, epoch {plan.epoch}: {plan.probe}, epochs {plan.after + 1} to {plan.upto}",
        state="the epoch is planned and not staged; what is published, and the state, stand at the epoch before",
        next_command="mend the function, then run the same command again: it takes the same rows",
    )


@dataclass(frozen=True)
class ProcessWork(EpochWork):
    """What is done for one process. `until`: see `ProcessPlanner`."""

    until: int | None = None

    @property
    def planner(self) -> ProcessPlanner:
        return ProcessPlanner(self.on_lake, self.clock, self.until)

    @property
    def stager(self) -> ProcessStager:
        return ProcessStager(self.on_lake, self.spark, self.clock, self.progress, self.ready, self.definitions)

    @property
    def targets(self) -> tuple[Table, ...]:
        return self.stager.targets

    def completed(self, plan: ReleasePlan) -> list[int]:
        lake, outputs = self.on_lake.lake, self.on_lake.insert.outputs
        logged = [lake.watermarks.version(lake.application(name, "watermark", plan.generation)) for name in outputs]
        return [*logged, *super().completed(plan)]

    def commits(self, plan: ReleasePlan, staged: StagedRow) -> list[Commit]:
        found: list[FileCommit] = []
        for target in self.targets[1:]:
            files = [restored(StagedFile, file, staged.place) for file in staged.facts["second"]["files"]]
            kept_out = [file for file in files if file.disposition == "quarantine"]
            published = [file for file in files if file.disposition == "publish"]
            found += [
                self._commit(staged, target, "quarantine", kept_out, "process.second-quarantined"),
                self._commit(staged, target, "publish", published, "process.second", always=True),
            ]
        own = self.on_lake.target
        target = self._commit(staged, own, "publish", staged.of("publish"), "insert.published", always=True)
        return [
            *found,
            self._commit(staged, own, "quarantine", staged.of("quarantine"), "insert.quarantined"),
            self._state(plan, staged),
            target,
            *self._log(plan, staged),
            *self._notifications(target, *found[1::2]),
        ]

    def _state(self, plan: ReleasePlan, staged: StagedRow) -> FileCommit:
        """What the epoch has written of the state. A base of it takes the place of all before it."""
        path, state = self.on_lake.lake.state_path(self.on_lake.insert), StateFiles.of(staged)
        files = [StagedFile(file["path"], "", file["size"], file["rows"], file["stats"]) for file in state.files]
        rewrites = isinstance(plan, ProcessPlan) and plan.process.rewrite and plan.epoch > 1
        instead_of = partial(Epochs, plan.generation, [(1, plan.epoch - 1)]) if rewrites else in_no_place
        folder, name = path / state.folder, self.on_lake.target.name
        return FileCommit(
            "state", name, TableSink(path), folder, files, "process.state", always=True, instead_of=instead_of
        )

    def _log(self, plan: ReleasePlan, staged: StagedRow) -> list[Commit]:
        """The outputs' rows of the watermark log: from here on this epoch has landed for whoever reads them."""
        time = OutputsTime.of(staged)
        return [
            LogCommit(
                WatermarkRow(
                    owner=target.name,
                    generation=plan.generation,
                    epoch=plan.epoch,
                    landed_at=staged.staged_at,
                    rows=(staged.facts["second"] if number else staged.counts)["to:publish"],
                    timestamp=time.timestamp,
                    use_processing_time=time.use_processing_time,
                    idle=time.idle,
                    flip_epoch=1,
                    flipped_at=staged.staged_at,
                    late=0,
                    told=time.declared or None,
                )
            )
            for number, target in enumerate(self.targets)
        ]
