"""Which probe rows the next epoch of an INSERT releases, and against which pins."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from pipelines.clock import Clock
from pipelines.errors import PlanningError
from pipelines.runtime.plans import Pin, ReleasePlan
from pipelines.runtime.releasing.standing import Position, Standing, Waiting
from pipelines.sql.model import OnUnmatched


@dataclass(frozen=True)
class ReleasePlanner:
    """Plans by processing time: all that has landed, at the newest state of builds that have all flipped."""

    standing: Standing
    clock: Clock

    def next(self, last: ReleasePlan | None) -> ReleasePlan | Waiting:
        """The epoch after `last`, or why there is none yet."""
        insert, lake = self.standing.insert, self.standing.lake
        landed = lake.watermarks.last(insert.probe)
        after = last.upto if last else 0
        pins = self._pins()
        rows = self.standing.rows_between(landed.generation if landed else 1, after, landed.epoch if landed else 0)
        if isinstance(pins, Waiting):
            return replace(pins, rows=rows)
        if landed is None or landed.epoch <= after or rows == 0:
            return Waiting(f"no rows of {insert.probe} have landed since the last release", 0)
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
            after=after,
            upto=landed.epoch,
            pins=pins,
            on_unmatched=self.standing.on_unmatched,
            computes=self.standing.pipeline.digest(insert),
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
        return replace(
            held,
            epoch=held.epoch + 1,
            kind=kind,
            instant=self.clock(),
            pins=pins,
            on_unmatched=on_unmatched or held.on_unmatched,
            computes=self.standing.pipeline.digest(insert),
            supersedes=held.epoch,
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
