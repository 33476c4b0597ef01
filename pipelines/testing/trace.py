"""A connector at work on a lake of its own: each step is planned, read and landed as in a run, and once more by a new
source, as after a crash. The result is data; `rules` judges it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tidegate.pipelines.clock import system_clock
from tidegate.pipelines.connectors.protocol import (
    Json,
    Landed,
    Source,
    SourceContext,
    SplitStore,
    Step,
    StoredStep,
    asks_rows,
)
from tidegate.pipelines.connectors.spec import SOURCE_COLUMNS, ConnectorSpec
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.progress import SilentProgress
from tidegate.pipelines.runtime import faults
from tidegate.pipelines.runtime.landing.alignment import Members
from tidegate.pipelines.runtime.landing.computed import committed_rows
from tidegate.pipelines.runtime.landing.source_runner import SourceRunner, alone
from tidegate.pipelines.runtime.opening import position_of
from tidegate.pipelines.runtime.splits import DraftSplits
from tidegate.pipelines.runtime.watermark_log import strategy_of
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.syntax.secrets import is_secret

GENERATION = 1

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Landing:
    """One call of `Source.landed`: what it returned, how often it let the watermark be emitted, and the rows of the
    `splits` table after it."""

    landed: Landed
    emits: int
    splits: Sequence[Json]


@dataclass
class StepSeen:
    """One step. What is None has not been seen, as the run stopped before.

    `drafted` was planned by a source made anew, just before `stored`, with all the same at hand. `schema` is name ->
    Spark type of what `read` gave; `rows` were read by the source that had planned, `reread` by one made anew, `later`
    by another after all that the test lets arrive, `committed` from the lake, where `write` may have put them.
    `landings`: after the commit, by two sources. `owned`: the source owns the emit of the watermark.
    """

    stored: StoredStep
    drafted: Step | None
    schema: Mapping[str, str] | None = None
    rows: Rows | None = None
    reread: Rows | None = None
    later: Rows | None = None
    committed: Rows | None = None
    landings: list[Landing] = field(default_factory=list)
    owned: bool = False


@dataclass
class Trace:
    """All that was seen of one table on one lake.

    `columns`: those that every row has to have, with Spark's spelling of their types. `fed`: whether anything was let
    arrive before. `live_snapshot`: as `connector_tests` takes it. `endless`: a run had `max_steps` steps. `overdue`: a
    step that was planned though nothing was left. `unlike`: what was planned and is not the same as JSON. `failure`:
    what stopped the run, and `doing` where.
    """

    table: Table
    spec: ConnectorSpec
    columns: Mapping[str, str]
    secrets: Mapping[str, str] = field(repr=False)
    fed: bool
    live_snapshot: bool
    steps: list[StepSeen] = field(default_factory=list)
    endless: bool = False
    overdue: Step | None = None
    unlike: Mapping[str, str] = field(default_factory=dict)
    failure: BaseException | None = None
    doing: str = ""


class _Crash(BaseException):
    """The process ends here; nothing of Tidegate's catches it."""


