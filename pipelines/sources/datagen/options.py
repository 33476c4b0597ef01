"""The WITH options of a datagen table, and what they mean: how values are made, and when rows become due.

Field names of nested types follow Flink: `address.street`, `tags.element`, `scores.key`, `scores.value`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Context, Decimal, InvalidOperation

from tidegate.pipelines.connectors.options import flag
from tidegate.pipelines.connectors.spec import OptionSpec
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.syntax.dialect import parse_type
from tidegate.pipelines.syntax.durations import parse_duration
from tidegate.pipelines.syntax.secrets import needs_variables
from tidegate.pipelines.syntax.types import (
    APPROXIMATE,
    BINARIES,
    INTEGERS,
    MAX_PRECISION,
    NUMERIC,
    STRINGS,
    TIMESTAMPS,
    FlinkType,
    Kind,
)

OPTIONS = (
    OptionSpec(
        "rows-per-second", "integer", default="10000", doc="How many rows become due each second.", changes="neither"
    ),
    OptionSpec(
        "number-of-rows",
        "integer",
        doc="How many rows the table has in total. Default: no end.",
        changes="neither",
    ),
    OptionSpec(
        "rows-at-start",
        "integer",
        default="0",
        doc="How many rows are due at the first plan already.",
        changes="neither",
    ),
    OptionSpec(
        "seed",
        "integer",
        default="0",
        doc="Another seed gives other values. The same seed always gives the same row i.",
        changes="identity",
    ),
    OptionSpec(
        "fields.#.kind",
        "choice",
        default="random",
        choices=("random", "sequence"),
        doc="random: random values. sequence: the values from `start` to `end`, one a row.",
        changes="rows",
    ),
    OptionSpec("fields.#.min", doc="The least random number. Default: the least of the type.", changes="rows"),
    OptionSpec("fields.#.max", doc="The greatest random number. Default: the greatest of the type.", changes="rows"),
    OptionSpec("fields.#.start", "integer", doc="The first number of a sequence.", changes="rows"),
    OptionSpec(
        "fields.#.end",
        "integer",
        doc="The last number of a sequence. The table ends with its shortest sequence.",
        changes="rows",
    ),
    OptionSpec(
        "fields.#.length",
        "integer",
        doc="How many characters, bytes or elements a value has. Default: 100, or the type's own length if that is "
        "less; 3 for ARRAY and MAP.",
        changes="rows",
    ),
    OptionSpec(
        "fields.#.var-len", "boolean", default="false", doc="Lengths are random, from 1 to length.", changes="rows"
    ),
    OptionSpec("fields.#.null-rate", "float", default="0", doc="The share of NULLs, from 0 to 1.", changes="rows"),
    OptionSpec(
        "fields.#.max-past",
        "duration",
        default="0",
        doc="How long before the row is due a timestamp may be, at most.",
        changes="rows",
    ),
)

DEFAULT_LENGTH = 100
"""Of a STRING, BYTES, or a longer VARCHAR or VARBINARY; a CHAR or BINARY has its own."""

DEFAULT_ELEMENTS = 3
"""Of an ARRAY or MAP."""

MAX_LENGTH = 65_536
MAX_ELEMENTS = 100

BITS = {Kind.TINYINT: 8, Kind.SMALLINT: 16, Kind.INT: 32, Kind.BIGINT: 64}
LARGEST = {Kind.FLOAT: 3.4028234663852886e38, Kind.DOUBLE: 1.7976931348623157e308}
_EXACT = Context(prec=2 * MAX_PRECISION)
"""Python's own context rounds to 28 digits."""

_SIZED = STRINGS | BINARIES | {Kind.ARRAY, Kind.MAP}
_SEQUENCES = NUMERIC | STRINGS | BINARIES


@dataclass(frozen=True)
class FieldSpec:
    """How a field's values are made.

    `low` and `high` bound random numbers: int for integers, unscaled int for DECIMAL, float for FLOAT and DOUBLE.
    `first` and `last` bound a sequence. `length` is characters, bytes or elements. `max_past_us` is in microseconds.
    """

    path: str
    type: FlinkType
    low: int | float = 0
    high: int | float = 0
    first: int | None = None
    last: int | None = None
    length: int = 0
    variable_length: bool = False
    null_rate: float = 0.0
    max_past_us: int = 0
    children: tuple[FieldSpec, ...] = field(default=())

    @property
    def rows(self) -> int | None:
        """How many rows its sequences last, inner ones too; None if all is random."""
        own = [] if self.first is None or self.last is None else [self.last - self.first + 1]
        return min([*own, *(child.rows for child in self.children if child.rows is not None)], default=None)


