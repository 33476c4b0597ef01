"""The outputs of an epoch: run through its tasks, and written where no commit names them yet.

For SQL's windows, rows are added up for each window and key before the function sees them. Rows of one landed epoch see
the same time, so it is known here which of them are late for their windows; the function does not get those. Every row
is counted once: aggregated, left out by WHERE, without a time, or late for all of its windows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from tidegate.pipelines.connectors.table import severest_first
from tidegate.pipelines.frames import empty_frame
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.location import Location
from tidegate.pipelines.process.engine.task import KIND, OFFSET, REPORT, REPORTED, TASK, TaskPlan, output_column
from tidegate.pipelines.process.windows.windowed import LEFT_OUT, WINDOW_END, WindowedQuery, WindowTable
from tidegate.pipelines.runtime.epochs.process import NOT_HAVING
from tidegate.pipelines.runtime.processes.columns import record_columns
from tidegate.pipelines.runtime.processes.inputs import EpochInputs, EpochSteps, InputRows, processed, task_rows
from tidegate.pipelines.runtime.processes.outputs import PROCESSED, counts, staged_rows
from tidegate.pipelines.syntax.types import quoted

LATE = "late"
"""The count of rows whose rowtime is before the watermark; they may still be in an open window."""

COUNTED = ("rows", PROCESSED, *LEFT_OUT, LATE)

PLACE = {"_epoch": "BIGINT", "_rowtime": "TIMESTAMP", "_split": "STRING", "_offset": "BIGINT"}
"""Columns that added-up rows have beside the record."""


def added_up(rows: DataFrame, query: WindowedQuery, found: EpochSteps, step: str, seen: Observation) -> DataFrame:
    """A row for each landed epoch, window and key, with `query.records` and PLACE.

    Args:
        rows: Landed rows, with `_instant`.
        found: The epoch's steps.
        step: The step of a row, as Spark SQL.
        seen: Counts every row, by the names in COUNTED.
    """
    now = _by_step(found.steps.at, step)
    # Before its table has flipped there is no processing time yet: what counts is when the row landed.
    time = "unix_millis(_rowtime)" if query.event_time else f"greatest({now}, {_by_step(found.landed_at, step)})"
    placed = rows.alias(query.alias).selectExpr(
        "*",
        # No row is without an epoch. A WHERE that takes none must not be seen through: Spark would leave out all that
        # stands on it, and with it the tasks.
        f"(coalesce({query.where or 'true'}, false) OR _epoch IS NULL) AS _passes",
        f"{now} AS _now",
        f"{time} AS _time",
    )
    over = f"{query.table.last_end('_time')} <= _now"
    passes = "count_if(_passes AND "
    by_where, timeless, too_late = LEFT_OUT
    counted = {
        "rows": "count(1)",
        PROCESSED: f"{passes} _time IS NOT NULL AND NOT {over})",
        by_where: "count_if(NOT _passes)",
        timeless: f"{passes} _time IS NULL)",
        too_late: f"{passes} {over})",
        LATE: "count_if(_time < _now)",
    }
    placed = placed.observe(seen, *[F.expr(f"{count} AS {quoted(name)}") for name, count in counted.items()])
    taken = placed.where(f"_passes AND _time IS NOT NULL AND NOT {over}").alias(query.alias)
    keys = {WINDOW_END: "_end", **{group.name: group.expression for group in query.groups}}
    grouped = (
        open_windows(taken, query.table)
        .alias(query.alias)
        .groupBy("_epoch", *[F.expr(f"{expression} AS {quoted(name)}") for name, expression in keys.items()])
        .agg(*[F.expr(f"{part.expression} AS {quoted(part.name)}") for part in query.parts])
    )
    places = {"_epoch": "_epoch", "_rowtime": "NULL", "_split": "''", "_offset": "0"}
    places_as = [f"CAST({places[name]} AS {kind}) AS {name}" for name, kind in PLACE.items()]
    return grouped.selectExpr(*map(quoted, query.records), *places_as)


def open_windows(rows: DataFrame, table: WindowTable) -> DataFrame:
    """A row for each window of a row by `_time` that is not emitted at `_now`; `_end` is where it ends (all ms,
    UTC)."""
    if table.kind == "CUMULATE":  # Spark has none
        windows = rows.selectExpr("*", f"explode({table.ends('_time')}) AS _end")
    else:
        lengths = ", ".join(f"'{ms} milliseconds'" for ms in (table.size, table.step, table.offset % table.step))
        windows = rows.selectExpr("*", f"window(timestamp_millis(_time), {lengths}) AS _window")
        windows = windows.selectExpr("*", "unix_millis(_window.end) AS _end")
    return windows.where("_end > _now")


def _by_step(times: Sequence[int], step: str) -> str:
    """The time (ms, UTC) of a row's step."""
    return f"element_at(from_json('[{','.join(map(str, times))}]', 'array<bigint>'), {step} + 1)"


