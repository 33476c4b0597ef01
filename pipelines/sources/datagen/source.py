"""Reads generated rows as a range of numbers: nothing is stored, and a step is read again as it was. A field's value is
Spark SQL over the row's number: the same seed, field and number give the same value, anywhere.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.pipelines.connectors import flink
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
from tidegate.pipelines.sources.datagen.options import OPTIONS, FieldSpec, check, field_specs, schedule, seed
from tidegate.pipelines.syntax.types import APPROXIMATE, BINARIES, INTEGERS, STRINGS, Kind, quoted
from tidegate.pipelines.text import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_UNIT = 2.0**-53
_HASH_DIGITS = 16
"""Hexadecimal digits of one hash."""

_UNROLLED = 8
"""Hashes that are written out one by one; more are made by a loop in SQL."""


@dataclass(frozen=True)
class RowSql:
    """What every value may use: the row's number (SQL, BIGINT) and when it is due (SQL, microseconds, UTC)."""

    seed: int
    number: str
    due_us: str

    def bits(self, path: str, *salt: object) -> str:
        """64 random bits for a field, as BIGINT."""
        name = "/".join(map(str, (self.seed, path, *salt)))
        field = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest()) >> 1
        return f"xxhash64({field}L, {self.number})"

    def unit(self, path: str, *salt: object) -> str:
        """A random DOUBLE, 0 <= x < 1."""
        return f"(shiftrightunsigned({self.bits(path, *salt)}, 11) * {_UNIT!r}D)"

    def upto(self, count: int, path: str, *salt: object) -> str:
        """A random BIGINT, 0 <= x < count; count <= 2**63 - 1."""
        return f"pmod({self.bits(path, *salt)}, {count}L)"


def value_sql(spec: FieldSpec, row: RowSql, *salt: object) -> str:
    """The value of a field, in its Spark type. `salt` makes the elements of an array differ."""
    value = f"CAST({_value(spec, row, salt)} AS {spec.type.spark})"
    if not spec.null_rate:
        return value
    return f"IF({row.unit(spec.path, *salt, 'null')} < {spec.null_rate!r}D, NULL, {value})"


def _value(spec: FieldSpec, row: RowSql, salt: tuple[object, ...]) -> str:
    kind = spec.type.kind
    if spec.first is not None:
        number = f"({row.number} + {_long(spec.first)})"
        return f"CAST({number} AS STRING)" if kind in BINARIES else number
    if kind in INTEGERS:
        return _whole(spec, row, salt)
    if kind is Kind.DECIMAL:
        return _decimal(spec, row, salt)
    if kind in APPROXIMATE:
        unit = row.unit(spec.path, *salt)
        return f"({float(spec.low)!r}D * (1D - {unit}) + {float(spec.high)!r}D * {unit})"
    if kind in STRINGS:
        return f"substring({_hex(spec, row, salt, spec.length)}, 1, {_length(spec, row, salt)})"
    if kind in BINARIES:
        return f"unhex(substring({_hex(spec, row, salt, 2 * spec.length)}, 1, 2 * {_length(spec, row, salt)}))"
    if kind is Kind.ARRAY:
        return f"array({_elements(spec, spec.children[0], row, salt)})"
    if kind is Kind.MAP:
        return _map(spec, row, salt)
    if kind is Kind.ROW:
        fields = zip(spec.children, spec.type.fields, strict=True)
        return f"struct({', '.join(f'{value_sql(child, row, *salt)} AS {quoted(of.name)}' for child, of in fields)})"
    if kind is Kind.BOOLEAN:
        return f"({row.upto(2, spec.path, *salt)} = 1)"
    return _time(spec, row, salt)


def _whole(spec: FieldSpec, row: RowSql, salt: tuple[object, ...]) -> str:
    """A whole number from low to high, each about as often; BIGINT, or DECIMAL(38, 0) where they are far apart."""
    low, count = int(spec.low), int(spec.high) - int(spec.low) + 1
    if count == 2**64:
        return row.bits(spec.path, *salt)
    if count < 2**63:
        return f"({_long(low)} + {row.upto(count, spec.path, *salt)})"
    parts = [f"lpad(CAST({row.upto(10**size, spec.path, *salt, size)} AS STRING), {size}, '0')" for size in (18, 17, 3)]
    digits = f"CAST(concat({', '.join(parts)}) AS DECIMAL(38, 0))"
    if count >= 10**38:  # all of DECIMAL(38): a magnitude and a sign
        return f"({digits} * (1 - 2 * {row.upto(2, spec.path, *salt, 'sign')}))"
    return f"({_wide(low)} + pmod({digits}, {_wide(count)}))"