def nested(path: str, of: FlinkType) -> Iterator[tuple[str, FlinkType]]:
    """The fields directly inside a nested type."""
    if of.kind is Kind.ROW:
        yield from ((f"{path}.{inner.name}", inner.type) for inner in of.fields)
    elif of.kind is Kind.ARRAY:
        yield f"{path}.element", of.element
    elif of.kind is Kind.MAP:
        yield from zip((f"{path}.key", f"{path}.value"), of.arguments, strict=True)


def allowed(of: FlinkType, *, sequence: bool) -> list[str]:
    """The option names that a field of this type takes."""
    if sequence:
        return ["kind", "start", "end"]
    names = ["kind"] if of.kind in _SEQUENCES else []
    names += ["min", "max"] if of.kind in NUMERIC else []
    names += ["length"] if of.kind in _SIZED else []
    names += ["var-len"] if of.kind in (STRINGS | BINARIES) - {Kind.CHAR, Kind.BINARY} else []
    names += ["max-past"] if of.kind in TIMESTAMPS else []
    return [*names, "null-rate"]


def field_spec(path: str, of: FlinkType, options: Mapping[str, str]) -> FieldSpec:
    """The spec of the field called `path`. `options` are the whole table's; each parses as its OptionSpec says. Raises
    ValueError for a wrong one."""
    own = _own(path, of, options)
    kind = own.get("kind", "random")
    if kind == "sequence" and of.kind not in _SEQUENCES:
        raise ValueError(f"'fields.{path}.kind': there is no sequence of {of}")
    names = allowed(of, sequence=kind == "sequence")
    if wrong := sorted(set(own) - set(names)):
        raise ValueError(f"'fields.{path}.{wrong[0]}' does not go with {kind} {of}; what goes is {', '.join(names)}")
    if kind == "sequence":
        return _sequence(path, of, own)
    low, high = _bounds(path, of, own)
    return FieldSpec(
        path,
        of,
        low=low,
        high=high,
        length=_length(path, of, own),
        variable_length=flag(own, "var-len"),
        null_rate=_null_rate(path, own),
        max_past_us=parse_duration(own.get("max-past", "0")) // timedelta(microseconds=1),
        children=tuple(field_spec(name, inner, options) for name, inner in nested(path, of)),
    )


def _own(path: str, of: FlinkType, options: Mapping[str, str]) -> dict[str, str]:
    prefix = f"fields.{path}."
    inner = tuple(f"fields.{name}." for name, _ in nested(path, of))
    return {
        name[len(prefix) :]: value
        for name, value in options.items()
        if name.startswith(prefix) and not name.startswith(inner)
    }


def _sequence(path: str, of: FlinkType, own: Mapping[str, str]) -> FieldSpec:
    for name in ("start", "end"):
        if name not in own:
            raise ValueError(f"'fields.{path}.{name}' is needed: a sequence goes from start to end")
    first, last = int(own["start"]), int(own["end"])
    if first > last:
        raise ValueError(f"'fields.{path}.end' is before its start: {last} < {first}")
    low, high = _range(of) if of.kind in INTEGERS else _range(FlinkType(Kind.BIGINT))
    if of.kind is Kind.DECIMAL:
        digits = 10 ** ((of.precision or 10) - (of.scale or 0)) - 1
        low, high = max(low, -digits), min(high, digits)
    for name, value in (("start", first), ("end", last)):
        if not low <= value <= high:
            raise ValueError(f"'fields.{path}.{name}' does not fit into {of}: {value}")
    return FieldSpec(path, of, first=first, last=last)


