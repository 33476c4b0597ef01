"""One task of a process's epoch: Arrow batches in, Arrow batches and a state file out, in one pass.

Its output has the columns of both outputs, `_task`, `_offset` (the row's number in the task) and `_kind`: the output
that a row belongs to, or REPORT for the one row in which a task reports what it has done. State does not pass through
Spark: a task reads the row groups of its buckets, and writes one file in which each bucket that it changed is a row
group. A file that no report names is never read.
"""

from __future__ import annotations

import gc
import hashlib
import json
import pickle
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.pipelines.location import Location
from tidegate.pipelines.process.engine.binding import shape_of, unwrapped
from tidegate.pipelines.process.engine.bucket import (
    BROADCAST_BUCKET,
    BUCKET,
    EPOCH,
    GENERATION,
    LIVE,
    Bucket,
    RowGroup,
    StateColumns,
    encoded,
    read_groups,
)
from tidegate.pipelines.process.engine.epoch import Entries, KeyState, TaskRun
from tidegate.pipelines.process.engine.outputs import OutputColumns
from tidegate.pipelines.process.engine.rows import InputShape, Rows, python_values
from tidegate.pipelines.process.engine.steps import Steps
from tidegate.pipelines.process.errors import WrongValue, cut, shown
from tidegate.pipelines.process.values import record_type
from tidegate.pipelines.syntax.types import FlinkType

KIND, REPORTED, TASK, OFFSET = "_kind", "_report", "_task", "_offset"
REPORT = 9
"""`_kind` of a report; the outputs are 0 and 1."""

COLLECTED = 50_000
"""New objects after which Python looks for reference cycles."""

FLUSH = 50_000
"""Output records after which a batch is handed to Spark."""


Touched = tuple[Any, KeyState]
"""A key, and its new state."""


def output_column(output: int, place: int) -> str:
    """The name of an output's column in a task's batches."""
    return f"_out{output}_{place}"


@dataclass(frozen=True)
class TaskPlan:
    """The plan of an epoch's tasks; the same for every one.

    Attributes:
        function: The function, pickled. `path`: where the driver found its modules.
        outputs: The columns of each output, by their names in the target. `types`: as they are declared; empty where
            the function is the engine's own.
        groups: For every bucket, the row groups that hold state of it, the newest first.
        due: The buckets with a timer that the epoch's time may reach.
        rewrite: Every living key is written, so that older files are not needed any more.
        folder: The folder for state files.
        broadcast: (step, record) of the broadcast input, as one Arrow table of `_step` and its columns.
        keyed: Whether records have keys; if not, `_key0` is the split that they came in.
    """

    function: bytes
    path: tuple[str, ...]
    steps: Steps
    inputs: tuple[InputShape, ...]
    keys: int
    outputs: tuple[pa.Schema, ...]
    columns: StateColumns
    groups: Mapping[int, tuple[RowGroup, ...]]
    due: frozenset[int]
    tasks: int
    folder: str
    generation: int = 1
    epoch: int = 1
    rewrite: bool = False
    broadcast: pa.Table | None = None
    keyed: bool = True
    types: tuple[tuple[FlinkType, ...], ...] = ()

    @property
    def schema(self) -> pa.Schema:
        fields = [(KIND, pa.int32()), (REPORTED, pa.string()), (TASK, pa.int32()), (OFFSET, pa.int64())]
        for output, schema in enumerate(self.outputs):
            fields += [(output_column(output, place), field.type) for place, field in enumerate(schema)]
        return pa.schema(fields)


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]


