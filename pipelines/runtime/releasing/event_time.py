"""Epochs of an INSERT that joins in event time: what the combined watermark has reached."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from tidegate.pipelines.commands import NextCommand
from tidegate.pipelines.connectors.options import CHANGELOG_RETENTION
from tidegate.pipelines.connectors.registry import connector
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.runtime.epochs import Bounds, Pin, ReleasePlan, Taken
from tidegate.pipelines.runtime.epochs.history import ReleasedEpoch
from tidegate.pipelines.runtime.epochs.position import Landed, Waiting, waiting_rows
from tidegate.pipelines.runtime.epochs.target_log import combined, hides, nothing_yet, read_by, tells
from tidegate.pipelines.runtime.lost_commits import refuse_lost_waiting
from tidegate.pipelines.runtime.releasing.planner import ReleasePlanner
from tidegate.pipelines.runtime.retention import Retention
from tidegate.pipelines.sql.model import Insert
from tidegate.pipelines.watermarks import MAX_TIMESTAMP, MIN_TIMESTAMP
from tidegate.pipelines.watermarks.watermark import instant


@dataclass(frozen=True)
class Seen:
    """The inputs of an event-time release.

    Attributes:
        landed: The newest row of each branch's log.
        left: Landed rows of each branch that are in no release yet.
        watermark: What all inputs have reached (ms, UTC).
        holds: The inputs that hold it there.
        span: W of the releases before.
    """

    landed: Landed
    pins: tuple[Pin, ...]
    left: Sequence[int]
    watermark: int
    holds: tuple[str, ...]
    span: Bounds
    now: int

    @property
    def waiting(self) -> int:
        """The rows of all branches that are in no release yet."""
        return sum(self.left)


@dataclass(frozen=True)
class Again:
    """Which rows are released anew: those of the epochs that are `replaced`, or of the one that is `held`; or those
    that are `quarantined`, to be published even without a match."""

    replaced: Sequence[ReleasedEpoch] = ()
    held: ReleasePlan | None = None
    quarantined: bool = False

    def instead(self, insert: Insert, since: str | None) -> NextCommand:
        """What can be done in place of it where they would not find what they had found: release from quarantine only
        what matches; give up what is held; release what begins at `since`, if any time is late enough."""
        if self.quarantined:
            return NextCommand("quarantine release", (insert.id,), "rows without a match stay")
        if self.held is not None:
            return NextCommand("discard", (self.held.insert,), self.held.when_discarded)
        return NextCommand("run", ("--from", since)) if since else NextCommand("run", does="releases what is new")


@dataclass(frozen=True)
class EventTimePlanner(ReleasePlanner):
    """Plans what the combined watermark of the probe and of every build that is joined in event time has reached, each
    read at its pin. No row leaves before every build has flipped, not even past one that is idle.

    `spark` counts the releasable rows of a probe table that another writer has changed; of any other table the files'
    statistics count them.
    """

    spark: Callable[[], SparkSession]
    environment: Mapping[str, str]

    def next(self, last: ReleasePlan | None) -> ReleasePlan | Waiting:
        insert, seen = self.on_lake.insert, self._seen(last)
        if isinstance(seen, Waiting):
            return seen
        plan = self._drafted(last, seen)
        span = plan.bounds
        assert span is not None
        reached = seen.waiting and seen.watermark > MIN_TIMESTAMP
        takes, least = self._measured(plan.takes) if reached else (plan.takes, MAX_TIMESTAMP)
        rows = sum(item.rows for item in takes)
        if rows == 0:
            known = reached or not seen.waiting  # below any watermark, rows without a time would be passed over
            if known and self.on_lake.is_logged and tells(self.on_lake, plan := plan.without_rows()):
                return plan
            reason = _reason(insert, seen.waiting, seen.watermark, seen.holds)
            return Waiting(reason, seen.waiting, held_by=seen.holds if seen.waiting else ())
        if rows > self.on_lake.max_rows:
            share = max(self.on_lake.max_rows // sum(item.rows > 0 for item in takes), 1)
            paths = [stream.path for stream in self.on_lake.probes]
            found = [each.releasable.reaching(path, self.spark, share) for each, path in zip(takes, paths, strict=True)]
            if (cut := max(span.before, min(found))) < span.watermark:
                span = replace(span, watermark=cut)
                takes, least = self._measured([item.between(span) for item in takes])
        return replace(plan, bounds=span, takes=tuple(takes), oldest=least)

    def _measured(self, takes: Sequence[Taken]) -> tuple[Sequence[Taken], int]:
        """The same with their numbers of rows, and a moment (ms, UTC) that none of the rows lies before."""
        streams = zip(takes, self.on_lake.probes, strict=True)
        found = [item.releasable.measured(stream.path, self.spark) for item, stream in streams]
        counted = [replace(item, rows=rows) for item, (rows, _) in zip(takes, found, strict=True)]
        return counted, min(least for _, least in found)

    def _drafted(self, last: ReleasePlan | None, seen: Seen) -> ReleasePlan:
        """The epoch after `last` that takes what the watermark has reached, before its rows are counted. Raises
        LakeError where rows that wait are gone."""
        span = replace(seen.span, watermark=seen.watermark)
        plan = replace(self._plan(last, seen.landed, seen.pins, span), instant=seen.now)
        for item, stream, waiting in zip(plan.takes, self.on_lake.probes, seen.left, strict=True):
            everything = item.between(replace(span, watermark=MAX_TIMESTAMP))
            refuse_lost_waiting(plan.insert, stream, self.spark, everything, waiting)
        return plan

    def reach(self, last: ReleasePlan | None) -> int:
        """See `ReleasePlanner.reach`."""
        seen = self._seen(last)
        return MIN_TIMESTAMP if isinstance(seen, Waiting) else seen.watermark

    def _seen(self, last: ReleasePlan | None) -> Seen | Waiting:
        """What the epoch after `last` is planned from, or which build still loads."""
        now, landed, pins = self.clock(), self.on_lake.landed, self._pins()
        if not any(landed):
            return Waiting(f"no rows of {self.on_lake.insert.probe} have landed", 0)
        span = (last.then() if last else None) or Bounds()
        waiting = waiting_rows(landed, last)
        if isinstance(pins, Waiting):
            return replace(pins, rows=sum(waiting))
        watermark, holds = self._combined(last, landed, pins, span.before, now)
        return Seen(landed, pins, waiting, watermark, holds, span, now)

    def _refuse_other_versions(
        self, plan: ReleasePlan, before: Sequence[ReleasePlan], *, held: ReleasePlan | None = None
    ) -> None:
        # Kept in quarantine, a row that finds less than it had found does no harm.
        publishes = not plan.discards and plan.on_unmatched == "publish"
        again = Again(held=held, quarantined=held is None)
        if held is not None or publishes:
            self._refuse_new_snapshot(plan.pins, [pin for each in before for pin in each.pins], again)
        if plan.spans or (plan.looks_back and publishes):
            self._refuse_lost_versions(plan.pins, plan.oldest, again)

    def _refuse_new_snapshot(self, pins: Sequence[Pin], older: Sequence[Pin], again: Again) -> None:
        """Raise PlanningError where rows that had joined the `older` pins would join a newer snapshot, which lacks
        versions that ended before it."""
        insert = self.on_lake.insert
        for pin in filter(lambda pin: pin.timed, pins):
            table = self.on_lake.pipeline.table(pin.table)
            newer = any(item.table == pin.table and item.generation < pin.generation for item in older)
            if not newer or not connector(table.connector).spec.phases(table.options):
                continue
            since = "this span was released" if again.held is None else f"epoch {again.held.epoch} was planned"
            raise PlanningError(
                f"{table.name} was read from a new snapshot since {since}, and a snapshot knows no "
                "version that ended before it",
                where=f"INSERT {insert.id}, build {table.name}",
                state="nothing was released; what is published stays",
                next_command=again.instead(insert, _behind(again.replaced, pin)),
            )

    def _refuse_lost_versions(self, pins: Sequence[Pin], low: int, again: Again) -> None:
        """Raise PlanningError where a row at or after `low` (ms) may not meet the version that it would have met, since
        retention has removed versions."""
        on_lake = self.on_lake
        for pin in filter(lambda pin: pin.timed, pins):
            table = on_lake.pipeline.table(pin.table)
            retention = Retention(on_lake.lake, on_lake.pipeline, self.clock, self.environment)
            lost = retention.lost_before(table, pin.generation)
            if low >= lost:
                continue
            known = [epoch.extent[1] // 1000 + 1 for epoch in again.replaced if epoch.oldest < lost]
            whole = None if lost == MAX_TIMESTAMP else instant(max([lost, *known]))
            before = "" if lost == MAX_TIMESTAMP else f" that were valid before {instant(lost)}"
            raise PlanningError(
                f"versions of {table.name}{before} are gone ('{CHANGELOG_RETENTION}'), so rows of this span would not "
                "find what they had found",
                where=f"INSERT {on_lake.insert.id}, build {table.name}",
                state="nothing was released; what is published stays",
                next_command=again.instead(on_lake.insert, whole),
            )

    def _combined(
        self, last: ReleasePlan | None, landed: Landed, pins: tuple[Pin, ...], before: int, now: int
    ) -> tuple[int, tuple[str, ...]]:
        """The watermark (ms, UTC) that the inputs have reached together since `last`, and the inputs that hold it
        there. The last watermark of an input that has become idle since then counts, as it was emitted before
        (FLIP-126)."""
        rows = {pin.table: self.on_lake.pinned(pin) for pin in pins if pin.timed}
        for stream, row in zip(self.on_lake.probes, landed, strict=True):
            rows[stream.name] = row or nothing_yet(stream.name)
        for name, own in rows.items():
            rows[name] = replace(own, idle=own.idle and not hides(self.on_lake, name, own))
        known = read_by(self.on_lake.lake, last) if last and any(row.idle for row in rows.values()) else {}
        reached = combined(list(rows.values()), known, before)
        if reached.use_processing_time:
            return max(before, now), ()
        found = reached.timestamp
        active = {table: row for table, row in rows.items() if not row.use_processing_time and not row.idle}
        return found, tuple(table for table, row in active.items() if row.timestamp <= found)


def _behind(replaced: Sequence[ReleasedEpoch], pin: Pin) -> str | None:
    """The first time behind all rows of epochs that joined an older generation of a build than `pin`; None if no time
    is."""
    older = [
        epoch.extent[1]
        for epoch in replaced
        if any(item.table == pin.table and item.generation < pin.generation for item in epoch.plan.pins)
    ]
    last = max(older, default=MAX_TIMESTAMP)
    return None if last == MAX_TIMESTAMP else instant(last // 1000 + 1)


def _reason(insert: Insert, waiting: int, watermark: int, holds: tuple[str, ...]) -> str:
    if not waiting:
        return f"no rows of {insert.probe} have landed since the last release"
    names = " and ".join(holds) or insert.probe
    if watermark == MIN_TIMESTAMP:
        return f"{names} has emitted no watermark yet"
    return f"the watermark stands at {instant(watermark)} (held by {names}), and no row that waits is as old"
