"""The next epoch of a source table, as its source and its alignment group (FLIP-182) decide it; stored before anything
is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tidegate.pipelines.clock import Clock
from tidegate.pipelines.commands import STATUS
from tidegate.pipelines.connectors.protocol import (
    Json,
    Landed,
    Planned,
    PlanRequest,
    Source,
    SourceContext,
    SourcePosition,
    Step,
    StoredStep,
)
from tidegate.pipelines.connectors.registry import connector
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import ConcurrentRun, SourceError
from tidegate.pipelines.lake import SplitWatermark, WatermarkRow
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.runtime import faults
from tidegate.pipelines.runtime.epochs import source_row, stored_step
from tidegate.pipelines.runtime.failures import explained
from tidegate.pipelines.runtime.landing import alignment
from tidegate.pipelines.runtime.landing.alignment import next_rowtimes_of
from tidegate.pipelines.runtime.splits import counting, stored_splits, with_plan
from tidegate.pipelines.runtime.watermark_log import EpochTime, SignalEmit, splits_after
from tidegate.pipelines.watermarks import SourceWatermarks, WatermarkAlignment, WatermarkStrategy
from tidegate.pipelines.watermarks.watermark import milliseconds

MAX_ROWS = "scan.max-rows-per-epoch"
ALIGNED_ROWS = 100_000
"""The most rows of an epoch where the script does not say, for a table that may have to wait for its alignment group. A
source that cannot stop at a time may pass the group's limit by so many rows."""


_UNPLANNED = "nothing of the epoch was read; epochs before it stand"


