"""Reads generated rows as a range of numbers: nothing is stored, and a step is read again as it was."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from pipelines.errors import PlanningError
from pipelines.sources import phaseless
from pipelines.sources.datagen.fields import FieldSpec, field_spec, nested
from pipelines.sources.datagen.schedule import Schedule
from pipelines.sources.datagen.values import RowSql, value_sql
from pipelines.sources.protocol import (
    SEQ_TYPE,
    ConnectorSpec,
    Json,
    Landed,
    OptionSpec,
    Source,
    SourceContext,
    Step,
    StoredStep,
)
from pipelines.sql.model import Table, needs_variables
from pipelines.sql.types import parse_type, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MAX_STEP_ROWS = 5_000_000
"""Rows of one step, so that a table with much to make up for shows progress and is resumed in between."""

ROWS_PER_TASK = 100_000

OPTIONS = (
    OptionSpec("rows-per-second", "integer", default="10000", doc="How many rows become due each second."),
    OptionSpec("number-of-rows", "integer", doc="How many rows there are at all. Without it there is no end."),
    OptionSpec("rows-at-start", "integer", default="0", doc="How many rows are due at once, at the first plan."),
    OptionSpec(
        "seed", "integer", default="0", doc="Another seed gives other values. Row i is the same for the same seed."
    ),
    OptionSpec("fields.#.kind", "choice", default="random", choices=("random", "sequence"), doc="How values are made."),
    OptionSpec("fields.#.min", doc="Least random number. Default: the type's least."),
    OptionSpec("fields.#.max", doc="Greatest random number. Default: the type's greatest."),
    OptionSpec("fields.#.start", "integer", doc="First number of a sequence."),
    OptionSpec("fields.#.end", "integer", doc="Last number of a sequence. The table ends with its shortest sequence."),
    OptionSpec(
        "fields.#.length",
        "integer",
        doc="Characters, bytes or elements. Default: 100, or the type's own if that is less; 3 for ARRAY and MAP.",
    ),
    OptionSpec("fields.#.var-len", "boolean", default="false", doc="Lengths are random, from 1 to length."),
    OptionSpec("fields.#.null-rate", "float", default="0", doc="The share of NULLs, from 0 to 1."),
    OptionSpec(
        "fields.#.max-past", "duration", default="0", doc="Timestamps lie up to this long before the row is due."
    ),
)


def field_specs(table: Table, options: Mapping[str, str]) -> list[FieldSpec]:
    """How the values of every physical column are made. Raises ValueError for a wrong option."""
    return [field_spec(column.name, parse_type(column.type), options) for column in table.physical_columns]


def schedule(options: Mapping[str, str], fields: Sequence[FieldSpec]) -> Schedule:
    """When rows are due. Raises ValueError for a wrong option."""
    rate = _whole(options, "rows-per-second", "10000", least=1)
    at_start = _whole(options, "rows-at-start", "0", least=0)
    limits = [field.rows for field in fields if field.rows is not None]
    if "number-of-rows" in options:
        limits.append(_whole(options, "number-of-rows", "", least=0))
    return Schedule(rate, at_start, min(limits, default=None))


def check(table: Table) -> Sequence[str]:
    """What is wrong with a table's options, sentence by sentence; no I/O.

    An option that needs an environment variable, and the field it belongs to, are checked when the source is made.
    """
    unknown = [name for name, value in table.options.items() if needs_variables(value)]
    options = {name: value for name, value in table.options.items() if name not in unknown}
    errors = _unknown_fields(table)
    fields: list[FieldSpec] = []
    for column in table.physical_columns:
        if any(name.startswith(f"fields.{column.name}.") for name in unknown):
            continue
        try:
            fields.append(field_spec(column.name, parse_type(column.type), options))
        except ValueError as error:
            errors.append(str(error))
    try:
        schedule(options, fields)
        _whole(options, "seed", "0", least=-(2**63))
    except ValueError as error:
        errors.append(str(error))
    return errors


def _unknown_fields(table: Table) -> list[str]:
    known: list[str] = []
    waiting = [(column.name, parse_type(column.type)) for column in table.physical_columns]
    while waiting:
        path, of = waiting.pop()
        known.append(path)
        waiting.extend(nested(path, of))
    errors = []
    for option in table.options:
        path = option.removeprefix("fields.").rpartition(".")[0]
        if option.startswith("fields.") and path not in known:
            near = difflib.get_close_matches(path, known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            errors.append(f"'{option}': the table has no field {path} that could be generated{hint}")
    return errors


def _whole(options: Mapping[str, str], name: str, default: str, *, least: int) -> int:
    text = options.get(name, default)
    try:
        value = int(text)
    except ValueError as error:
        raise ValueError(f"'{name}' is no whole number: {text!r}") from error
    if value < least:
        raise ValueError(f"'{name}' is at least {least}, not {value}")
    return value


class DatagenSource:
    """One generated table. Raises PlanningError when its options make no sense."""

    def __init__(self, context: SourceContext) -> None:
        self._context = context
        try:
            self._fields = field_specs(context.table, context.options)
            self._schedule = schedule(context.options, self._fields)
            self._seed = _whole(context.options, "seed", "0", least=-(2**63))
        except ValueError as error:
            raise PlanningError(
                str(error),
                where=f"WITH options of {context.table.name}",
                state="nothing was generated",
                next_command="correct the option, and run again",
            ) from error

    def preflight(self) -> None:
        """There is nothing that could be missing."""

    def ends(self) -> Json:
        return {"at": self._context.clock()}

    def plan(self, ends: Json, instant: int) -> Step | None:
        first, previous = self._context.first, self._context.previous
        base = first.step.ranges["base"] if first else instant
        start = previous.step.ranges["to"] if previous else 0
        first_end = self._schedule.count(phaseless.first_ends(self._context, ends)["at"] - base)
        due = self._schedule.count(ends["at"] - base)
        if first_end and not self._context.flipped:
            due = min(due, first_end)
        stop = max(min(due, start + MAX_STEP_ROWS), start)
        if stop == start and first is not None:
            return None
        limit = self._schedule.limit
        return Step(
            phaseless.ranges(self._context, ends, base=base, **{"from": start, "to": stop}),
            flips=not self._context.flipped and stop >= first_end and (stop > 0 or stop == limit),
            summary=_summary(start, stop, limit),
        )

    def read(self, spark: SparkSession, step: StoredStep) -> DataFrame:
        base, start, stop = (step.step.ranges[name] for name in ("base", "from", "to"))
        due_us = self._schedule.due_us_sql(base, "id")
        row = RowSql(self._seed, "id", due_us)
        tasks = max(1, min(spark.sparkContext.defaultParallelism, -(-(stop - start) // ROWS_PER_TASK)))
        op = "c" if self._context.table.role == "build" else "+I"
        seq = "named_struct('phase', 1, 'log', 0, 'file', 0L, 'position', id, 'row', 0)"
        return spark.range(start, stop, 1, tasks).selectExpr(
            *[f"{value_sql(field, row)} AS {quoted(field.path)}" for field in self._fields],
            f"'{op}' AS _op",
            f"CAST({seq} AS {SEQ_TYPE}) AS _seq",
            f"timestamp_micros({due_us}) AS _rowtime",
            "'0' AS _split",
            "id AS _offset",
        )

    def landed(self, step: StoredStep, rows: DataFrame | None) -> Landed:
        base, stop = step.step.ranges["base"], step.step.ranges["to"]
        elapsed = self._context.clock() - base
        behind = stop < self._schedule.count(elapsed)
        lag = max(elapsed - self._schedule.due_us(stop) // 1000, 0) if behind else 0
        return Landed(lag_ms=lag, position=f"row {stop}")

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
        check=check,
    )

    def source(self, context: SourceContext) -> Source:
        return DatagenSource(context)


CONNECTOR = DatagenConnector()
