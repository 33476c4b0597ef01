"""One source table in its alignment group (FLIP-182): what it may land next, and what the others read in its log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tidegate.pipelines.clock import Clock
from tidegate.pipelines.connectors.protocol import Json, PlanRequest, SourceContext, SourcePosition
from tidegate.pipelines.connectors.registry import connector
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.lake import SplitWatermark, WatermarkRow
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.runtime.landing import alignment
from tidegate.pipelines.runtime.splits import counting, stored_splits
from tidegate.pipelines.watermarks import SourceWatermarks, WatermarkAlignment, WatermarkStrategy
from tidegate.pipelines.watermarks.watermark import milliseconds

MAX_ROWS = "scan.max-rows-per-epoch"
ALIGNED_ROWS = 100_000
"""About how many rows an epoch has, where the script does not say, of a table whose group has others to wait for: so
far it may overshoot where its source cannot tell times."""


@dataclass(frozen=True)
class Membership:
    """A table under its strategy's alignment. Where that names no group, nothing holds the table back."""

    stream: Stream
    table: Table
    members: alignment.Members
    strategy: WatermarkStrategy
    clock: Clock

    def now(self, generation: int) -> alignment.GroupPosition | None:
        """Where a generation of the table stands by the watermark log as it is now; None outside of a group."""
        if self.strategy.alignment is None:
            return None
        splits = stored_splits(self.stream.generation(generation).last)
        return self._position(self.strategy.alignment, self.clock(), splits)

    def request(self, context: SourceContext, position: SourcePosition, ends: Json, instant: int) -> PlanRequest:
        """What the source is to plan next, with what its group lets it have.

        A bounded phase is never held back, nor what has to be read before it is over: all that joins to the table
        waits for its flip.
        """
        written = context.options.get(MAX_ROWS)
        request = PlanRequest(
            previous=position.previous,
            first=position.first,
            flipped=position.flipped,
            ends=ends,
            instant=instant,
            max_rows=None if written is None else int(written),
        )
        stands = self.now(context.generation)
        phases = connector(self.table.connector).spec.phases
        if stands is None or (not position.flipped and phases(context.options)):
            return request
        most = ALIGNED_ROWS if request.max_rows is None and stands.reach is not None else request.max_rows
        return replace(
            request, blocked=stands.too_far, limit=stands.reach, ahead=frozenset(stands.ahead), max_rows=most
        )

    def stops(self, request: PlanRequest, generation: int) -> bool:
        """Whether the group holds back all splits that the table has."""
        splits = counting(stored_splits(self.stream.generation(generation).last)) if request.blocked else ()
        return bool(request.blocked) and request.blocked >= {split.split for split in splits if not split.ended}

    def logged(self, row: WatermarkRow, next_rowtimes: Mapping[str, int]) -> WatermarkRow:
        """An epoch's log row with where it leaves the table in its group. `next_rowtimes`: what its plan said."""
        if self.strategy.alignment is None:
            return row
        stands = self._position(self.strategy.alignment, row.landed_at, stored_splits(row), next_rowtimes)
        timeout = self.strategy.idle_timeout
        idle = None if timeout is None else milliseconds(timeout, "the idle timeout")
        return replace(row, alignment=stands.to_log(idle, next_rowtimes))

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
