"""The epochs of an INSERT that joins: how they are planned and staged, and what they commit.

Staged rows are written where no commit names them yet. Quarantined rows carry the probe's own columns in one: `_probe`,
a STRUCT. The landed rows that a plan takes out of quarantine are found by the places that quarantined rows carry: they
are joined as they landed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial, reduce
from typing import Any, ClassVar, Literal

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidegate.pipelines.commands import VERIFY
from tidegate.pipelines.connectors.table import RESERVED_PREFIX, Table
from tidegate.pipelines.errors import LakeError
from tidegate.pipelines.frames import settings
from tidegate.pipelines.joins.release import Joining, Probe
from tidegate.pipelines.joins.task import FEW_BACK, FIRST_SEQ, ROWS_BACK, RowsTooWide, dealt, row_groups
from tidegate.pipelines.joins.writer import Release, Staged, merged, split_of
from tidegate.pipelines.lake import StagedRow
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.lake.adopt import Epochs, survey
from tidegate.pipelines.lake.ordinals import WANTED, first_place, without_ordinals
from tidegate.pipelines.lake.stream import ORDERED, PLACED, Stream
from tidegate.pipelines.location import Location
from tidegate.pipelines.progress import step
from tidegate.pipelines.runtime import faults
from tidegate.pipelines.runtime.called import register
from tidegate.pipelines.runtime.epochs import Lot, Pin, ReleasePlan
from tidegate.pipelines.runtime.epochs.commits import EpochCommits, LogCommit
from tidegate.pipelines.runtime.epochs.history import ReleasedEpoch, history_of
from tidegate.pipelines.runtime.epochs.target_log import log_rows
from tidegate.pipelines.runtime.indexes import Indexed
from tidegate.pipelines.runtime.quarantine import PROBE, quarantined_in, removed, removed_upto
from tidegate.pipelines.runtime.releasing.branches import through
from tidegate.pipelines.runtime.releasing.doubled import doubled
from tidegate.pipelines.runtime.releasing.event_time import EventTimePlanner
from tidegate.pipelines.runtime.releasing.insert_runner import TARGET_COLUMNS, InsertRunner
from tidegate.pipelines.runtime.releasing.planner import ProcessingTimePlanner, ReleasePlanner
from tidegate.pipelines.runtime.releasing.violations import counted
from tidegate.pipelines.text import counted as count
from tidegate.pipelines.versions import IndexOf

PLACE = {"_probe_epoch": "_epoch", "_op": "_op", "_split": "_split", "_offset": "_offset"}
"""What identifies a row within a probe's generation: its name in a quarantined row, and in the landed one."""

FEW_PLACES = 500_000
"""Of at most so many quarantined rows, the places are sent to every task; for more, the probe's rows are shuffled."""


def columns_of(probe: Table) -> dict[str, str]:
    """The probe's columns that a quarantined row holds, with their Spark types."""
    own = (column for column in probe.stored_columns if not column.name.startswith(RESERVED_PREFIX))
    return {column.name: column.spark_type for column in own}


def probe_column(probe: Table) -> dict[str, str]:
    """`_probe` -> its Spark type; nothing where the table stores no column."""
    own = ", ".join(f"{lake_rows.quoted(name)}: {kind}" for name, kind in columns_of(probe).items())
    return {PROBE: f"STRUCT<{own}>"} if own else {}


