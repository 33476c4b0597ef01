"""Run a process function over a plan's rows, and write what it gives where no commit names it yet."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from pipelines.clock import Clock
from pipelines.errors import PlanningError, TidegateError
from pipelines.frames import empty_frame, settings
from pipelines.joins.outcome import DISCARDED
from pipelines.lake import StagedRow
from pipelines.lake import rows as lake_rows
from pipelines.lake.adopt import survey
from pipelines.lake.rows import quoted
from pipelines.process.engine.rows import InputShape
from pipelines.process.engine.task import KIND, TaskPlan
from pipelines.process.errors import ProcessError
from pipelines.process.spec import ProcessSpec
from pipelines.process.windows.windowed import NOT_HAVING, WindowedQuery
from pipelines.progress import Progress, step
from pipelines.runtime import faults
from pipelines.runtime.failures import first_line
from pipelines.runtime.plans import ReleasePlan
from pipelines.runtime.processing.columns import (
    ensure_state,
    input_columns,
    key_columns,
    output_columns,
    output_schema,
    record_columns,
    state_columns,
)
from pipelines.runtime.processing.frames import InputRows, processed, task_rows
from pipelines.runtime.processing.inputs import EpochSteps, planned_steps
from pipelines.runtime.processing.outputs import (
    PROCESSED,
    REPORTS,
    counts,
    read_reports,
    same_on_every_task,
    staged_rows,
    state_files,
)
from pipelines.runtime.processing.outputs_time import FACT as TIME_FACT
from pipelines.runtime.processing.outputs_time import OutputsTime
from pipelines.runtime.processing.state import (
    FACT,
    KeyColumns,
    StateBefore,
    StateFiles,
    check_unchanged,
    merged,
    published_rows,
    state_before,
)
from pipelines.runtime.processing.windowed import LATE, PLACE, added_up, counts_of, told_rows
from pipelines.runtime.releasing.staging import (
    QUARANTINE_COLUMNS,
    TARGET_COLUMNS,
    ensure,
    new_folder,
    sweep_attempts,
)
from pipelines.runtime.releasing.standing import Standing
from pipelines.runtime.releasing.violations import counted as counted_violations
from pipelines.sql.model import Table, severest_first

_TOLD = re.compile(r"^\S*pipelines\.process\.errors\.\w+: (?P<told>.+)$", re.MULTILINE)

PROCESS_COLUMNS = {**TARGET_COLUMNS, "_split": "STRING", "_offset": "BIGINT"}
"""What a row of a process's output carries: with its place, so that another process may take it in order."""

PER_TASK = 200_000
"""About how many rows a task of an epoch takes."""


