"""Large event-time releases of INSERTs that ask for columns alone are staged by whole columns (joins.columnar)."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from pipelines.joins import Release
from pipelines.joins.columnar import (
    Changelog,
    Groups,
    Plain,
    PlainJoin,
    Ref,
    Share,
    Staged,
    dealt,
    merged,
    plain_of,
    row_groups,
    save_versions,
    stage,
)
from pipelines.lake import delta_log
from pipelines.runtime.accounting import rows_between
from pipelines.runtime.plans import Pin, ReleasePlan
from pipelines.runtime.releasing.standing import Standing
from pipelines.runtime.tasks import each

FEWEST_ROWS = 200_000
"""A smaller release is over before the tasks' Pythons have started."""

MOST_VERSIONS, MOST_BYTES = 10_000_000, 256 << 20
"""Each task maps the versions of a build into its memory: so many, of so many bytes in their files, at most (how much
that is in memory is known once they are read: `joins.columnar.MOST_HELD`)."""

ROWS_PER_TASK = 1_000_000


@dataclass(frozen=True)
class ColumnarStager:
    """Stages plans of one INSERT by whole columns, where that can be done."""

    standing: Standing

    def plain(self, plan: ReleasePlan) -> Plain | None:
        """What the plan asks for, where that is columns of tables of the right size; else None, and SQL has to do."""
        if plan.time is None or plan.from_quarantine is not None or plan.lots or plan.kind == "discard":
            return None
        if plan.probe != self.standing.insert.probe:  # it was planned for another text of the INSERT
            return None
        if self.standing.released(plan) < FEWEST_ROWS or not all(self._fits(pin) for pin in plan.pins):
            return None
        tables = [self._opened(name) for name in (plan.probe, *(pin.table for pin in plan.pins))]
        if any(table is None or not delta_log.plain(table) for table in tables):
            return None
        return plain_of(self.standing.insert, self.standing.pipeline.tables)

    def stage(self, spark: SparkSession, plan: ReleasePlan, plain: Plain, folder: Path) -> Staged | None:
        """Write the plan's rows to `folder`; None, and nothing is written, where a build is larger in memory than it
        looked. A task's error comes as Spark's, with its whole text."""
        pins = [next(pin for pin in plan.pins if pin.table == join.build) for join in plain.joins]
        versions = folder / "_versions"
        try:
            changelogs = [
                self._changelog(plain, join, pin, versions) for join, pin in zip(plain.joins, pins, strict=True)
            ]
            saved = [where for where in each(spark, save_versions, changelogs) if where is not None]
            if len(saved) < len(changelogs):
                shutil.rmtree(folder)
                return None
            used = tuple((pin.generation, pin.epoch) for pin in pins)
            horizons = tuple(pin.horizon_us for pin in pins)
            release = Release(plan.generation, plan.epoch, plan.instant, plan.on_unmatched, late_upto=plan.late_upto)
            shares = [
                Share(plain, release, plan.due, groups, tuple(saved), used, horizons, str(folder), number)
                for number, groups in enumerate(self._dealt(spark, plan))
            ]
            return merged([Staged(**told) for told in each(spark, stage, shares)])
        finally:
            shutil.rmtree(versions, ignore_errors=True)

    def _fits(self, pin: Pin) -> bool:
        """Whether a build fits into a task; and was never truncated, which is a version of every key."""
        log = self.standing.lake.watermarks.rows(pin.table, generation=pin.generation)
        pinned = [row for row in log if row.epoch <= pin.epoch]
        return (
            bool(pinned)
            and not any(row.truncated for row in pinned)
            and rows_between(log, 0, pin.epoch) <= MOST_VERSIONS
            and delta_log.size_of(self.standing.lake.table_path(pin.table)) <= MOST_BYTES
        )

    def _opened(self, name: str) -> DeltaTable | None:
        return delta_log.opened(self.standing.lake.table_path(name))

    def _changelog(self, plain: Plain, join: PlainJoin, pin: Pin, folder: Path) -> Changelog:
        table, keys = self._opened(pin.table), tuple(column for _, column in join.keys)
        assert table is not None
        files = delta_log.data_files(table, pin.generation, -1, pin.epoch).paths
        types = {name: plain.types[Ref(join.alias, name)] for name in (*keys, *join.columns)}
        return Changelog(tuple(files), pin.generation, pin.epoch, keys, join.columns, types, str(folder))

    def _dealt(self, spark: SparkSession, plan: ReleasePlan) -> list[tuple[Groups, ...]]:
        table = self._opened(plan.probe)
        assert table is not None
        tasks = max(self.standing.released(plan) // ROWS_PER_TASK, spark.sparkContext.defaultParallelism)
        return dealt(row_groups(plan.due.files(table)), tasks)