@dataclass(frozen=True)
class EpochPlanner:
    """Plans the epochs of one source table, within what its alignment group allows; without a group nothing holds it
    back. `check`: called before a plan is stored, and after: raises ConcurrentRun where another runner has changed the
    table's definition."""

    stream: Stream
    table: Table
    members: alignment.Members
    strategy: WatermarkStrategy
    clock: Clock
    check: Callable[[], object] | None = None

    # --- its group -----------------------------------------------------------------------------------------------

    def now(self, generation: int) -> alignment.GroupPosition | None:
        """The table's position by the watermark log as it is now; None outside of a group."""
        if self.strategy.alignment is None:
            return None
        splits = stored_splits(self.stream.generation(generation).last)
        return self._position(self.strategy.alignment, self.clock(), splits)

    def request(self, context: SourceContext, position: SourcePosition, ends: Json, instant: int) -> PlanRequest:
        """What the source is asked to plan next, within what its group allows. A bounded phase is never held back, nor
        what must be read before it is over: everything that joins to the table waits for its flip."""
        written = context.options.get(MAX_ROWS)
        request = PlanRequest(
            previous=position.previous,
            first=position.first,
            flipped=position.flipped,
            ends=ends,
            instant=instant,
            max_rows=None if written is None else int(written),
        )
        aligned = self.now(context.generation)
        phases = connector(self.table.connector).spec.phases
        if aligned is None or (not position.flipped and phases(context.options)):
            return request
        most = ALIGNED_ROWS if request.max_rows is None and aligned.reach is not None else request.max_rows
        return replace(
            request, blocked=aligned.too_far, limit=aligned.reach, ahead=frozenset(aligned.ahead), max_rows=most
        )

    def stops(self, request: PlanRequest, generation: int) -> bool:
        """Whether the group holds back all splits that the table has."""
        splits = counting(stored_splits(self.stream.generation(generation).last)) if request.blocked else ()
        return bool(request.blocked) and request.blocked >= {split.split for split in splits if not split.ended}

    def logged(self, row: WatermarkRow, next_rowtimes: Mapping[str, int]) -> WatermarkRow:
        """An epoch's log row, with the table's position in its group after the epoch. `next_rowtimes`: those of the
        step."""
        if self.strategy.alignment is None:
            return row
        aligned = self._position(self.strategy.alignment, row.landed_at, stored_splits(row), next_rowtimes)
        timeout = self.strategy.idle_timeout
        idle = None if timeout is None else milliseconds(timeout, "the idle timeout")
        return replace(row, alignment=aligned.to_log(idle, next_rowtimes))

    def _position(
        self,
        aligned: WatermarkAlignment,
        at: int,
        splits: Sequence[SplitWatermark],
        next_rowtimes: Mapping[str, int] | None = None,
    ) -> alignment.GroupPosition:
        generator = self.strategy.generator_factory()
        delay = generator.behind if isinstance(generator, SourceWatermarks) else 0
        return alignment.group_position(self.members, self.table.name, aligned, at, splits, next_rowtimes, delay)

    # --- its next epoch ------------------------------------------------------------------------------------------

    def draft(
        self, source: Source, context: SourceContext, position: SourcePosition, ends: Json, instant: int
    ) -> Step | None:
        """The next step up to `ends`, which is not stored; None if there is nothing to land or to log."""
        request = self.request(context, position, ends, instant)
        stops = self.stops(request, context.generation)
        planned = Planned() if stops else self._planned(source, request)
        # The splits that alignment lets have no row, or none past their limit.
        blocked = tuple(sorted(request.blocked | planned.held.keys()))
        step = planned.step or self._quiet(context.generation, position, blocked, planned.held, instant)
        if step is None:
            return None
        rowtimes = next_rowtimes_of(self.stream.generation(context.generation).last)
        # Of a split that was not asked for, what was known of its next row still holds.
        known = {split: at for split, at in rowtimes.items() if split in request.blocked}
        return replace(step, blocked=blocked, next_rowtimes={**known, **planned.held})

    def _planned(self, source: Source, request: PlanRequest) -> Planned:
        """The source's plan. Raises SourceError if it is not a valid one: the connector may be untyped code of somebody
        else."""
        planned: object = source.plan(request)
        if not isinstance(planned, Planned):
            raise SourceError(
                f"the connector '{self.table.connector}' planned {type(planned).__name__}, which is no Planned",
                where=self.table.name,
                state=_UNPLANNED,
                next_command="install a version of its package for this Tidegate   (docs/connectors.md)",
            )
        return planned

    def plan(self, source: Source, context: SourceContext, position: SourcePosition, ends: Json) -> StoredStep | None:
        """The next step, stored. Raises SourceError, and ConcurrentRun if another runner has planned the epoch."""
        instant = self.clock()
        with with_plan(context.splits) as splits:
            step = self.draft(source, context, position, ends, instant)
        if step is None:
            splits.store()
            return None
        planned = StoredStep(step, context.generation, next_epoch(position), instant)
        if self.check:
            self.check()
        row = source_row(self.table.name, planned.generation, planned.epoch, instant, step)
        application = self.stream.lake.application(self.table.name, "plan", planned.generation)
        with explained(self.table.name, planned.place, _UNPLANNED):
            stored = self.stream.lake.epochs.settle(row, application=application, beside=splits.rows, marks=splits.mark)
        if stored is None or stored.digest != row.digest:
            raise ConcurrentRun(
                f"epoch {planned.epoch} of {self.table.name} was planned by another runner",
                state="its plan stands, nothing was read by this run",
                next_command=STATUS,
            )
        faults.point("source.planned", self.table.name)
        if self.check:  # another runner may have changed it meanwhile: it goes on with this plan, and we do not
            self.check()
        return stored_step(stored)

    def _quiet(
        self,
        generation: int,
        position: SourcePosition,
        blocked: tuple[str, ...],
        held: Mapping[str, int],
        instant: int,
    ) -> Step | None:
        """A step that reads nothing, planned so that the log records a change: the idle timeout of a split has passed,
        or a split's next row is now beyond the group's limit."""
        last = self.stream.generation(generation).last
        if position.previous is None or last is None:
            return None
        step = replace(position.previous.step, flips=False, quiet=True, blocked=blocked)
        if held.keys() - next_rowtimes_of(last).keys():
            return replace(step, summary="no rows: at the limit of its group")
        if self.strategy.idle_timeout is None:
            return None
        step = replace(step, summary="no rows: idle")
        planned = StoredStep(step, generation, last.epoch + 1, instant)
        time = EpochTime(self.table, self.strategy, last, instant)
        before = {split.split: split.idle for split in stored_splits(last)}
        after = splits_after(time, planned, Landed(), (), SignalEmit(self.clock), instant)
        return step if any(split.idle and not before.get(split.split) for split in after) else None


def next_epoch(position: SourcePosition) -> int:
    """The number of the next epoch to plan."""
    return position.previous.epoch + 1 if position.previous else 1
