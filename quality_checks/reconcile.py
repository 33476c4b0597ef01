"""Over all history of an INSERT: is every landed probe row in exactly one place, and do the tables hold what the plans
say?

Two counts of the same rows are compared. One is the control tables' (watermark log, plans, staged counts, verdicts; see
tidegate.pipelines.runtime.ledger, and for processes tidegate.pipelines.runtime.epochs.processed). The other is
the Delta logs' of the tables themselves. Neither needs Spark.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tidegate.pipelines.connectors.options import CHANGELOG_RETENTION
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.lake.delta_log import logged_rows
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.runtime.epochs.generations import at_current
from tidegate.pipelines.runtime.epochs.processed import ProcessRows, process_rows
from tidegate.pipelines.runtime.ledger import WhereRowsAre, all_done, newest_of, nothing_done, removed_rows
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.sql.model import Insert, ProcessInsert
from tidegate.pipelines.text import counted

__all__ = ["Reconciliation", "WhereRowsAre", "reconcile", "reconcile_all"]


@dataclass(frozen=True)
class Reconciliation:
    """Where the rows of one INSERT, or of one process, are, and what is wrong with that.

    `tables`: rows of what it reads, of its targets and quarantines by their Delta logs; None if a log does not say (a
    file without row counts, or with deletion vectors). `expected`: what they should hold, by the control tables and
    without the rows that retention has removed. `problems`: a sentence each.
    """

    rows: WhereRowsAre | ProcessRows
    tables: Mapping[str, int | None]
    expected: Mapping[str, int]
    problems: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return not self.problems

    @property
    def counts(self) -> dict[str, int]:
        """The rows by their places, each with its name."""
        rows = self.rows
        if isinstance(rows, WhereRowsAre):
            return {
                "rows landed": rows.landed,
                **({"rows unnested": rows.further} if rows.further else {}),
                "rows published": rows.published,
                "rows quarantined": sum(rows.quarantined.values()),
                "rows dropped": sum(rows.dropped.values()),
                "rows waiting": rows.waiting,
            }
        return {
            "rows landed": sum(item.landed for item in rows.inputs),
            "rows handled": rows.handled,
            "rows left out": sum(rows.left_out.values()),
            "rows waiting": sum(item.waiting for item in rows.inputs),
            "rows given": sum(item.given for item in rows.outputs.values()),
            "rows published": sum(item.published for item in rows.outputs.values()),
            "rows quarantined": sum(item.quarantined for item in rows.outputs.values()),
            "rows not having": sum(item.not_having for item in rows.outputs.values()),
        }


def reconcile_all(lake: Lake, pipeline: Pipeline) -> tuple[Reconciliation, ...]:
    """Every INSERT of a script, and every process."""
    return tuple(reconcile(lake, pipeline, insert) for insert in pipeline.inserts)


def reconcile(lake: Lake, pipeline: Pipeline, insert: Insert) -> Reconciliation:
    """Compare both counts for one INSERT or process. What it reads may go on landing meanwhile: rows of an epoch that
    has not landed yet are not counted. An epoch that is being published right now may show as a difference."""
    pipeline, insert = at_current(lake, pipeline, insert)
    if isinstance(insert, ProcessInsert):
        return _of_process(lake, pipeline, insert)
    return _of_join(lake, pipeline, insert)


def _of_process(lake: Lake, pipeline: Pipeline, insert: ProcessInsert) -> Reconciliation:
    done = all_done(lake, insert.id, lake.target_path(pipeline.table(insert.target)))
    rows = process_rows(lake, insert.id, insert.process, done.processed)
    problems: list[str] = []
    for item in rows.inputs:
        if item.landed != item.taken + item.waiting:
            problems.append(
                f"of {counted(item.landed, 'row')} of {item.table} that landed, {item.taken:,} are taken and "
                f"{item.waiting:,} wait"
            )
    left_out = sum(rows.left_out.values())
    if not rows.taken == rows.read == rows.handled + left_out:
        problems.append(
            f"of {counted(rows.taken, 'row')} that its epochs take, they saw {rows.read:,}, handled {rows.handled:,} "
            f"and left out {left_out:,}"
        )
    for name, item in rows.outputs.items():
        if item.given != item.published + item.quarantined + item.not_having:
            problems.append(
                f"of {counted(item.given, 'row')} for {name}, {item.published:,} are published, "
                f"{item.quarantined:,} quarantined and {item.not_having:,} left out by HAVING"
            )
    tables, expected, grows = _tables_of(lake, pipeline, insert, rows)
    problems += _differences(tables, expected, grows)
    return Reconciliation(rows, tables, expected, tuple(f"process {insert.id}: {problem}" for problem in problems))


def _tables_of(
    lake: Lake, pipeline: Pipeline, insert: Insert, rows: ProcessRows
) -> tuple[dict[str, int | None], dict[str, int], set[str]]:
    """Rows of the tables of a process by their own logs, by the control tables; and which of them retention thins."""
    tables: dict[str, int | None] = {}
    expected: dict[str, int] = {}
    thinned: set[str] = set()
    for item in rows.inputs:
        table, name = pipeline.table(item.table), f"the table of {item.table}"
        read = Stream.of(lake, pipeline, item.table).generation(item.generation)
        tables[name] = read.there(item.upto)
        expected[name] = item.landed - read.removed.rows
        if CHANGELOG_RETENTION in table.options:
            thinned.add(name)
    for output, item in rows.outputs.items():
        target = pipeline.table(output)
        for name, path, number in (
            (f"the table of {output}", lake.target_path(target), item.published),
            (f"the quarantine of {output}", lake.quarantine_path(target, insert), item.quarantined),
        ):
            tables[name], expected[name] = logged_rows(path), number
    return tables, expected, thinned


def _differences(tables: Mapping[str, int | None], expected: Mapping[str, int], thinned: Collection[str]) -> list[str]:
    """What the tables hold, compared with the plans. Rows that retention has removed (`thinned`) were in their place
    before."""
    return [
        f"{name} holds {counted(there, 'row')}, by the control tables it should be {expected[name]:,}"
        for name, there in tables.items()
        if there is not None and there != expected[name] and not (name in thinned and there < expected[name])
    ]


def _of_join(lake: Lake, pipeline: Pipeline, insert: Insert) -> Reconciliation:
    rows, upto = _where_rows_are(lake, pipeline, insert)
    target = pipeline.table(insert.target)
    read = {
        f"probe {each.table}": (Stream.of(lake, pipeline, each.table).generation(each.generation), each.upto)
        for each in rows.branches
    } or {"probe": (Stream.of(lake, pipeline, insert.probe).generation(rows.generation), upto)}
    done = all_done(lake, insert.id, lake.target_path(target))
    tables = {
        **{name: own.there(upto) for name, (own, upto) in read.items()},
        "target": logged_rows(lake.target_path(target)),
        "quarantine": logged_rows(lake.quarantine_path(target, insert)),
    }
    problems = []
    if not rows.balanced:
        more = rows.accounted - rows.landed - rows.further
        unnested = f", and {rows.further:,} more by UNNEST," if rows.further else ","
        problems.append(
            f"of {counted(rows.landed, 'row')} of {rows.probe} that landed{unnested} {rows.accounted:,} are in a place "
            f"(published, quarantined, dropped, waiting): {abs(more):,} too {'few' if more < 0 else 'many'}"
        )
    names = {
        **{name: f"the table of {own.stream.name}" for name, (own, _) in read.items()},
        "target": f"the table of {target.name}",
        "quarantine": f"the quarantine of {insert.id}",
    }
    expected = {
        **{name: own.landed(0, upto) - own.removed.rows for name, (own, upto) in read.items()},
        "target": rows.published,
        "quarantine": rows.in_quarantine - removed_rows(lake, pipeline, insert, done),
    }
    there = {names[place]: number for place, number in tables.items()}
    problems += _differences(there, {names[place]: number for place, number in expected.items()}, ())
    return Reconciliation(rows, tables, expected, tuple(f"INSERT {insert.id}: {problem}" for problem in problems))


def _where_rows_are(lake: Lake, pipeline: Pipeline, insert: Insert) -> tuple[WhereRowsAre, int]:
    """Where the rows are, and the probe's epoch up to which that is known. Sums of checkpoints are not computed again,
    so that the cost does not grow with the lake's age."""
    rows, upto, target = None, 0, lake.target_path(pipeline.table(insert.target))
    while True:
        before, (_, found) = rows, newest_of(lake, insert.id, target)
        rows = found or nothing_done(lake, insert.id, insert.probe)
        if rows == before or rows.branches:  # nothing landed since the epoch was looked up
            return rows, upto
        newest = Stream.of(lake, pipeline, insert.probe).generation(rows.generation).last
        upto = newest.epoch if newest else 0