def landed_again(
    spark: SparkSession,
    probe: Location,
    quarantine: Location,
    plan: ReleasePlan,
    number: int = 0,
    splits: str = "",
    *,
    ordered: bool = False,
    unnests: int = 0,
) -> DataFrame:
    """The rows of a branch's table that lie in the plan's lots; `splits`: how its splits begin in the quarantine.
    `ordered`: with the place in the order of changes that they have there; `unnests`: through how many UNNEST they went
    (`WANTED` says which of their elements these are)."""
    lots = plan.joined
    first, last = min(lot.first for lot in lots), max(lot.last for lot in lots)
    after, upto = min(lot.after for lot in lots), max(lot.upto for lot in lots)
    quarantined = lake_rows.between(spark, quarantine, plan.generation, first - 1, last).where(in_lots(lots))
    if splits:
        quarantined = quarantined.where(F.col("_split").startswith(splits))
        quarantined = quarantined.withColumn("_split", F.expr(f"substring(_split, {len(splits) + 1})"))
    places = quarantined.select(
        *(F.col(name).alias(f"_quarantined{name}") for name in PLACE),
        *([F.col("_seq").alias(FIRST_SEQ)] if ordered else []),
    )
    if ordered:
        places = places.groupBy(*(f"_quarantined{name}" for name in PLACE)).agg(F.min(FIRST_SEQ).alias(FIRST_SEQ))
    landed = lake_rows.between(spark, probe, plan.takes[number].generation, after, upto)
    at = dict(PLACE)
    if unnests:
        own = [f"_quarantined{name}" for name in at if name != "_offset"]
        first = F.expr(without_ordinals("_quarantined_offset", unnests))
        places = places.groupBy(*own, first.alias("_first")).agg(F.collect_set("_quarantined_offset").alias(WANTED))
        places = places.withColumnRenamed("_first", "_quarantined_offset")
        at |= {"_split": "_first_split", "_offset": "_first_offset"}
        firsts = zip(("_first_split", "_first_offset"), first_place("_split", "_offset", unnests), strict=True)
        landed = landed.withColumns({name: F.expr(text) for name, text in firsts})
    if sum(lot.rows for lot in lots) <= FEW_PLACES:
        places = F.broadcast(places)
    same = [landed[name] == places[f"_quarantined{there}"] for there, name in at.items()]
    found = landed.join(places, reduce(Column.__and__, same), "inner" if ordered or unnests else "left_semi")
    return found.drop(*(f"_quarantined{there}" for there in at), "_first_split", "_first_offset")


def in_lots(lots: Sequence[Lot]) -> Column:
    """Whether a quarantined row is in one of the lots. Reasons are literals of the expression, never text of a query.
    The expression is a balanced tree: a deep one would exceed the depth of recursion that walks it."""
    if len(lots) > 1:
        middle = len(lots) // 2
        return in_lots(lots[:middle]) | in_lots(lots[middle:])
    lot = lots[0]
    return (F.col("_reason") == F.lit(lot.reason)) & F.col("_epoch").between(lot.first, lot.last)


def _settings(*, wide: bool) -> dict[str, str]:
    """The settings of a release without a shuffle, for which adaptive planning has nothing to do."""
    rows = FEW_BACK if wide else ROWS_BACK
    return {"spark.sql.adaptive.enabled": "false", "spark.sql.execution.arrow.maxRecordsPerBatch": str(rows)}


ROWS_PER_TASK = 1_000_000


