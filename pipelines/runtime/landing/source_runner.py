"""Advance one source table: plan a step, append its rows, write its watermark-log row. Each is done once, whatever
crashes.

An advance runs alone, by Spark jobs of its own, or with the others of a tick by one Spark job.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial

from pyspark.sql import DataFrame, SparkSession

from tidegate.pipelines.clock import Clock
from tidegate.pipelines.connectors.protocol import (
    Json,
    Landed,
    ShowsFields,
    Source,
    SourceContext,
    SplitStore,
    StoredStep,
    asks_rows,
)
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import TidegateError
from tidegate.pipelines.functions import UserFunction
from tidegate.pipelines.lake import Lake, WatermarkRow
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.lake.leases import Leases
from tidegate.pipelines.lake.stream import Generation, Stream
from tidegate.pipelines.location import Location
from tidegate.pipelines.progress import Progress
from tidegate.pipelines.runtime import faults
from tidegate.pipelines.runtime.called import register
from tidegate.pipelines.runtime.definitions import Definitions
from tidegate.pipelines.runtime.failures import ENGINE, explained, first_line
from tidegate.pipelines.runtime.indexes import latest_rows
from tidegate.pipelines.runtime.landing.advances import Advance, LandedEpoch, OnEpoch, SourceDraft
from tidegate.pipelines.runtime.landing.alignment import Members
from tidegate.pipelines.runtime.landing.computed import committed_rows, functions_of
from tidegate.pipelines.runtime.landing.failures import UNLOGGED, own_way_out, reading, refuse_second_release
from tidegate.pipelines.runtime.landing.planning import EpochPlanner, next_epoch
from tidegate.pipelines.runtime.landing.writing import Counted, EpochWriter, Writing, Written, together
from tidegate.pipelines.runtime.lost_commits import refuse_lost_source
from tidegate.pipelines.runtime.missing_fields import MissingFields, all_null, missing
from tidegate.pipelines.runtime.opening import Mask, context_of, opened, position_of, unfinished
from tidegate.pipelines.runtime.splits import DraftSplits
from tidegate.pipelines.runtime.watermark_log import EpochTime, SignalEmit, watermark_row
from tidegate.pipelines.syntax.types import quoted
from tidegate.pipelines.watermarks import WatermarkStrategy

log = logging.getLogger(__name__)

Steps = Generator[EpochWriter, Writing, Advance]
"""`SourceRunner.steps`."""


def alone(steps: Steps, writer: EpochWriter | None = None, writing: Writing | None = None) -> Advance:
    """Run one advance to its end. `writer`: where it has stopped, if it has begun; what is written there is written by
    `writing`, everything after it by Spark. Raises what the advance raises."""
    try:
        writer = writer or next(steps)
        while True:
            writer, writing = steps.send(writing or writer.by_spark), None
    except StopIteration as ended:
        return ended.value


def one_job(advances: Iterable[tuple[str, Callable[[], Steps]]]) -> dict[str, Advance | TidegateError]:
    """Run the advances of several tables, one step each. One Spark job writes their rows, except those that must be
    written alone (`EpochWriter.alone`), which are written in their turn. Returns each table's result or error; one that
    fails stops no other. If the common job fails, each step is written by a job of its own, which shows which table
    failed, and why."""
    done: dict[str, Advance | TidegateError] = {}
    waiting: dict[str, tuple[Steps, EpochWriter]] = {}
    with ExitStack() as begun:
        for name, begin in advances:
            try:
                steps = begin()
                begun.callback(steps.close)
                writer = next(steps)
                if writer.alone:
                    done[name] = alone(steps, writer)
                else:
                    waiting[name] = steps, writer
            except StopIteration as ended:
                done[name] = ended.value
            except TidegateError as error:
                done[name] = error
        writings = _written([writer for _, writer in waiting.values()])
        for (name, (steps, writer)), writing in zip(waiting.items(), writings, strict=True):
            try:
                done[name] = alone(steps, writer, writing)
            except TidegateError as error:
                done[name] = error
    return done


def _written(writers: list[EpochWriter]) -> list[Writing]:
    """How the rows of each writer get written: they are already, unless the common job failed."""
    try:
        return [partial(_as_it_is, written) for written in together(writers)] if writers else []
    except (TidegateError, *ENGINE) as error:
        names = ", ".join(writer.table.name for writer in writers)
        log.warning("%s cannot be written together, so each is alone: %s", names, first_line(error))
        return [writer.by_spark for writer in writers]


def _as_it_is(written: Written) -> Written:
    return written


@dataclass
class SourceRunner:
    """The runner of one source table. Holds its lease while it works."""

    lake: Lake
    table: Table
    leases: Leases
    spark: Callable[[], SparkSession]
    clock: Clock
    progress: Progress
    strategy: WatermarkStrategy
    members: Members
    environment: Mapping[str, str] | None = field(default=None, repr=False)
    ready: set[Location] = field(default_factory=set)
    peers: Sequence[Table] = ()
    functions: Mapping[str, UserFunction] = field(default_factory=dict)
    definitions: Definitions | None = None

    @cached_property
    def stream(self) -> Stream:
        return Stream(self.lake, self.table.name)

    @cached_property
    def planner(self) -> EpochPlanner:
        number = partial(self.definitions.number, self.table.name) if self.definitions else None
        return EpochPlanner(self.stream, self.table, self.members, self.strategy, self.clock, number)

    def steps(
        self,
        *,
        ends: Json | None = None,
        max_epochs: int | None = None,
        resnapshot: bool = False,
        on_epoch: OnEpoch | None = None,
    ) -> Steps:
        """An advance: land epochs until the source's ends as of now (or `ends`), or `max_epochs` of them. `on_epoch` is
        called after each. An epoch that an earlier run left half done is finished first, from its stored plan.
        `resnapshot` starts a new generation; readers stay on the old one until the new one has flipped. An advance also
        ends where alignment holds every split back: no more may land until the group has caught up.

        It is a generator. Where the rows of a step are to be written it yields their writer, and its driver (`alone`,
        `one_job`) sends back how (`EpochWriter.commit`). Closing it instead leaves everything as a crash would.

        Raises LeaseHeld, SourceError, LakeError, ConcurrentRun; PlanningError where a new generation would publish rows
        a second time.
        """
        self.leases.acquire(self.table.name)
        if resnapshot:
            refuse_second_release(self.lake, self.table.name)
        if self.definitions is not None:
            resnapshot = self.definitions.take_up(self.table.name, resnapshot=resnapshot)
        generation = self._generation(resnapshot)
        epochs: list[LandedEpoch] = []

        def land(planned: StoredStep) -> Generator[EpochWriter, Writing, None]:
            epochs.append((yield from self._land(source, planned)))
            if on_epoch is not None:
                on_epoch(epochs[-1])

        with self.leases.named(self.table.name), self.opened(generation) as (source, context):
            position = position_of(context, self.lake)
            left_over = unfinished(position, self.stream.generation(generation).last)
            if left_over is not None:
                yield from land(left_over)
                position = position_of(context, self.lake)
            else:
                source.preflight(position)
            limit = source.ends(position) if ends is None else ends
            while max_epochs is None or len(epochs) < max_epochs:
                planned = self.planner.plan(source, context, position, limit)
                if planned is None:
                    break
                yield from land(planned)
                position = position_of(context, self.lake)
            aligned = self.planner.now(generation)
        return Advance(
            self.table.name, generation, tuple(epochs), self.stream.generation(generation).last, aligned, limit
        )

    def draft(self, *, resnapshot: bool = False) -> SourceDraft:
        """What an advance would land first, as of now; stores nothing, and takes no lease. Raises SourceError, and
        PlanningError as `steps` does."""
        if resnapshot:
            refuse_second_release(self.lake, self.table.name)
        name = self.table.name
        anew = self.definitions is not None and self.definitions.begins_anew(name)
        generation = self._generation(resnapshot or anew)
        with self.opened(generation, DraftSplits) as (source, context):
            position = position_of(context, self.lake)
            left_over = unfinished(position, self.stream.generation(generation).last)
            if left_over is not None:
                return SourceDraft(name, generation, left_over.epoch, left_over.step, True)
            source.preflight(position)
            step = self.planner.draft(source, context, position, source.ends(position), self.clock())
            return SourceDraft(name, generation, next_epoch(position), step)

    def _generation(self, resnapshot: bool) -> int:
        newest = self.lake.epochs.last(self.table.name)
        if newest is None:
            return 1
        return newest.generation + 1 if resnapshot else newest.generation

    @contextmanager
    def opened(
        self, generation: int, wrapped: Callable[[SplitStore], SplitStore] = lambda stored: stored
    ) -> Iterator[tuple[Source, SourceContext]]:
        """The source and its context; errors raised meanwhile show no secret."""
        masked = Mask.of([self.table, *self.peers], self.environment).over()
        with masked, own_way_out(self.lake, self.table.name):
            refuse_lost_source(self.lake, self.table.name, generation)
            context = context_of(self.lake, self.table, generation, self.environment, self.clock, self.progress)
            context = replace(
                context,
                splits=wrapped(context.splits),
                peers=self.peers,
                spark=self.spark,
                earlier_rows=lambda step: self.stream.generation(step.generation).at(self.spark(), step.epoch - 1),
                latest_rows=lambda step, keys: latest_rows(self.lake, self.table, self.spark(), step, keys),
            )
            with opened(context) as source:
                yield source, context

    def _land(self, source: Source, stored: StoredStep) -> Generator[EpochWriter, Writing, LandedEpoch]:
        own = self.stream.generation(stored.generation)
        before = own.last
        time = EpochTime(self.table, self.strategy, before, stored.planned_at)
        signal = SignalEmit(self.clock, before if time.processing_time else None)
        if stored.step.quiet:
            landed = Landed(position=before.position if before else "")
            quiet = watermark_row(time, stored, landed, 0, (), signal, self.clock())
            return self._log(stored, replace(quiet, missing=before.missing if before else None))
        spark = self.spark()
        self._prepare(spark)
        signal.offer(source)
        with reading(own, self.table, source, stored, time.expression):
            if time.processing_time:
                signal.before_first_record()
            aligned = self.strategy.alignment is not None
            counted = yield from EpochWriter(own, self.table, stored, time, spark, source, aligned).commit()
            rows = cache(lambda: committed_rows(own, spark, stored) if counted.rows else None)
            landed = time.with_own_watermarks(source.landed(stored, rows() if asks_rows(source) else None))
        faults.point("source.landed", self.table.name)
        with reading(own, self.table, source, stored, time.expression):
            missing = self._missing(own, source, stored, counted, rows)
            emitted = landed.watermarks is not None
            passes = time.passes(rows, counted.tally, stored, emitted=emitted)
        row = watermark_row(time, stored, landed, counted.rows, passes, signal, self.clock())
        row = replace(row, rejected=counted.rejected, missing=missing.to_json() if missing else None)
        if counted.tally["truncates"]:
            row = replace(row, truncated=True)
        done = self._log(stored, row)
        if missing is not None and MissingFields.of(before) is None and self.definitions is not None:
            self.definitions.say(missing.sentence(self.table.name))
        return done

    def _missing(
        self,
        own: Generation,
        source: Source,
        stored: StoredStep,
        counted: Counted,
        rows: Callable[[], DataFrame | None],
    ) -> MissingFields | None:
        """What is missing once the epoch has landed."""
        before, first = MissingFields.of(own.last), own.sums().rows == 0
        if not counted.rows or (before is None and not first):
            return before
        if first and not isinstance(source, ShowsFields):
            return None
        names = list(before.columns) if before else [column.name for column in self.table.message_columns]
        frame = rows() if counted.files is None else None
        if counted.files is not None:
            null = all_null([file.footer() for file in counted.files], names)
        else:
            seen = frame.selectExpr(*(f"count({quoted(name)}) AS {quoted(name)}" for name in names)) if frame else None
            null = {name for name, number in (seen.collect()[0].asDict() if seen else {}).items() if not number}
        return missing(before, null, self.table, source, self.spark(), stored, first=first)

    def _prepare(self, spark: SparkSession) -> None:
        """Make the table, or check that it is as declared; register the functions of its columns in Spark."""
        if self.stream.path not in self.ready:
            added = self.definitions.added(self.table.name) if self.definitions else ()
            columns = lake_rows.stored_columns(self.table)
            anew = self.definitions is not None and self.definitions.never_landed(self.table.name)
            lake_rows.ensure_table(self.stream.path, columns, self.table.name, whole=True, added=added, anew=anew)
            self.ready.add(self.stream.path)
        register(spark, functions_of(self.table, self.functions))

    def _log(self, stored: StoredStep, row: WatermarkRow) -> LandedEpoch:
        """Write the epoch's row of the watermark log: from here on it has landed."""
        row = self.planner.logged(row, stored.step.next_rowtimes)
        with explained(row.owner, stored.place, UNLOGGED):
            self.stream.generation(row.generation).log_epoch(row)
        faults.point("source.watermarked", self.table.name)
        flipped = row.flip_epoch == row.epoch
        return LandedEpoch(row.generation, row.epoch, row.rows, stored.step.phase, stored.step.summary, flipped)