def _bounds(path: str, of: FlinkType, own: Mapping[str, str]) -> tuple[int | float, int | float]:
    if of.kind not in NUMERIC:
        return 0, 0
    least, most = _range(of)
    low = _number(path, "min", own["min"], of) if "min" in own else least
    high = _number(path, "max", own["max"], of) if "max" in own else most
    for name, value in (("min", low), ("max", high)):
        if not least <= value <= most:
            raise ValueError(f"'fields.{path}.{name}' does not fit into {of}: {own[name]}")
    if low > high:
        raise ValueError(f"'fields.{path}.min' is greater than its max ({own['min']} > {own['max']})")
    if high - low >= 10**38 and own.keys() & {"min", "max"} and of.kind is Kind.DECIMAL:
        raise ValueError(
            f"'fields.{path}.min' and its max are more than 38 digits apart; leave both out, or narrow them"
        )
    return low, high


def _range(of: FlinkType) -> tuple[int | float, int | float]:
    if of.kind in INTEGERS:
        half = 2 ** (BITS[of.kind] - 1)
        return -half, half - 1
    if of.kind is Kind.DECIMAL:
        return -(10 ** (of.precision or 10)) + 1, 10 ** (of.precision or 10) - 1
    return -LARGEST[of.kind], LARGEST[of.kind]


def _number(path: str, name: str, text: str, of: FlinkType) -> int | float:
    try:
        value = Decimal(text.strip())
        if not value.is_finite():
            raise InvalidOperation
    except InvalidOperation as error:
        raise ValueError(f"'fields.{path}.{name}' is no number: {text!r}") from error
    if of.kind in APPROXIMATE:
        return float(value)
    scaled = value.scaleb(of.scale or 0, _EXACT) if of.kind is Kind.DECIMAL else value
    if scaled != scaled.to_integral_value():
        raise ValueError(f"'fields.{path}.{name}' does not fit into {of}: {text}")
    return int(scaled)


def _length(path: str, of: FlinkType, own: Mapping[str, str]) -> int:
    if of.kind not in _SIZED:
        return 0
    default, most = DEFAULT_LENGTH, MAX_LENGTH
    if of.kind in (Kind.ARRAY, Kind.MAP):
        default, most = DEFAULT_ELEMENTS, MAX_ELEMENTS
    elif of.precision is not None:
        most = min(of.precision, MAX_LENGTH)
        default = most if of.kind in (Kind.CHAR, Kind.BINARY) else min(most, DEFAULT_LENGTH)
    length = int(own.get("length", default))
    if not 0 <= length <= most:
        raise ValueError(f"'fields.{path}.length' is from 0 to {most} for {of}, not {length}")
    return length


def _null_rate(path: str, own: Mapping[str, str]) -> float:
    text = own.get("null-rate", "0")
    if not 0 <= float(text) <= 1:
        raise ValueError(f"'fields.{path}.null-rate' is from 0 to 1, not {text}")
    return float(text)


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


def seed(options: Mapping[str, str]) -> int:
    """The seed of all values. Raises ValueError if it is no number."""
    return _whole(options, "seed", "0", least=-(2**63))


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
        seed(options)
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
    value = int(options.get(name, default))
    if value < least:
        raise ValueError(f"'{name}' is at least {least}, not {value}")
    return value


SECOND_US = 1_000_000


@dataclass(frozen=True)
class Schedule:
    """Row i is due at base + max(i - at_start, 0) / rate seconds, where base is the instant of the first plan.

    `limit` is how many rows there are at all; None for no end.
    """

    rate: int
    at_start: int = 0
    limit: int | None = None

    def count(self, elapsed_ms: int) -> int:
        """How many rows are due `elapsed_ms` after the first plan: rows 0 to count - 1."""
        due = self.at_start + self.rate * max(elapsed_ms, 0) // 1000
        return due if self.limit is None else min(due, self.limit)

    def due_us(self, row: int) -> int:
        """When `row` is due, in microseconds after the first plan."""
        return max(row - self.at_start, 0) * SECOND_US // self.rate

    def due_us_sql(self, base_ms: int, row: str) -> str:
        """The same in Spark SQL, as microseconds since the epoch. `row` is SQL, BIGINT."""
        after_start = f"greatest({row} - {self.at_start}L, 0L)"
        # Whole seconds apart, since rows * 1,000,000 would overflow in a table that has run for long.
        whole = f"({after_start} DIV {self.rate}L) * {SECOND_US}L"
        rest = f"(({after_start} % {self.rate}L) * {SECOND_US}L) DIV {self.rate}L"
        return f"({base_ms * 1000}L + {whole} + {rest})"