@dataclass
class Observer:
    """Watches one table of a pipeline on a lake in `directory`. The clock stands still but for `tick`."""

    pipeline: Pipeline
    table: Table
    spec: ConnectorSpec
    spark: SparkSession
    directory: Path
    environment: Mapping[str, str] = field(repr=False)
    fed: bool
    live_snapshot: bool
    max_steps: int

    def __post_init__(self) -> None:
        self.lake, self.now = Lake(self.directory), system_clock()
        self.trace = Trace(self.table, self.spec, self._columns(), self._secrets(), self.fed, self.live_snapshot)

    def _columns(self) -> dict[str, str]:
        delivered = {column.name: column.spark_type for column in self.table.delivered.physical_columns}
        wanted = lake_rows.struct_type({**SOURCE_COLUMNS, **delivered})
        return {field.name: field.dataType.simpleString() for field in wanted}

    def _secrets(self) -> dict[str, str]:
        """Option -> its value, of those that nobody may see."""
        options = self.table.options.resolve(self.environment, self.table.name)
        return {name: value for name, value in options.items() if value and is_secret(name)}

    def tick(self) -> None:
        self.now = max(system_clock(), self.now + 1000)

    def run(self) -> bool:
        """One run, to the ends as of now. Returns whether it got there; an error that stopped it is in the trace."""
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - shown by the suite, whatever it is
            self.trace.failure = error
        return not (self.trace.failure or self.trace.endless or self.trace.overdue or self.trace.unlike)

    def read_later(self) -> None:
        """Read every step again, as it is stored."""
        try:
            for seen in self.trace.steps:
                if seen.rows is not None and not (self.live_snapshot and seen.stored.step.phase == "bounded"):
                    self.trace.doing = f"read of {_name(seen.stored)} after all others have landed"
                    with self._opened() as (source, _):
                        seen.later = _rows(source.read(self.spark, seen.stored))
        except Exception as error:  # noqa: BLE001 - shown by the suite, whatever it is
            self.trace.failure = error

    # --- one run -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        trace, before = self.trace, len(self.trace.steps)
        with self._opened() as (source, context):
            trace.doing = "preflight"
            source.preflight(position_of(context, self.lake))
            trace.doing = "ends"
            ends = self._as_json("what `ends` returned", source.ends(position_of(context, self.lake)))
            while not trace.unlike and len(trace.steps) - before < self.max_steps:
                seen = self._planned(source, context, ends)
                if seen is None:
                    break
                trace.steps.append(seen)
                self._read(source, seen)
                self._landed(seen, ends)
        trace.endless = len(trace.steps) - before >= self.max_steps
        if not trace.unlike and not trace.endless:
            trace.doing = "plan with nothing left"
            with self._opened(DraftSplits) as (source, context):
                trace.overdue = self._draft(source, context, source.ends(position_of(context, self.lake)))

    def _as_json(self, what: str, value: Any) -> Any:
        """`value` as it is stored; None, and noted, where it comes back as another."""
        try:
            stored = json.loads(json.dumps(value, allow_nan=False))
        except (TypeError, ValueError) as error:
            self.trace.unlike = {what: str(error)}
            return None
        if stored != value:
            self.trace.unlike = {what: f"{value!r} comes back as {stored!r}"}
            return None
        return stored

    def _planned(self, source: Source, context: SourceContext, ends: Json) -> StepSeen | None:
        """The next step: drafted by a source made anew, then planned by `source`, which has planned the ones before,
        and stored."""
        self.trace.doing = f"plan after {len(self.trace.steps)} steps"
        with self._opened(DraftSplits) as (anew, own):
            drafted = self._draft(anew, own, ends)
        if drafted is not None and self._as_json("the step's `ranges`", drafted.ranges) is None:
            return None
        stored = self._runner().planner.plan(source, context, position_of(context, self.lake), ends)
        if stored is not None and stored.step.quiet:
            self._advance(ends)
            return None
        if stored is None:
            return None
        return StepSeen(stored, drafted)

    def _draft(self, source: Source, context: SourceContext, ends: Json) -> Step | None:
        step = self._runner().planner.draft(source, context, position_of(context, self.lake), ends, self.now)
        return None if step is None or step.quiet else step

    def _read(self, source: Source, seen: StepSeen) -> None:
        self.trace.doing = f"read of {_name(seen.stored)}"
        frame = source.read(self.spark, seen.stored)
        seen.schema = {item.name: item.dataType.simpleString() for item in frame.schema}
        seen.rows = _rows(frame)
        self.trace.doing = f"read of {_name(seen.stored)} by a source made anew"
        with self._opened() as (anew, _):
            seen.reread = _rows(anew.read(self.spark, seen.stored))

    def _landed(self, seen: StepSeen, ends: Json) -> None:
        """Commit the rows, then crash before the epoch is in the watermark log; observe; and go on as after a crash."""
        self.trace.doing = f"landing of {_name(seen.stored)}"
        self._advance(ends, crash_at="source.appended")
        runner = self._runner()
        rows = committed_rows(runner.stream.generation(seen.stored.generation), self.spark, seen.stored)
        seen.committed = _rows(rows)
        for _ in range(2):
            with self._opened() as (source, context):
                emits: list[None] = []
                seen.owned = source.delegate_watermark_periodic_emit(lambda emits=emits: emits.append(None))
                landed = source.landed(seen.stored, rows if seen.committed and asks_rows(source) else None)
                seen.landings.append(Landing(landed, len(emits), list(context.splits.rows())))
        self._advance(ends)

    def _advance(self, ends: Json, crash_at: str | None = None) -> None:
        def crash(point: str) -> None:
            if point == crash_at:
                raise _Crash

        runner, disarm = self._runner(), faults.arm(crash, self.table.name)
        try:
            alone(runner.steps(ends=ends, max_epochs=1))
        except _Crash:
            pass
        finally:
            disarm()
            runner.leases.close()

    # --- a source and its context --------------------------------------------------------------------------------

    def _runner(self) -> SourceRunner:
        """The runtime's own, made anew."""
        return SourceRunner(
            lake=self.lake,
            table=self.table,
            leases=self.lake.leases("connector tests"),
            spark=lambda: self.spark,
            clock=lambda: self.now,
            progress=SilentProgress(),
            strategy=strategy_of(self.pipeline, self.table, self.environment),
            members=Members(self.lake, {self.table.name: None}),
            environment=self.environment,
            peers=self.pipeline.sources,
            functions=self.pipeline.functions,
        )

    @contextmanager
    def _opened(
        self, wrapped: Callable[[SplitStore], SplitStore] = lambda stored: stored
    ) -> Iterator[tuple[Source, SourceContext]]:
        """A new source, which has only what is stored."""
        with self._runner().opened(GENERATION, wrapped) as opened:
            yield opened


def _name(stored: StoredStep) -> str:
    summary = f" ({stored.step.summary})" if stored.step.summary else ""
    return f"step {stored.epoch}{summary}"


def _rows(frame: DataFrame) -> Rows:
    return [row.asDict(recursive=True) for row in frame.collect()]
