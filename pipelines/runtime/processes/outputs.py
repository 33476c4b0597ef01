"""From the tasks' output to staged rows, and to what the tasks report."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pyspark.sql import DataFrame

from tidegate.pipelines.connectors.table import Constraint, Table
from tidegate.pipelines.joins.outcome import DISCARDED, MASK, VIOLATED, bits, quarantined_from
from tidegate.pipelines.lake import StagedRow
from tidegate.pipelines.lake.adopt import survey
from tidegate.pipelines.location import Location
from tidegate.pipelines.process.engine.task import KIND, OFFSET, REPORT, REPORTED, TASK, output_column
from tidegate.pipelines.process.errors import ProcessError
from tidegate.pipelines.process.spec import ProcessSpec
from tidegate.pipelines.process.watermarks.combining import by_identifier, combined
from tidegate.pipelines.process.watermarks.declarations import (
    EVENT_TIME_WATERMARK_DECLARATION,
    IDLE_STATUS_WATERMARK_DECLARATION,
    WatermarkDeclaration,
)
from tidegate.pipelines.runtime.epochs import ReleasePlan
from tidegate.pipelines.syntax.types import quoted, spark_string
from tidegate.pipelines.watermarks import MIN_TIMESTAMP

REPORTS = "report"
"""The disposition of reports: they are read once written, and belong to no table."""

PROCESSED = "processed"
"""The count of probe rows that went into the function."""


def staged_rows(
    rows: DataFrame, plan: ReleasePlan, target: Table, output: int, constraints: Sequence[Constraint]
) -> DataFrame:
    """The rows of one output as they are staged: see `tidegate.pipelines.joins.release`. A report is in `_reason`."""
    names = [column.name for column in target.stored_columns]
    report = f"{KIND} = {REPORT}"
    columns = {
        **{quoted(name): output_column(output, number) for number, name in enumerate(names)},
        "_op": "'+I'",
        "_generation": f"CAST({plan.generation} AS INT)",
        "_epoch": f"CAST({plan.epoch} AS BIGINT)",
        "_probe_epoch": "CAST(NULL AS BIGINT)",
        "_split": f"CAST({TASK} AS STRING)",
        "_offset": OFFSET,
        "_reason": f"IF({report}, {REPORTED}, {_discarded(plan)})",
        "_disposition": f"IF({report}, '{REPORTS}', '{'quarantine' if plan.kind == 'discard' else 'publish'}')",
        "_instant": f"timestamp_millis({plan.instant}L)",
    }
    found = rows.selectExpr(*[f"{expression} AS {name}" for name, expression in columns.items()])
    return _asked(found, constraints) if constraints else found


def _discarded(plan: ReleasePlan) -> str:
    return f"'{DISCARDED}'" if plan.kind == "discard" else "CAST(NULL AS STRING)"


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
        """Read back; older rows have only the first two."""
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
