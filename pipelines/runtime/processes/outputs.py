"""The outputs of an epoch: its inputs run through the function's tasks, what those write, and what they report. Nothing
is in a commit yet.

For SQL's windows, Spark first adds the rows up by window and key, and the function sees the sums. All rows of one
landed epoch are processed at the same time, so Spark can leave out those that are late for all of their windows. Every
row is counted once: aggregated, left out by WHERE, without a time, or late for all of its windows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from tidegate.pipelines.connectors.table import Constraint, Table, severest_first
from tidegate.pipelines.frames import empty_frame
from tidegate.pipelines.joins.outcome import DISCARDED, MASK, VIOLATED, bits, quarantined_from
from tidegate.pipelines.lake import StagedRow
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.lake.adopt import survey
from tidegate.pipelines.location import Location
from tidegate.pipelines.parquet import OF_SPARK
from tidegate.pipelines.process.engine.task import KIND, OFFSET, REPORT, REPORTED, TASK, TaskPlan, output_column
from tidegate.pipelines.process.errors import ProcessError
from tidegate.pipelines.process.spec import ProcessSpec
from tidegate.pipelines.process.watermarks.combining import by_identifier, combined
from tidegate.pipelines.process.watermarks.declarations import (
    EVENT_TIME_WATERMARK_DECLARATION,
    IDLE_STATUS_WATERMARK_DECLARATION,
    WatermarkDeclaration,
)
from tidegate.pipelines.process.windows.windowed import LEFT_OUT, WINDOW_END, WindowedQuery, WindowTable
from tidegate.pipelines.runtime.epochs import ReleasePlan
from tidegate.pipelines.runtime.epochs.processed import NOT_HAVING
from tidegate.pipelines.runtime.processes.columns import record_columns
from tidegate.pipelines.runtime.processes.inputs import EpochInputs, EpochSteps, InputRows, processed, task_rows
from tidegate.pipelines.syntax.types import quoted, spark_string
from tidegate.pipelines.watermarks import MIN_TIMESTAMP

REPORTS = "report"
"""The disposition of the tasks' reports: they are read once, and go into no table."""

PROCESSED = "processed"
"""The count of probe rows that went into the function."""


def staged_rows(
    rows: DataFrame, plan: ReleasePlan, target: Table, output: int, constraints: Sequence[Constraint]
) -> DataFrame:
    """The rows of one output as they are staged: see `tidegate.pipelines.joins.release`. A report is in `_reason`."""
    names = [column.name for column in target.stored_columns]
    report, discarded = f"{KIND} = {REPORT}", plan.kind == "discard"
    reason = f"'{DISCARDED}'" if discarded else "CAST(NULL AS STRING)"
    columns = {
        **{quoted(name): output_column(output, number) for number, name in enumerate(names)},
        "_op": "'+I'",
        "_generation": f"CAST({plan.generation} AS INT)",
        "_epoch": f"CAST({plan.epoch} AS BIGINT)",
        "_probe_epoch": "CAST(NULL AS BIGINT)",
        "_split": f"CAST({TASK} AS STRING)",
        "_offset": OFFSET,
        "_rowtime": "CAST(NULL AS TIMESTAMP)",
        "_reason": f"IF({report}, {REPORTED}, {reason})",
        "_disposition": f"IF({report}, '{REPORTS}', '{'quarantine' if discarded else 'publish'}')",
        "_instant": f"timestamp_millis({plan.instant}L)",
    }
    found = rows.selectExpr(*[f"{expression} AS {name}" for name, expression in columns.items()])
    return _asked(found, constraints) if constraints else found