def _decimal(spec: FieldSpec, row: RowSql, salt: tuple[object, ...]) -> str:
    """The unscaled number with its point moved: as text, which is exact for all of 38 digits."""
    whole = _whole(spec, row, salt)
    return f"CAST(concat(CAST({whole} AS STRING), 'E-{spec.type.scale}') AS {spec.type.spark})"


def _hex(spec: FieldSpec, row: RowSql, salt: tuple[object, ...], digits: int) -> str:
    """At least this many hexadecimal digits."""
    count = max(-(-digits // _HASH_DIGITS), 1)
    if count <= _UNROLLED:
        hashes = [f"lpad(hex({row.bits(spec.path, *salt, number)}), {_HASH_DIGITS}, '0')" for number in range(count)]
        return f"lower(concat({', '.join(hashes)}))"
    several = f"xxhash64({row.bits(spec.path, *salt)}, number)"
    each = f"transform(sequence(1, {count}), number -> lpad(hex({several}), {_HASH_DIGITS}, '0'))"
    return f"lower(array_join({each}, ''))"


def _length(spec: FieldSpec, row: RowSql, salt: tuple[object, ...]) -> str:
    if not spec.variable_length or spec.length < 2:
        return str(spec.length)
    return f"CAST(1 + {row.upto(spec.length, spec.path, *salt, 'length')} AS INT)"


def _elements(spec: FieldSpec, child: FieldSpec, row: RowSql, salt: tuple[object, ...]) -> str:
    return ", ".join(value_sql(child, row, *salt, number) for number in range(spec.length))


def _map(spec: FieldSpec, row: RowSql, salt: tuple[object, ...]) -> str:
    """Equal keys count once, so that a map of few possible keys is shorter."""
    key, value = spec.children
    keys = f"array_distinct(array({_elements(spec, key, row, salt)}))"
    return f"map_from_arrays({keys}, slice(array({_elements(spec, value, row, salt)}), 1, size({keys})))"


def _time(spec: FieldSpec, row: RowSql, salt: tuple[object, ...]) -> str:
    """When the row is due, or up to `max_past_us` before; in UTC, whatever the session's time zone."""
    if spec.type.kind is Kind.DATE:
        return f"date_add(DATE '1970-01-01', CAST({row.due_us} DIV 86400000000L AS INT))"
    past = f"{row.due_us} - {row.upto(spec.max_past_us + 1, spec.path, *salt)}" if spec.max_past_us else row.due_us
    unit = 10 ** (6 - min(6 if spec.type.precision is None else spec.type.precision, 6))
    micros = past if unit == 1 else f"(({past}) DIV {unit}L) * {unit}L"
    if spec.type.kind is Kind.TIMESTAMP:
        return f"timestampadd(MICROSECOND, {micros}, TIMESTAMP_NTZ '1970-01-01 00:00:00')"
    return f"timestamp_micros({micros})"


def _long(value: int) -> str:
    """A BIGINT literal, or a DECIMAL(38, 0) one where that is too small (also for -2**63, which has no literal)."""
    return f"({value}L)" if abs(value) < 2**63 else _wide(value)


def _wide(value: int) -> str:
    return f"CAST('{value}' AS DECIMAL(38, 0))"


MAX_STEP_ROWS = 5_000_000
"""Rows of one step, so that a table with much to make up for shows progress and is resumed in between."""

ROWS_PER_TASK = 100_000
SPLIT = "0"


class DatagenSource(Source):
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


def _summary(start: int, stop: int, limit: int | None) -> str:
    if start == stop:
        return "no row is due yet" if stop != limit else f"all of {counted(stop, 'row')}"
    return f"rows {start + 1}-{stop}" + ("" if limit is None else f" of {limit}")


class DatagenConnector:
    """`'connector' = 'datagen'`."""

    spec = ConnectorSpec(
        name="datagen",
        doc="Rows made of numbers: the same seed gives the same rows. They become due at a steady rate.",
        options=OPTIONS,
        foreign=tuple(flink.CONNECTORS["datagen"]),
        system_time=True,
        system_watermark=True,
        check=check,
    )

    def source(self, context: SourceContext) -> Source:
        return DatagenSource(context)


CONNECTOR = DatagenConnector()
