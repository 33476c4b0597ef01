"""Run a plan's join and write what comes of it where no commit names it yet."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession

from pipelines.clock import Clock
from pipelines.frames import settings
from pipelines.joins import FEW_PAIRS, SMALL_PROBE, TICK_PROBE, Build, HeavyKeysByTable, Probe, Release, joined
from pipelines.lake import StagedRow, delta_log
from pipelines.lake import rows as lake_rows
from pipelines.lake.adopt import footers_of, surveyed
from pipelines.lake.lake import mark
from pipelines.lake.ledger import rows_landed
from pipelines.progress import Progress, step
from pipelines.runtime import faults
from pipelines.runtime.definitions import Definitions
from pipelines.runtime.lookups import Lookups, registered
from pipelines.runtime.plans import Pin, ReleasePlan
from pipelines.runtime.quarantine.rows import PROBE
from pipelines.runtime.releasing.columnar import ColumnarStager
from pipelines.runtime.releasing.kept_probes import probe_column, with_probes
from pipelines.runtime.releasing.requeued import landed_again
from pipelines.runtime.releasing.standing import Standing
from pipelines.runtime.releasing.violations import counted
from pipelines.sources.protocol import SEQ_TYPE
from pipelines.sql.model import Insert

TARGET_COLUMNS = {"_op": "STRING", "_generation": "INT", "_epoch": "BIGINT"}
"""What a published row carries beside the target's own columns."""

QUARANTINE_COLUMNS = {
    **TARGET_COLUMNS,
    "_probe_epoch": "BIGINT",
    "_split": "STRING",
    "_offset": "BIGINT",
    "_reason": "STRING",
}


def proof_columns(insert: Insert) -> dict[str, str]:
    """What a published row carries of its match proof, with 'gate.proof' = 'columns'."""
    if not insert.proof:
        return {}
    found = {name: kind for pair in insert.proofs for name, kind in zip(pair, ("BIGINT", SEQ_TYPE), strict=True)}
    return {**found, "_matched": "BOOLEAN", "_reason": "STRING"}


OF_TICKS = {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "1"}
"""Planning anew after every stage costs more than such a release has to gain; measured in docs/decisions/0009."""


PER_TASK, BYTES_PER_TASK = 1_000_000, 32 << 20
"""About how many rows, of about how many bytes in their files, one task of a large event-time release hashes or sorts:
so much fits into a small heap."""