@dataclass(frozen=True)
class ProcessStager:
    """Stages the plans of one process. `ready`: the tables that this runner has found to be there and as declared."""

    standing: Standing
    spark: Callable[[], SparkSession]
    clock: Clock
    progress: Progress
    ready: set[Path]

    def stage(self, plan: ReleasePlan) -> StagedRow:
        """Run the plan's epoch and write its outputs and its state; the row that describes the files.

        Raises ProcessError with the function's key and record where it failed, LakeError where state is lost.
        """
        assert plan.process is not None
        spec, spark, span = self.spec, self.spark(), plan.process
        found = planned_steps(self.standing.lake, spec, span)
        state = state_before(self.standing, plan.epoch, span.base)
        check_unchanged(plan.insert, state, spec.buckets, self._key, spec.definition)
        self._prepare()  # now that it is known that no state is lost: its table must not be made anew
        name = new_folder(plan)
        folder = self.standing.staged_path / name
        (state.path / name).mkdir(parents=True)
        task = self._task(spark, plan, found, state, state.path / name)
        try:
            with (
                step(self.progress, f"process {plan.insert}, epoch {plan.epoch}"),
                settings(spark, {"spark.sql.adaptive.enabled": "false"}),
            ):
                counted = self._write(spark, plan, found, task, folder)
        except (PySparkException, Py4JError) as error:
            raise self._explained(error, plan) from error
        faults.point("insert.written", plan.insert)
        return self._row(plan, folder, state, task, counted)

    def sweep(self, plan: ReleasePlan, keep: str) -> None:
        """Remove what crashed attempts at this very epoch left behind: no row names those folders."""
        for place in [self.standing.lake.state_path(self.standing.insert), *map(self._staged_of, self.targets)]:
            sweep_attempts(place, plan, keep)

    # --- what it is made of --------------------------------------------------------------------------------------

    @property
    def spec(self) -> ProcessSpec:
        spec = self.standing.insert.process
        assert spec is not None
        return spec

    @property
    def _key(self) -> KeyColumns:
        return key_columns(state_columns(self.standing.pipeline, self.spec))

    @property
    def targets(self) -> tuple[Table, ...]:
        return tuple(self.standing.pipeline.table(name) for name in self.spec.outputs)

    def _staged_of(self, target: Table) -> Path:
        return self.standing.lake.staged_path(target, self.standing.insert)

    def _prepare(self) -> None:
        """Make the targets, their quarantines and the state's table, or check that they are what is declared."""
        lake, insert = self.standing.lake, self.standing.insert
        for target in self.targets:
            own, quarantine = record_columns(target), lake.quarantine_path(target, insert)
            ensure(lake.target_path(target), {**own, **PROCESS_COLUMNS}, target.name, self.ready)
            ensure(quarantine, {**own, **QUARANTINE_COLUMNS}, target.name, self.ready)
        path = lake.state_path(insert)
        if path not in self.ready:
            ensure_state(path, state_columns(self.standing.pipeline, self.spec), insert.id)
            self.ready.add(path)

    def _task(
        self, spark: SparkSession, plan: ReleasePlan, found: EpochSteps, state: StateBefore, folder: Path
    ) -> TaskPlan:
        spec, span, pipeline = self.spec, plan.process, self.standing.pipeline
        assert span is not None
        columns = state_columns(pipeline, spec)
        tasks = max(1, min(spec.buckets, (span.rows + state.living) // PER_TASK + 1))
        return TaskPlan(
            function=_pickled(spec.function, plan.insert),
            path=tuple(entry or os.getcwd() for entry in sys.path),
            steps=found.steps,
            inputs=tuple(self._shape(place, plan.insert) for place in range(len(spec.inputs))),
            keys=len(columns.keys),
            outputs=tuple(map(output_schema, self._given)),
            columns=columns,
            groups=state.groups(),
            due=state.due(found.steps.end),
            tasks=tasks,
            folder=str(folder),
            generation=plan.generation,
            epoch=plan.epoch,
            rewrite=span.rewrite,
            broadcast=self._broadcast(spark, plan, found),
            keyed=bool(spec.inputs[0].key),
        )

    @property
    def _given(self) -> list[dict[str, str]]:
        """The columns that the function gives to each output."""
        return [output_columns(self.standing.pipeline, self.spec, place) for place in range(len(self.spec.outputs))]

    def _shape(self, place: int, insert: str) -> InputShape:
        pipeline, spec = self.standing.pipeline, self.spec
        columns = input_columns(pipeline, spec, place)
        generators = [] if spec.windowed else pipeline.generators(spec.inputs[place].table)
        return InputShape(tuple(columns), _pickled(generators[0].extractor, insert) if generators else None)

    def _rows(self, spark: SparkSession, plan: ReleasePlan, place: int, found: EpochSteps) -> InputRows:
        assert plan.process is not None
        item, span = self.spec.inputs[place], plan.process.inputs[place]
        lake, table = self.standing.lake, self.standing.pipeline.table(item.table)
        own = self.standing.pipeline.process_output(item.table)
        path = lake.target_path(table) if own else lake.table_path(item.table)
        rows = lake_rows.between(spark, path, span.generation, span.after, span.upto) if span.rows else None
        if rows is None:
            rows = empty_frame(spark, lake_rows.struct_type({**lake_rows.LAKE_COLUMNS, **record_columns(table)}))
        elif own or table.watermark is None:
            # The source's own time of a change is not the time that a watermark tells of: nothing is late by it. Where
            # a generator tells the time, its extractor is asked.
            rows = rows.withColumn("_rowtime", F.lit(None).cast("timestamp"))
        return InputRows(rows, record_columns(table), item.key, span.after, found.of_input[place])

    def _broadcast(self, spark: SparkSession, plan: ReleasePlan, found: EpochSteps) -> pa.Table | None:
        """The records of the broadcast input. They go to every task anyway, so they go through the driver."""
        places = [place for place, item in enumerate(self.spec.inputs) if item.broadcast]
        if not places:
            return None
        own = self._rows(spark, plan, places[0], found)
        columns = [f"{quoted(name)} AS {quoted(name)}" for name in own.columns]
        laid_out = own.rows.selectExpr(f"{own.step} AS _step", "_split", "_offset", *columns)
        return laid_out.orderBy("_step", "_split", "_offset").drop("_split", "_offset").toArrow()

    # --- outputs -------------------------------------------------------------------------------------------------

    def _write(
        self, spark: SparkSession, plan: ReleasePlan, found: EpochSteps, task: TaskPlan, folder: Path
    ) -> list[dict[str, Any]]:
        """Write the outputs, each beside its target; what was counted of each."""
        keyed = [place for place, item in enumerate(self.spec.inputs) if not item.broadcast]
        inputs = [self._rows(spark, plan, place, found) for place in keyed]
        if self.spec.windowed is not None:
            return [self._write_windows(plan, self.spec.windowed, inputs[0], found, task, folder)]
        frame = processed(task_rows(inputs, self.spec.buckets, task.tasks), task, self._given)
        if len(self.targets) == 1:
            return [self._write_output(frame, plan, 0, folder)]
        # Both come from one pass, which must not run twice: its files are read once for each.
        raw = folder.with_name(f"{folder.name}raw")
        try:
            frame.write.mode("errorifexists").parquet(str(raw))
            counted = []
            for output, target in enumerate(self.targets):
                rows = spark.read.schema(frame.schema).parquet(str(raw))
                wanted = rows.where(f"{KIND} = {output}" if output else f"{KIND} <> 1")
                counted.append(self._write_output(wanted, plan, output, self._staged_of(target) / folder.name))
        finally:
            shutil.rmtree(raw, ignore_errors=True)
        return counted

    def _write_windows(
        self,
        plan: ReleasePlan,
        query: WindowedQuery,
        landed: InputRows,
        found: EpochSteps,
        task: TaskPlan,
        folder: Path,
    ) -> dict[str, Any]:
        """Write SQL's windows: added up by Spark before the function, and selected after it."""
        taken, told = Observation(f"taken {plan.insert} {plan.epoch}"), Observation(f"told {plan.insert} {plan.epoch}")
        assert plan.process is not None
        seen = taken if plan.process.inputs[0].rows else None
        if seen is None:  # a frame that Spark takes for empty would have no tasks, and count nothing
            spark = landed.rows.sparkSession
            added = empty_frame(spark, lake_rows.struct_type({**query.records, **PLACE}))
        else:
            rows = landed.rows.withColumn("_instant", F.expr(f"timestamp_millis({plan.instant}L)"))
            added = added_up(rows, query, found, landed.step, seen)
        frame = processed(
            task_rows([replace(landed, rows=added, columns=query.records)], self.spec.buckets, task.tasks),
            task,
            self._given,
        )
        given = {item.name: item.expression for item in self.standing.insert.projections}
        stored = record_columns(self.targets[0]).items()
        projections = {name: given.get(name, f"CAST(NULL AS {kind})") for name, kind in stored}
        counted = self._write_output(told_rows(frame, query, projections, plan.instant, told), plan, 0, folder)
        return {**counted, **counts_of(seen), **told.get}

    def _write_output(self, rows: DataFrame, plan: ReleasePlan, output: int, folder: Path) -> dict[str, Any]:
        target = self.targets[output]
        constraints = severest_first(target.constraints)
        observed = Observation(f"staged {plan.insert} {plan.epoch} {output}")
        laid_out = staged_rows(rows, plan, target, output, constraints)
        seen = laid_out.observe(
            observed, *[F.expr(f"{count} AS {quoted(name)}") for name, count in counts(constraints)]
        )
        seen.drop("_instant").write.partitionBy("_disposition").mode("errorifexists").parquet(str(folder))
        return dict(observed.get)

    def _row(
        self, plan: ReleasePlan, folder: Path, state: StateBefore, task: TaskPlan, counted: Sequence[Mapping[str, Any]]
    ) -> StagedRow:
        reports = read_reports(folder)
        same_on_every_task(plan.insert, reports, task.tasks)
        files = survey(folder)
        first = {name: int(value) for name, value in counted[0].items() if "@" not in name}
        seen = [sum(report["seen"][place] for report in reports) for place in range(len(reports[0]["seen"]))]
        late = sum(sum(report["late"]) for report in reports)
        assert plan.process is not None
        broadcast = sum(
            span.rows
            for item, span in zip(self.spec.inputs, plan.process.inputs, strict=True)
            if item.broadcast and task.broadcast is not None
        )
        told = StateFiles(
            folder=folder.name,
            files=state_files(state.path / folder.name, reports),
            buckets=merged(state.buckets, reports),
            buckets_of=self.spec.buckets,
            key=self._key,
            definition=self.spec.definition,
        )
        if self.spec.windowed is not None:
            late, seen = first.pop(LATE), [first[PROCESSED]]
        facts: dict[str, Any] = {
            f"late@{self.standing.insert.probe_alias}": late,
            "emitted": _handed(reports, 0),
            TIME_FACT: self._time(plan, reports).fact(),
            "broadcast": reports[0]["broadcast"],
            FACT: told.fact(),
            **counted_violations(_data(folder), self.standing.insert.constraints),
        }
        if self.spec.windowed is not None:
            facts[NOT_HAVING] = first.pop(NOT_HAVING)
        if len(self.targets) > 1:
            second = self._staged_of(self.targets[1]) / folder.name
            kept = [asdict(file) for file in survey(second)]
            told_of = {name: int(value) for name, value in counted[1].items() if "@" not in name}
            given_up = told_of["to:quarantine"] if plan.kind == "discard" else 0
            facts["second"] = {"files": kept, **told_of, DISCARDED: given_up, "emitted": _handed(reports, 1)}
        return StagedRow(
            owner=self.standing.owner,
            generation=plan.generation,
            epoch=plan.epoch,
            plan_digest=plan.digest,
            staged_at=self.clock(),
            folder=folder.name,
            files=[asdict(file) for file in files if file.disposition != REPORTS],
            counts={
                "rows": sum(seen) + broadcast,
                PROCESSED: seen[0],
                **first,
                "to:drop": sum(number for name, number in first.items() if name.startswith("dropped:")),
                DISCARDED: first["to:quarantine"] if plan.kind == "discard" else 0,
            },
            facts=facts,
        )

    def _time(self, plan: ReleasePlan, reports: Sequence[Mapping[str, Any]]) -> OutputsTime:
        """What the outputs say of time once this epoch is published."""
        assert plan.process is not None
        before = published_rows(self.standing, plan.epoch, plan.process.base)
        stood = OutputsTime.of(before[-1]) if before else OutputsTime()
        return stood.after(self.spec, plan.process.watermark[1], [report["emitted"] for report in reports])

    def _explained(self, error: BaseException, plan: ReleasePlan) -> TidegateError:
        found = _TOLD.search(str(error))
        what = found["told"].strip() if found else first_line(error)
        return ProcessError(
            what,
            where=f"process {plan.insert}, epoch {plan.epoch}: {plan.probe}, epochs {plan.after + 1} to {plan.upto}",
            state="the epoch is planned and not staged; what is published, and the state, stand at the epoch before",
            next_command="mend the function, then run the same command again: it takes the same rows",
        )


def _handed(reports: Sequence[Mapping[str, Any]], output: int) -> int:
    """How many rows the tasks have handed on to an output, by their own count."""
    return sum(report["handed"][output] for report in reports)


def _data(folder: Path) -> list[Path]:
    """The staged files of an epoch, without its reports."""
    return [path for path in folder.glob("**/*.parquet") if path.parent.name != f"_disposition={REPORTS}"]


def _pickled(function: Any, insert: str) -> bytes:
    try:
        return cloudpickle.dumps(function)
    except Exception as error:  # whatever its attributes raise when they are pickled
        raise PlanningError(
            f"the function of {insert} can not be sent to a worker: {type(error).__name__}: {error}",
            where=f"process {insert}",
            state="the epoch is planned and not staged",
            next_command="keep connections and files out of its attributes: make them in open()",
        ) from error
