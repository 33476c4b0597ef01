"""A pipeline on a lake: what the CLI, the continuous mode, Dagster and the harness all call.

A run advances every source to its end as of the run's start, then takes every INSERT through stage, judge and publish.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property, partial
from types import TracebackType
from typing import Self

from deltalake.exceptions import DeltaError
from pyspark.sql import SparkSession

from tidegate.pipelines.clock import Clock, system_clock
from tidegate.pipelines.connectors.options import OnUnmatched
from tidegate.pipelines.connectors.protocol import Json
from tidegate.pipelines.errors import ConcurrentRun, GateHeld, LakeError, LeaseHeld, PlanningError, TidegateError
from tidegate.pipelines.lake import Lake, StagedRow, StuckRow
from tidegate.pipelines.lake.leases import Reservation
from tidegate.pipelines.location import Location
from tidegate.pipelines.progress import Progress, SilentProgress
from tidegate.pipelines.runtime import completeness
from tidegate.pipelines.runtime.definitions import Definitions
from tidegate.pipelines.runtime.epochs import Asked, ReleasePlan, Span, insert_owner, union
from tidegate.pipelines.runtime.epochs.position import End, Waiting, gate_held
from tidegate.pipelines.runtime.failures import Failed
from tidegate.pipelines.runtime.gate import Gate, GateVerdict, installed_gate, prepare
from tidegate.pipelines.runtime.landing.advances import Advance, LandedEpoch, OnEpoch
from tidegate.pipelines.runtime.landing.alignment import Members
from tidegate.pipelines.runtime.landing.source_runner import SourceRunner, Steps, alone, one_job
from tidegate.pipelines.runtime.maintenance import KEEP, Maintenance
from tidegate.pipelines.runtime.processes.process_runner import ProcessRunner
from tidegate.pipelines.runtime.releasing.insert_runner import InsertRunner, Published
from tidegate.pipelines.runtime.releasing.join_runner import JoinRunner
from tidegate.pipelines.runtime.session import start_session
from tidegate.pipelines.runtime.watermark_log import strategy_of
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.sql.model import ProcessInsert
from tidegate.pipelines.watermarks import MAX_TIMESTAMP, MIN_TIMESTAMP, WatermarkStrategy

log = logging.getLogger(__name__)

NO_FAILURE = (GateHeld, LeaseHeld, ConcurrentRun)
"""Errors that leave nothing stuck: a person decides, or another runner goes on."""

LONG_RUN_S, SHARE_OF_UPKEEP = 60.0, 0.1
"""A run that took longer than the first does upkeep at its end, for at most this share of its time."""


@dataclass(frozen=True)
class Released:
    """The result of one INSERT in a run: its `published` epochs, or why it waits."""

    insert: str
    published: tuple[Published, ...] = ()
    waiting: Waiting | None = None


@dataclass(frozen=True)
class RunReport:
    """One run: how far each source came, what each INSERT released, and which changes of the script were taken up."""

    advances: tuple[Advance, ...] = ()
    releases: tuple[Released, ...] = ()
    changes: tuple[str, ...] = ()

    @property
    def moved(self) -> bool:
        """Whether anything landed or was published."""
        return any(advance.epochs for advance in self.advances) or any(item.published for item in self.releases)


@dataclass
class Runner:
    """Runs a pipeline on a lake. Leases that it takes are held until `close`.

    Args:
        pipeline: The result of compile_script.
        lake: Where its state lies.
        spark: Gives the session; called only when data must move.
        clock: ms, UTC.
        label: Who this is, as shown to another runner that finds the lease held.
        gate: The checks; the installed gate when None.
        environment: Where `${VAR}` of options is looked up.
        auto_watermark_interval: Flink's `pipeline.auto-watermark-interval`: 0 is punctuated, a watermark after every
            row. Otherwise one is emitted at the end of every epoch, however long the interval. None: what the script
            has SET.
        say: Gets a line for each change of the script that is taken up.
        reservation: The run that this is a step of; leases that `hand_on` leaves to it can be taken only by its other
            steps.

    Whatever plans or writes first compares the script with the lake's definitions: raises DefinitionChanged.
    """

    pipeline: Pipeline
    lake: Lake
    spark: Callable[[], SparkSession] | None = None
    clock: Clock = system_clock
    progress: Progress = field(default_factory=SilentProgress)
    label: str = "tidegate"
    gate: Gate | None = None
    environment: Mapping[str, str] | None = None
    auto_watermark_interval: timedelta | None = None
    say: Callable[[str], None] = lambda line: None
    reservation: Reservation | None = None

    def __post_init__(self) -> None:
        self.leases = self.lake.leases(self.label, reservation=self.reservation)
        self._ready: set[Location] = set()
        self.notes: list[str] = []
        self._moved: set[str] = set()
        self._will_judge = False
        self.stores_failures = True
        self._refusal: TidegateError | None = None
        self.definitions = Definitions(self.lake, self.pipeline, self._environment, self.clock, self._say)
        self.pipeline = self.definitions.pipeline

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release every lease, after updating what readers of the lake see of its progress."""
        self.show_completeness()
        self.leases.close()

    def show_completeness(self) -> None:
        """Update `<lake>/completeness`, if anything may have moved since the last time."""
        if self._moved:
            moved, self._moved = self._moved, set()
            completeness.publish(self.lake, self.pipeline, self.clock, moved)

    def hand_on(self, insert: str) -> None:
        """Leave the lease of an INSERT to the next step of this reservation, and to nobody else."""
        self.leases.hand_on(self._owner(insert))

    def session(self) -> SparkSession:
        """The Spark session, started at the first call. The gate of a run is imported meanwhile."""
        if self._will_judge:
            self._will_judge = False
            with suppress(TidegateError, ImportError, AttributeError):  # the step that asks a gate says what it lacks
                prepare(self._gate)
        return self.spark() if self.spark else start_session(progress=self.progress)

    def stuck(self, owner: str, error: TidegateError) -> None:
        """Store why a step of a table or an INSERT (`insert_owner`) failed, or was refused before it began. Alerts and
        `tidegate status` show it until a step of it works. Nothing is stored where no lake was ever made, nor if the
        last row says the same. If the lake cannot be written, that is only logged, so that `error` is still raised."""
        try:
            if Lake.found(self.lake.root) is None:
                return
            last, now = self.lake.stuck.last(owner), self.clock()
            before = last if last and not last.over else None
            row = StuckRow(
                owner, 1, last.epoch + 1 if last else 1, now, before.since if before else now, False,
                type(error).__name__, error.what, error.where, error.advice.stored(),
                isinstance(error, PlanningError), self.reservation.label if self.reservation else self.label,
            )  # fmt: skip
            if before is None or (before.what, before.by) != (row.what, row.by):
                self._store_stuck(row)
        except (DeltaError, OSError, LakeError) as unwritten:
            log.warning("%s is stuck, which could not be stored for alerts: %s", owner, unwritten)
        self._stuck.add(owner)

    @contextmanager
    def _step(self, owner: str) -> Iterator[None]:
        """Store why the step of `owner` in the block fails, unless that is a refusal which is stored already."""
        try:
            yield
        except NO_FAILURE:
            raise
        except TidegateError as error:
            if self.stores_failures and error is not self._refusal:
                self.stuck(owner, error)
            raise

    def _require(self, resnapshot: Collection[str], owner: str | None = None) -> None:
        """`definitions.require`. A refusal is stored once: for an owner that differs, else one that the lake has."""
        try:
            self.definitions.require(resnapshot, owner)
        except PlanningError as error:
            self._refusal = error
            owners = [table.name for table in self.pipeline.sources]
            owners += [insert_owner(insert.id) for insert in self.pipeline.inserts]
            named = [item.owner for item in getattr(error, "differences", ()) if item.owner in owners]
            with suppress(DeltaError, OSError, LakeError):
                named += [owner for owner in owners if self.lake.epochs.last(owner)]
            self.stuck([*named, *owners][0], error)
            raise

    def _works(self, owner: str) -> None:
        """A step of `owner` worked: it is not stuck any more."""
        if owner not in self._stuck:
            return
        self._stuck.discard(owner)
        last, now = self.lake.stuck.last(owner), self.clock()
        if last is not None and not last.over:
            row = StuckRow(owner, 1, last.epoch + 1, now, last.since, True)
            self._store_stuck(row)

    def _store_stuck(self, row: StuckRow) -> None:
        application = self.lake.application(row.owner, "stuck", 1)
        self.lake.stuck.append([row], application=application, version=row.epoch, guarded=False)

    @cached_property
    def _stuck(self) -> set[str]:
        """The owners that an earlier runner has left stuck, plus those stuck since."""
        rows = [self.lake.stuck.last(owner) for owner in self.lake.stuck.owners()]
        return {row.owner for row in rows if row is not None and not row.over}

    def _begin(self, owner: str, resnapshot: Collection[str] = ()) -> None:
        """Called before anything that may move `owner`. Raises DefinitionChanged if the script differs from the lake's
        definitions."""
        self._require(resnapshot, owner)
        self._moved.add(owner)

    def _owner(self, insert: str) -> str:
        """The owner of the generation of an INSERT that this runner works on."""
        return insert_owner(self.pipeline.insert(insert).id)

    def _say(self, line: str) -> None:
        self.notes.append(line)
        self.say(line)

    # --- sources -------------------------------------------------------------------------------------------------

    def landing(self, table: str) -> SourceRunner:
        """The runner of one source table."""
        return SourceRunner(
            lake=self.lake,
            table=self.pipeline.table(table),
            strategy=self.strategy(table),
            members=Members(self.lake, self._groups),
            leases=self.leases,
            spark=self.session,
            clock=self.clock,
            progress=self.progress,
            environment=self._environment,
            ready=self._ready,
            peers=self.pipeline.sources,
            functions=self.pipeline.functions,
            definitions=self.definitions,
        )

    @property
    def _environment(self) -> Mapping[str, str]:
        return os.environ if self.environment is None else self.environment

    def strategy(self, table: str) -> WatermarkStrategy:
        """The watermark strategy of one source table."""
        return strategy_of(self.pipeline, self.pipeline.table(table), self._environment, self.auto_watermark_interval)

    @cached_property
    def _groups(self) -> dict[str, str | None]:
        """The alignment group of every source table; None for one that is in none."""
        found = {table.name: self.strategy(table.name).alignment for table in self.pipeline.sources}
        return {name: alignment.group if alignment else None for name, alignment in found.items()}

    def advance(
        self,
        table: str,
        *,
        ends: Json | None = None,
        max_epochs: int | None = None,
        resnapshot: bool = False,
        on_epoch: OnEpoch | None = None,
    ) -> Advance:
        """Land what the source table has now; `on_epoch` is called with each epoch. Raises LeaseHeld, SourceError,
        LakeError, ConcurrentRun."""
        with self._step(table):
            self._begin(table, [table] if resnapshot else ())
            landing = self.landing(table)
            done = alone(landing.steps(ends=ends, max_epochs=max_epochs, resnapshot=resnapshot, on_epoch=on_epoch))
        self._works(table)
        return done

    def advance_together(self, tables: Iterable[str]) -> dict[str, Advance | TidegateError]:
        """A tick: land at most one epoch of each source table, by one Spark job as far as possible (`one_job`). Returns
        each one's result, in the order in which they landed; one that fails stops no other."""
        done = one_job((table, partial(self._tick_of, table)) for table in tables)
        for table, found in done.items():
            if isinstance(found, Advance):
                self._works(table)
        return done

    def _tick_of(self, table: str) -> Steps:
        self._begin(table)
        return self.landing(table).steps(max_epochs=1)

    # --- inserts -------------------------------------------------------------------------------------------------

    def releasing(self, insert: str, until: int | None = None) -> InsertRunner:
        """The runner of one INSERT, or of a process; its timers follow the clock no further than `until` (ms, UTC)."""
        found = self.pipeline.insert(insert)
        kind = partial(ProcessRunner, until=until) if isinstance(found, ProcessInsert) else JoinRunner
        return kind(
            lake=self.lake,
            pipeline=self.pipeline,
            insert=found,
            leases=self.leases,
            spark=self.session,
            clock=self.clock,
            progress=self.progress,
            ready=self._ready,
            environment=self._environment,
            definitions=self.definitions,
        )

    def held(self, insert: str) -> GateHeld | None:
        """What the gate holds of an INSERT; looked up without its lease."""
        held = self.releasing(insert).position().held
        return gate_held(self.pipeline.insert(insert), held.plan, held.verdict) if held else None

    def stage(self, insert: str, until: int | None = None) -> tuple[ReleasePlan, StagedRow] | Waiting:
        """Plan the next epoch of an INSERT (or take up the unfinished one) and stage it. Raises GateHeld."""
        with self._step(self._owner(insert)):
            self._begin(self._owner(insert))
            releasing = self.releasing(insert, until)
            plan = releasing.plan()
            if not isinstance(plan, Waiting):
                return plan, self._staged(releasing, plan)
        self._works(self._owner(insert))
        return plan

    def judge(self, insert: str) -> GateVerdict | None:
        """The verdict on the staged epoch; None when nothing is staged."""
        with self._step(self._owner(insert)):
            self._begin(self._owner(insert))
            return self.releasing(insert).judge(self._gate)

    def publish(self, insert: str) -> Published | None:
        """Publish the staged epoch that the gate let pass. Raises GateHeld."""
        with self._step(self._owner(insert)):
            self._begin(self._owner(insert))
            done = self.releasing(insert).publish()
        if done is not None:
            self._works(self._owner(insert))
        return done

    @property
    def _gate(self) -> Gate:
        return self.gate or installed_gate()

    def _staged(self, releasing: InsertRunner, plan: ReleasePlan) -> StagedRow:
        """Stage, while the gate is imported in the background, which takes seconds once a process."""
        prepare(self._gate)
        return releasing.stage(plan)

    def _through(self, releasing: InsertRunner, plan: ReleasePlan) -> list[Published]:
        """Stage, judge and publish a planned epoch; none where there was nothing to publish."""
        with self._step(plan.owner):
            self._staged(releasing, plan)
        self.judge(plan.insert)
        done = self.publish(plan.insert)
        return [] if done is None else [done]

    def release(self, insert: str) -> Released:
        """Stage, judge and publish until nothing of this INSERT is releasable, as of now: what becomes releasable
        meanwhile is left to the next call. Raises GateHeld."""
        epochs, published = self.epochs(insert), list[Published]()
        while True:
            try:
                published.append(next(epochs))
            except StopIteration as ended:
                return Released(insert, tuple(published), ended.value)

    def epochs(
        self, insert: str, end: End | None = None, on_verdict: Callable[[GateVerdict], None] = lambda verdict: None
    ) -> Generator[Published, None, Waiting | None]:
        """What `release` publishes, epoch by epoch; returns what the INSERT waits for. With an `end` it stops there, as
        others go on landing its inputs. `on_verdict` is called with each verdict. Raises GateHeld."""
        began = self.clock()
        while True:
            staged = self.stage(insert, began)
            if isinstance(staged, Waiting):
                return staged
            verdict = self.judge(insert)
            if verdict is not None:
                on_verdict(verdict)
            done = self.publish(insert)
            if done is not None:
                yield done
                if end is not None and end.reached(done.plan):
                    return None

    def backfill(self, insert: str, *spans: Span) -> Released:
        """Release the rows of `spans` (of all time, if there are none) of an event-time INSERT, in one epoch that
        replaces all that had released some of them. An unfinished epoch is finished first; if that was this very
        backfill, nothing else is done. Raises GateHeld, PlanningError."""
        spans = union(spans or [(MIN_TIMESTAMP, MAX_TIMESTAMP)])
        self._begin(self._owner(insert))
        releasing, published = self.releasing(insert), list[Published]()
        while True:
            plan = releasing.backfill(spans)
            if isinstance(plan, Waiting):
                return Released(insert, tuple(published), plan)
            published += self._through(releasing, plan)
            if plan.answers(Asked(spans)):
                return Released(insert, tuple(published))

    def filled(self, insert: str, spans: Sequence[Span], own: Span, since: int) -> ReleasePlan | None:
        """See `InsertRunner.filled`: whether another run of the same backfill has done the work already."""
        self._begin(self._owner(insert))
        return self.releasing(insert).filled(spans, own, since)

    def out_of_quarantine(
        self, insert: str, request: Asked, on_unmatched: OnUnmatched | None = None
    ) -> tuple[Published, ...]:
        """Take quarantined rows that nobody has taken: join them again as an ordinary epoch, at today's pins or (in
        event time) at their own times, or give them up. Rows without a match are quarantined again.

        An unfinished epoch is finished first; if that was this very request, nothing else is done. Publishes nothing if
        there is nothing to take. Raises GateHeld, PlanningError.
        """
        self._begin(self._owner(insert))
        releasing, published = self.releasing(insert), list[Published]()
        while (plan := releasing.out_of_quarantine(request, on_unmatched)) is not None:
            published += self._through(releasing, plan)
            if plan.answers(request):
                break
        return tuple(published)

    def resolve_held(
        self, insert: str, *, discard: bool = False, on_unmatched: OnUnmatched | None = None
    ) -> Published | None:
        """Take a held epoch through the gate again against newer pins, or quarantine its rows. Raises GateHeld if it is
        held again."""
        self._begin(self._owner(insert))
        releasing = self.releasing(insert)
        held = releasing.position().held
        plan = releasing.supersede("discard" if discard else "re-release", on_unmatched)
        if same := held and held.unchanged_in(plan):
            self._say(same)
        return next(iter(self._through(releasing, plan)), None)

    def advance_all(
        self,
        tables: Sequence[str],
        *,
        max_epochs: int | None = None,
        resnapshot: Collection[str] = (),
        on_epoch: Callable[[str, LandedEpoch], None] | None = None,
        failed: Failed | None = None,
    ) -> list[Advance]:
        """Land what these source tables have now, in order. Tables of an alignment group take turns, an epoch each,
        until none of them moves: what one may land depends on how far the others are.

        At most `max_epochs` of each table; those in `resnapshot` begin a new generation; `on_epoch` is called with each
        epoch and its table. Raises as `advance` does; if `failed` is given, the error of a source is stored there and
        the others go on.
        """
        self._require(resnapshot)
        done: dict[str, Advance] = {}
        callbacks = {name: partial(on_epoch, name) if on_epoch else None for name in tables}
        failed = Failed(raises=True) if failed is None else failed
        for name in tables:
            if self._groups[name] is None:
                with failed.taken(name):
                    done[name] = self.advance(
                        name, max_epochs=max_epochs, resnapshot=name in resnapshot, on_epoch=callbacks[name]
                    )
        turns = [name for name in tables if self._groups[name] is not None]
        moving = bool(turns)
        while moving:
            moving = False
            for name in turns:
                known = done.get(name)
                if name in failed:
                    continue
                if known is not None and max_epochs is not None and len(known.epochs) >= max_epochs:
                    continue
                ends, anew = known.ends if known else None, known is None and name in resnapshot
                with failed.taken(name):
                    turn = self.advance(name, ends=ends, max_epochs=1, resnapshot=anew, on_epoch=callbacks[name])
                    done[name] = turn if known is None else replace(turn, epochs=known.epochs + turn.epochs)
                    moving = moving or bool(turn.epochs)
        return [done[name] for name in tables if name not in failed]

    def maintenance(self, keep: timedelta = KEEP) -> Maintenance:
        """The upkeep of the pipeline's tables; VACUUM keeps what a version younger than `keep` names."""
        return Maintenance(
            self.lake,
            self.pipeline,
            self.leases,
            self.session,
            self.clock,
            self.progress,
            self._environment,
            keep,
            self.definitions,
        )

    # --- all of it -----------------------------------------------------------------------------------------------

    def run(
        self,
        tables: Iterable[str] | None = None,
        inserts: Iterable[str] | None = None,
        between: Sequence[Span] = (),
        resnapshot: Collection[str] = (),
        wait: float = 0.0,
    ) -> RunReport:
        """Advance the sources (builds first; those in `resnapshot` begin a new generation), then release the INSERTs;
        with `between`, only the rows of these spans of time (see `backfill`).

        Tables and INSERTs that other runners hold are waited for before anything is done, `wait` seconds in all.
        Raises the first error, at the end where it is a source's or a GateHeld: the other sources, and the INSERTs
        that read none that failed, have their turn.
        """
        self._require(resnapshot)
        noted, began = len(self.notes), time.monotonic()
        self.definitions.say_undeclared()
        self.definitions.leave_out(self.leases)
        names = [table.name for table in self.pipeline.sources] if tables is None else list(tables)
        chosen = [item.id for item in self.pipeline.inserts] if inserts is None else list(inserts)
        if wait:
            self.leases.wait_for([*names, *map(self._owner, chosen)], wait, self.progress)
        failed, self._will_judge = Failed(), bool(chosen)
        advances = self.advance_all(names, resnapshot=resnapshot, failed=failed)
        releases: list[Released] = []
        held: GateHeld | None = None
        for insert in chosen:
            if failed.stops(self.pipeline.insert(insert)):
                continue
            try:
                releases.append(self.backfill(insert, *between) if between else self.release(insert))
            except GateHeld as error:
                held = held or error
        if failed:
            raise failed.error()
        if held is not None:
            raise held
        if (took := time.monotonic() - began) > LONG_RUN_S:
            self.maintenance().upkeep().until(time.monotonic() + took * SHARE_OF_UPKEEP)
        return RunReport(tuple(advances), tuple(releases), tuple(self.notes[noted:]))
