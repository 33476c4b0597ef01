"""The tables of one process, and the inputs of an epoch of it: landed epochs as steps, in the order in which they
landed; those from before a flip that the process has waited for come first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.frames import empty_frame, task_number
from tidegate.pipelines.lake import Lake, WatermarkRow
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.lake.rows import ddl
from tidegate.pipelines.lake.stream import PLACED, Stream
from tidegate.pipelines.location import Location
from tidegate.pipelines.process.engine.bucket import StateColumns
from tidegate.pipelines.process.engine.rows import BUCKET, STEP, TIME, key_column, record_column
from tidegate.pipelines.process.engine.steps import LandedStep, Steps, steps_of
from tidegate.pipelines.process.engine.task import KIND, OFFSET, REPORTED, TASK, TaskPlan, output_column, run_task
from tidegate.pipelines.process.spec import ProcessSpec
from tidegate.pipelines.runtime.epochs import ReleasePlan, Taken
from tidegate.pipelines.runtime.epochs.position import InsertOnLake
from tidegate.pipelines.runtime.processes.columns import (
    key_columns,
    output_columns,
    record_columns,
    state_columns,
)
from tidegate.pipelines.runtime.processes.state import KeyColumns
from tidegate.pipelines.runtime.releasing.insert_runner import TARGET_COLUMNS
from tidegate.pipelines.spark_versions import place_by_id
from tidegate.pipelines.syntax.types import quoted
from tidegate.pipelines.watermarks import Watermark

ORDER = ("_split", "_offset")
"""Within a step, rows are in the order of their splits' offsets."""


@dataclass(frozen=True)
class InputRows:
    """The landed rows of an input in an epoch.

    Attributes:
        rows: With `_epoch`, `_rowtime`, `_split`, `_offset`.
        columns: The columns of a record: name -> Spark type.
        key: The columns of its key; empty where the input is not keyed.
        after: The last epoch of the input that an earlier epoch of the process has taken.
        steps: The step of each of its epochs, in order.
    """

    rows: DataFrame
    columns: dict[str, str]
    key: tuple[str, ...]
    after: int
    steps: Sequence[int]

    @property
    def step(self) -> str:
        """The step of a row, as Spark SQL."""
        first = self.steps[0] if self.steps else 0
        if list(self.steps) == list(range(first, first + len(self.steps))):
            return f"CAST(_epoch - {self.after + 1 - first} AS INT)"
        listed = ",".join(map(str, self.steps))
        return f"element_at(from_json('[{listed}]', 'array<int>'), CAST(_epoch - {self.after} AS INT))"

    @property
    def key_expressions(self) -> list[str]:
        return [quoted(name) for name in self.key] or ["_split"]


def task_rows(inputs: Sequence[InputRows], buckets: int, tasks: int) -> DataFrame:
    """The rows of the keyed inputs, all of a bucket in task (bucket mod `tasks`), sorted as
    `tidegate.pipelines.process.engine.rows` reads them."""
    parts = [_laid_out(inputs, place, buckets) for place in range(len(inputs))]
    whole = reduce(lambda one, other: one.unionByName(other), parts)
    keys = [name for name in whole.columns if name.startswith(key_column(0)[:-1])]
    others = [name for name in whole.columns if name not in ORDER]
    placed = place_by_id(whole, tasks, f"{BUCKET} % {tasks}")
    return placed.sortWithinPartitions(BUCKET, *keys, STEP, *ORDER).select(*others)


def _laid_out(inputs: Sequence[InputRows], place: int, buckets: int) -> DataFrame:
    own = inputs[place]
    keys = own.key_expressions
    columns = {
        BUCKET: f"pmod(hash({', '.join(keys)}), {buckets})",
        **{key_column(number): key for number, key in enumerate(keys)},
        STEP: own.step,
        TIME: "unix_micros(_rowtime)",
        **{name: name for name in ORDER},
    }
    for other, item in enumerate(inputs):
        for number, (name, kind) in enumerate(item.columns.items()):
            here = quoted(name) if other == place else f"CAST(NULL AS {kind})"
            columns[record_column(other, number)] = here
    return own.rows.selectExpr(*[f"{expression} AS {name}" for name, expression in columns.items()])


def processed(rows: DataFrame, plan: TaskPlan, outputs: Sequence[dict[str, str]]) -> DataFrame:
    """The tasks' output (`tidegate.pipelines.process.engine.task`). `outputs`: the columns of each, name -> Spark
    type."""
    columns = {KIND: "INT", REPORTED: "STRING", TASK: "INT", OFFSET: "BIGINT"}
    for output, schema in enumerate(outputs):
        columns |= {output_column(output, number): kind for number, kind in enumerate(schema.values())}

    def run(batches):  # without annotations: Spark would read them
        return run_task(plan, task_number(), batches)

    return rows.mapInArrow(run, ddl(columns))


PROCESS_COLUMNS = {**TARGET_COLUMNS, **PLACED}
"""Columns of each row of a process's output: its place, so that statements may read it in order. It has no time."""


