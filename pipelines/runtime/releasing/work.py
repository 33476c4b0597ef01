"""What is done for the epochs of an INSERT, by its kind: how they are planned and staged, and what they commit.

Staged rows are written where no commit names them yet. Quarantined rows carry the probe's own columns in one: `_probe`,
a STRUCT. The landed rows that a plan takes out of quarantine are found by the places that quarantined rows carry: they
are joined as they landed.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial, reduce
from typing import Any, ClassVar, Literal

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
from tidegate.pipelines.joins.release import Build, Joining, Probe
from tidegate.pipelines.joins.task import FEW_BACK, ROWS_BACK, RowsTooWide, dealt, row_groups
from tidegate.pipelines.joins.writer import Release, Staged
from tidegate.pipelines.lake import StagedRow, delta_log
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.lake.adopt import Epochs, footers_of, surveyed
from tidegate.pipelines.lake.lake import mark
from tidegate.pipelines.lake.records import StagedFile
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.location import Location, folders_in
from tidegate.pipelines.progress import Progress, step
from tidegate.pipelines.runtime import faults
from tidegate.pipelines.runtime.definitions import Definitions
from tidegate.pipelines.runtime.epochs import BackfillPlan, Lot, Pin, ReleasePlan, RequeuePlan
from tidegate.pipelines.runtime.epochs.commits import Commit, FileCommit, NotifyCommit, notified_by
from tidegate.pipelines.runtime.epochs.history import ReleasedEpoch, history_of
from tidegate.pipelines.runtime.epochs.position import InsertOnLake
from tidegate.pipelines.runtime.faults import OfProcess, Point
from tidegate.pipelines.runtime.indexes import Indexed
from tidegate.pipelines.runtime.quarantine import PROBE, quarantined_in, removed, removed_upto
from tidegate.pipelines.runtime.releasing.backfill import BackfillPlanner
from tidegate.pipelines.runtime.releasing.event_time import EventTimePlanner
from tidegate.pipelines.runtime.releasing.planner import ProcessingTimePlanner, ReleasePlanner
from tidegate.pipelines.runtime.releasing.violations import counted
from tidegate.pipelines.sinks.protocol import EpochListener, TableSink, sink_of
from tidegate.pipelines.sql.model import Insert
from tidegate.pipelines.text import counted as count

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


@dataclass(frozen=True)
class EpochWork(ABC):
    """What is done for the epochs of one INSERT. `ready`: the tables that this process has found to be there and as
    declared."""

    on_lake: InsertOnLake
    spark: Callable[[], SparkSession]
    clock: Clock
    progress: Progress
    ready: set[Location] = field(default_factory=set)
    environment: Mapping[str, str] = field(default_factory=dict)
    definitions: Definitions | None = None

    @property
    @abstractmethod
    def planner(self) -> ReleasePlanner:
        """Plans its epochs."""

    @property
    def backfills(self) -> BackfillPlanner:
        """Plans the backfills of an INSERT in event time."""
        return BackfillPlanner(self.on_lake, self.clock, self.spark, self.environment)

    @abstractmethod
    def stage(self, plan: ReleasePlan) -> StagedRow:
        """Write the plan's rows where no commit names them yet; the row that describes the files."""

    def sweep(self, plan: ReleasePlan, keep: str) -> None:
        """Remove what crashed attempts at this very epoch left behind: no row names those folders."""
        for target in self.targets:
            for place in self.on_lake.lake.staged_paths(target, self.on_lake.insert).values():
                remove_attempts(place, plan, keep)

    def _prepare(
        self, target: Table, published: Mapping[str, str], beside: Mapping[str, str], also: Collection[str] = ()
    ) -> None:
        """Make an output, its quarantine and the folders of staged files, or check that they are what the script says.

        Args:
            published, beside: What rows of the output, and of its quarantine, carry beside its own columns.
            also: Columns that a quarantine gets if it lacks them, beside those that a later definition has brought.
        """
        lake, insert = self.on_lake.lake, self.on_lake.insert
        own = {column.name: column.spark_type for column in target.stored_columns}
        added = self.definitions.added(self.on_lake.owner) if self.definitions else frozenset[str]()
        quarantine = lake.quarantine_path(target, insert)
        self._ensure(lake.target_path(target), {**own, **published}, target.name, added)
        if quarantine not in self.ready:
            self._ensure(quarantine, {**own, **beside, **QUARANTINE_COLUMNS}, target.name, {*added, *also})
            mark(quarantine)
        for place in lake.staged_paths(target, insert).values():  # that one is gone shows at a look: refuse_lost_files
            place.make()

    def _ensure(self, path: Location, columns: dict[str, str], name: str, added: Collection[str]) -> None:
        if path not in self.ready:
            lake_rows.ensure_table(path, columns, name, added=added)
            self.ready.add(path)

    @property
    def targets(self) -> tuple[Table, ...]:
        """The table of each output."""
        return (self.on_lake.target,)

    def completed(self, plan: ReleasePlan) -> list[int]:
        """The last epoch of the plan's generation that has each of the commits that follow publishing."""
        lake = self.on_lake.lake
        sinks = [sink_of(target, lake.target_path(target)) for target in self.targets]
        return [sink.committed(notified_by(lake, plan)) for sink in sinks if isinstance(sink, EpochListener)]

    @abstractmethod
    def commits(self, plan: ReleasePlan, staged: StagedRow) -> list[Commit]:
        """What an epoch commits, in this order. That to the INSERT's target publishes it: what comes before lies beside
        the target, what comes after is for those who read the target."""

    def _commit(
        self,
        staged: StagedRow,
        target: Table,
        role: Literal["publish", "quarantine"],
        files: Sequence[StagedFile],
        point: Point | OfProcess,
        *,
        always: bool = False,
    ) -> FileCommit:
        lake, insert = self.on_lake.lake, self.on_lake.insert
        own = role == "publish"
        sink = sink_of(target, lake.target_path(target)) if own else TableSink(lake.quarantine_path(target, insert))
        folder = lake.staged_folder(target, insert, staged.folder, role)
        return FileCommit(role, target.name, sink, folder, files, point, always)

    def _notifications(self, *published: FileCommit) -> list[Commit]:
        """The commits that notify the targets which listen to their epochs."""
        return [NotifyCommit(commit, self.spark) for commit in published if isinstance(commit.sink, EpochListener)]


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


