"""Which probe rows the next epoch of an INSERT releases, and against which pins."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pyspark.sql import SparkSession

from pipelines.clock import Clock
from pipelines.errors import PlanningError
from pipelines.lake import WatermarkRow, delta_log
from pipelines.lake.areas import just_before, merged, micros
from pipelines.lake.due import Due, settled
from pipelines.runtime.accounting import landed_rows
from pipelines.runtime.history import ReleasedEpoch
from pipelines.runtime.plans import Backfill, FromQuarantine, Pin, ReleasePlan, TimeSpan
from pipelines.runtime.quarantine.kept import chosen, kept_out, lots_of
from pipelines.runtime.releasing.backfill import (
    again,
    fresh_areas,
    given_up,
    lots_again,
    spans_of,
    touches,
    with_what_they_became,
)
from pipelines.runtime.releasing.standing import Position, Standing, Waiting
from pipelines.runtime.retention import Retention
from pipelines.sources.registry import connector
from pipelines.sql.model import Insert, OnUnmatched
from pipelines.watermarks import MAX_TIMESTAMP, MIN_TIMESTAMP, CombinedWatermarkStatus, Watermark
from pipelines.watermarks.watermark import instant


@dataclass(frozen=True)
class ReleasePlanner(ABC):
    """Plans the epochs of one INSERT."""

    standing: Standing
    clock: Clock

    @abstractmethod
    def next(self, last: ReleasePlan | None) -> ReleasePlan | Waiting:
        """The epoch after `last`, or why there is none yet."""

    def _plan(
        self, last: ReleasePlan | None, landed: WatermarkRow, pins: tuple[Pin, ...], time: TimeSpan | None = None
    ) -> ReleasePlan:
        """The epoch after `last` that takes the probe up to `landed`. Raises PlanningError when the probe was started
        again, or the script now joins by another time."""
        insert = self.standing.insert
        self._refuse_other_time(last, event=time is not None)
        if last is not None and landed.generation != last.probe_generation:
            raise PlanningError(
                f"{insert.probe} was started again (generation {landed.generation}), "
                f"and {insert.id} has published rows of generation {last.probe_generation}",
                state="nothing was released",
                next_command="give the INSERT a new 'insert.id' to release the new generation from its start",
            )
        return ReleasePlan(
            insert=insert.id,
            generation=last.generation if last else 1,
            epoch=last.epoch + 1 if last else 1,
            kind="release",
            instant=self.clock(),
            probe=insert.probe,
            probe_generation=landed.generation,
            after=last.upto if last else 0,
            upto=landed.epoch,
            pins=pins,
            on_unmatched=self.standing.on_unmatched,
            computes=self.standing.pipeline.digest(insert),
            time=time,
        )

    def _refuse_other_time(self, last: ReleasePlan | None, *, event: bool) -> None:
        """Raises PlanningError where the INSERT has released in the other kind of time."""
        if last is not None and (last.time is not None) != event:
            was = "processing time" if last.time is None else "event time"
            raise PlanningError(
                f"{self.standing.insert.id} has released {last.epoch} epochs in {was}, and the script now joins by "
                "another time: which rows are still to be released can not be told",
                state="nothing was released",
                next_command="give the INSERT a new 'insert.id', or put the old join back",
            )

    def instead_of(
        self, position: Position, kind: Literal["re-release", "discard"], on_unmatched: OnUnmatched | None
    ) -> ReleasePlan:
        """The epoch that takes the place of the held one: the same probe rows, against newer pins or discarded.

        Raises PlanningError when no epoch is held.
        """
        insert, held = self.standing.insert, position.plan
        if held is None or position.state != "held":
            raise PlanningError(
                f"no epoch of {insert.id} is held",
                state=f"its newest epoch is {position.state or 'not planned yet'}",
                next_command="tidegate status",
            )
        pins = held.pins if kind == "discard" else self._pins()
        if isinstance(pins, Waiting):
            raise PlanningError(pins.reason, state="the epoch stays held", next_command="tidegate status")
        plan = replace(
            held,
            epoch=held.epoch + 1,
            kind=kind,
            instant=self.clock(),
            pins=pins,
            on_unmatched=on_unmatched or held.on_unmatched,
            computes=self.standing.pipeline.digest(insert),
            supersedes=held.epoch,
        )
        return given_up(plan) if kind == "discard" else plan

    def out_of_quarantine(
        self,
        last: ReleasePlan | None,
        epochs: Sequence[ReleasedEpoch],
        request: FromQuarantine,
        on_unmatched: OnUnmatched | None,
    ) -> ReleasePlan | None:
        """The epoch after `last` that takes what a request names and nobody has taken; None where that is nothing.

        Raises PlanningError where a build still loads, or the rows are of another probe than the script's.
        """
        insert, kept = self.standing.insert, kept_out(epochs)
        wanted = chosen(insert.id, kept, request)
        landed = self.standing.lake.watermarks.last(insert.probe)
        if last is None or not wanted:
            return None
        stands = last.time
        if stands is not None:
            stands = replace(stands, before=stands.watermark, rows=0, earlier=stands.earlier + stands.rows)
        numbers = {item.epoch for item in wanted}
        known = [epoch.oldest for epoch in epochs if epoch.plan.epoch in numbers] if stands is not None else []
        taken = replace(request, lots=lots_of(wanted, kept), oldest=min(known, default=MIN_TIMESTAMP))
        same_builds = {pin.table for pin in last.pins} == set(insert.builds)
        pins = last.pins if request.discards and same_builds else self._pins()
        if isinstance(pins, Waiting):
            raise PlanningError(pins.reason, state="the rows stay in quarantine", next_command="tidegate status")
        if request.discards:  # nothing is read, so neither the probe's generation nor its time can stand in its way
            return replace(
                last,
                pins=pins,
                epoch=last.epoch + 1,
                kind="quarantine-discard",
                instant=self.clock(),
                after=last.upto,
                computes=self.standing.pipeline.digest(insert),
                supersedes=None,
                time=stands,
                backfill=None,
                from_quarantine=taken,
            )
        strange = next((item.plan for item in wanted if item.plan.probe != insert.probe), None)
        if landed is None or strange is not None:
            raise PlanningError(
                f"the quarantined rows of {insert.id} are rows of {strange.probe if strange else insert.probe}, which "
                "its INSERT does not read any more",
                where=f"line {insert.location.line} of the script",
                state="the rows stay in quarantine",
                next_command="put the old FROM back, or discard them: tidegate quarantine discard SCRIPT "
                f"{insert.id} --because TEXT",
            )
        self._refuse_other_time(last, event=insert.time == "event")
        plan = self._plan(last, landed, pins, stands)
        # Rows that are in quarantine already are no reason to hold their INSERT; nor do they leave it without a match
        # unless somebody says so: a version that they met once may be gone.
        return replace(
            plan,
            kind="quarantine-release",
            upto=plan.after,
            on_unmatched=on_unmatched or "quarantine",
            from_quarantine=taken,
        )

    def _pins(self) -> tuple[Pin, ...] | Waiting:
        """The newest flipped generation of every build, at its newest landed epoch."""
        pins, unflipped = [], []
        for build in self.standing.insert.builds:
            pin = self._pin(build)
            if pin is None:
                unflipped.append(build)
            else:
                pins.append(pin)
        if unflipped:
            names = " and ".join(unflipped)
            return Waiting(f"{names} is still loading: its snapshot is not proved complete", 0, tuple(unflipped))
        return tuple(pins)

    def _pin(self, build: str) -> Pin | None:
        log = self.standing.lake.watermarks
        newest = log.last(build)
        for generation in range(newest.generation if newest else 0, 0, -1):
            row = log.last(build, generation)
            if row is not None and row.flip_epoch is not None:
                return Pin(build, generation, row.epoch, row.flip_epoch)
        return None


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
        return self._plan(last, landed, pins)


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

    def backfill(
        self, last: ReleasePlan | None, epochs: Sequence[ReleasedEpoch], low: int, high: int
    ) -> ReleasePlan | Waiting:
        """The epoch after `last` that takes the rows with low <= rowtime < high (ms, UTC; MIN and MAX: no bound).

        It takes the place of every published epoch that has a row of the span, and all of its rows; and it releases
        what the watermark has reached of the span and nothing has released yet. P and W stay where they are.
        Raises PlanningError where versions that it would have to join are gone.
        """
        insert, lake = self.standing.insert, self.standing.lake
        seen = self._seen(last)
        if isinstance(seen, Waiting):
            return seen
        plan = replace(self._plan(last, seen.landed, seen.pins, seen.span), kind="backfill", instant=seen.now)
        plan = replace(plan, upto=plan.after)
        span = seen.span
        new = fresh_areas(
            low, min(just_before(high), micros(seen.watermark)), plan.upto, seen.landed.epoch, span.before
        )
        replaced = [epoch for epoch in epochs if epoch.published and touches(epoch, low, high)]
        replaced = with_what_they_became(replaced, epochs)
        lots = lots_again(replaced, epochs)
        fill = Backfill(
            low=low,
            high=high,
            replaces=spans_of(replaced),
            again=again(replaced, epochs),
            rows_again=sum(landed_rows((), epoch.plan) for epoch in replaced) + sum(lot.rows for lot in lots),
            new=new,
            without=tuple(area for area in span.ahead if any(area.meets(one) for one in new)),
            oldest=min([low, *(epoch.oldest for epoch in replaced)]),
            lots=lots,
        )
        path = lake.table_path(insert.probe)
        rows = Due(plan.probe_generation, fill.fresh).count(path, self.spark)
        if rows + fill.rows_again == 0:
            return Waiting(_none_between(insert, low, high, seen), seen.waiting)
        if rows == 0:
            fill = replace(fill, new=())
        self._refuse_lost_versions(seen.pins, replaced, fill.oldest)
        self._refuse_closed_files(replaced)
        return replace(plan, time=replace(span, rows=rows, ahead=(*span.ahead, *fill.new)), backfill=fill)

    def _refuse_closed_files(self, replaced: Sequence[ReleasedEpoch]) -> None:
        """Raise PlanningError where rows could not be taken out of a table again, before anything is planned."""
        for path in (self.standing.target_path, self.standing.quarantine_path) if replaced else ():
            table = delta_log.opened(path)
            if table is not None and not delta_log.plain(table):
                raise PlanningError(
                    "the table has deletion vectors or column mapping, so its epochs can not be replaced",
                    where=str(path),
                    state="nothing was released; what is published stays",
                    next_command=f"in Spark: ALTER TABLE delta.`{path}` DROP FEATURE deletionVectors",
                )

    def _refuse_lost_versions(self, pins: Sequence[Pin], replaced: Sequence[ReleasedEpoch], low: int) -> None:
        """Raise PlanningError where a row at or after `low` (ms) may not meet what it would have met: retention has let
        versions go, or a new snapshot, which knows no history, has taken the place of the one that they were in."""
        standing = self.standing
        for pin in pins:
            table = standing.pipeline.table(pin.table)
            where = f"INSERT {standing.insert.id}, build {table.name}"
            older = [item for epoch in replaced for item in epoch.plan.pins if item.table == pin.table]
            snapshot = connector(table.connector).spec.phases(table.options)
            if snapshot and any(item.generation < pin.generation for item in older):
                raise PlanningError(
                    f"{table.name} was read from a new snapshot since this span was released, and a snapshot knows no "
                    "version that ended before it",
                    where=where,
                    state="nothing was released; what is published stays",
                    next_command="tidegate run SCRIPT --from TIME   with a time after the new snapshot",
                )
            retention = Retention(standing.lake, standing.pipeline, self.clock, self.environment)
            lost = retention.lost_before(table, pin.generation)
            if low >= lost:
                continue
            known = [epoch.extent[1] // 1000 + 1 for epoch in replaced if epoch.oldest < lost]
            whole = "TIME" if lost == MAX_TIMESTAMP else instant(max([lost, *known]))
            before = "" if lost == MAX_TIMESTAMP else f" that were valid before {instant(lost)}"
            raise PlanningError(
                f"versions of {table.name}{before} are gone ('changelog.retention'), so rows of this span would not "
                "find what they had found",
                where=where,
                state="nothing was released; what is published stays",
                next_command=f"tidegate run SCRIPT --from {whole}",
            )

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


def _none_between(insert: Insert, low: int, high: int, seen: Seen) -> str:
    after = "" if low == MIN_TIMESTAMP else f" from {instant(low)}"
    upto = "" if high == MAX_TIMESTAMP else f" before {instant(high)}"
    told = f"no row of {insert.probe}{after}{upto} can be released"
    if seen.waiting and seen.watermark < high:
        held = f" (held by {' and '.join(seen.holds)})" if seen.holds else ""
        stands = "no watermark is told yet" if seen.watermark == MIN_TIMESTAMP else instant(seen.watermark)
        return f"{told}; the watermark stands at {stands}{held}"
    return told


def _reason(insert: Insert, waiting: int, watermark: int, holds: tuple[str, ...]) -> str:
    if not waiting:
        return f"no rows of {insert.probe} have landed since the last release"
    names = " and ".join(holds) or insert.probe
    if watermark == MIN_TIMESTAMP:
        return f"{names} has told no watermark yet"
    return f"the watermark stands at {instant(watermark)} (held by {names}), and no row that waits is as old"