def emitted_rows(
    rows: DataFrame, query: WindowedQuery, projections: Mapping[str, str], instant: int, seen: Observation
) -> DataFrame:
    """The tasks' output, with the target's columns in place of the function's.

    Args:
        projections: The target's columns, in order, over what is emitted.
        instant: The plan's (ms, UTC).
        seen: Counts what HAVING leaves out, as NOT_HAVING.
    """
    own = (KIND, REPORTED, TASK, OFFSET)
    named = {quoted(name): output_column(0, number) for number, name in enumerate(query.emitted)}
    found = rows.selectExpr(
        *own,
        *[f"{column} AS {name}" for name, column in named.items()],
        f"timestamp_millis({instant}L) AS _instant",
    )
    report = f"{KIND} = {REPORT}"
    passed = f"{report} OR coalesce({query.having}, false)" if query.having else "true"
    found = found.selectExpr("*", f"{passed} AS _kept").observe(seen, F.expr(f"count_if(NOT _kept) AS `{NOT_HAVING}`"))
    # A report has nothing that an expression could be asked of.
    columns = {
        output_column(0, number): f"IF({report}, NULL, {expression})"
        for number, expression in enumerate(projections.values())
    }
    return found.where("_kept").selectExpr(*own, *[f"{expression} AS {name}" for name, expression in columns.items()])


def counts_of(seen: Observation | None) -> dict[str, Any]:
    """The counts; empty if there were no rows."""
    return dict.fromkeys(COUNTED, 0) if seen is None else dict(seen.get)


Counts = Mapping[str, Any]
"""What was counted of an output while it was written, by name."""


@dataclass(frozen=True)
class EpochOutputs:
    """The outputs of one `attempt` at an epoch, each written beside its target."""

    inputs: EpochInputs
    task: TaskPlan
    attempt: str

    def folders(self, output: int) -> dict[str, Location]:
        """The folders of an output's rows, by disposition; the tasks' reports lie with the published ones."""
        return self.inputs.tables.folders(self.inputs.tables.targets[output], self.attempt)

    def write(self) -> list[Counts]:
        """Run the tasks and write their output; returns what was counted of each output."""
        inputs, query = self.inputs.to_tasks(), self.inputs.tables.spec.windowed
        if query is not None:
            return [self._windows(query, inputs[0])]
        frame = self._processed(*inputs)
        if len(self.inputs.tables.targets) == 1:
            return [self._output(frame, 0)]
        return self._both(frame)

    def _processed(self, *inputs: InputRows) -> DataFrame:
        """The tasks' output, for both outputs."""
        tables = self.inputs.tables
        return processed(task_rows(inputs, tables.spec.buckets, self.task.tasks), self.task, tables.given)

    def _both(self, frame: DataFrame) -> list[Counts]:
        """Both outputs come from one pass, which must not run twice: it is written once, and the files are read for
        each."""
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