def _settings(*, wide: bool) -> dict[str, str]:
    """Those of a release without a shuffle, which has nothing that Spark could plan anew."""
    rows = FEW_BACK if wide else ROWS_BACK
    return {"spark.sql.adaptive.enabled": "false", "spark.sql.execution.arrow.maxRecordsPerBatch": str(rows)}


ROWS_PER_TASK = 1_000_000


@dataclass(frozen=True)
class JoinWork(EpochWork):
    """What is done for an INSERT that joins. `wide`: the targets whose rows were too wide for many at once."""

    wide: ClassVar[set[Location]] = set()

    @property
    def planner(self) -> ReleasePlanner:
        if self.on_lake.insert.time == "event":
            return EventTimePlanner(self.on_lake, self.clock, self.spark, self.environment)
        return ProcessingTimePlanner(self.on_lake, self.clock)

    def stage(self, plan: ReleasePlan) -> StagedRow:
        """Join the plan's probe rows at its pins and write them; the row that describes the files."""
        spark, insert, pipeline = self.spark(), self.on_lake.insert, self.on_lake.pipeline
        published = {**TARGET_COLUMNS, **proof_columns(insert)}
        self._prepare(self.on_lake.target, published, probe_column(pipeline.table(insert.probe)), [PROBE])
        attempt = new_attempt(plan)
        folders = self.on_lake.lake.new_attempt(self.on_lake.target, insert, attempt)
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

    def commits(self, plan: ReleasePlan, staged: StagedRow) -> list[Commit]:
        """The quarantine's commit, then the target's. A backfill takes rows out of both, whether it brings any or
        not."""
        own = self.on_lake.target
        quarantine = self._commit(staged, own, "quarantine", staged.of("quarantine"), "insert.quarantined")
        target = self._commit(staged, own, "publish", staged.of("publish"), "insert.published", always=True)
        if isinstance(plan, BackfillPlan):
            taken_out = partial(self._instead_of, plan, "quarantine"), partial(self._instead_of, plan, "publish")
            quarantine = replace(quarantine, always=True, instead_of=taken_out[0])
            target = replace(target, instead_of=taken_out[1])
        return [quarantine, target, *self._notifications(target)]

    def _instead_of(self, plan: BackfillPlan, role: Literal["publish", "quarantine"]) -> Epochs:
        """The epochs that a backfill's rows take the place of in one table, and how many rows those have there."""
        epochs = history_of(self.on_lake.lake, self.on_lake.pipeline, self.on_lake.insert)
        replaced = [item for item in epochs if plan.takes_the_place_of(item.plan)]
        staged = [item.staged for item in replaced if item.staged and (item.published or item.replaced)]
        rows = sum(file.rows for row in staged for file in row.of(role))
        if role == "quarantine":
            rows -= self._removed(plan, epochs)
        return Epochs(plan.generation, plan.backfill.replaces, rows)

    def _removed(self, plan: BackfillPlan, epochs: Sequence[ReleasedEpoch]) -> int:
        """The rows of replaced epochs that retention had removed from the quarantine before."""
        upto = removed_upto(self.on_lake.lake, self.on_lake.insert, self.on_lake.quarantine_path)
        before = [
            replace(item, published=item.published or item.replaced, superseded=False, replaced=False)
            if plan.takes_the_place_of(item.plan)
            else item
            for item in (epochs if upto else ())
        ]
        return sum(item.rows for item in removed(quarantined_in(before), upto) if plan.takes_the_place_of(item.plan))


def new_attempt(plan: ReleasePlan) -> str:
    """A name for the folders that one attempt at a plan is staged in."""
    return f"{folder_prefix(plan)}{uuid.uuid4().hex[:8]}"


def remove_attempts(place: Location, plan: ReleasePlan, keep: str) -> None:
    """Remove the folders of all attempts at a plan but one."""
    for folder in folders_in(place):
        if folder.name.startswith(folder_prefix(plan)) and folder.name != keep:
            folder.delete_all()


def folder_prefix(plan: ReleasePlan) -> str:
    """How the names of the folders begin that were staged for a plan; what follows has no "-"."""
    return f"g{plan.generation}-e{plan.epoch}-"
