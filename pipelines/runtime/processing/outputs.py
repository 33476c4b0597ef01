"""From what the tasks of a process hand on to staged rows, and to what they report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from tidegate.pipelines.joins.outcome import DISCARDED, VIOLATED
from tidegate.pipelines.joins.query import literal
from tidegate.pipelines.joins.violations import MASK, bits, kept_out_from
from tidegate.pipelines.lake.adopt import survey
from tidegate.pipelines.lake.rows import quoted
from tidegate.pipelines.process.engine.task import KIND, OFFSET, REPORT, REPORTED, TASK, output_column
from tidegate.pipelines.process.errors import ProcessError
from tidegate.pipelines.runtime.plans import ReleasePlan
from tidegate.pipelines.sql.model import Constraint, Table

REPORTS = "report"
"""The disposition of reports: they are read when they are written, and belong to nothing."""

PROCESSED = "processed"
"""The count of probe rows that the function has taken."""


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
    """The rows with what the target's constraints say of each that would be published."""
    bit = bits(constraints)
    mask = " + ".join(f"IF(NOT {each.condition}, {bit[each.name]}L, 0L)" for each in constraints)
    asked = rows.selectExpr("*", f"IF(_disposition = 'publish', {mask}, 0L) AS {MASK}")
    kept_out = [each for each in constraints if each.action != "warn"]
    if not kept_out:
        return asked
    cases = " ".join(f"WHEN {MASK} >= {bit[each.name]}L THEN {literal(VIOLATED + each.name)}" for each in kept_out)
    told = {name: quoted(name) for name in asked.columns} | {
        "_reason": f"CASE {cases} ELSE _reason END",
        "_disposition": f"IF({MASK} >= {kept_out_from(constraints)}L, 'quarantine', _disposition)",
    }
    return asked.selectExpr(*[f"{expression} AS {quoted(name)}" for name, expression in told.items()])


def counts(constraints: Sequence[Constraint]) -> list[tuple[str, str]]:
    """What is counted of an output while it is written: name -> Spark SQL."""
    found = [(f"to:{place}", f"count_if(_disposition = '{place}')") for place in ("publish", "quarantine")]
    hard = [each for each in constraints if each.action != "warn"]
    reasons = [VIOLATED + each.name for each in hard]
    return found + [(reason, f"count_if(_reason = {literal(reason)})") for reason in reasons]


def read_reports(folder: Path) -> list[dict[str, Any]]:
    """What the tasks of an epoch have told, in their order."""
    texts: list[str] = []
    for path in folder.glob(f"_disposition={REPORTS}/*.parquet"):
        texts += pq.read_table(path, columns=["_reason"]).column("_reason").to_pylist()
    return sorted(map(json.loads, texts), key=lambda report: report["task"])


def same_on_every_task(insert: str, reports: Sequence[Mapping[str, Any]], tasks: int) -> None:
    """Every task has reported, and all have come to the same broadcast state and the same last records, of which those
    of one task are kept. Raises ProcessError."""
    told = [report["task"] for report in reports]
    if told != list(range(tasks)):
        raise _refused(
            insert, f"of {tasks} tasks of {insert}, {len(told)} have told what they did", "run the same command again"
        )
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


def state_files(folder: Path, reports: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    """The state files that reports name, as `survey` describes them, with the bucket of each row group."""
    groups = {report["file"]: report["groups"] for report in reports if report["file"] is not None}
    return tuple({**asdict(file), "groups": groups[file.path]} for file in survey(folder) if file.path in groups)
