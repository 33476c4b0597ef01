"""Run a plan's join and write what comes of it where no commit names it yet.

Quarantined rows carry the probe's own columns in one: `_probe`, a STRUCT. The landed rows that a plan takes out of
quarantine are found by the places that quarantined rows carry: they are joined as they landed.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import reduce
from typing import Any, ClassVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidegate.pipelines.clock import Clock
from tidegate.pipelines.commands import VERIFY
from tidegate.pipelines.connectors.spec import SEQ_TYPE
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import LakeError
from tidegate.pipelines.frames import settings
from tidegate.pipelines.joins.release import Joining, Probe
from tidegate.pipelines.joins.task import FEW_BACK, ROWS_BACK, Build, RowsTooWide, dealt, row_groups
from tidegate.pipelines.joins.writer import Release, Staged
from tidegate.pipelines.lake import Lake, StagedRow, delta_log
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.lake.adopt import footers_of, surveyed
from tidegate.pipelines.lake.lake import mark
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.location import Location, folders_in
from tidegate.pipelines.progress import Progress, step
from tidegate.pipelines.runtime import faults
from tidegate.pipelines.runtime.definitions import Definitions
from tidegate.pipelines.runtime.epochs import Lot, Pin, ReleasePlan, RequeuePlan
from tidegate.pipelines.runtime.epochs.position import InsertOnLake
from tidegate.pipelines.runtime.indexes import Indexed
from tidegate.pipelines.runtime.quarantine import PROBE
from tidegate.pipelines.runtime.releasing.violations import counted
from tidegate.pipelines.sql.model import Insert
from tidegate.pipelines.text import counted as count

PLACE = {"_probe_epoch": "_epoch", "_op": "_op", "_split": "_split", "_offset": "_offset"}
"""What identifies a row within a probe's generation: its name in a quarantined row, and in the landed one."""

FEW_PLACES = 500_000
"""Up to so many quarantined rows, their places are sent to every task rather than the probe's rows shuffled."""


def columns_of(probe: Table) -> dict[str, str]:
    """The probe's columns that a quarantined row holds, with their Spark types."""
    return {column.name: column.spark_type for column in probe.stored_columns}


def probe_column(probe: Table) -> dict[str, str]:
    """`_probe` -> its Spark type; nothing where the table stores no column."""
    own = ", ".join(f"{lake_rows.quoted(name)}: {kind}" for name, kind in columns_of(probe).items())
    return {PROBE: f"STRUCT<{own}>"} if own else {}


def landed_again(spark: SparkSession, probe: Location, quarantine: Location, plan: ReleasePlan) -> DataFrame:
    """The rows of the probe's table that lie in the plan's lots."""
    lots = plan.lots
    first, last = min(lot.first for lot in lots), max(lot.last for lot in lots)
    after, upto = min(lot.after for lot in lots), max(lot.upto for lot in lots)
    quarantined = lake_rows.between(spark, quarantine, plan.generation, first - 1, last).where(in_lots(lots))
    places = quarantined.select(*(F.col(name).alias(f"_quarantined{name}") for name in PLACE))
    if sum(lot.rows for lot in lots) <= FEW_PLACES:
        places = F.broadcast(places)
    landed = lake_rows.between(spark, probe, plan.probe_generation, after, upto)
    same = [landed[name] == places[f"_quarantined{at}"] for at, name in PLACE.items()]
    return landed.join(places, reduce(Column.__and__, same), "left_semi")


def in_lots(lots: Sequence[Lot]) -> Column:
    """Whether a quarantined row is in one of the lots. Reasons are literals of the expression, never text of a query;
    it is halved again and again, as deep expressions are walked by recursion."""
    if len(lots) > 1:
        middle = len(lots) // 2
        return in_lots(lots[:middle]) | in_lots(lots[middle:])
    lot = lots[0]
    return (F.col("_reason") == F.lit(lot.reason)) & F.col("_epoch").between(lot.first, lot.last)


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


