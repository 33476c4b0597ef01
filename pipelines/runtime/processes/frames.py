"""The rows of an epoch on their way into the tasks of a process: by bucket, then key, then the order of arrival."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from tidegate.pipelines.lake.rows import ddl
from tidegate.pipelines.process.engine.rows import BUCKET, STEP, TIME, key_column, record_column
from tidegate.pipelines.process.engine.task import KIND, OFFSET, REPORTED, TASK, TaskPlan, output_column, run_task
from tidegate.pipelines.spark_versions import place_by_id
from tidegate.pipelines.syntax.types import quoted

if TYPE_CHECKING:
    import pyarrow as pa

ORDER = ("_split", "_offset")
"""Within a step, rows are in the order in which their splits have them."""


@dataclass(frozen=True)
class InputRows:
    """The landed rows of an input in an epoch.

    Attributes:
        rows: With `_epoch`, `_rowtime`, `_split`, `_offset`.
        columns: What a record of it has: name -> Spark type.
        key: The columns that make its key; none where it is not keyed.
        after: The epochs of it lie after this one.
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
    """The rows of the keyed inputs, a bucket's all in task (bucket mod `tasks`), sorted as
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
    """What the tasks hand on (`tidegate.pipelines.process.engine.task`). `outputs`: the columns of each,
    name -> Spark type."""
    columns = {KIND: "INT", REPORTED: "STRING", TASK: "INT", OFFSET: "BIGINT"}
    for output, schema in enumerate(outputs):
        columns |= {output_column(output, number): kind for number, kind in enumerate(schema.values())}
    return rows.mapInArrow(_worker(plan), ddl(columns))


def _worker(plan: TaskPlan) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches):  # without annotations: Spark would read them
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        return run_task(plan, context.partitionId(), batches)

    return run
