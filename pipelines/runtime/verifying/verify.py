"""Recompute every published epoch from its pins, and compare: target and quarantine must hold exactly those rows.

Equal means equal as multisets, in both directions. What can no longer be recomputed is never called equal: rows beyond
retention, and epochs of another text of the INSERT, are reported as such.

An epoch is recomputed by the definition that it was made under, as the lake stores it: the script may have changed
since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.frames import as_views
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.progress import Progress, SilentProgress
from tidegate.pipelines.runtime.definitions import as_defined, covered
from tidegate.pipelines.runtime.epochs import ReleasePlan
from tidegate.pipelines.runtime.epochs.history import ReleasedEpoch, history_of
from tidegate.pipelines.runtime.quarantine import quarantined_in, removed, removed_upto
from tidegate.pipelines.runtime.verifying.provable import (
    Counts,
    Difference,
    EpochReport,
    Provable,
    Unproved,
    VerifyReport,
)
from tidegate.pipelines.runtime.verifying.recompute import (
    VIOLATION,
    Views,
    compared,
    lot_rows,
    proof_names,
    recompute_sql,
    release_rows,
)
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.sql.model import Insert
from tidegate.pipelines.syntax.types import quoted
from tidegate.pipelines.text import counted

EXAMPLES = 10


@dataclass(frozen=True)
class Comparison:
    """Compares published epochs of one INSERT with what their pins give."""

    pipeline: Pipeline
    lake: Lake
    insert: Insert

    @property
    def target(self) -> Table:
        return self.pipeline.table(self.insert.target)

    def differences(
        self, spark: SparkSession, batch: Sequence[ReleasedEpoch]
    ) -> Iterator[tuple[tuple[int, int], Difference]]:
        """(generation, epoch) and what differs there."""
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
            "probe": Stream(self.lake, self.insert.probe).rows(spark),
            "target": lake_rows.read(spark, self.lake.target_path(self.target)),
            "quarantine": lake_rows.read(spark, self.lake.quarantine_path(self.target, self.insert)),
            "counted": spark.createDataFrame(_counted(batch)),
            "lots": spark.createDataFrame(lot_rows(plans)),
            **{
                f"build{number}": Stream(self.lake, join.build).rows(spark)
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
        reasons, none = ", ".join(["_reason", *proof]) if proof else "NULL", ", NULL" * len(proof)
        sides = [
            f"SELECT {shown}, 1L AS _side FROM ({expected})",
            f"SELECT 'publish', {own}, _op, _generation, _epoch, NULL, NULL, NULL, {reasons}, -1L "
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
        """A column as GROUP BY can take it: Spark cannot compare maps, but their sorted entries."""
        types = {quoted(column.name): column.spark_type.upper() for column in self.target.stored_columns}
        if types.get(name, "").startswith("MAP<"):
            return f"array_sort(map_entries({name})) AS {name}"
        if "MAP<" in types.get(name, ""):
            return f"to_json(named_struct('value', {name})) AS {name}"
        return name


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


BATCH_ROWS = 2_000_000
"""Released rows that one statement recomputes, in whole epochs; a single epoch may be larger."""


def verify(
    pipeline: Pipeline,
    lake: Lake,
    spark: Callable[[], SparkSession],
    insert: str,
    progress: Progress | None = None,
    environment: Mapping[str, str] | None = None,
) -> VerifyReport:
    """Recompute the published epochs of the INSERT called `insert`. Changes nothing and takes no lease.

    `environment`: what `${VARIABLE}` in options is replaced by; None for the process's own.

    Raises PlanningError for a process: what its function gave depends on all that came before.
    """
    if pipeline.insert(insert).process is not None:
        raise PlanningError(
            f"{insert} is a process: its epochs cannot be recomputed one by one",
            where=f"process {insert}",
            state="nothing was looked at",
            next_command="declare it once more under another name, run it, and compare the two tables",
        )
    pipeline, _ = covered(lake, pipeline, environment)
    stored = as_defined(lake, pipeline, insert) or pipeline
    found = stored.insert(insert)
    report = _Verification(stored, lake, spark, found, progress or SilentProgress(), environment).report()
    return replace(report, script_differs=stored is not pipeline)


@dataclass
class _Verification:
    pipeline: Pipeline
    lake: Lake
    session: Callable[[], SparkSession]
    insert: Insert
    progress: Progress
    environment: Mapping[str, str] | None

    def report(self) -> VerifyReport:
        epochs = history_of(self.lake, self.pipeline, self.insert)
        published = [epoch for epoch in epochs if epoch.published]
        if not published:
            return VerifyReport(self.insert.id, ())
        spark = self.session()
        counts = Provable(self.pipeline, self.lake, self.insert, self.environment).counts(spark)
        unproved = self._quarantined(epochs)
        task = self.progress.task(f"verify {self.insert.id}", len(published), "epochs")
        found: dict[tuple[int, int], list[Difference]] = {}
        for number in dict.fromkeys(epoch.plan.definition for epoch in published):
            made = [epoch for epoch in published if epoch.plan.definition == number]
            pipeline = self.pipeline if number is None else as_defined(self.lake, self.pipeline, self.insert.id, number)
            if pipeline is None:
                text = "a function that it calls has changed since this epoch was made"
                unproved |= {epoch.key: ("other script", text) for epoch in made}
                continue
            insert = pipeline.insert(self.insert.id)
            provable = Provable(pipeline, self.lake, insert, self.environment)
            unproved |= provable.unproved(counts, made)
            comparison = Comparison(pipeline, self.lake, insert)
            for batch in _batches([epoch for epoch in made if epoch.key not in unproved]):
                for key, difference in comparison.differences(spark, batch):
                    found.setdefault(key, []).append(difference)
                task.advance(len(batch), f"{sum(len(items) for items in found.values())} differences")
            different = [epoch for epoch in made if epoch.key in found]
            if different:  # retention may have removed rows that they read while they were compared
                unproved |= provable.unproved(provable.counts(spark), different) | self._quarantined(epochs)
        task.advance(len(unproved))
        reports = []
        for epoch in published:
            key, rows = epoch.key, epoch.staged.counts.get("rows", 0) if epoch.staged else 0
            if key in unproved:
                state, why = unproved[key]
                reports.append(EpochReport(*key, rows, state, detail=why))
            else:
                differences = tuple(found.get(key, ()))
                state, beyond = "different" if differences else "equal", _beyond_retention(epoch)
                reports.append(EpochReport(*key, rows, state, differences, beyond_retention=beyond))
        return VerifyReport(self.insert.id, tuple(reports), tuple(self._problems(counts, epochs)))

    def _quarantined(self, epochs: Sequence[ReleasedEpoch]) -> Unproved:
        """The epochs some of whose quarantined rows were released or discarded since and then removed by retention; and
        the epochs that had joined such rows again."""
        path = self.lake.quarantine_path(self.pipeline.table(self.insert.target), self.insert)
        found: Unproved = {}
        for item in removed(quarantined_in(epochs), removed_upto(self.lake, self.insert, path)):
            rows = f"{counted(item.rows, 'row')} that epoch {item.epoch} had quarantined ({item.reason})"
            text = f"{rows} {'is' if item.rows == 1 else 'are'} gone"
            for plan in (item.plan, *([item.taken] if item.state == "released" and item.taken else [])):
                found.setdefault((plan.generation, plan.epoch), ("beyond retention", text))
        return found

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
        quarantined, taken = {(item.epoch, item.reason) for item in quarantined_in(epochs)}, set[tuple[int, str]]()
        for plan in (epoch.plan for epoch in published if epoch.plan.claims):
            own = {whole for whole in quarantined if any(lot.holds(*whole) for lot in plan.claims)}
            for number, reason in sorted(own & taken):
                yield f"what epoch {number} has quarantined ({reason}) was taken twice, again by epoch {plan.epoch}"
            taken |= own
        known = {epoch.key for epoch in published}
        for place in ("target", "quarantine"):
            for (generation, epoch), number in sorted(counts[place].items()):
                if (generation, epoch) not in known:
                    yield (
                        f"the {place} has {counted(number, 'row')} of generation {generation}, epoch {epoch}, "
                        "which was not published"
                    )


def _beyond_retention(epoch: ReleasedEpoch) -> int:
    counts = epoch.staged.counts if epoch.staged else {}
    return sum(rows for name, rows in counts.items() if ":beyond-retention@" in name)


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