@dataclass(frozen=True)
class ProcessTables:
    """A process on a lake, as its script defines it."""

    on_lake: InsertOnLake

    @property
    def spec(self) -> ProcessSpec:
        return self.on_lake.process

    @property
    def targets(self) -> tuple[Table, ...]:
        """The table of each output."""
        return tuple(self.on_lake.pipeline.table(name) for name in self.spec.outputs)

    @cached_property
    def given(self) -> Sequence[dict[str, str]]:
        """The columns that the function writes to each output: name -> Spark type."""
        return [output_columns(self.on_lake.pipeline, self.spec, place) for place in range(len(self.spec.outputs))]

    @cached_property
    def state(self) -> StateColumns:
        """The columns of the state's table."""
        return state_columns(self.on_lake.pipeline, self.spec)

    @property
    def key(self) -> KeyColumns:
        return key_columns(self.state)

    def folders(self, target: Table, attempt: str) -> dict[str, Location]:
        """The folders that an attempt at an epoch is staged in, by disposition."""
        return self.on_lake.lake.new_attempt(target, self.on_lake.insert, attempt)


@dataclass(frozen=True)
class EpochSteps:
    """The steps of an epoch.

    Attributes:
        of_input: For each input, the steps of its epochs in order; -1 for an epoch that never landed (the output of an
            epoch that was discarded).
        watermark: The combined one after the last step.
        landed_at: When each step landed (ms, UTC); it never goes back.
    """

    steps: Steps
    of_input: tuple[tuple[int, ...], ...]
    watermark: Watermark
    landed_at: tuple[int, ...] = ()


def epoch_steps(
    lake: Lake,
    spec: ProcessSpec,
    spans: Sequence[Taken],
    *,
    last: tuple[int, bool],
    before: int,
    now: int,
) -> EpochSteps:
    """The steps of the landed epochs in `spans`, by the watermark log alone, so that they are always the same.

    Args:
        last: The combined watermark before.
        before: The process's time at the end of the epoch before (ms, UTC).
        now: The moment of the plan (ms, UTC).
    """
    landed: list[tuple[bool, int, int, int, LandedStep]] = []
    positions: list[LandedStep] = []
    for place, span in enumerate(spans):
        log = {row.epoch: row for row in Stream(lake, span.table).generation(span.generation).log(span.after)}
        stood = max((epoch for epoch in log if epoch <= span.after), default=None)
        if stood is not None:
            positions.append(_step(spec, place, log[stood]))
        latest = 0 if stood is None else log[stood].landed_at
        for epoch in range(span.after + 1, span.upto + 1):
            if epoch not in log:
                continue
            latest = max(latest, log[epoch].landed_at)  # a clock that went back does not change the order of epochs
            landed.append((epoch > span.loaded, latest, place, epoch, _step(spec, place, log[epoch])))
    landed.sort(key=lambda item: item[:4])
    steps, watermark = steps_of(
        range(len(spans)),
        [item[4] for item in landed],
        before=positions,
        last=Watermark(*last),
        time=before,
        now=now,
        declarations=spec.declarations,
        mode_first=spec.windowed is None or not spec.windowed.event_time,
    )
    places = {item[2:4]: step for step, item in enumerate(landed)}
    of_input = tuple(
        tuple(places.get((place, epoch), -1) for epoch in range(span.after + 1, span.upto + 1))
        for place, span in enumerate(spans)
    )
    return EpochSteps(steps, of_input, watermark, tuple(item[1] for item in landed))


def planned_steps(lake: Lake, spec: ProcessSpec, plan: ReleasePlan) -> EpochSteps:
    """The steps of a planned epoch. They end at the time in its plan, whenever it is run or judged again, since the
    next epoch begins there."""
    span = plan.state
    assert span is not None
    return epoch_steps(lake, spec, plan.takes, last=span.last, before=span.before, now=span.end)


def _step(spec: ProcessSpec, place: int, row: WatermarkRow) -> LandedStep:
    declared, known = row.told or {}, spec.declarations
    others = tuple(item.new_watermark(declared[item.identifier]) for item in known if item.identifier in declared)  # type: ignore[arg-type]
    return LandedStep(place, row.watermark, row.idle, row.landed_at, others)


@dataclass(frozen=True)
class EpochInputs:
    """The inputs of a plan's epoch, whose steps are `found`."""

    tables: ProcessTables
    spark: SparkSession
    plan: ReleasePlan
    found: EpochSteps

    def to_tasks(self) -> list[InputRows]:
        """The inputs that are divided among tasks."""
        return [self._rows(place) for place, item in enumerate(self.tables.spec.inputs) if not item.broadcast]

    def broadcast(self) -> pa.Table | None:
        """The records of the broadcast input. As every task gets them all, they go through the driver."""
        places = [place for place, item in enumerate(self.tables.spec.inputs) if item.broadcast]
        if not places:
            return None
        own = self._rows(places[0])
        columns = [f"{quoted(name)} AS {quoted(name)}" for name in own.columns]
        laid_out = own.rows.selectExpr(f"{own.step} AS _step", "_split", "_offset", *columns)
        return laid_out.orderBy("_step", "_split", "_offset").drop("_split", "_offset").toArrow()

    def _rows(self, place: int) -> InputRows:
        lake, pipeline = self.tables.on_lake.lake, self.tables.on_lake.pipeline
        item, span = self.tables.spec.inputs[place], self.plan.takes[place]
        table, read = pipeline.table(item.table), Stream.of(lake, pipeline, item.table)
        if not span.rows:
            rows = empty_frame(self.spark, lake_rows.struct_type({**lake_rows.LAKE_COLUMNS, **record_columns(table)}))
        else:
            rows = read.generation(span.generation).rows(self.spark, span.after, span.upto)
            if table.watermark is None:
                # The source's own time of a change is not the time of its watermark: nothing is late by it. Where
                # a generator reads the time, its extractor is asked.
                rows = rows.withColumn("_rowtime", F.lit(None).cast("timestamp"))
        return InputRows(rows, record_columns(table), item.key, span.after, self.found.of_input[place])
