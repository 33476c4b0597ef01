"""Planning the next epoch of an INSERT, from its last plan and the pins of its builds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tidegate.pipelines.clock import Clock
from tidegate.pipelines.commands import STATUS, NextCommand
from tidegate.pipelines.connectors.options import OnUnmatched
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.lake import WatermarkRow
from tidegate.pipelines.lake.releasable import merged, micros
from tidegate.pipelines.lake.stream import Generation, Stream
from tidegate.pipelines.runtime.epochs import Asked, Bounds, Pin, ReleasePlan, Taken, all_of
from tidegate.pipelines.runtime.epochs.history import ReleasedEpoch
from tidegate.pipelines.runtime.epochs.position import InsertOnLake, Landed, Position, Waiting, waiting_rows
from tidegate.pipelines.runtime.epochs.target_log import tells
from tidegate.pipelines.runtime.landed_retention import refuse_removed, refuse_removed_lots
from tidegate.pipelines.runtime.quarantine import chosen, first_landed, lots_of, quarantined_in, removed, removed_upto
from tidegate.pipelines.runtime.quarantine import refuse_removed as refuse_removed_rows
from tidegate.pipelines.watermarks import MIN_TIMESTAMP


@dataclass(frozen=True)
class ReleasePlanner(ABC):
    """Plans the epochs of one INSERT."""

    on_lake: InsertOnLake
    clock: Clock

    @abstractmethod
    def next(self, last: ReleasePlan | None) -> ReleasePlan | Waiting:
        """The epoch after `last`, or why there is none yet."""

    def reach(self, last: ReleasePlan | None) -> int:
        """The time (ms, UTC) that the inputs have reached, as an epoch after `last` would find it; MIN_TIMESTAMP where
        epochs are not planned by time."""
        return MIN_TIMESTAMP

    def _plan(
        self, last: ReleasePlan | None, landed: Landed, pins: tuple[Pin, ...], bounds: Bounds | None = None
    ) -> ReleasePlan:
        """The epoch after `last` that takes all of each branch up to `landed` or, in event time, what lies between
        `bounds`. Its rows are counted by the watermark log, in event time by who plans. Raises PlanningError when a
        table was started again, or the script now joins by another time; BeyondRetention when rows of it are gone."""
        insert = self.on_lake.insert
        self._refuse_other_time(last, event=bounds is not None)
        if last is not None and last.probe != insert.probe:
            raise PlanningError(
                f"{insert.id} has released rows of {last.probe}, and the script's INSERT reads {insert.probe}",
                state="nothing was released",
                next_command="put the old probe back, or write a new INSERT into a new target",
            )
        takes = tuple(self._taken(last, number, row, bounds) for number, row in enumerate(landed))
        plan = ReleasePlan(
            insert=insert.id,
            epoch=last.epoch + 1 if last else 1,
            kind="release",
            instant=self.clock(),
            takes=takes,
            pins=pins,
            bounds=bounds,
            on_unmatched=self.on_lake.on_unmatched,
            computes=self.on_lake.computes,
        )
        refuse_removed(self.on_lake.lake, plan)
        return plan

    def _taken(
        self, last: ReleasePlan | None, number: int, landed: WatermarkRow | None, bounds: Bounds | None
    ) -> Taken:
        """What the epoch after `last` takes of one branch."""
        insert, stream = self.on_lake.insert, self.on_lake.probes[number]
        before = last.takes[number] if last else Taken(stream.name, landed.generation if landed else 1, 0, 0)
        if landed is not None and before.upto and landed.generation != before.generation:
            raise PlanningError(
                f"{stream.name} was started again (generation {landed.generation}), "
                f"and {insert.id} has published rows of generation {before.generation}",
                state="nothing was released",
                next_command="write a new INSERT into a new target: it begins at the new generation's first row",
            )
        generation, after = (landed or before).generation, before.upto
        upto = landed.epoch if landed else after
        own = Taken(stream.name, generation, after, upto, earlier=before.taken)
        if bounds is None:
            rows = stream.generation(generation).landed(after, upto)
            return replace(own, rows=rows, fresh=all_of(after, upto) if after < upto else ())
        beyond = last.ahead_of(before) if last else ()
        ahead = [area for area in beyond if not area.covered_by(after, micros(bounds.before))]
        since = last.settled_upto(before, stream.path) if last else 0
        return replace(own, since=since, ahead=merged(ahead)).between(bounds)

    def _refuse_other_time(self, last: ReleasePlan | None, *, event: bool) -> None:
        """Raises PlanningError where the INSERT has released in the other kind of time."""
        if last is not None and (last.bounds is not None) != event:
            was = "event time" if last.bounds else "processing time"
            raise PlanningError(
                f"{self.on_lake.insert.id} has released {last.epoch} epochs in {was}, and the script now joins by "
                "another time: which rows are still to be released is not known",
                state="nothing was released",
                next_command="put the old join back, or write a new INSERT into a new target",
            )

    def instead_of(
        self, position: Position, kind: Literal["re-release", "discard"], on_unmatched: OnUnmatched | None
    ) -> ReleasePlan:
        """The epoch that replaces the held one: the same probe rows, against newer pins or discarded. Raises
        PlanningError when no epoch is held."""
        insert, held = self.on_lake.insert, position.plan
        if held is None or position.state != "held":
            raise PlanningError(
                f"no epoch of {insert.id} is held",
                state=f"its newest epoch is {position.state or 'not planned yet'}",
                next_command=STATUS,
            )
        pins = held.pins if kind == "discard" else self._pins()
        if isinstance(pins, Waiting):
            raise PlanningError(pins.reason, state="the epoch stays held", next_command=STATUS)
        plan = replace(
            held,
            epoch=held.epoch + 1,
            kind=kind,
            instant=self.clock(),
            pins=pins,
            on_unmatched=on_unmatched or held.on_unmatched,
            computes=self.on_lake.computes,
            supersedes=held.epoch,
        )
        if kind == "discard":
            return plan.given_up()
        self._refuse_other_versions(plan, [held], held=held)
        return plan

    def _refuse_other_versions(
        self, plan: ReleasePlan, before: Sequence[ReleasePlan], *, held: ReleasePlan | None = None
    ) -> None:
        """Raise PlanningError where rows that plans had joined `before` would not find in this one what they had found;
        in processing time none has to. `held`: the plan whose place it takes, if any."""
        return

    def anew(self, planned: ReleasePlan) -> ReleasePlan:
        """The epoch that replaces one that was planned for another text of the INSERT and of which nothing is staged:
        the same rows against the same pins. Without it, an expression that fails at a row could never be corrected.
        Raises PlanningError where the text reads other tables than were planned, or joins by another time."""
        insert = self.on_lake.insert
        self._refuse_other_time(planned, event=insert.time == "event")
        if self.reads_otherwise(planned):
            tables = ", ".join((planned.probe, *sorted(pin.table for pin in planned.pins)))
            raise PlanningError(
                f"epoch {planned.epoch} of {insert.id} is planned over {tables}, and the script's INSERT "
                "reads other tables now",
                where=f"line {insert.location.line} of the script",
                state="the epoch is planned and not staged",
                next_command="put the old tables back, or write a new INSERT into a new target, which begins at the "
                "first row",
            )
        return self._in_the_place_of(planned)

    def reads_otherwise(self, planned: ReleasePlan) -> bool:
        """Whether the script's INSERT reads other tables than were planned, or joins by another time."""
        insert = self.on_lake.insert
        tables = (planned.probe, *sorted(pin.table for pin in planned.pins))
        other = tables != (insert.probe, *sorted(set(insert.builds)))
        return other or (planned.bounds is not None) != (insert.time == "event")

    def from_the_first_row(self, planned: ReleasePlan) -> ReleasePlan | Waiting:
        """The epoch in the place of `planned`, the first one, of which nothing was ever staged: what the script's
        INSERT, which reads other tables by now, would have begun with."""
        drafted = self.next(None)
        if isinstance(drafted, Waiting):
            return drafted
        return replace(drafted, epoch=planned.epoch + 1, supersedes=planned.epoch)

    def _in_the_place_of(self, planned: ReleasePlan) -> ReleasePlan:
        """A plan of the same rows, by the script as it is now; rows that a person has requested, under the terms of
        that request."""
        on_lake, number = self.on_lake, planned.epoch
        asked = planned.kind in ("re-release", "discard", "quarantine-release", "quarantine-discard")
        return replace(
            planned,
            epoch=number + 1,
            instant=self.clock(),
            on_unmatched=planned.on_unmatched if asked else on_lake.on_unmatched,
            computes=on_lake.computes,
            supersedes=number,
        )

    def out_of_quarantine(
        self,
        last: ReleasePlan | None,
        epochs: Sequence[ReleasedEpoch],
        request: Asked,
        on_unmatched: OnUnmatched | None,
    ) -> ReleasePlan | None:
        """The epoch after `last` that takes the rows which a request names and nobody has taken; None if there are
        none. Raises PlanningError where a build still loads, or the rows are of another probe than the script's."""
        insert, quarantined = self.on_lake.insert, quarantined_in(epochs)
        wanted = chosen(insert.id, quarantined, request)
        if not request.discards:
            upto = removed_upto(self.on_lake.lake, insert, self.on_lake.quarantine_path)
            refuse_removed_rows(insert.id, removed(quarantined, upto), wanted)
        landed = self.on_lake.landed
        if last is None or not wanted:
            return None
        numbers = {item.epoch for item in wanted}
        known = [epoch.oldest for epoch in epochs if epoch.plan.epoch in numbers] if last.bounds else []
        lots, oldest = lots_of(wanted, quarantined), min(known, default=MIN_TIMESTAMP)
        same_builds = {pin.table for pin in last.pins} == set(insert.builds)
        pins = last.pins if request.discards and same_builds else self._pins()
        if isinstance(pins, Waiting):
            raise PlanningError(pins.reason, state="the rows stay in quarantine", next_command=STATUS)
        if request.discards:  # nothing is read, so neither the probe's generation nor its time can stand in its way
            return replace(
                last,
                pins=pins,
                epoch=last.epoch + 1,
                kind="quarantine-discard",
                instant=self.clock(),
                takes=last.nothing_more(),
                bounds=last.then(),
                computes=self.on_lake.computes,
                supersedes=None,
                replaces=(),
                lots=lots,
                asked=request,
                oldest=oldest,
            )
        strange = next((item.plan for item in wanted if item.plan.probe != insert.probe), None)
        if not any(landed) or strange is not None:
            raise PlanningError(
                f"the quarantined rows of {insert.id} are rows of {strange.probe if strange else insert.probe}, which "
                "its INSERT does not read any more",
                where=f"line {insert.location.line} of the script",
                state="the rows stay in quarantine",
                next_command="put the old FROM back, or discard them: "
                + NextCommand("quarantine discard", (insert.id, "--because", "TEXT")),
            )
        self._refuse_other_time(last, event=insert.time == "event")
        plan = self._plan(last, landed, pins, last.then())
        plan = replace(plan, takes=last.nothing_more(), lots=lots, asked=request, oldest=oldest)
        first = min(first_landed(epoch) for epoch in epochs if epoch.plan.epoch in numbers)
        refuse_removed_lots(self.on_lake.lake, plan, first)
        # Rows that are in quarantine already are no reason to hold their INSERT; nor do they leave it without a match
        # unless somebody says so: a version that they met once may be gone.
        plan = replace(plan, kind="quarantine-release", on_unmatched=on_unmatched or "quarantine")
        taken = [item.plan for item in epochs if any(lot.first <= item.plan.epoch <= lot.last for lot in lots)]
        self._refuse_other_versions(plan, taken)
        return plan

    def _pins(self) -> tuple[Pin, ...] | Waiting:
        """The newest flipped generation of every build, at its newest landed epoch."""
        builds = self.on_lake.insert.builds
        pins = [self._pin(build) for build in builds]
        unflipped = tuple(build for build, pin in zip(builds, pins, strict=True) if pin is None)
        if unflipped:
            written = [build for build in unflipped if self.on_lake.pipeline.writer_of(build) is not None]
            reasons = [f"{name} has not published yet all that its probe had when it flipped" for name in written]
            if names := " and ".join(build for build in unflipped if build not in written):
                reasons.insert(0, f"{names} is still loading: its snapshot is not proved complete")
            return Waiting("; ".join(reasons), 0, unflipped)
        return tuple(pin for pin in pins if pin is not None)

    def _pin(self, build: str) -> Pin | None:
        stream, insert = Stream(self.on_lake.lake, build), self.on_lake.insert
        for row in stream.flipped:
            if build in insert.taken and (newest := stream.newest) and newest.generation != row.generation:
                return None  # its rows are taken of the newest generation, so they meet versions of that one
            if row.flip_epoch is not None and self.on_lake.reads(build, row.generation, "build"):
                pin = Pin(build, row.generation, row.epoch, row.flip_epoch)
                if insert.time != "event":
                    return pin
                if build not in insert.by_version:
                    return replace(pin, latest="alone")
                latest = "too" if build in insert.by_latest else None
                return replace(pin, horizon=stream.generation(row.generation).removed.time, latest=latest)
        return None


