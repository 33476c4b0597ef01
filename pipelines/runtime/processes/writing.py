"""The outputs of an epoch, run through its tasks and written where no commit names them yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from tidegate.pipelines.connectors.table import severest_first
from tidegate.pipelines.frames import empty_frame
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.location import Location
from tidegate.pipelines.process.engine.task import KIND, TaskPlan
from tidegate.pipelines.process.windows.windowed import WindowedQuery
from tidegate.pipelines.runtime.processes.columns import record_columns
from tidegate.pipelines.runtime.processes.frames import InputRows, processed, task_rows
from tidegate.pipelines.runtime.processes.inputs import EpochInputs
from tidegate.pipelines.runtime.processes.outputs import counts, staged_rows
from tidegate.pipelines.runtime.processes.windowed import PLACE, added_up, counts_of, emitted_rows
from tidegate.pipelines.syntax.types import quoted

Counts = Mapping[str, Any]
"""What was counted of an output while it was written, by name."""


@dataclass(frozen=True)
class EpochOutputs:
    """The outputs of one `attempt` at an epoch, each written beside its target."""

    inputs: EpochInputs
    task: TaskPlan
    attempt: str

    def folders(self, output: int) -> dict[str, Location]:
        """Where an output's rows are, by disposition; what tasks have reported lies with those that are published."""
        return self.inputs.tables.folders(self.inputs.tables.targets[output], self.attempt)

    def write(self) -> list[Counts]:
        """Run the tasks and write what they hand on; what was counted of each output."""
        inputs, query = self.inputs.to_tasks(), self.inputs.tables.spec.windowed
        if query is not None:
            return [self._windows(query, inputs[0])]
        frame = self._processed(*inputs)
        if len(self.inputs.tables.targets) == 1:
            return [self._output(frame, 0)]
        return self._both(frame)

    def _processed(self, *inputs: InputRows) -> DataFrame:
        """What the tasks hand on, of both outputs."""
        tables = self.inputs.tables
        return processed(task_rows(inputs, tables.spec.buckets, self.task.tasks), self.task, tables.given)

    def _both(self, frame: DataFrame) -> list[Counts]:
        """Both come from one pass, which must not run twice: its files are read once for each."""
        raw = self.folders(0)["publish"].parent / f"{self.attempt}raw"
        try:
            frame.write.mode("errorifexists").parquet(str(raw))
            counted = []
            for output in range(len(self.inputs.tables.targets)):
                rows = self.inputs.spark.read.schema(frame.schema).parquet(str(raw))
                wanted = rows.where(f"{KIND} = {output}" if output else f"{KIND} <> 1")
                counted.append(self._output(wanted, output))
        finally:
            raw.delete_all(where_it_can=True)
        return counted

    def _windows(self, query: WindowedQuery, landed: InputRows) -> Counts:
        """SQL's windows: added up by Spark before the function, and selected after it."""
        plan, tables = self.inputs.plan, self.inputs.tables
        taken = Observation(f"taken {plan.insert} {plan.epoch}")
        emitted = Observation(f"emitted {plan.insert} {plan.epoch}")
        seen = taken if plan.process.inputs[0].rows else None
        if seen is None:  # a frame that Spark takes for empty would have no tasks, and count nothing
            added = empty_frame(self.inputs.spark, lake_rows.struct_type({**query.records, **PLACE}))
        else:
            rows = landed.rows.withColumn("_instant", F.expr(f"timestamp_millis({plan.instant}L)"))
            added = added_up(rows, query, self.inputs.found, landed.step, seen)
        frame = self._processed(replace(landed, rows=added, columns=query.records))
        given = {item.name: item.expression for item in tables.on_lake.insert.projections}
        stored = record_columns(tables.targets[0]).items()
        projections = {name: given.get(name, f"CAST(NULL AS {kind})") for name, kind in stored}
        counted = self._output(emitted_rows(frame, query, projections, plan.instant, emitted), 0)
        return {**counted, **counts_of(seen), **emitted.get}

    def _output(self, rows: DataFrame, output: int) -> Counts:
        plan, target = self.inputs.plan, self.inputs.tables.targets[output]
        folders = self.folders(output)
        constraints = severest_first(target.constraints)
        observed = Observation(f"staged {plan.insert} {plan.epoch} {output}")
        laid_out = staged_rows(rows, plan, target, output, constraints)
        seen = laid_out.observe(
            observed, *[F.expr(f"{count} AS {quoted(name)}") for name, count in counts(constraints)]
        )
        seen.drop("_instant").write.partitionBy("_disposition").mode("errorifexists").parquet(str(folders["publish"]))
        quarantined = folders["publish"] / "_disposition=quarantine"
        if quarantined.is_there():
            folders["quarantine"].make()
            quarantined.move(folders["quarantine"] / quarantined.name)
        return dict(observed.get)