def _asked(rows: DataFrame, constraints: Sequence[Constraint]) -> DataFrame:
    """The rows with the result of the target's constraints for each that would be published."""
    bit = bits(constraints)
    mask = " + ".join(f"IF(NOT {each.condition}, {bit[each.name]}L, 0L)" for each in constraints)
    asked = rows.selectExpr("*", f"IF(_disposition = 'publish', {mask}, 0L) AS {MASK}")
    quarantining = [each for each in constraints if each.action != "warn"]
    if not quarantining:
        return asked
    cases = " ".join(
        f"WHEN {MASK} >= {bit[each.name]}L THEN {spark_string(VIOLATED + each.name)}" for each in quarantining
    )
    columns = {name: quoted(name) for name in asked.columns} | {
        "_reason": f"CASE {cases} ELSE _reason END",
        "_disposition": f"IF({MASK} >= {quarantined_from(constraints)}L, 'quarantine', _disposition)",
    }
    return asked.selectExpr(*[f"{expression} AS {quoted(name)}" for name, expression in columns.items()])


def counts(constraints: Sequence[Constraint]) -> list[tuple[str, str]]:
    """What is counted of an output while it is written: name -> Spark SQL."""
    found = [(f"to:{place}", f"count_if(_disposition = '{place}')") for place in ("publish", "quarantine")]
    hard = [each for each in constraints if each.action != "warn"]
    reasons = [VIOLATED + each.name for each in hard]
    return found + [(reason, f"count_if(_reason = {spark_string(reason)})") for reason in reasons]


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
    """A row for each window that a row is in by its `_time` and that is not emitted yet at `_now`; `_end` is the
    window's end (all ms, UTC)."""
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
        """Both outputs of one pass, which must not run twice: its rows are written to files, and each output is read
        from them."""
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
        """SQL's windows: Spark adds rows up before the function, and evaluates SELECT and HAVING after it."""
        plan, tables = self.inputs.plan, self.inputs.tables
        taken = Observation(f"taken {plan.insert} {plan.epoch}")
        emitted = Observation(f"emitted {plan.insert} {plan.epoch}")
        none = not plan.takes[0].rows
        if none:  # a frame that Spark takes for empty would have no tasks, and count nothing
            added = empty_frame(self.inputs.spark, lake_rows.struct_type({**query.records, **PLACE}))
        else:
            rows = landed.rows.withColumn("_instant", F.expr(f"timestamp_millis({plan.instant}L)"))
            added = added_up(rows, query, self.inputs.found, landed.step, taken)
        frame = self._processed(replace(landed, rows=added, columns=query.records))
        given = {item.name: item.expression for item in tables.on_lake.insert.projections}
        stored = record_columns(tables.targets[0]).items()
        projections = {name: given.get(name, f"CAST(NULL AS {kind})") for name, kind in stored}
        counted = self._output(emitted_rows(frame, query, projections, plan.instant, emitted), 0)
        return {**counted, **(dict.fromkeys(COUNTED, 0) if none else taken.get), **emitted.get}

    def _output(self, rows: DataFrame, output: int) -> Counts:
        plan, target = self.inputs.plan, self.inputs.tables.targets[output]
        folders = self.folders(output)
        constraints = severest_first(target.constraints)
        observed = Observation(f"staged {plan.insert} {plan.epoch} {output}")
        laid_out = staged_rows(rows, plan, target, output, constraints)
        seen = laid_out.observe(
            observed, *[F.expr(f"{count} AS {quoted(name)}") for name, count in counts(constraints)]
        )
        seen.drop("_instant").write.options(**OF_SPARK).partitionBy("_disposition").mode("errorifexists").parquet(
            str(folders["publish"])
        )
        quarantined = folders["publish"] / "_disposition=quarantine"
        if quarantined.is_there():
            folders["quarantine"].make()
            quarantined.move(folders["quarantine"] / quarantined.name)
        return dict(observed.get)


def read_reports(folder: Location) -> list[dict[str, Any]]:
    """What the tasks of an epoch have reported, in their order."""
    texts: list[str] = []
    for file in (folder / f"_disposition={REPORTS}").files(".parquet"):
        texts += file.parquet().read(["_reason"]).column("_reason").to_pylist()
    return sorted(map(json.loads, texts), key=lambda report: report["task"])


