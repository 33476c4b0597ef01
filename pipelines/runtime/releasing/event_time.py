"""Epochs of an INSERT that joins in event time: what the combined watermark has reached."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from pipelines.lake import WatermarkRow
from pipelines.lake.areas import merged, micros
from pipelines.lake.due import settled
from pipelines.runtime.plans import Pin, ReleasePlan, TimeSpan
from pipelines.runtime.releasing.planner import ReleasePlanner
from pipelines.runtime.releasing.standing import Waiting
from pipelines.sql.model import Insert
from pipelines.watermarks import MIN_TIMESTAMP, CombinedWatermarkStatus, Watermark
from pipelines.watermarks.watermark import instant


@dataclass(frozen=True)
class Seen:
    """The inputs of an event-time release: `waiting` landed rows are in none yet, `watermark` (ms, UTC) is what all
    have reached, `holds` who keeps it there. `span` is where the releases before have left P and W."""

    landed: WatermarkRow
    pins: tuple[Pin, ...]
    waiting: int
    watermark: int
    holds: tuple[str, ...]
    span: TimeSpan
    now: int


@dataclass(frozen=True)
class EventTimePlanner(ReleasePlanner):
    """What the combined watermark of the probe and of every build has reached, each read at its pin.

    No row leaves before every build has flipped, not even past one that is idle. `spark` counts the due rows of a probe
    table that some other writer has changed; of any other table the files are counted without it.
    """

    spark: Callable[[], SparkSession]
    environment: Mapping[str, str]

    def next(self, last: ReleasePlan | None) -> ReleasePlan | Waiting:
        insert, lake = self.standing.insert, self.standing.lake
        seen = self._seen(last)
        if isinstance(seen, Waiting):
            return seen
        path, span = lake.table_path(insert.probe), seen.span
        since = settled(path, last.probe_generation, span.since, last.upto, span.before) if last else 0
        span = replace(span, watermark=seen.watermark, since=since)
        plan = replace(self._plan(last, seen.landed, seen.pins, span), instant=seen.now)
        rows = plan.due.count(path, self.spark) if seen.waiting and seen.watermark > MIN_TIMESTAMP else 0
        if rows == 0:
            return Waiting(_reason(insert, seen.waiting, seen.watermark, seen.holds), seen.waiting)
        return replace(plan, time=replace(span, rows=rows))

    def _seen(self, last: ReleasePlan | None) -> Seen | Waiting:
        """What there is to plan from after `last`, or which build still loads."""
        lake, now = self.standing.lake, self.clock()
        landed, pins = lake.watermarks.last(self.standing.insert.probe), self._pins()
        if landed is None:
            return Waiting(f"no rows of {self.standing.insert.probe} have landed", 0)
        time = last.time if last else None
        earlier = time.earlier + time.rows if time else 0
        waiting = self.standing.rows_between(landed.generation, 0, landed.epoch) - earlier
        if isinstance(pins, Waiting):
            return replace(pins, rows=waiting)
        before = time.watermark if time else MIN_TIMESTAMP
        watermark, holds = self._combined(landed, pins, before, now)
        upto = last.upto if last else 0
        ahead = tuple(area for area in time.ahead if not area.covered_by(upto, micros(before))) if time else ()
        span = TimeSpan(before, before, time.since if time else 0, 0, earlier, merged(ahead))
        return Seen(landed, pins, waiting, watermark, holds, span, now)

    def _combined(
        self, landed: WatermarkRow, pins: tuple[Pin, ...], before: int, now: int
    ) -> tuple[int, tuple[str, ...]]:
        """The watermark (ms, UTC) that the inputs have reached together, and the inputs that hold it where it is."""
        log = self.standing.lake.watermarks
        rows = {pin.table: log.rows(pin.table, generation=pin.generation, epoch=pin.epoch)[0] for pin in pins}
        rows[self.standing.insert.probe] = landed
        words: dict[Hashable, tuple[Watermark, bool]] = {
            table: (Watermark(row.timestamp, row.use_processing_time), row.idle) for table, row in rows.items()
        }
        status = CombinedWatermarkStatus(list(rows), last=Watermark(before))
        status.input_all(words)
        if status.watermark.use_processing_time:
            return max(before, now), ()
        found = status.watermark.timestamp
        active = {table: row for table, row in rows.items() if not row.use_processing_time and not row.idle}
        return found, tuple(table for table, row in active.items() if row.timestamp <= found)


def _reason(insert: Insert, waiting: int, watermark: int, holds: tuple[str, ...]) -> str:
    if not waiting:
        return f"no rows of {insert.probe} have landed since the last release"
    names = " and ".join(holds) or insert.probe
    if watermark == MIN_TIMESTAMP:
        return f"{names} has told no watermark yet"
    return f"the watermark stands at {instant(watermark)} (held by {names}), and no row that waits is as old"
