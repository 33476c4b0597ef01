"""Epochs of an INSERT that joins in processing time: what has landed, at the builds' newest state."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidegate.pipelines.runtime.plans import ReleasePlan
from tidegate.pipelines.runtime.releasing.planner import ReleasePlanner
from tidegate.pipelines.runtime.releasing.standing import Waiting


@dataclass(frozen=True)
class ProcessingTimePlanner(ReleasePlanner):
    """All that has landed, at the newest state of builds that have all flipped."""

    def next(self, last: ReleasePlan | None) -> ReleasePlan | Waiting:
        insert, lake = self.standing.insert, self.standing.lake
        landed = lake.watermarks.last(insert.probe)
        after = last.upto if last else 0
        pins = self._pins()
        rows = self.standing.rows_between(landed.generation if landed else 1, after, landed.epoch if landed else 0)
        if isinstance(pins, Waiting):
            return replace(pins, rows=rows)
        if landed is None or landed.epoch <= after or rows == 0:
            return Waiting(f"no rows of {insert.probe} have landed since the last release", 0)
        if rows > self.standing.max_rows:
            landed = replace(landed, epoch=self._within(landed.generation, after, landed.epoch))
        return self._plan(last, landed, pins)

    def _within(self, generation: int, after: int, upto: int) -> int:
        """The last probe epoch, after `after`, up to which no more rows wait than an epoch may have; at least the
        first that has any."""
        most = self.standing.max_rows
        low, high = after, upto  # more than that lie up to `high`
        while high - low > 1:
            middle = (low + high) // 2
            if self.standing.rows_between(generation, after, middle) <= most:
                low = middle
            else:
                high = middle
        return low if self.standing.rows_between(generation, after, low) else high
