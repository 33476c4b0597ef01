"""Reads several tables one after another: each up to its flip, the last one for ever (FLIP-326).

The switch to the last one is the flip of the hybrid table. From a step's stored ranges alone follows which part it is
of, so that a restart goes on in the same part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tidegate.pipelines.connectors.protocol import (
    ExplainsFailures,
    Json,
    KeepsALog,
    KnowsItsEnd,
    Landed,
    LogRetention,
    Planned,
    PlanRequest,
    ReadsAlone,
    Source,
    SourceContext,
    SourcePosition,
    StoredStep,
    Unread,
)
from tidegate.pipelines.connectors.registry import connector
from tidegate.pipelines.connectors.spec import ConnectorSpec, OptionSpec
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.hybrid.part import Part, flips, start_at

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

    def _current(self, position: SourcePosition) -> int:
        """The place of the part that the next step is of."""
        previous = position.previous
        if previous is None:
            return 0
        place = previous.step.ranges["part"]
        return place + 1 if flips(previous) and place < self._last else place

    def _part(self, place: int) -> Part:
        if place not in self._parts:
            self._parts[place] = Part(self._context, self._context.table.parts[place], place)
        return self._parts[place]

    def _not_over(self, position: SourcePosition) -> list[Part]:
        return [self._part(place) for place in range(self._current(position), self._last + 1)]

    def preflight(self, position: SourcePosition) -> None:
        """Every part that is not over can be read."""
        for part in self._not_over(position):
            part.source.preflight(part.position(position))

    def ends(self, position: SourcePosition) -> Json:
        return {
            "parts": {str(part.place): part.source.ends(part.position(position)) for part in self._not_over(position)}
        }

    def plan(self, request: PlanRequest) -> Planned:
        place, previous = self._current(request), request.previous
        begins = place == self._last and previous is not None and previous.step.ranges["part"] != place
        planned = self._part(place).plan(request, start_at(self._context, request) if begins else None)
        if planned.step is None:
            return planned
        if place == self._last:
            return replace(planned, step=replace(planned.step, flips=False))
        flips_with = planned.step.flips and place == self._last - 1
        return replace(planned, step=replace(planned.step, phase="bounded", flips=flips_with))

    def read(self, spark: SparkSession, step: StoredStep) -> DataFrame:
        part = self._of(step)
        return part.landable(part.source.read(spark, part.stored(step)))

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
        passed_on = landed if part.tells_time else replace(landed, watermarks=None, idle={})
        return replace(passed_on, splits=frozenset(), ended=frozenset())

    def retention(self, position: SourcePosition) -> LogRetention | None:
        """`protocol.KeepsALog`: of the part that the next step is of."""
        part = self._part(self._current(position))
        return part.source.retention(part.position(position)) if isinstance(part.source, KeepsALog) else None

    def unread(self, position: SourcePosition) -> Unread | None:
        """`protocol.KnowsItsEnd`: of the part that the next step is of, where that can be asked."""
        part = self._part(self._current(position))
        return part.source.unread(part.position(position)) if isinstance(part.source, KnowsItsEnd) else None

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


SOURCES = OptionSpec(
    "hybrid.sources",
    required=True,
    doc="Names of tables of the script, in order: `history, live`. All but the last are read up to their flip.",
    changes="identity",
)
SWITCH = OptionSpec(
    "hybrid.switch",
    "choice",
    default="options",
    choices=("options", "rowtime"),
    doc="Where the last table begins: where its own options say (options), or at the greatest rowtime of the rows that "
    "came before it (rowtime), by the record times of a topic.",
    changes="rows",
)
OVERLAP = OptionSpec(
    "hybrid.switch.overlap",
    "duration",
    default="0 s",
    doc="For rowtime: so much earlier. Rows of that time come twice.",
    changes="rows",
)


def parts(options: Mapping[str, str]) -> Sequence[str]:
    """The names that the option lists."""
    return [name.strip() for name in options[SOURCES.name].split(",")]


def check(table: Table) -> Sequence[str]:
    """What is wrong with where the last table begins."""
    if table.options.get(SWITCH.name, "options") == "options":
        return [f"'{OVERLAP.name}' is for '{SWITCH.name}' = 'rowtime'"] if OVERLAP.name in table.options else []
    last, said = table.parts[-1], f"'{SWITCH.name}' = 'rowtime'"
    start = connector(last.connector).spec.start_options
    watermark = table.watermark
    if not start:
        return [f"{said}: {last.name} is a {last.connector} table, which cannot begin at a time"]
    if watermark is None or table.column(watermark.column).source_time:
        return [f"{said} needs WATERMARK FOR a column of {table.name}, which names the rowtime that its rows carry"]
    given = next((name for name in start if name in last.options), None)
    return [f"{said}: {last.name} begins there, and its '{given}' says otherwise: leave one out"] if given else []


class HybridConnector:
    """`'connector' = 'hybrid'`."""

    spec = ConnectorSpec(
        name="hybrid",
        doc="Several tables of the script, one after another: bounded ones, then one that goes on.",
        options=(SOURCES, SWITCH, OVERLAP),
        system_time=True,
        system_watermark=True,
        phases=lambda options: True,
        signals=lambda options: True,
        parts=parts,
        check=check,
    )

    def source(self, context: SourceContext) -> Source:
        return HybridSource(context)


CONNECTOR = HybridConnector()
