"""How time passes in an epoch of a process: step by step, as its inputs landed.

A step is one landed epoch of one input. While its records are processed the time is `at[step]`; once all are, it is
`end`. In event time `at[step]` is the combined watermark after the steps before; in processing time it is the moment
at which the step landed. Both come from the watermark log alone, so what a record meets does not depend on how many
steps an epoch takes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

from tidegate.pipelines.process.watermarks.combining import WatermarkCombiner
from tidegate.pipelines.process.watermarks.declarations import (
    IDLE_STATUS_WATERMARK_DECLARATION,
    GeneralizedWatermark,
    WatermarkDeclaration,
)
from tidegate.pipelines.watermarks import BEGINNING, CombinedWatermarkStatus, Watermark


@dataclass(frozen=True)
class Steps:
    """The time of every step; ms, UTC.

    Attributes:
        before: The process's time at the end of the epoch before.
        at: The time while each step's records are processed; never goes back.
        end: The time after the last step.
        inputs: Which input each step is of.
        handed_on: The other watermarks that the function gets before each step's records, and after the last; empty if
            there are none at all.
        declarations: Of those that inputs bring.
        processing_time: The epoch ends in processing time: its time is the clock's, and no watermark that goes on.
        landed_at: When each step landed, never back; empty where that is not used.
        reached: By the number of steps before, the time that the watermark has reached, where the next step's time is
            another: a step that turns to processing time begins at the moment at which it landed.
    """

    before: int
    at: tuple[int, ...]
    end: int
    inputs: tuple[int, ...]
    handed_on: tuple[tuple[GeneralizedWatermark, ...], ...] = ()
    declarations: tuple[WatermarkDeclaration, ...] = ()
    processing_time: bool = False
    landed_at: tuple[int, ...] = ()
    reached: Mapping[int, int] = field(default_factory=dict)

    @cached_property
    def moves(self) -> tuple[int, ...]:
        """The times that the epoch reaches, one after the other."""
        found: list[int] = []
        for step in range(len(self.at) + 1):
            for time in self.times(step):
                if time > (found[-1] if found else self.before):
                    found.append(time)
        return tuple(found)

    def times(self, step: int) -> tuple[int, ...]:
        """The times that are reached before the records of a step, or, after the last step, at the end."""
        time = self.at[step] if step < len(self.at) else self.end
        return (self.reached[step], time) if step in self.reached else (time,)

    def reaching(self, timer: int, now: int) -> int | None:
        """The first of them after `now` that reaches `timer`; None if there is none."""
        place = max(bisect_left(self.moves, timer), bisect_right(self.moves, now))
        return self.moves[place] if place < len(self.moves) else None

    def first_at(self, time: int) -> int:
        """The first step at whose records the time has reached `time`; the number of steps if there is none."""
        return bisect_left(self.at, time)


@dataclass(frozen=True)
class LandedStep:
    """One landed epoch of an input, as the watermark log has it.

    Attributes:
        watermark, idle: What the input had emitted once it had landed.
        landed_at: When it landed (ms, UTC).
        declared: The last watermark of each other declaration, once it had landed.
    """

    input: Hashable
    watermark: Watermark
    idle: bool = False
    landed_at: int = 0
    declared: tuple[GeneralizedWatermark, ...] = ()


def steps_of(
    inputs: Sequence[Hashable],
    landed: Sequence[LandedStep],
    *,
    before: Sequence[LandedStep] = (),
    last: Watermark = BEGINNING,
    time: int = BEGINNING.timestamp,
    now: int | None = None,
    declarations: Iterable[WatermarkDeclaration] = (),
    mode_first: bool = True,
) -> tuple[Steps, Watermark]:
    """The steps of an epoch, and the combined watermark that it ends with.

    Args:
        inputs: The names of all inputs, in order.
        landed: The steps, in order.
        before: What each input had emitted before: the last of its steps that an earlier epoch took.
        last: The combined watermark before.
        time: The time that the epoch before has come to (ms, UTC).
        now: The moment at which the epoch was planned, which is its end in processing time (ms, UTC).
        declarations: Of the watermarks that inputs bring beside event time.
        mode_first: Whether the records that come with a turn to processing time are in processing time already. Those
            of an event-time window are not: what their table emits with them makes none of them late.
    """
    declarations = tuple(declarations)
    status = CombinedWatermarkStatus(list(inputs), last=last)
    others = WatermarkCombiner(declarations, inputs)
    if before:
        status.input_all({step.input: (step.watermark, step.idle) for step in before})
    for step in before:
        for watermark in step.declared:
            others.receive(step.input, watermark)
    at: list[int] = []
    handed_on: list[tuple[GeneralizedWatermark, ...]] = [()]
    came_to, idle = time, status.idle
    reached: dict[int, int] = {}
    emitted = {step.input: step.watermark for step in before}
    for step in landed:
        if mode_first and step.watermark.use_processing_time:
            status.input_all({step.input: (step.watermark, step.idle)})
        if status.watermark.use_processing_time:
            if at and step.landed_at > came_to > at[-1]:
                reached[len(at)] = came_to
            came_to = max(came_to, step.landed_at)
        at.append(came_to)
        moved = step.watermark != emitted.get(step.input, BEGINNING)
        emitted[step.input] = step.watermark
        status.input_all({step.input: (step.watermark, step.idle)}, [step.input] if moved else ())
        if not status.watermark.use_processing_time:
            came_to = max(came_to, status.watermark.timestamp)
        found = [handed for watermark in step.declared for handed in others.receive(step.input, watermark)]
        if status.idle != idle:
            idle = status.idle
            found.insert(0, IDLE_STATUS_WATERMARK_DECLARATION.new_watermark(idle))
        handed_on.append(tuple(found))
    if status.watermark.use_processing_time and now is not None:
        came_to = max(came_to, now)
    places = {name: place for place, name in enumerate(inputs)}
    taken = tuple(places[step.input] for step in landed)
    others_at, now_is = tuple(handed_on) if any(handed_on) else (), status.watermark.use_processing_time
    landed_at = tuple(accumulate((step.landed_at for step in landed), max))
    return Steps(time, tuple(at), came_to, taken, others_at, declarations, now_is, landed_at, reached), status.watermark