class Task:
    """Runs one task. `number` counts from 0; task 0 stores what belongs to no key."""

    def __init__(self, plan: TaskPlan, number: int) -> None:
        sys.path.extend(entry for entry in plan.path if entry not in sys.path)
        self._plan, self._number = plan, number
        function = pickle.loads(plan.function)
        self._shape = shape_of(function)
        self._name = type(unwrapped(function)).__name__
        self._columns = [
            OutputColumns(schema, plan.types[place] if plan.types else None)
            for place, schema in enumerate(plan.outputs)
        ]
        self._broadcast = self._broadcast_records()
        self._run = TaskRun(
            function,
            plan.steps,
            self._stored_broadcast(),
            self._broadcast,
            number == 0,
            plan.keyed,
            [columns.taken for columns in self._columns],
        )
        self._marks: list[tuple[tuple[int, ...], Any]] = [(tuple(map(len, self._run.outputs)), None)]
        self._handed = [0] * len(plan.outputs)
        self._writer: pq.ParquetWriter | None = None
        self._file = f"part-{number}-{uuid.uuid4().hex[:8]}.parquet"
        self._written: list[int] = []
        self._reported: dict[int, tuple[int | None, int]] = {}
        self._closing = ""

    def batches(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The task's output. Raises FunctionRaised, WrongValue."""
        plan = self._plan
        keyed = plan.inputs[:1] if self._shape.broadcast else plan.inputs
        source = Rows(rows, keyed, plan.steps.inputs, plan.steps.at, plan.keys)
        waiting = sorted(bucket for bucket in self._to_visit() if bucket % plan.tasks == self._number)
        while source.bucket is not None or waiting:
            bucket: int = min([*waiting[:1], *([] if source.bucket is None else [source.bucket])])
            if waiting and waiting[0] == bucket:
                waiting.pop(0)
            yield from self._visit(bucket, source)
        yield from self._flush(0)
        self._write_broadcast()
        self._run.close()
        self._closing = _digest(self._run.outputs)
        if self._number == 0:  # what belongs to no key is stored once, not once a task
            yield from self._flush(0)
        if self._writer is not None:
            self._writer.close()
        yield self._report(source)

    def _to_visit(self) -> Iterable[int]:
        every = self._run.every_key or self._plan.rewrite
        return [bucket for bucket in self._plan.groups if bucket != BROADCAST_BUCKET] if every else self._plan.due

    def _visit(self, number: int, source: Rows) -> Iterator[pa.RecordBatch]:
        plan, run = self._plan, self._run
        bucket = Bucket(plan.groups.get(number, ()), plan.columns, self._shape.keyed)
        touched: list[Touched] = []

        def through(key: Any, records: Iterable[Any] | None = None) -> None:
            known = bucket.take(key)
            left = run.key(self._shown(key), known, records or ())
            if known is not None or not left.empty:
                touched.append((key, left))
            self._mark(key)

        while source.bucket == number:
            key = source.key
            through(key, source.records())
            yield from self._flush(FLUSH)
        for key in bucket.others() if run.every_key else list(bucket.due(plan.steps.end)):
            through(key)
            yield from self._flush(FLUSH)
        self._keep(number, bucket, touched)

    def _shown(self, key: Any) -> Any:
        """A key as the function sees it."""
        if self._plan.keys == 1:
            return key
        names = tuple(name.removeprefix("_key_") for name, _ in self._plan.columns.keys)
        return record_type(names)(*key)

    # --- state ---------------------------------------------------------------------------------------------------

    def _keep(self, number: int, bucket: Bucket, touched: Sequence[Touched]) -> None:
        rest, least = bucket.untouched()
        living = [state for _, state in touched if not state.empty]
        times = [state.timers[0] for state in living if state.timers]
        times += [least] if least is not None else []
        self._reported[number] = (min(times, default=None), len(rest) + len(living))
        changed = [item for item in touched if not self._plan.rewrite or not item[1].empty]
        keys, states = zip(*changed, strict=True) if changed else ((), ())
        self._write(number, encoded(self._stamp(number), keys, states, self._plan.columns))
        if self._plan.rewrite:  # a row group of their own: no third copy of them is made
            self._write(number, self._restamped(number, bucket.table.take(pa.array(rest))))

    def _restamped(self, bucket: int, rows: pa.Table) -> pa.Table:
        """Rows of earlier epochs, restamped as rows of this one."""
        for name, value in self._stamp(bucket).items():
            place, field = rows.schema.get_field_index(name), rows.schema.field(name)
            rows = rows.set_column(place, field, pa.array([value] * len(rows), field.type))
        return rows

    def _stamp(self, bucket: int) -> dict[str, int]:
        """What all rows of a bucket in this epoch have in common."""
        return {GENERATION: self._plan.generation, EPOCH: self._plan.epoch, BUCKET: bucket}

    def _write(self, number: int, table: pa.Table) -> None:
        if not len(table):
            return
        if self._writer is None:
            file = Location(self._plan.folder) / self._file
            self._writer = file.parquet_writer(self._plan.columns.schema)
        self._writer.write_table(table.combine_chunks(), row_group_size=max(len(table), 1))
        self._written.append(number)

    def _stored_broadcast(self) -> Entries:
        groups = self._plan.groups.get(BROADCAST_BUCKET, ())[:1]
        if not self._plan.columns.broadcast or not groups:
            return {}
        table = read_groups(groups, self._plan.columns.schema)
        return {name: python_values(table.column(name))[0] or {} for name, _ in self._plan.columns.broadcast}

    def _broadcast_records(self) -> list[tuple[int, Any]]:
        table = self._plan.broadcast
        if table is None:
            return []
        make = record_type(self._plan.inputs[1].columns)._make
        columns = [python_values(table.column(place)) for place in range(table.num_columns)]
        return [(row[0], make(row[1:])) for row in zip(*columns, strict=True)]

    def _write_broadcast(self) -> None:
        columns = self._plan.columns
        if self._number != 0 or not columns.broadcast:
            return
        entries = self._run.broadcast
        found: dict[str, pa.Array] = {
            name: pa.nulls(1, kind) for name, kind in zip(columns.schema.names, columns.schema.types, strict=True)
        }
        for name, value in self._stamp(BROADCAST_BUCKET).items():
            found[name] = pa.array([value], columns.schema.field(name).type)
        found[LIVE] = pa.array([True])
        for name, kind in columns.broadcast:
            found[name] = pa.array([list(entries[name].items())], kind)
        self._write(BROADCAST_BUCKET, pa.table(found, schema=columns.schema))

    # --- outputs -------------------------------------------------------------------------------------------------

    def _mark(self, key: Any) -> None:
        """Remember which key the outputs so far belong to."""
        sizes = tuple(map(len, self._run.outputs))
        if sizes != self._marks[-1][0]:
            self._marks.append((sizes, key))

    def _flush(self, least: int) -> Iterator[pa.RecordBatch]:
        if sum(map(len, self._run.outputs)) <= least:
            return
        for output, records in enumerate(self._run.outputs):
            if records:
                yield self._batch(output, records)
                records.clear()
        self._marks = [((0,) * len(self._run.outputs), None)]

    def _batch(self, output: int, records: list[Any]) -> pa.RecordBatch:
        try:
            columns = self._columns[output].arrays(records)
        except WrongValue:
            self._refuse(output, records)
            raise
        size = len(records)
        numbers = np.arange(self._handed[output], self._handed[output] + size, dtype=np.int64)
        self._handed[output] += size
        found: list[pa.Array] = [
            pa.array(np.full(size, output, dtype=np.int32)),
            pa.nulls(size, pa.string()),
            pa.array(np.full(size, self._number, dtype=np.int32)),
            pa.array(numbers),
        ]
        for other, shape in enumerate(self._plan.outputs):
            found += columns if other == output else [pa.nulls(size, field.type) for field in shape]
        return pa.record_batch(found, schema=self._plan.schema)

    def _refuse(self, output: int, records: Sequence[Any]) -> None:
        """Raise WrongValue, with its key, for the first record that does not fit the schema."""
        for place, record in enumerate(records):
            try:
                self._columns[output].arrays([record])
            except WrongValue as error:
                key = next((key for sizes, key in self._marks if sizes[output] > place), None)
                raise WrongValue(
                    f"process function {self._name} at key {shown(key)}: output record {shown(record)} does not fit: "
                    f"{cut(str(error))}"
                ) from error

    def _report(self, source: Rows) -> pa.RecordBatch:
        entries = {name: sorted(map(repr, held.items())) for name, held in self._run.broadcast.items()}
        report = {
            "task": self._number,
            "broadcast": _digest(sorted(entries.items())),
            "closing": self._closing,
            "emitted": self._run.emitted(),
            "handed": self._handed,
            "buckets": {str(number): list(report) for number, report in self._reported.items()},
            "file": self._file if self._writer is not None else None,
            "groups": self._written,
            "seen": source.seen,
            "late": source.late,
        }
        schema = self._plan.schema
        values = {KIND: pa.array([REPORT], pa.int32()), REPORTED: pa.array([json.dumps(report)])}
        return pa.record_batch(
            [values[field.name] if field.name in values else pa.nulls(1, field.type) for field in schema], schema=schema
        )


def run_task(plan: TaskPlan, number: int, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run task `number` of an epoch over its rows. Raises ProcessError."""
    with _seldom_collected():
        yield from Task(plan, number).batches(rows)


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """Look for reference cycles after COLLECTED new objects, and not after 700 as Python does by default: records come
    and go by the ten thousand and form no cycles. The default took a quarter of a task's time."""
    before = gc.get_threshold()
    gc.set_threshold(COLLECTED, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*before)
