"""Advance one source table: plan a step, append its rows, write its watermark-log row; each once, whatever crashes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from pipelines.clock import Clock
from pipelines.errors import ConcurrentRun, SourceError, TidegateError
from pipelines.functions import UserFunction
from pipelines.functions.failures import failure
from pipelines.lake import Lake, SplitWatermark, WatermarkRow
from pipelines.lake import rows as lake_rows
from pipelines.lake.adopt import adopt, footers_of, surveyed
from pipelines.lake.delta_log import committed
from pipelines.lake.leases import Leases
from pipelines.progress import Progress
from pipelines.runtime import faults
from pipelines.runtime.failures import ENGINE, explained, first_line
from pipelines.runtime.landing import alignment
from pipelines.runtime.landing.advances import Advance, LandedEpoch, OnEpoch
from pipelines.runtime.landing.drafts import DraftSplits, SourceDraft
from pipelines.runtime.landing.expressions import failed_expression
from pipelines.runtime.landing.registration import register
from pipelines.runtime.landing.rejected import Rejected
from pipelines.runtime.landing.split_store import Splits
from pipelines.runtime.landing.user_functions import functions_of, plan_instant
from pipelines.runtime.masking import Mask
from pipelines.runtime.plans import source_row, stored_step
from pipelines.runtime.splits import counting, stored_splits
from pipelines.runtime.watermarking import EpochTime, SignalEmit, splits_after, watermark_row
from pipelines.runtime.watermarking.builtin import splits_of_files, splits_of_rows
from pipelines.sources.delivered import as_declared
from pipelines.sources.protocol import (
    ExplainsFailures,
    Json,
    Landed,
    Source,
    SourceContext,
    SplitStore,
    Step,
    StoredStep,
    WritesFiles,
)
from pipelines.sources.registry import connector
from pipelines.sql.model import Table
from pipelines.sql.options import resolve_options
from pipelines.sql.tables.metadata import as_delivered
from pipelines.watermarks import SourceWatermarks, WatermarkAlignment, WatermarkStrategy
from pipelines.watermarks.duration import milliseconds

TALLY = ("count(1) AS rows", "count_if(_op = 't') AS truncates")
"""Counted while an epoch is appended; counted again from its committed rows when a crash has lost the first count."""


Written = tuple[Path, Mapping[str, pq.FileMetaData]]
"""A folder in the table that no commit names yet, and the footers of its files by name."""

MAX_ROWS = "scan.max-rows-per-epoch"
ALIGNED_ROWS = 100_000
"""About how many rows an epoch has, where the script does not say, of a table whose group has others to wait for: so
far it may overshoot where its source can not tell times."""

_UNPLANNED = "nothing of the epoch was read; epochs before it stand"
_UNREAD = "the epoch is planned, none of its rows are committed; epochs before it stand"
_UNLOGGED = "the epoch's rows are committed and its watermark is not, so nothing reads them yet"


@dataclass
class Landing:
    """The runner of one source table. Holds its lease while it works."""

    lake: Lake
    table: Table
    leases: Leases
    spark: Callable[[], SparkSession]
    clock: Clock
    progress: Progress
    strategy: WatermarkStrategy
    members: alignment.Members
    environment: Mapping[str, str] | None = None
    ready: set[Path] = field(default_factory=set)
    peers: Sequence[Table] = ()
    functions: Mapping[str, UserFunction] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        return self.lake.table_path(self.table.name)

    def advance(
        self,
        *,
        ends: Json | None = None,
        max_epochs: int | None = None,
        resnapshot: bool = False,
        on_epoch: OnEpoch | None = None,
    ) -> Advance:
        """Land epochs until the source's ends as of now (or `ends`), or `max_epochs` of them. `on_epoch` hears of each.

        An epoch that an earlier run left half done is finished first, from its stored plan. `resnapshot` starts a new
        generation; readers stay on the old one until the new one has flipped. It also ends where alignment holds every
        split back; what it landed then is all that may land until the group has caught up.
        Raises LeaseHeld, SourceError, LakeError, ConcurrentRun.
        """
        self.leases.acquire(self.table.name)
        newest = self.lake.epochs.last(self.table.name)
        generation = newest.generation if newest else 1
        if resnapshot and newest is not None:
            generation += 1
        epochs: list[LandedEpoch] = []

        def land(planned: StoredStep) -> None:
            epochs.append(self._land(source, context, planned))
            if on_epoch is not None:
                on_epoch(epochs[-1])

        mask = Mask.of([self.table, *self.peers], self.environment)
        with mask.over(), self._open(generation) as (source, context):
            self._refresh(context)
            unfinished = self._unfinished(context)
            if unfinished is not None:
                land(unfinished)
            else:
                source.preflight()
            limit = source.ends() if ends is None else ends
            while max_epochs is None or len(epochs) < max_epochs:
                planned = self._plan(source, context, limit)
                if planned is None:
                    break
                land(planned)
            aligned = self._aligned(generation)
        return Advance(self.table.name, generation, tuple(epochs), self._last(generation), aligned, limit)

    def draft(self, *, resnapshot: bool = False) -> SourceDraft:
        """What `advance` would land first, as of now; stores nothing, and asks for no lease. Raises SourceError."""
        newest = self.lake.epochs.last(self.table.name)
        generation = (newest.generation if newest else 1) + (resnapshot and newest is not None)
        name, mask = self.table.name, Mask.of([self.table, *self.peers], self.environment)
        with mask.over(), self._open(generation, DraftSplits) as (source, context):
            self._refresh(context)
            unfinished = self._unfinished(context)
            if unfinished is not None:
                return SourceDraft(name, generation, unfinished.epoch, unfinished.step, True)
            source.preflight()
            step = self._drafted(source, context, source.ends(), self.clock())
            return SourceDraft(name, generation, context.previous.epoch + 1 if context.previous else 1, step)

    @contextmanager
    def _open(
        self, generation: int, kept: Callable[[SplitStore], SplitStore] = lambda stored: stored
    ) -> Iterator[tuple[Source, SourceContext]]:
        found = connector(self.table.connector)
        options = resolve_options(self.table, found.spec, self.environment, defaults=False)
        context = SourceContext(
            table=as_delivered(self.table),
            options=options,
            generation=generation,
            splits=kept(Splits(self.lake, self.table.name, generation)),
            scratch=str(self.lake.scratch(self.table.name)),
            clock=self.clock,
            lake=str(self.lake.root),
            peers=self.peers,
            environment=self.environment,
            progress=self.progress,
            spark=self.spark,
            earlier_rows=self._earlier_rows,
        )
        source = found.source(context)
        try:
            yield source, context
        finally:
            source.close()

    def _last(self, generation: int) -> WatermarkRow | None:
        return self.lake.watermarks.last(self.table.name, generation)

    def _refresh(self, context: SourceContext) -> None:
        plans = self.lake.epochs.last(self.table.name, context.generation)
        first = self.lake.epochs.rows(self.table.name, generation=context.generation, epoch=1)
        landed = self._last(context.generation)
        context.previous = stored_step(plans) if plans else None
        context.first = stored_step(first[0]) if first else None
        context.flipped = landed is not None and landed.flip_epoch is not None
        if isinstance(context.splits, Splits):
            context.splits.epoch = plans.epoch if plans else 0

    def _unfinished(self, context: SourceContext) -> StoredStep | None:
        landed = self._last(context.generation)
        if context.previous is None or (landed and landed.epoch >= context.previous.epoch):
            return None
        return context.previous

    def _aligned(self, generation: int) -> alignment.GroupStanding | None:
        """Where this generation of the table stands in its group, by the watermark log as it is now."""
        if self.strategy.alignment is None:
            return None
        own = stored_splits(self._last(generation))
        return self._standing(self.strategy.alignment, self.clock(), own)

    def _standing(
        self,
        aligned: WatermarkAlignment,
        now: int,
        splits: Sequence[SplitWatermark],
        next_rowtimes: Mapping[str, int] | None = None,
    ) -> alignment.GroupStanding:
        generator = self.strategy.generator_factory()
        delay = generator.behind if isinstance(generator, SourceWatermarks) else 0
        return alignment.standing(self.members, self.table.name, aligned, now, splits, next_rowtimes, delay)

    def _hold_back(self, context: SourceContext) -> bool:
        """Tell the source which splits its group holds back; whether those are all that it has.

        A bounded phase is never held back, nor what has to be read before it is over: all that joins to the table
        waits for its flip.
        """
        context.blocked, context.ahead, context.limit, context.held = frozenset(), frozenset(), None, {}
        told = context.options.get(MAX_ROWS)
        context.max_rows = None if told is None else int(told)
        aligned = self._aligned(context.generation)
        if aligned is None or (not context.flipped and connector(self.table.connector).spec.phases(context.options)):
            return False
        context.blocked, context.limit, context.ahead = aligned.too_far, aligned.reach, frozenset(aligned.ahead)
        if context.max_rows is None and context.limit is not None:
            context.max_rows = ALIGNED_ROWS
        return bool(context.blocked) and context.blocked >= {
            split.split for split in counting(stored_splits(self._last(context.generation))) if not split.ended
        }

    def _drafted(self, source: Source, context: SourceContext, ends: Json, instant: int) -> Step | None:
        """The next step, which is not stored yet."""
        step = None if self._hold_back(context) else source.plan(ends, instant)
        step = step or self._quiet(context, instant)
        if step is None:
            return None
        told = alignment.next_rowtimes_of(self._last(context.generation))
        # Of a split that was not asked for, what was known of its next row still holds.
        known = {split: at for split, at in told.items() if split in context.blocked}
        return replace(step, blocked=_held_back(context), next_rowtimes={**known, **context.held})

    def _plan(self, source: Source, context: SourceContext, ends: Json) -> StoredStep | None:
        instant = self.clock()
        step = self._drafted(source, context, ends, instant)
        if step is None:
            return None
        epoch = context.previous.epoch + 1 if context.previous else 1
        row = source_row(self.table.name, context.generation, epoch, instant, step)
        application = self.lake.application(self.table.name, "plan", context.generation)
        with explained(self.table.name, f"generation {context.generation}, epoch {epoch}: {step.summary}", _UNPLANNED):
            stands = self.lake.epochs.settle(row, application=application)
        if stands is None or stands.digest != row.digest:
            raise ConcurrentRun(
                f"epoch {epoch} of {self.table.name} was planned by another runner",
                state="its plan stands, nothing was read by this run",
                next_command="tidegate status",
            )
        faults.point("source.planned", self.table.name)
        self._refresh(context)
        return stored_step(stands)

    def _quiet(self, context: SourceContext, instant: int) -> Step | None:
        """A step that reads nothing, where the log has to say something all the same: that the idle timeout of a split
        has passed, or that one stands at its limit, since its next row is too far ahead of the group."""
        last = self._last(context.generation)
        if context.previous is None or last is None:
            return None
        step = replace(context.previous.step, flips=False, quiet=True, blocked=_held_back(context))
        if context.held.keys() - alignment.next_rowtimes_of(last).keys():
            return replace(step, summary="no rows: at the limit of its group")
        if self.strategy.idle_timeout is None:
            return None
        step = replace(step, summary="no rows: idle")
        planned = StoredStep(step, context.generation, last.epoch + 1, instant)
        time = EpochTime(self.table, self.strategy, last, instant)
        before = {split.split: split.idle for split in stored_splits(last)}
        after = splits_after(time, planned, Landed(), (), SignalEmit(self.clock), instant)
        return step if any(split.idle and not before.get(split.split) for split in after) else None

    def _land(self, source: Source, context: SourceContext, stored: StoredStep) -> LandedEpoch:
        before = self._last(stored.generation)
        time = EpochTime(self.table, self.strategy, before, stored.planned_at)
        signal = SignalEmit(self.clock, before if time.processing_time else None)
        if stored.step.quiet:
            stands = Landed(position=before.position if before else "")
            return self._log(context, stored, watermark_row(time, stored, stands, 0, (), signal, self.clock()))
        spark = self.spark()
        name, generation, epoch = self.table.name, stored.generation, stored.epoch
        if self.path not in self.ready:
            lake_rows.ensure_table(self.path, lake_rows.stored_columns(self.table), name)
            self.ready.add(self.path)
        register(spark, functions_of(self.table, self.functions))
        application = self.lake.application(name, "data", generation)
        signal.offer(source)
        rejected = Rejected(self.lake, self.table, stored)
        with self._reading(source, stored, time.expression):
            if time.processing_time:
                signal.before_first_record()
            if committed(self.path, application) < epoch:
                written = self._written_by(source, spark, stored, time, application)
                if written is None:
                    observed = Observation(f"landed {name} {generation} {epoch}")
                    rows = self._computed(rejected.apart(source.read(spark, stored)), stored)
                    seen, counted = time.counted(rows.withColumn("_instant", plan_instant(stored)))
                    seen = seen.observe(observed, *map(F.expr, TALLY), *counted)
                    seen = seen.select(*map(lake_rows.quoted, rows.columns))
                    folder = lake_rows.write(
                        seen, self.path, application=application, generation=generation, epoch=epoch
                    )
                    footers = footers_of(folder)
                    tally = {**observed.get, **splits_of_files(footers.values())}
                    kept_out = rejected.keep(lambda: source.read(spark, stored))
                else:
                    folder, footers = written
                    tally = {"rows": sum(footer.num_rows for footer in footers.values()), "truncates": 0}
                    kept_out = None
                faults.point("source.written", self.table.name)
                adopt(self.path, folder, surveyed(folder, footers), application=application, epoch=epoch)
                faults.point("source.appended", self.table.name)
            else:
                kept_out = rejected.kept(spark)
                rows, counted = time.counted(self._epoch_rows(spark, stored))
                tally = rows.agg(*map(F.expr, TALLY), *counted, *splits_of_rows()).collect()[0].asDict()
            count = int(tally["rows"])
            epoch_rows = self._epoch_rows(spark, stored) if count else None
            landed = time.heard(source.landed(stored, epoch_rows))
        faults.point("source.landed", self.table.name)
        with self._reading(source, stored, time.expression):
            passes = time.passes(epoch_rows, tally, stored, told=landed.watermarks is not None)
        row = replace(watermark_row(time, stored, landed, count, passes, signal, self.clock()), rejected=kept_out)
        if tally["truncates"] or (before and before.truncated):
            row = replace(row, truncated=True)
        return self._log(context, stored, row)

    def _written_by(
        self, source: Source, spark: SparkSession, stored: StoredStep, time: EpochTime, application: str
    ) -> Written | None:
        """The files of a step that its source writes itself; None where it does not, or where Spark has to look at
        each row: to compute a column of it, or its watermark."""
        columns = self.table.stored_columns
        computed = any(column.expression is not None or column.delivered is not None for column in columns)
        if computed or not time.processing_time or not isinstance(source, WritesFiles):
            return None
        folder = lake_rows.folder_of(
            self.path, application=application, generation=stored.generation, epoch=stored.epoch
        )
        folder.mkdir()
        names: Sequence[str] | None = ()
        try:
            names = source.write(spark, stored, str(folder))
        finally:
            if not names:  # what other tasks had written when one failed goes too
                shutil.rmtree(folder, ignore_errors=True)
        return None if names is None else (folder, {name: pq.read_metadata(folder / name) for name in names})

    def _log(self, context: SourceContext, step: StoredStep, row: WatermarkRow) -> LandedEpoch:
        """Write the epoch's row of the watermark log: from here on it has landed."""
        if self.strategy.alignment is not None:
            timeout = self.strategy.idle_timeout
            splits = stored_splits(row)
            told = step.step.next_rowtimes
            stands = self._standing(self.strategy.alignment, row.landed_at, splits, told)
            idle = None if timeout is None else milliseconds(timeout, "the idle timeout")
            row = replace(row, alignment=stands.to_log(idle, told))
        watermark = self.lake.application(row.owner, "watermark", row.generation)
        with explained(row.owner, _place(step), _UNLOGGED):
            self.lake.watermarks.append([row], application=watermark, version=row.epoch)
        faults.point("source.watermarked", self.table.name)
        self._refresh(context)
        flipped = row.flip_epoch == row.epoch
        return LandedEpoch(row.generation, row.epoch, row.rows, step.step.phase, step.step.summary, flipped)

    def _epoch_rows(self, spark: SparkSession, stored: StoredStep) -> DataFrame:
        """The committed rows of a step, with the plan's instant for a watermark that names it."""
        rows = lake_rows.between(spark, self.path, stored.generation, stored.epoch - 1, stored.epoch)
        return rows.withColumn("_instant", plan_instant(stored))

    def _earlier_rows(self, step: StoredStep) -> DataFrame:
        return lake_rows.between(self.spark(), self.path, step.generation, -1, step.epoch - 1)

    def _computed(self, rows: DataFrame, stored: StoredStep) -> DataFrame:
        """The source's rows with the table's computed columns, in stored order."""
        columns = [
            F.expr(column.expression).cast(column.spark_type).alias(column.name)
            if column.expression is not None
            else F.col(lake_rows.quoted(column.name)).cast(column.spark_type).alias(column.name)
            for column in self.table.stored_columns
        ]
        rows = as_declared(rows, self.table).withColumn("_instant", plan_instant(stored))
        seen = rows.select(*(name for name in lake_rows.LAKE_COLUMNS if name in rows.columns), *columns)
        if self.table.watermark is not None:
            path = ".".join(lake_rows.quoted(name) for name in self.table.watermark.path)
            # What a delete carries is the row before it; a version ends when its delete was made, not when it began.
            ends = "IF(_op IN ('d', 't'), greatest({0}, _rowtime), {0})".format(f"CAST({path} AS TIMESTAMP)")
            seen = seen.withColumn("_rowtime", F.expr(ends))
        return seen

    @contextmanager
    def _reading(self, source: Source, stored: StoredStep, watermark: str | None) -> Iterator[None]:
        """Give what Spark, Delta Lake and the disk throw the table, the expression, the step and the state."""
        try:
            yield
        except TidegateError:
            raise
        except ENGINE as error:
            raise self._explained(error, source, stored, watermark) from error

    def _explained(
        self, error: BaseException, source: Source, stored: StoredStep, watermark: str | None
    ) -> TidegateError:
        place = _place(stored)
        what, where, mend = first_line(error), place, "mend the cause"
        told, failed = failure(error), failed_expression(error, self.table, watermark)
        if told is not None:
            what, mend = told, "mend the function"
        elif failed is not None:
            what, where = f"{failed.name} failed: {what}", f"{failed.sql}; {place}"
            mend = "mend the expression (TRY_CAST gives NULL where CAST fails), or the source's row"
        elif isinstance(source, ExplainsFailures) and (explained := source.explain(error, stored)) is not None:
            return explained
        application = self.lake.application(self.table.name, "data", stored.generation)
        return SourceError(
            f"{self.table.name}: {what}",
            where=where,
            state=_UNLOGGED if committed(self.path, application) >= stored.epoch else _UNREAD,
            next_command=f"{mend}, then run the same command again: it goes on at this epoch",
        )


def _held_back(context: SourceContext) -> tuple[str, ...]:
    """The splits that alignment lets have no row, or none past their limit."""
    return tuple(sorted(context.blocked | context.held.keys()))


def _place(stored: StoredStep) -> str:
    return f"generation {stored.generation}, epoch {stored.epoch}: {stored.step.summary}"