@dataclass(frozen=True)
class ProcessingTimePlanner(ReleasePlanner):
    """All that has landed, at the newest state of builds that have all flipped."""

    def next(self, last: ReleasePlan | None) -> ReleasePlan | Waiting:
        landed, pins = self.on_lake.landed, self._pins()
        if isinstance(pins, Waiting):
            return replace(pins, rows=sum(waiting_rows(landed, last)))
        plan = self._plan(last, landed, pins)
        if plan.rows == 0:
            if any(landed) and self.on_lake.is_logged and tells(self.on_lake, plan := plan.without_rows()):
                return plan
            return Waiting(f"no rows of {self.on_lake.insert.probe} have landed since the last release", 0)
        if plan.rows <= self.on_lake.max_rows:
            return plan
        share = self.on_lake.max_rows // sum(item.rows > 0 for item in plan.takes)
        landed = [
            row and replace(row, epoch=self._within(stream.generation(row.generation), item.after, row.epoch, share))
            for row, stream, item in zip(landed, self.on_lake.probes, plan.takes, strict=True)
        ]
        return self._plan(last, landed, pins)

    @staticmethod
    def _within(own: Generation, after: int, upto: int, most: int) -> int:
        """The last epoch up to which no more than `most` rows wait; at least the first one after `after` with rows."""
        low, high = after, upto  # more than that may lie up to `high`
        if own.landed(after, upto) <= most:
            return upto
        while high - low > 1:
            middle = (low + high) // 2
            if own.landed(after, middle) <= most:
                low = middle
            else:
                high = middle
        return low if own.landed(after, low) else high
