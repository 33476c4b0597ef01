"""The next epoch of a source table: what the source and its group make of it, stored before anything is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import ConcurrentRun, SourceError
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.runtime import faults
from tidegate.pipelines.runtime.epochs import source_row, stored_step
from tidegate.pipelines.runtime.failures import explained
from tidegate.pipelines.runtime.landing.alignment import next_rowtimes_of
from tidegate.pipelines.runtime.landing.failures import place
from tidegate.pipelines.runtime.landing.membership import Membership
from tidegate.pipelines.runtime.splits import stored_splits
from tidegate.pipelines.runtime.watermark_log import EpochTime, SignalEmit, splits_after
from tidegate.pipelines.watermarks import WatermarkStrategy

_UNPLANNED = "nothing of the epoch was read; epochs before it stand"


@dataclass(frozen=True)
class EpochPlanner:
    """Plans the epochs of one source table."""

    stream: Stream
    table: Table
    strategy: WatermarkStrategy
    membership: Membership
    clock: Clock
    definition: Callable[[], int] | None = None

    def draft(
        self, source: Source, context: SourceContext, position: SourcePosition, ends: Json, instant: int
    ) -> Step | None:
        """The next step up to `ends`, which is not stored; None where there is nothing to land, or to say."""
        request = self.membership.request(context, position, ends, instant)
        stops = self.membership.stops(request, context.generation)
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
        """The source's word. Raises SourceError where it is none: a type checker may not have seen the connector."""
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
        """The next step, stored. Raises SourceError, and ConcurrentRun where another runner has planned the epoch."""
        instant = self.clock()
        step = self.draft(source, context, position, ends, instant)
        if step is None:
            return None
        planned = StoredStep(step, context.generation, next_epoch(position), instant)
        number = self.definition() if self.definition else None
        row = source_row(self.table.name, planned.generation, planned.epoch, instant, step, number)
        application = self.stream.lake.application(self.table.name, "plan", planned.generation)
        with explained(self.table.name, place(planned), _UNPLANNED):
            stands = self.stream.lake.epochs.settle(row, application=application)
        if stands is None or stands.digest != row.digest:
            raise ConcurrentRun(
                f"epoch {planned.epoch} of {self.table.name} was planned by another runner",
                state="its plan stands, nothing was read by this run",
                next_command=STATUS,
            )
        faults.point("source.planned", self.table.name)
        if self.definition:  # another runner may have changed it meanwhile: it goes on with this plan, and we do not
            self.definition()
        return stored_step(stands)

    def _quiet(
        self,
        generation: int,
        position: SourcePosition,
        blocked: tuple[str, ...],
        held: Mapping[str, int],
        instant: int,
    ) -> Step | None:
        """A step that reads nothing, where the log has to say something all the same: that the idle timeout of a split
        has passed, or that one stands at its limit, since its next row is too far ahead of the group."""
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
    """The number of the epoch after all that are planned."""
    return position.previous.epoch + 1 if position.previous else 1