def _settings(*, wide: bool) -> dict[str, str]:
    """Those of a release without a shuffle, which has nothing that Spark could plan anew."""
    rows = FEW_BACK if wide else ROWS_BACK
    return {"spark.sql.adaptive.enabled": "false", "spark.sql.execution.arrow.maxRecordsPerBatch": str(rows)}


ROWS_PER_TASK = 1_000_000


@dataclass(frozen=True)
class Stager:
    """Stages the plans of one INSERT. `ready`: the tables that this process has found to be there and as declared.
    `wide`: the targets whose rows were too wide for many at once."""

    on_lake: InsertOnLake
    spark: Callable[[], SparkSession]
    clock: Clock
    progress: Progress
    ready: set[Location]
    definitions: Definitions | None = None
    wide: ClassVar[set[Location]] = set()

    def stage(self, plan: ReleasePlan) -> StagedRow:
        """Join the plan's probe rows at its pins and write them; the row that describes the files."""
        spark = self.spark()
        self._prepare()
        attempt = new_attempt(plan)
        folders = self.on_lake.lake.new_attempt(self.on_lake.target, self.on_lake.insert, attempt)
        with step(self.progress, f"join {plan.insert}, epoch {plan.epoch}"):
            try:
                staged = self._written(spark, plan, folders)
            except (PySparkException, Py4JError) as error:
                if RowsTooWide.__name__ not in str(error) or self.on_lake.target_path in self.wide:
                    raise
                self.wide.add(self.on_lake.target_path)
                return self.stage(plan)
        if staged.unclear:
            raise LakeError(
                f"{plan.probe} has several rows of one place (epoch, op, split, offset), or none, so "
                f"{count(staged.unclear, 'quarantined row')} of epoch {plan.epoch} cannot be identified",
                where=str(Stream(self.on_lake.lake, plan.probe).path),
                state="nothing of the epoch is staged",
                next_command=VERIFY,
            )
        faults.point("insert.written", plan.insert)
        found: dict[str, Any] = dict(staged.counts)
        names = {kind: [name for name in staged.files if name.startswith(f"_disposition={kind}/")] for kind in folders}
        paths = [folders[kind] / name for kind, of_kind in names.items() for name in of_kind]
        found |= counted(paths, self.on_lake.insert.constraints)
        files = [file for kind, folder in folders.items() for file in surveyed(folder, footers_of(folder, names[kind]))]
        return StagedRow(
            owner=self.on_lake.owner,
            generation=plan.generation,
            epoch=plan.epoch,
            plan_digest=plan.digest,
            staged_at=self.clock(),
            folder=attempt,
            files=[asdict(file) for file in files],
            counts={name: int(value) for name, value in found.items() if "@" not in name or ":" in name},
            facts={name: value for name, value in found.items() if "@" in name and ":" not in name},
        )

    def _written(self, spark: SparkSession, plan: ReleasePlan, folders: Mapping[str, Location]) -> Staged:
        """Write the plan's rows: the names of the files, and what was counted meanwhile."""
        insert, pipeline = self.on_lake.insert, self.on_lake.pipeline
        # A discard takes no row; the probe of what it gives up may not be in the script any more.
        probe = insert.probe if isinstance(plan, RequeuePlan) and not plan.lots else plan.probe
        builds = {pin.table: self._build(spark, pin, plan) for pin in plan.pins}
        release = Release(
            plan.generation,
            plan.epoch,
            plan.instant,
            plan.on_unmatched,
            plan.kind == "discard",
            plan.late_upto,
            any(build.horizon is not None for build in builds.values()),
        )
        rows = self._probe(spark, plan, Stream(self.on_lake.lake, probe))
        if plan.probe == insert.probe:  # what was planned for another probe, by an older text, holds none of it
            rows = replace(rows, columns=columns_of(pipeline.table(plan.probe)))
        wide = self.on_lake.target_path in self.wide
        with settings(spark, {} if plan.lots else _settings(wide=wide)):
            texts = {kind: str(folder) for kind, folder in folders.items()}
            joining = Joining(insert, pipeline.tables, release, wide or bool(plan.lots))
            return joining.staged(spark, rows, builds, texts)

    def _probe(self, spark: SparkSession, plan: ReleasePlan, landed: Stream) -> Probe:
        """The landed rows that a plan releases."""
        releasable, path, table = plan.releasable, landed.path, landed.table
        if plan.lots:
            again = landed_again(spark, path, self.on_lake.quarantine_path, plan)
            return Probe(
                releasable, rows=releasable.rows(spark, path).unionByName(again) if releasable.parts else again
            )
        if table is None or not releasable.parts:
            return Probe(releasable)
        if not delta_log.plain(table):
            return Probe(releasable, rows=releasable.rows(spark, path))
        tasks = max(self.on_lake.released(plan) // ROWS_PER_TASK, spark.sparkContext.defaultParallelism)
        return Probe(releasable, dealt(row_groups(releasable.files(table)), tasks))

    def _build(self, spark: SparkSession, pin: Pin, plan: ReleasePlan) -> Build:
        """A build at its pin. What a person gives up may be joined to a build that has lost rows."""
        table = self.on_lake.pipeline.table(pin.table)
        index = Indexed.of(self.on_lake.lake, table, pin.generation, spark).upto(pin.epoch)
        return Build(replace(index, rows=None) if plan.discards else index, pin.horizon_us)

    def _prepare(self) -> None:
        """Make the target and its quarantine, or check that they are what the script says."""
        target = self.on_lake.target
        own = {column.name: column.spark_type for column in target.stored_columns}
        published = {**TARGET_COLUMNS, **proof_columns(self.on_lake.insert)}
        added = self.definitions.added(self.on_lake.owner) if self.definitions else ()
        ensure(self.on_lake.target_path, {**own, **published}, target.name, self.ready, added)
        probe = probe_column(self.on_lake.pipeline.table(self.on_lake.insert.probe))
        ensure_quarantine(self.on_lake.quarantine_path, {**own, **probe}, target.name, self.ready, {*added, PROBE})
        make_places(self.on_lake.lake, target, self.on_lake.insert)

    def sweep(self, plan: ReleasePlan, keep: str) -> None:
        """Remove what crashed attempts at this very epoch left behind: no row names those folders."""
        sweep_attempts(self.on_lake.lake, self.on_lake.target, self.on_lake.insert, plan, keep)


def ensure(
    path: Location, columns: dict[str, str], name: str, ready: set[Location], added: Collection[str] = ()
) -> None:
    """Make a table that rows are staged for, or check that it is what is declared; once for those in `ready`.
    `added`: the columns that a later definition has brought."""
    if path not in ready:
        lake_rows.ensure_table(path, columns, name, added=added)
        ready.add(path)


def ensure_quarantine(
    path: Location, columns: dict[str, str], name: str, ready: set[Location], added: Collection[str] = ()
) -> None:
    """The same of a target's quarantine, which says what lies in its folder."""
    if path not in ready:
        ensure(path, {**columns, **QUARANTINE_COLUMNS}, name, ready, added)
        mark(path)


def make_places(lake: Lake, target: Table, insert: Insert) -> None:
    """Make the folders of an INSERT's staged files: that one is gone shows at a look (`refuse_lost_files`)."""
    for place in lake.staged_paths(target, insert).values():
        place.make()


def new_attempt(plan: ReleasePlan) -> str:
    """A name for the folders that one attempt at a plan is staged in."""
    return f"{folder_prefix(plan)}{uuid.uuid4().hex[:8]}"


def sweep_attempts(lake: Lake, target: Table, insert: Insert, plan: ReleasePlan, keep: str) -> None:
    """Remove the folders of all attempts at a plan but one."""
    for place in lake.staged_paths(target, insert).values():
        remove_attempts(place, plan, keep)


def remove_attempts(place: Location, plan: ReleasePlan, keep: str) -> None:
    """The same in one place."""
    for folder in folders_in(place):
        if folder.name.startswith(folder_prefix(plan)) and folder.name != keep:
            folder.delete_all()


def folder_prefix(plan: ReleasePlan) -> str:
    """How the names of the folders begin that were staged for a plan; what follows has no "-"."""
    return f"g{plan.generation}-e{plan.epoch}-"