@dataclass(frozen=True)
class Stager:
    """Stages the plans of one INSERT. `ready`: the tables that this process has found to be there and as declared."""

    standing: Standing
    spark: Callable[[], SparkSession]
    clock: Clock
    progress: Progress
    ready: set[Path]
    heavy: HeavyKeysByTable
    environment: Mapping[str, str]
    definitions: Definitions | None = None

    def stage(self, plan: ReleasePlan) -> StagedRow:
        """Join the plan's probe rows at its pins and write them; the row that describes the files."""
        spark = self.spark()
        self._prepare()
        folder = self.standing.staged_path / new_folder(plan)
        with step(self.progress, f"join {plan.insert}, epoch {plan.epoch}"):
            found, names = self._written(spark, plan, folder)
            names = self._with_probes(spark, plan, folder, names, found["to:quarantine"])
        faults.point("insert.written", plan.insert)
        found |= counted(folder.glob("**/*.parquet"), self.standing.insert.constraints)
        return StagedRow(
            owner=self.standing.owner,
            generation=plan.generation,
            epoch=plan.epoch,
            plan_digest=plan.digest,
            staged_at=self.clock(),
            folder=folder.name,
            files=[asdict(file) for file in surveyed(folder, footers_of(folder, names))],
            counts={name: int(value) for name, value in found.items() if "@" not in name or ":" in name},
            facts={name: value for name, value in found.items() if "@" in name and ":" not in name},
        )

    def _written(
        self, spark: SparkSession, plan: ReleasePlan, folder: Path
    ) -> tuple[dict[str, Any], Sequence[str] | None]:
        """What was counted while the rows were written, and the names of the files; None for all that are there. By
        whole columns where that can be done, which is several times as fast; by SQL, which can do it always."""
        columnar = ColumnarStager(self.standing)
        plain = columnar.plain(plan)
        staged = None if plain is None else columnar.stage(spark, plan, plain, folder)
        if staged is not None:
            return dict(staged.counts), staged.files
        observed = Observation(f"staged {plan.insert} {plan.epoch}")
        with settings(spark, self._settings(plan)):
            frame = self.frame(spark, plan, observed)
            frame.write.partitionBy("_disposition").mode("errorifexists").parquet(str(folder))
        return dict(observed.get), None

    def _with_probes(
        self, spark: SparkSession, plan: ReleasePlan, folder: Path, names: Sequence[str] | None, rows: int
    ) -> Sequence[str] | None:
        """The files of the epoch, once its quarantined rows hold the probe's columns. Rows that were planned for
        another probe, by an older text of the INSERT, hold none."""
        if plan.probe != self.standing.insert.probe:
            return names
        probe, path = self.standing.pipeline.table(plan.probe), self.standing.lake.table_path(plan.probe)
        with settings(spark, self._settings(plan)):
            return with_probes(spark, probe, path, plan, folder, names, rows)

    def _settings(self, plan: ReleasePlan) -> dict[str, str]:
        """How Spark should plan a release of this size."""
        released = self.standing.released(plan)
        if released <= TICK_PROBE:
            return OF_TICKS
        if plan.time is None:
            return {}
        rows = released + sum(map(self._versions, plan.pins))
        size = sum(delta_log.size_of(self.standing.lake.table_path(pin.table)) for pin in plan.pins)
        tasks = min(max(rows // PER_TASK, size // BYTES_PER_TASK, 4), 2_000)
        # Small enough partitions stay apart: what is hashed must fit into the memory of a task.
        return {"spark.sql.shuffle.partitions": str(tasks), "spark.sql.adaptive.advisoryPartitionSizeInBytes": "16m"}

    def _versions(self, pin: Pin) -> int:
        """About how many versions a build has at its pin, by its log."""
        return rows_landed(self.standing.lake, pin.table, pin.generation, 0, pin.epoch)

    def frame(self, spark: SparkSession, plan: ReleasePlan, observed: Observation) -> DataFrame:
        """The rows that a plan stages, as a DataFrame."""
        lake, pipeline = self.standing.lake, self.standing.pipeline
        # A discard takes no row; the probe of what it gives up may not be in the script any more.
        probe = plan.probe if plan.from_quarantine is None or plan.lots else self.standing.insert.probe
        path = lake.table_path(probe)
        if plan.time is None:
            rows, late = lake_rows.between(spark, path, plan.probe_generation, plan.after, plan.upto), None
        else:
            rows, late = plan.due.rows(spark, path), plan.late_upto
        if plan.lots:
            again = landed_again(spark, path, self.standing.quarantine_path, plan)
            rows = again if plan.backfill is None else rows.unionByName(again)
        columns = [column.name for column in pipeline.table(probe).stored_columns]
        return joined(
            spark,
            self.standing.insert,
            Probe(rows, columns, self.standing.released(plan)),
            {pin.table: self._build(spark, pin, self.standing.released(plan)) for pin in plan.pins},
            Release(plan.generation, plan.epoch, plan.instant, plan.on_unmatched, plan.kind == "discard", late),
            observed,
        )

    def _build(self, spark: SparkSession, pin: Pin, probes: int) -> Build:
        lake, table = self.standing.lake, self.standing.pipeline.table(pin.table)
        landed = lake.watermarks.rows(pin.table, generation=pin.generation, epoch=pin.epoch)
        rows = self._versions(pin) if self.standing.insert.time == "event" else 0
        truncated = not landed or landed[0].truncated
        copies: dict[str, list[str]] = {}
        if probes <= SMALL_PROBE and not truncated:
            copies = Lookups(lake, self.standing.pipeline, self.environment).of(self.standing.insert, table, pin)
        changelog = lake_rows.at(spark, lake.table_path(pin.table), pin.generation, pin.epoch, without=copies)
        lookup = None
        if files := [path for paths in copies.values() for path in paths]:
            lookup = registered(spark, lake, self.standing.insert, table, files, pin)
        heavy = None
        if probes * rows > FEW_PAIRS:
            path = lake.table_path(pin.table)
            all_rows = lake_rows.at(spark, path, pin.generation, pin.epoch) if copies else changelog
            heavy = self.heavy.of((str(path), pin.generation), all_rows, table.primary_key, rows)
        return Build(
            changelog,
            [column.name for column in table.stored_columns],
            pin.generation,
            pin.epoch,
            rows,
            truncated=truncated,
            heavy=heavy,
            lookup=lookup,
            horizon=pin.horizon_us,
        )

    def _prepare(self) -> None:
        """Make the target and its quarantine, or check that they are what the script says."""
        target = self.standing.target
        own = {column.name: column.spark_type for column in target.stored_columns}
        published = {**TARGET_COLUMNS, **proof_columns(self.standing.insert)}
        added = self.definitions.added(self.standing.owner) if self.definitions else ()
        ensure(self.standing.target_path, {**own, **published}, target.name, self.ready, added)
        probe = probe_column(self.standing.pipeline.table(self.standing.insert.probe))
        ensure_quarantine(self.standing.quarantine_path, {**own, **probe}, target.name, self.ready, {*added, PROBE})

    def sweep(self, plan: ReleasePlan, keep: str) -> None:
        """Remove what crashed attempts at this very epoch left behind: no row names those folders."""
        sweep_attempts(self.standing.staged_path, plan, keep)


def ensure(path: Path, columns: dict[str, str], name: str, ready: set[Path], added: Collection[str] = ()) -> None:
    """Make a table that rows are staged for, or check that it is what is declared; once for those in `ready`.
    `added`: the columns that a later definition has brought."""
    if path not in ready:
        lake_rows.ensure_table(path, columns, name, added=added)
        ready.add(path)


def ensure_quarantine(
    path: Path, columns: dict[str, str], name: str, ready: set[Path], added: Collection[str] = ()
) -> None:
    """The same of a target's quarantine, which says what else lies in its folder."""
    if path not in ready:
        ensure(path, {**columns, **QUARANTINE_COLUMNS}, name, ready, added)
        mark(path)


def new_folder(plan: ReleasePlan) -> str:
    """A name for the folder that one attempt at a plan is staged in."""
    return f"{folder_prefix(plan)}{uuid.uuid4().hex[:8]}"


def sweep_attempts(staged: Path, plan: ReleasePlan, keep: str) -> None:
    """Remove the folders of all attempts at a plan but one."""
    for folder in staged.glob(f"{folder_prefix(plan)}*"):
        if folder.name != keep:
            shutil.rmtree(folder)


def folder_prefix(plan: ReleasePlan) -> str:
    """How the names of the folders begin that were staged for a plan; what follows has no "-"."""
    return f"g{plan.generation}-e{plan.epoch}-"
