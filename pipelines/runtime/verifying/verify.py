"""Recompute every published epoch from its pins, and compare: target and quarantine must hold exactly those rows.

Equal means equal as multisets, in both directions. What can no longer be recomputed is never called equal: rows that
have passed out of retention, and epochs that another text of the INSERT made, are told as such.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache, reduce
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.clock import system_clock
from pipelines.errors import PlanningError
from pipelines.frames import as_views
from pipelines.lake import Lake
from pipelines.lake import rows as lake_rows
from pipelines.lake.rows import quoted
from pipelines.progress import Progress, SilentProgress
from pipelines.runtime.history import ReleasedEpoch, history_of
from pipelines.runtime.plans import ReleasePlan
from pipelines.runtime.quarantine.kept import claims, kept_out
from pipelines.runtime.retention import Retention
from pipelines.runtime.verifying.constraints import VIOLATION
from pipelines.runtime.verifying.recompute import Views, compared, lot_rows, proof_names, recompute_sql, release_rows
from pipelines.sql.model import Insert, Table
from pipelines.sql.pipeline import Pipeline

BATCH_ROWS = 2_000_000
"""Released rows that one statement recomputes, in whole epochs; a single epoch may be larger."""

EXAMPLES = 10

Counts = dict[str, dict[tuple[int, int], int]]
"""Place -> (generation, epoch) -> rows."""

Place = Literal["publish", "quarantine", "drop", "violation"]
EpochState = Literal["equal", "different", "beyond retention", "other script"]


@dataclass(frozen=True)
class Difference:
    """Rows of one epoch that are `missing` from a place though its pins give them, or `unexpected` there.

    What is dropped, and which constraints a row violates (place violation), is only counted. `keys`: up to ten of them,
    as JSON of the target's primary key (of the whole row where it has none); reasons where rows are only counted.
    """

    place: Place
    kind: Literal["missing", "unexpected"]
    rows: int
    keys: tuple[str, ...]


@dataclass(frozen=True)
class EpochReport:
    """One published epoch. `rows` were released by it; `detail` says why it was not recomputed."""

    generation: int
    epoch: int
    rows: int
    state: EpochState
    differences: tuple[Difference, ...] = ()
    detail: str = ""


@dataclass(frozen=True)
class VerifyReport:
    """All published epochs of an INSERT. `problems` are findings that belong to no single epoch."""

    insert: str
    epochs: tuple[EpochReport, ...]
    problems: tuple[str, ...] = ()

    @property
    def differences(self) -> int:
        """Rows that are missing or unexpected."""
        return sum(difference.rows for epoch in self.epochs for difference in epoch.differences)

    @property
    def rows(self) -> int:
        """Released rows that were recomputed."""
        return sum(epoch.rows for epoch in self.epochs if epoch.state in ("equal", "different"))

    @property
    def passed(self) -> bool:
        """Whether nothing was found. Epochs beyond retention do not count against it: ask `unproved` for them."""
        return not self.problems and all(epoch.state != "different" for epoch in self.epochs)

    @property
    def unproved(self) -> tuple[EpochReport, ...]:
        """Epochs that can not be recomputed any more."""
        return tuple(epoch for epoch in self.epochs if epoch.state in ("beyond retention", "other script"))

    def to_json(self) -> dict[str, Any]:
        """The same as JSON values."""
        return {
            **asdict(self),
            "differences": self.differences,
            "rows": self.rows,
            "passed": self.passed,
            "unproved": len(self.unproved),
        }


def verify(
    pipeline: Pipeline,
    lake: Lake,
    spark: Callable[[], SparkSession],
    insert: str,
    progress: Progress | None = None,
) -> VerifyReport:
    """Recompute the published epochs of the INSERT called `insert`. Changes nothing and takes no lease.

    Raises PlanningError for a process: what its function gave depends on all that came before.
    """
    if pipeline.insert(insert).process is not None:
        raise PlanningError(
            f"{insert} is a process: its epochs can not be recomputed one by one",
            where=f"process {insert}",
            state="nothing was looked at",
            next_command="declare it once more under another name, run it, and compare the two tables",
        )
    return _Verification(pipeline, lake, spark, pipeline.insert(insert), progress or SilentProgress()).report()


@dataclass
class _Verification:
    pipeline: Pipeline
    lake: Lake
    session: Callable[[], SparkSession]
    insert: Insert
    progress: Progress

    @property
    def target(self) -> Table:
        return self.pipeline.table(self.insert.target)

    def report(self) -> VerifyReport:
        epochs = history_of(self.lake, self.pipeline, self.insert)
        published = [epoch for epoch in epochs if epoch.published]
        if not published:
            return VerifyReport(self.insert.id, ())
        spark = self.session()
        counts = self._counts(spark)
        unproved = self._unproved(counts, published)
        todo = [epoch for epoch in published if _key(epoch) not in unproved]
        task = self.progress.task(f"verify {self.insert.id}", len(published), "epochs")
        task.advance(len(unproved))
        found: dict[tuple[int, int], list[Difference]] = {}
        for batch in _batches(todo):
            for key, difference in self._compare(spark, batch):
                found.setdefault(key, []).append(difference)
            task.advance(len(batch), f"{sum(len(items) for items in found.values())} differences")
        reports = []
        for epoch in published:
            key, rows = _key(epoch), epoch.staged.counts.get("rows", 0) if epoch.staged else 0
            if key in unproved:
                reports.append(EpochReport(*key, rows, *unproved[key]))
            else:
                differences = tuple(found.get(key, ()))
                reports.append(EpochReport(*key, rows, "different" if differences else "equal", differences))
        return VerifyReport(self.insert.id, tuple(reports), tuple(self._problems(counts, epochs)))

    def _counts(self, spark: SparkSession) -> Counts:
        """Rows of every table that is looked at, by generation and epoch, in one job."""
        places = {f"table {table}": self.lake.table_path(table) for table in (self.insert.probe, *self.insert.builds)}
        places |= {
            "target": self.lake.target_path(self.target),
            "quarantine": self.lake.quarantine_path(self.target, self.insert),
        }
        frames = [
            lake_rows.read(spark, path).groupBy("_generation", "_epoch").count().withColumn("place", F.lit(place))
            for place, path in places.items()
        ]
        found: Counts = {place: {} for place in places}
        for row in reduce(DataFrame.unionByName, frames).collect():
            found[row["place"]][(row["_generation"], row["_epoch"])] = row["count"]
        return found

    # --- what can be recomputed ----------------------------------------------------------------------------------

    def _unproved(
        self, counts: Counts, epochs: Sequence[ReleasedEpoch]
    ) -> dict[tuple[int, int], tuple[EpochState, tuple[Difference, ...], str]]:
        """Epochs whose rows are no longer all there, or whose INSERT had another text; with the reason."""
        found: dict[tuple[int, int], tuple[EpochState, tuple[Difference, ...], str]] = {}
        digest = self.pipeline.digest(self.insert)
        tables = {self.insert.probe, *self.insert.builds}
        gone = {table: self._gone(table, counts[f"table {table}"]) for table in tables}
        retention = Retention(self.lake, self.pipeline, system_clock, os.environ)
        reach = cache(retention.gone)
        for epoch in epochs:
            plan = epoch.plan
            if plan.computes != digest:
                text = "the script's INSERT has changed since this epoch was made"
                found[_key(epoch)] = ("other script", (), text)
                continue
            spans = [(plan.probe, plan.probe_generation, *plan.reads)]
            joined = plan.pins if plan.reads[0] < plan.reads[1] else ()
            spans += [
                (pin.table, pin.generation, 0, pin.epoch)
                for pin in joined
                if gone[pin.table] and not retention.spares(epoch, pin, reach(pin.table, pin.generation))
            ]
            lost = {
                table: sum(n for (g, e), n in gone[table].items() if g == generation and after < e <= upto)
                for table, generation, after, upto in spans
            }
            texts = [
                f"{_rows(number)} of {table} that it read {'is' if number == 1 else 'are'} gone"
                for table, number in lost.items()
                if number
            ]
            if texts:
                found[_key(epoch)] = ("beyond retention", (), " and ".join(texts))
        return found

    def _gone(self, table: str, there: dict[tuple[int, int], int]) -> dict[tuple[int, int], int]:
        """(generation, epoch) -> rows that landed by the watermark log and are not in the table any more."""
        log = {(row.generation, row.epoch): row.rows for row in self.lake.watermarks.rows(table)}
        return {key: count - there.get(key, 0) for key, count in log.items() if count > there.get(key, 0)}

    # --- compare -------------------------------------------------------------------------------------------------

    def _compare(
        self, spark: SparkSession, batch: Sequence[ReleasedEpoch]
    ) -> Iterator[tuple[tuple[int, int], Difference]]:
        plans = [epoch.plan for epoch in batch]
        for row in self._differences(spark, plans, batch).collect():
            kind = "missing" if row["_extra"] else "unexpected"
            difference = Difference(row["_place"], kind, int(row["_rows"]), tuple(row["_keys"]))
            yield (row["_generation"], row["_epoch"]), difference

    def _differences(
        self, spark: SparkSession, plans: Sequence[ReleasePlan], batch: Sequence[ReleasedEpoch]
    ) -> DataFrame:
        """One row per epoch, place and kind: `_extra` (true: missing), `_rows`, `_keys`."""
        frames = {
            "releases": spark.createDataFrame(release_rows(self.insert, plans)),
            "probe": lake_rows.read(spark, self.lake.table_path(self.insert.probe)),
            "target": lake_rows.read(spark, self.lake.target_path(self.target)),
            "quarantine": lake_rows.read(spark, self.lake.quarantine_path(self.target, self.insert)),
            "counted": spark.createDataFrame(_counted(batch)),
            "lots": spark.createDataFrame(lot_rows(plans)),
            **{
                f"build{number}": lake_rows.read(spark, self.lake.table_path(join.build))
                for number, join in enumerate(self.insert.joins)
            },
        }
        with as_views(frames) as views:
            builds = [views[f"build{number}"] for number in range(len(self.insert.joins))]
            expected = recompute_sql(
                self.insert,
                self.target,
                self.pipeline.tables,
                plans,
                Views(views["releases"], views["probe"], builds, views["quarantine"], views["lots"]),
            )
            return spark.sql(self._difference_sql(plans, expected, views))

    def _difference_sql(self, plans: Sequence[ReleasePlan], expected: str, views: dict[str, str]) -> str:
        columns, proof = compared(self.target, self.insert), proof_names(self.insert)
        shown = ", ".join(columns)
        plain = ", ".join(self._comparable(name) for name in columns)
        own = ", ".join(quoted(column.name) for column in self.target.stored_columns)
        blank = ", ".join(f"CAST(NULL AS {column.spark_type})" for column in self.target.stored_columns)
        epochs = " OR ".join(
            f"(_generation = {generation} AND _epoch BETWEEN {low} AND {high})"
            for generation, low, high in _spans(plans)
        )
        kept, none = ", ".join(["_reason", *proof]) if proof else "NULL", ", NULL" * len(proof)
        sides = [
            f"SELECT {shown}, 1L AS _side FROM ({expected})",
            f"SELECT 'publish', {own}, _op, _generation, _epoch, NULL, NULL, NULL, {kept}, -1L "
            f"FROM {views['target']} WHERE {epochs}",
            f"SELECT 'quarantine', {own}, _op, _generation, _epoch, _probe_epoch, _split, _offset, _reason{none}, -1L "
            f"FROM {views['quarantine']} WHERE {epochs}",
            f"SELECT place, {blank}, NULL, generation, epoch, NULL, NULL, NULL, reason{none}, -rows "
            f"FROM {views['counted']}",
        ]
        key = [quoted(name) for name in self.target.primary_key] or [
            quoted(column.name) for column in self.target.stored_columns
        ]
        example = f"IF(_place IN ('drop', '{VIOLATION}'), _reason, left(to_json(struct({', '.join(key)})), 300))"
        group = "_place, _generation, _epoch, _extra"
        return f"""
            WITH _both AS ({" UNION ALL ".join(sides)}),
            _plain AS (SELECT {plain}, {example} AS _example, _side FROM _both),
            _unlike AS (
              SELECT {shown}, min(_example) AS _example, sum(_side) AS _sum FROM _plain
              GROUP BY {shown} HAVING sum(_side) <> 0
            ),
            _ranked AS (
              SELECT _place, _generation, _epoch, _sum > 0 AS _extra, abs(_sum) AS _count, _example,
              row_number() OVER (PARTITION BY _place, _generation, _epoch, _sum > 0 ORDER BY _example) AS _rank
              FROM _unlike
            )
            SELECT {group}, sum(_count) AS _rows,
            array_sort(collect_list(IF(_rank <= {EXAMPLES}, _example, NULL))) AS _keys
            FROM _ranked GROUP BY {group} ORDER BY _generation, _epoch, _place, _extra
        """

    def _comparable(self, name: str) -> str:
        """A column as GROUP BY can take it: maps have no equality in Spark, their sorted entries do."""
        types = {quoted(column.name): column.spark_type.upper() for column in self.target.stored_columns}
        if types.get(name, "").startswith("MAP<"):
            return f"array_sort(map_entries({name})) AS {name}"
        if "MAP<" in types.get(name, ""):
            return f"to_json(named_struct('value', {name})) AS {name}"
        return name

    # --- what belongs to no epoch --------------------------------------------------------------------------------

    def _problems(self, counts: Counts, epochs: Sequence[ReleasedEpoch]) -> Iterator[str]:
        upto, published = 0, [epoch for epoch in epochs if epoch.published]
        line = [epoch for epoch in epochs if (epoch.published or epoch.replaced) and epoch.plan.follows]
        for epoch in sorted(line, key=lambda epoch: epoch.plan.after):
            if epoch.plan.after != upto:
                what = "left out" if epoch.plan.after > upto else "released twice"
                low, high = sorted((epoch.plan.after, upto))
                yield f"epochs {low + 1} to {high} of {self.insert.probe} were {what} before epoch {epoch.plan.epoch}"
            upto = max(upto, epoch.plan.upto)
        kept, taken = {(item.epoch, item.reason) for item in kept_out(epochs)}, set[tuple[int, str]]()
        for plan in (epoch.plan for epoch in published if claims(epoch.plan)):
            own = {whole for whole in kept if any(lot.holds(*whole) for lot in claims(plan))}
            for number, reason in sorted(own & taken):
                yield f"what epoch {number} has quarantined ({reason}) was taken twice, again by epoch {plan.epoch}"
            taken |= own
        known = {_key(epoch) for epoch in published}
        for place in ("target", "quarantine"):
            for (generation, epoch), number in sorted(counts[place].items()):
                if (generation, epoch) not in known:
                    yield (
                        f"the {place} has {_rows(number)} of generation {generation}, epoch {epoch}, "
                        "which was not published"
                    )


def _rows(number: int) -> str:
    return "1 row" if number == 1 else f"{number:,} rows"


def _key(epoch: ReleasedEpoch) -> tuple[int, int]:
    return (epoch.plan.generation, epoch.plan.epoch)


def _batches(epochs: Sequence[ReleasedEpoch]) -> Iterator[list[ReleasedEpoch]]:
    batch: list[ReleasedEpoch] = []
    rows = 0
    for epoch in epochs:
        released = epoch.staged.counts.get("rows", 0) if epoch.staged else 0
        if batch and rows + released > BATCH_ROWS:
            yield batch
            batch, rows = [], 0
        batch.append(epoch)
        rows += released
    if batch:
        yield batch


def _counted(batch: Sequence[ReleasedEpoch]) -> pa.Table:
    """What is in no table, but in the stored counts: what was dropped, and which constraints were violated."""
    found = []
    for epoch in batch:
        named = {"generation": epoch.plan.generation, "epoch": epoch.plan.epoch}
        counts, facts = (epoch.staged.counts, epoch.staged.facts) if epoch.staged else ({}, {})
        found += [
            {**named, "place": "drop", "reason": name, "rows": number}
            for name, number in counts.items()
            if number and name.startswith("dropped:")
        ]
        found += [
            {**named, "place": VIOLATION, "reason": name.removeprefix("violations@"), "rows": number}
            for name, number in facts.items()
            if number and name.startswith("violations@")
        ]
    schema = {
        "place": pa.string(),
        "generation": pa.int32(),
        "epoch": pa.int64(),
        "reason": pa.string(),
        "rows": pa.int64(),
    }
    return pa.Table.from_pylist(found, schema=pa.schema(list(schema.items())))


def _spans(plans: Sequence[ReleasePlan]) -> Iterator[tuple[int, int, int]]:
    """(generation, least epoch, greatest epoch) of the plans."""
    for generation in sorted({plan.generation for plan in plans}):
        epochs = [plan.epoch for plan in plans if plan.generation == generation]
        yield generation, min(epochs), max(epochs)