@dataclass(frozen=True)
class JoinRunner(InsertRunner):
    """The runner of an INSERT that joins. `wide`: the targets whose rows were too wide for large Arrow batches."""

    wide: ClassVar[set[Location]] = set()

    @property
    def planner(self) -> ReleasePlanner:
        if self.insert.time == "event":
            return EventTimePlanner(self, self.clock, self.spark, self.environment)
        return ProcessingTimePlanner(self, self.clock)

    def write(self, plan: ReleasePlan) -> StagedRow:
        """Join the plan's probe rows at its pins and write them; the row that describes the files. An epoch without
        rows needs no Spark, once there is a target."""
        insert, pipeline = self.insert, self.pipeline
        published = {**TARGET_COLUMNS, **insert.proof_columns, **(PLACED if self.is_logged else {})}
        if any(item.parts for item in plan.takes) or plan.joined or plan.discards or self.never_staged:
            self.spark()  # types are read by it
            ordered = ORDERED if self.is_build else {}
            beside = {**probe_column(insert.probe_table(pipeline.tables)), **ordered}
            self._prepare(self.target, {**published, **ordered}, beside, [PROBE])
        attempt = plan.new_attempt()
        folders = self.lake.new_attempt(self.target, insert, attempt)
        with step(self.progress, f"join {plan.insert}, epoch {plan.epoch}"):
            try:
                staged = self._written(plan, folders)
            except (PySparkException, Py4JError) as error:
                if RowsTooWide.__name__ not in str(error) or self.target_path in self.wide:
                    raise
                self.wide.add(self.target_path)
                return self.write(plan)
        if staged.unclear:
            raise LakeError(
                f"{plan.probe} has several rows of one place (epoch, op, split, offset), or none, so "
                f"{count(staged.unclear, 'quarantined row')} of epoch {plan.epoch} cannot be identified",
                where=" and ".join(str(stream.path) for stream in self.probes),
                state="nothing of the epoch is staged",
                next_command=VERIFY,
            )
        faults.point("insert.written", plan.insert)
        found: dict[str, Any] = dict(staged.counts)
        names = {kind: [name for name in staged.files if name.startswith(f"_disposition={kind}/")] for kind in folders}
        paths = [folders[kind] / name for kind, of_kind in names.items() for name in of_kind]
        found |= counted(paths, self.insert.constraints)
        found |= doubled([folders["publish"] / name for name in names["publish"]], self.target.primary_key)
        files = [file for kind, folder in folders.items() for file in survey(folder, names[kind])]
        return StagedRow(
            owner=self.owner,
            generation=plan.generation,
            epoch=plan.epoch,
            plan_digest=plan.digest,
            staged_at=self.clock(),
            folder=attempt,
            files=[asdict(file) for file in files],
            counts={name: int(value) for name, value in found.items() if "@" not in name or ":" in name},
            facts={name: value for name, value in found.items() if "@" in name and ":" not in name},
        )

    def _written(self, plan: ReleasePlan, folders: Mapping[str, Location]) -> Staged:
        """Write the plan's rows; returns the names of the files, and what was counted."""
        insert, pipeline = self.insert, self.pipeline
        release = Release(
            plan.generation,
            plan.epoch,
            plan.instant,
            plan.on_unmatched,
            plan.kind == "discard",
            plan.late_upto,
            any(pin.horizon is not None for pin in plan.pins),
            self.is_logged,
        )
        if not (any(item.parts for item in plan.takes) or plan.joined):
            return merged([], insert, release)
        spark = self.spark()
        register(spark, insert.calls(pipeline.functions))
        builds = {pin.table: self._build(spark, pin, plan) for pin in plan.pins}
        if insert.branches:
            rows = self._united(spark, plan)
        else:
            # A discard takes no row; the probe of what it gives up may not be in the script any more.
            probe = insert.probe if plan.looks_back and not plan.rows else plan.probe
            rows = self._probe(spark, plan, Stream.of(self.lake, self.pipeline, probe))
        if self.is_build:
            release = replace(release, splits=() if plan.joined else self._splits(plan, rows))
        if plan.probe == insert.probe:  # what was planned for another probe, by an older text, holds none of it
            rows = replace(rows, columns=columns_of(insert.probe_table(pipeline.tables)))
        wide = self.target_path in self.wide
        with settings(spark, {} if plan.joined else _settings(wide=wide)):
            texts = {kind: str(folder) for kind, folder in folders.items()}
            joining = Joining(insert, pipeline.tables, release, wide or bool(plan.joined))
            return joining.staged(spark, rows, builds, texts)

    def _probe(self, spark: SparkSession, plan: ReleasePlan, landed: Stream) -> Probe:
        """The landed rows that a plan releases."""
        releasable, path, table = plan.first.releasable, landed.path, landed.table
        if plan.joined:
            again = landed_again(spark, path, self.quarantine_path, plan, ordered=self.is_build)
            return Probe(
                releasable, rows=releasable.rows(spark, path).unionByName(again) if releasable.parts else again
            )
        if table is None or not releasable.parts:
            return Probe(releasable)
        if not table.plain:
            return Probe(releasable, rows=releasable.rows(spark, path))
        tasks = max(plan.rows // ROWS_PER_TASK, spark.sparkContext.defaultParallelism)
        return Probe(releasable, dealt(row_groups(releasable.files(table)), tasks))

    def _splits(self, plan: ReleasePlan, probe: Probe) -> tuple[str, ...]:
        """The splits of the places of all rows that a plan takes, in order."""
        found, kinds = set[str](), pa.schema([("_epoch", pa.int64()), ("_split", pa.string())])
        if probe.rows is not None:  # queries give rows other places
            found = {split_of(*row) for row in probe.rows.select(*kinds.names).distinct().collect()}
        else:
            for batch in plan.first.releasable.batches(self.probes[0].path, self.spark, *kinds.names):
                own = pa.Table.from_batches([batch]).cast(kinds).group_by(kinds.names, use_threads=False).aggregate([])
                found |= {split_of(row["_epoch"], row["_split"]) for row in own.to_pylist()}
        return tuple(sorted(found))

    def _united(self, spark: SparkSession, plan: ReleasePlan) -> Probe:
        """The landed rows that a plan releases of all branches of a UNION ALL."""
        found = list[DataFrame]()
        for number, (item, stream) in enumerate(zip(plan.takes, self.probes, strict=True)):
            parts = [item.releasable.rows(spark, stream.path)] if item.parts and stream.table else []
            if plan.joined and stream.table:
                branch = self.insert.branches[number]
                again = landed_again(
                    spark,
                    stream.path,
                    self.quarantine_path,
                    plan,
                    number,
                    self.insert.splits_of(number),
                    ordered=self.is_build,
                    unnests=branch.unnests,
                )
                parts.append(again)
            landed = self.pipeline.table(stream.name)
            found += [through(rows, landed, self.insert, number, plan.instant) for rows in parts]
        rows = reduce(DataFrame.unionByName, found) if found else None
        return Probe(plan.first.releasable, rows=rows)

    def _build(self, spark: SparkSession, pin: Pin, plan: ReleasePlan) -> IndexOf:
        """A build at its pin. A discard joins it even if it has lost rows."""
        table = self.pipeline.table(pin.table)
        index = Indexed.of(self.lake, table, pin.generation, spark).upto(pin.epoch)
        return replace(index, rows=None if plan.discards else index.rows, horizon=pin.horizon_us)

    def commits(self, plan: ReleasePlan, staged: StagedRow) -> EpochCommits:
        """The quarantine's commit, then the target's. A backfill commits to both, even without rows, since it takes
        rows out."""
        own = self.target
        quarantine = self._commit(staged, own, "quarantine", staged.of("quarantine"), "insert.quarantined")
        target = self._commit(staged, own, "publish", staged.of("publish"), "insert.published", always=True)
        if plan.replaces:
            quarantine = replace(quarantine, always=True, instead_of=partial(self._instead_of, plan, "quarantine"))
            target = replace(target, instead_of=partial(self._instead_of, plan, "publish"))
        log = [LogCommit(partial(log_rows, self, plan, staged.counts["to:publish"]))] if self.is_logged else []
        return EpochCommits([quarantine], target, [*log, *self._notifications(target)])

    def _instead_of(self, plan: ReleasePlan, role: Literal["publish", "quarantine"]) -> Epochs:
        """The epochs that a backfill replaces in one table, and how many rows they have there."""
        epochs = history_of(self.lake, self.pipeline, self.insert)
        replaced = [item for item in epochs if plan.takes_the_place_of(item.plan)]
        staged = [item.staged for item in replaced if item.staged and (item.published or item.replaced)]
        rows = sum(file.rows for row in staged for file in row.of(role))
        if role == "quarantine":
            rows -= self._removed(plan, epochs)
        return Epochs(plan.generation, plan.replaces, rows)

    def _removed(self, plan: ReleasePlan, epochs: Sequence[ReleasedEpoch]) -> int:
        """The rows of replaced epochs that retention had removed from the quarantine before."""
        upto = removed_upto(self.lake, self.insert, self.quarantine_path)
        before = [
            replace(item, published=item.published or item.replaced, superseded=False, replaced=False)
            if plan.takes_the_place_of(item.plan)
            else item
            for item in (epochs if upto else ())
        ]
        return sum(item.rows for item in removed(quarantined_in(before), upto) if plan.takes_the_place_of(item.plan))
