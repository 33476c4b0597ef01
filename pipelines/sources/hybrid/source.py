"""Reads several tables one after another: each up to its flip, the last one for ever (FLIP-326).

The switch to the last one is the flip of the hybrid table. From a step's stored ranges alone follows which part it is
of, so that a restart goes on in the same part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from tidegate.pipelines.connectors.protocol import (
    ExplainsFailures,
    Json,
    KeepsALog,
    KnowsItsEnd,
    Landed,
    LogRetention,
    ReadsAlone,
    SourceContext,
    Step,
    StoredStep,
    Unread,
)
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.hybrid.part import Part, flips
from tidegate.pipelines.sources.hybrid.switch import start_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class HybridSource:
    """One hybrid table."""

    def __init__(self, context: SourceContext) -> None:
        self._context = context
        self._parts: dict[int, Part] = {}

    @property
    def _last(self) -> int:
        return len(self._context.table.parts) - 1

    @property
    def _current(self) -> int:
        """The place of the part that the next step is of."""
        previous = self._context.previous
        if previous is None:
            return 0
        place = previous.step.ranges["part"]
        return place + 1 if flips(previous) and place < self._last else place

    def _begins(self, place: int) -> bool:
        """Whether the next step is the last part's first."""
        previous = self._context.previous
        return place == self._last and previous is not None and previous.step.ranges["part"] != place

    def _part(self, place: int) -> Part:
        if place not in self._parts:
            self._parts[place] = Part(self._context, self._context.table.parts[place], place)
        return self._parts[place]

    def _ahead(self) -> list[Part]:
        """The parts that are not over."""
        return [self._part(place) for place in range(self._current, self._last + 1)]

    def preflight(self) -> None:
        """Every part that is not over can be read."""
        for part in self._ahead():
            part.at().preflight()

    def ends(self) -> Json:
        return {"parts": {str(part.place): part.at().ends() for part in self._ahead()}}

    def plan(self, ends: Json, instant: int) -> Step | None:
        place = self._current
        start = start_at(self._context, instant) if self._begins(place) else None
        step = self._part(place).plan(ends["parts"][str(place)], instant, start)
        if step is None:
            return None
        if place == self._last:
            return replace(step, flips=False)
        return replace(step, phase="bounded", flips=step.flips and place == self._last - 1)

    def read(self, spark: SparkSession, step: StoredStep) -> DataFrame:
        part = self._of(step)
        return part.landable(part.at(step).read(spark, part.stored(step)))

    def reads_alone(self, step: StoredStep) -> bool:
        """`protocol.ReadsAlone`: as the part's own source has it."""
        part = self._of(step)
        return isinstance(part.source, ReadsAlone) and part.source.reads_alone(part.stored(step))

    def landed(self, step: StoredStep, rows: DataFrame | None) -> Landed:
        part = self._of(step)
        landed = part.landed(step, rows)
        if part.place == self._last:
            return landed
        # Its splits are the bounded phase's, which no word of their own makes to go on, or to be the end of the input:
        # they would hold the last part's watermark, or run ahead of all that it still has.
        kept = landed if part.tells_time else replace(landed, watermarks=None, idle={})
        return replace(kept, splits=frozenset(), ended=frozenset())

    def retention(self) -> LogRetention | None:
        """`protocol.KeepsALog`: of the part that the next step is of."""
        source = self._part(self._current).at()
        return source.retention() if isinstance(source, KeepsALog) else None

    def unread(self) -> Unread | None:
        """`protocol.KnowsItsEnd`: of the part that the next step is of, where that can be asked."""
        source = self._part(self._current).at()
        return source.unread() if isinstance(source, KnowsItsEnd) else None

    def _of(self, step: StoredStep) -> Part:
        return self._part(step.step.ranges["part"])

    def explain(self, error: BaseException, step: StoredStep) -> SourceError | None:
        """What the part's own source makes of an error."""
        part = self._of(step)
        return part.source.explain(error, part.stored(step)) if isinstance(part.source, ExplainsFailures) else None

    def delegate_watermark_periodic_emit(self, on_watermark_emit: Callable[[], None]) -> bool:
        """The runtime emits, from the flip on."""
        return False

    def close(self) -> None:
        for part in self._parts.values():
            part.source.close()
