"""Over all history of an INSERT: is every landed probe row in exactly one place, and do the tables hold what is said?

Two counts of the same rows are compared. One is the control tables' (watermark log, plans, staged counts, verdicts; see
pipelines.runtime.accounting). The other is the Delta logs' of the tables themselves. Neither needs Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from pipelines.lake import Lake
from pipelines.lake.delta_log import opened
from pipelines.runtime.accounting import WhereRowsAre, where_rows_are
from pipelines.runtime.history import history_of
from pipelines.sql.model import Insert
from pipelines.sql.pipeline import Pipeline
from quality_checks.words import many

__all__ = ["Reconciliation", "WhereRowsAre", "reconcile", "reconcile_all"]


@dataclass(frozen=True)
class Reconciliation:
    """Where the rows of one INSERT are, and what is wrong with that.

    `tables`: rows of the probe's table, the target and the quarantine by their Delta logs; None where a log does not
    tell (a file without row counts, or one that deletion vectors thin out). `problems`: a sentence each.
    """

    rows: WhereRowsAre
    tables: Mapping[str, int | None]
    problems: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return not self.problems


def reconcile_all(lake: Lake, pipeline: Pipeline) -> tuple[Reconciliation, ...]:
    """Every INSERT of a script."""
    return tuple(reconcile(lake, pipeline, insert) for insert in pipeline.inserts)


def reconcile(lake: Lake, pipeline: Pipeline, insert: Insert) -> Reconciliation:
    """Compare both counts for one INSERT. The probe may go on landing meanwhile: rows of an epoch that has not landed
    yet are not counted. An epoch that is being published right now may show as a difference."""
    rows, upto = _stands(lake, pipeline, insert)
    target = pipeline.table(insert.target)
    tables = {
        "probe": logged_rows(lake.table_path(insert.probe), rows.generation, upto),
        "target": logged_rows(lake.target_path(target)),
        "quarantine": logged_rows(lake.quarantine_path(target, insert)),
    }
    problems = []
    if not rows.balanced:
        few = "few" if rows.accounted < rows.landed else "many"
        problems.append(
            f"of {many(rows.landed, 'row')} of {rows.probe} that landed, {rows.accounted:,} are in a place "
            f"(published, quarantined, dropped, waiting): {abs(rows.landed - rows.accounted):,} too {few}"
        )
    said = {"probe": rows.landed, "target": rows.published, "quarantine": rows.kept_out}
    names = {"probe": f"the table of {rows.probe}", "target": f"the table of {target.name}"}
    retained = "changelog.retention" in pipeline.table(insert.probe).options
    for place, there in tables.items():
        if place == "probe" and retained and there is not None and there < said[place]:
            continue  # rows that have passed out of retention were in their place before
        if there is not None and there != said[place]:
            name = names.get(place, f"the quarantine of {insert.id}")
            problems.append(f"{name} holds {many(there, 'row')}, by the control tables it should be {said[place]:,}")
    return Reconciliation(rows, tables, tuple(f"INSERT {insert.id}: {problem}" for problem in problems))


def can_add_up(pipeline: Pipeline, insert: Insert) -> bool:
    """Whether what an INSERT releases are landed rows, each once: not of a process, nor of what a process publishes."""
    made = {name for item in pipeline.inserts if item.process for name in item.process.outputs}
    return insert.process is None and insert.probe not in made


def _stands(lake: Lake, pipeline: Pipeline, insert: Insert) -> tuple[WhereRowsAre, int]:
    """Where the rows are, and the probe's epoch up to which that is told."""
    rows, upto = None, 0
    while True:
        before = rows
        rows = where_rows_are(lake, insert.id, insert.probe, history_of(lake, pipeline, insert))
        if rows == before:  # nothing landed since the epoch was looked up
            return rows, upto
        newest = lake.watermarks.last(insert.probe, rows.generation)
        upto = newest.epoch if newest else 0


def logged_rows(path: Path, generation: int | None = None, upto: int | None = None) -> int | None:
    """Rows of a Delta table by its log (of one `_generation`, up to an `_epoch` of it); 0 where there is no table, None
    where the log can not tell."""
    table = opened(path)
    if table is None:
        return 0
    if "deletionVectors" in set(table.protocol().reader_features or ()):
        return None
    total = 0
    for file in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        number, low, high = file.get("num_records"), file.get("min._generation"), file.get("max._generation")
        if number is None:
            return None
        if number == 0:
            continue
        if generation is None or low == high == generation:
            first, last = file.get("min._epoch"), file.get("max._epoch")
            if upto is None or (last is not None and last <= upto):
                total += number
            elif first is None or first <= upto:
                return None
        elif low is None or high is None or low <= generation <= high:
            return None
    return total
