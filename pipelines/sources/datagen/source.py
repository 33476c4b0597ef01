"""Reads generated rows as a range of numbers: nothing is stored, and a step is read again as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidegate.pipelines.connectors.protocol import (
    Json,
    Landed,
    Planned,
    PlanRequest,
    Source,
    SourceContext,
    SourcePosition,
    Step,
    StoredStep,
    Unread,
)
from tidegate.pipelines.connectors.spec import SEQ_TYPE, ConnectorSpec
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.frames import given
from tidegate.pipelines.sources import planning
from tidegate.pipelines.sources.datagen.options import OPTIONS, check, field_specs, schedule, seed
from tidegate.pipelines.sources.datagen.values import RowSql, value_sql
from tidegate.pipelines.syntax.types import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MAX_STEP_ROWS = 5_000_000
"""Rows of one step, so that a table with much to make up for shows progress and is resumed in between."""

ROWS_PER_TASK = 100_000
SPLIT = "0"


class DatagenSource:
    """One generated table. Raises PlanningError when its options make no sense."""

    asks_rows = False

    def __init__(self, context: SourceContext) -> None:
        self._context = context
        try:
            self._fields = field_specs(context.table, context.options)
            self._schedule = schedule(context.options, self._fields)
            self._seed = seed(context.options)
        except ValueError as error:
            raise PlanningError(
                str(error),
                where=f"WITH options of {context.table.name}",
                state="nothing was generated",
                next_command="correct the option, and run again",
            ) from error

    def preflight(self, position: SourcePosition) -> None:
        """There is nothing that could be missing."""

    def ends(self, position: SourcePosition) -> Json:
        return {"at": self._context.clock()}

    def plan(self, request: PlanRequest) -> Planned:
        if SPLIT in request.blocked:
            return Planned()
        first, previous = request.first, request.previous
        base = first.step.ranges["base"] if first else request.instant
        start = previous.step.ranges["to"] if previous else 0
        first_end = self._schedule.count(planning.first_ends(request)["at"] - base)
        due = self._schedule.count(request.ends["at"] - base)
        if first_end and not request.flipped:
            due = min(due, first_end)
        stop = max(min(due, start + (request.max_rows or MAX_STEP_ROWS)), start)
        if stop == start and first is not None:
            return Planned()
        limit = self._schedule.limit
        step = Step(
            planning.ranges(request, request.ends, base=base, **{"from": start, "to": stop}),
            flips=not request.flipped and stop >= first_end and (stop > 0 or stop == limit),
            summary=_summary(start, stop, limit),
        )
        return Planned(step)

    def read(self, spark: SparkSession, step: StoredStep) -> DataFrame:
        base, start, stop = (step.step.ranges[name] for name in ("base", "from", "to"))
        due_us = self._schedule.due_us_sql(base, "id")
        row = RowSql(self._seed, "id", due_us)
        tasks = max(1, min(spark.sparkContext.defaultParallelism, -(-(stop - start) // ROWS_PER_TASK)))
        op = "c" if self._context.table.role == "build" else "+I"
        seq = "named_struct('phase', 1, 'log', 0, 'file', 0L, 'position', id, 'row', 0)"
        ids = spark.range(start, stop, 1, tasks)
        if start < stop and tasks == 1:
            ids = spark.range(1).selectExpr(f"explode(sequence({given(f'{start}L')}, {given(f'{stop - 1}L')})) AS id")
        return ids.selectExpr(
            *[f"{value_sql(field, row)} AS {quoted(field.path)}" for field in self._fields],
            f"'{op}' AS _op",
            f"CAST({seq} AS {SEQ_TYPE}) AS _seq",
            f"timestamp_micros({due_us}) AS _rowtime",
            f"'{SPLIT}' AS _split",
            "id AS _offset",
        )

    def landed(self, step: StoredStep, rows: DataFrame | None) -> Landed:
        base, stop = step.step.ranges["base"], step.step.ranges["to"]
        elapsed = self._context.clock() - base
        behind = stop < self._schedule.count(elapsed)
        lag = max(elapsed - self._schedule.due_us(stop) // 1000, 0) if behind else 0
        ended = frozenset({SPLIT}) if stop == self._schedule.limit else frozenset()
        return Landed(lag_ms=lag, position=f"row {stop}", splits=frozenset({SPLIT}), ended=ended)

    def unread(self, position: SourcePosition) -> Unread | None:
        """`protocol.KnowsItsEnd`: the rows that are due by now and have not been made."""
        if position.previous is None:
            return None
        base, stop = (position.previous.step.ranges[name] for name in ("base", "to"))
        rest = self._schedule.count(self._context.clock() - base) - stop
        if rest <= 0:
            return Unread()
        return Unread(rest, "row", base + self._schedule.due_us(stop) // 1000)

    def delegate_watermark_periodic_emit(self, on_watermark_emit: Callable[[], None]) -> bool:
        """The runtime emits."""
        return False

    def close(self) -> None:
        """Nothing is open."""


def _summary(start: int, stop: int, limit: int | None) -> str:
    if start == stop:
        return "no row is due yet" if stop != limit else f"all of {limit} rows"
    return f"rows {start + 1}-{stop}" + ("" if limit is None else f" of {limit}")


class DatagenConnector:
    """`'connector' = 'datagen'`."""

    spec = ConnectorSpec(
        name="datagen",
        doc="Rows made of numbers: the same seed gives the same rows. They become due at a steady rate.",
        options=OPTIONS,
        system_time=True,
        system_watermark=True,
        check=check,
    )

    def source(self, context: SourceContext) -> Source:
        return DatagenSource(context)


CONNECTOR = DatagenConnector()
