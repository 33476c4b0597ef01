"""What the pins of some epochs give, beside what target and quarantine hold: one statement, one row a difference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.frames import as_views
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.runtime.epochs import ReleasePlan
from tidegate.pipelines.runtime.epochs.history import ReleasedEpoch
from tidegate.pipelines.runtime.verifying.provable import Difference
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
        """(generation, epoch) and what is different there."""
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
        """A column as GROUP BY can take it: maps have no equality in Spark, their sorted entries do."""
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