def same_on_every_task(insert: str, reports: Sequence[Mapping[str, Any]], tasks: int) -> None:
    """Check that every task has reported, and that all have the same broadcast state and the same last records, of
    which one task's are used. Raises ProcessError."""
    reported = [report["task"] for report in reports]
    if reported != list(range(tasks)):
        what = f"of {tasks} tasks of {insert}, {len(reported)} have reported what they did"
        raise _refused(insert, what, "run the same command again")
    if len({report["broadcast"] for report in reports}) > 1:
        raise _refused(
            insert,
            f"the tasks of {insert} have come to different broadcast states from the same records",
            "let process_record_from_broadcast_input depend on nothing but its records and its state "
            "(no clock, no random number, no order of a set)",
        )
    if len({report["closing"] for report in reports}) > 1:
        raise _refused(
            insert,
            f"the tasks of {insert} have collected different records in close(), which belongs to no key",
            "collect what belongs to a key where its records and timers are processed, and keep the rest in its state",
        )


def _refused(insert: str, what: str, next_command: str) -> ProcessError:
    return ProcessError(
        what, where=f"process {insert}", state="the epoch is planned and not staged", next_command=next_command
    )


def state_files(folder: Location, reports: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    """The state files that reports name, as `survey` describes them, with the bucket of each row group."""
    groups = {report["file"]: report["groups"] for report in reports if report["file"] is not None}
    return tuple({**asdict(file), "groups": groups[file.path]} for file in survey(folder) if file.path in groups)


FACT = "watermark"
_TIME, _IDLE = EVENT_TIME_WATERMARK_DECLARATION.identifier, IDLE_STATUS_WATERMARK_DECLARATION.identifier


@dataclass(frozen=True)
class OutputsTime:
    """The outputs' watermark and idleness once an epoch is published; `timestamp` is ms, UTC.

    `declared`: the last value of every other watermark, by its identifier.
    """

    timestamp: int = MIN_TIMESTAMP
    use_processing_time: bool = False
    idle: bool = False
    declared: Mapping[str, int | bool] = field(default_factory=dict)

    def fact(self) -> list[Any]:
        """As a fact of a staged row."""
        return [self.timestamp, self.use_processing_time, self.idle, dict(self.declared)]

    @classmethod
    def of(cls, row: StagedRow) -> OutputsTime:
        """Read back."""
        return cls(*row.facts[FACT])

    def after(
        self, spec: ProcessSpec, processing_time: bool, emitted: Sequence[Mapping[str, int | bool]]
    ) -> OutputsTime:
        """The outputs' time after an epoch.

        Event time never goes back. Inputs in processing time make outputs in processing time, unless the function
        itself emits event time: then its outputs have event time from MIN_TIMESTAMP on, and only that.

        Args:
            processing_time: The inputs were in processing time at the end of the epoch.
            emitted: What each task has forwarded.
        """
        values = _of_all_tasks([*spec.declarations, *spec.shape.watermarks], emitted)
        declared = {**self.declared, **{name: value for name, value in values.items() if name not in (_TIME, _IDLE)}}
        if processing_time and not spec.shape.tells_time:
            return OutputsTime(MIN_TIMESTAMP, True, False, declared)
        timestamp = max(self.timestamp, int(values.get(_TIME, MIN_TIMESTAMP)))
        return OutputsTime(timestamp, False, bool(values.get(_IDLE, self.idle)), declared)


def _of_all_tasks(
    declarations: Iterable[WatermarkDeclaration], emitted: Sequence[Mapping[str, int | bool]]
) -> dict[str, int | bool]:
    """One value of each watermark from those of several tasks."""
    declared = by_identifier(declarations)
    names = {name for values in emitted for name in values}
    return {name: combined(declared, name, [values[name] for values in emitted if name in values]) for name in names}
