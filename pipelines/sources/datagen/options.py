"""What a datagen table may say in WITH, and what it means: how values are made, and when rows are due."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidegate.pipelines.connectors.spec import OptionSpec
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.sources.datagen.fields import FieldSpec, field_spec, nested
from tidegate.pipelines.syntax.dialect import parse_type
from tidegate.pipelines.syntax.secrets import needs_variables

OPTIONS = (
    OptionSpec(
        "rows-per-second", "integer", default="10000", doc="How many rows become due each second.", changes="neither"
    ),
    OptionSpec(
        "number-of-rows",
        "integer",
        doc="How many rows there are at all. Without it there is no end.",
        changes="neither",
    ),
    OptionSpec(
        "rows-at-start",
        "integer",
        default="0",
        doc="How many rows are due at once, at the first plan.",
        changes="neither",
    ),
    OptionSpec(
        "seed",
        "integer",
        default="0",
        doc="Another seed gives other values. Row i is the same for the same seed.",
        changes="identity",
    ),
    OptionSpec(
        "fields.#.kind",
        "choice",
        default="random",
        choices=("random", "sequence"),
        doc="How values are made.",
        changes="rows",
    ),
    OptionSpec("fields.#.min", doc="Least random number. Default: the type's least.", changes="rows"),
    OptionSpec("fields.#.max", doc="Greatest random number. Default: the type's greatest.", changes="rows"),
    OptionSpec("fields.#.start", "integer", doc="First number of a sequence.", changes="rows"),
    OptionSpec(
        "fields.#.end",
        "integer",
        doc="Last number of a sequence. The table ends with its shortest sequence.",
        changes="rows",
    ),
    OptionSpec(
        "fields.#.length",
        "integer",
        doc="Characters, bytes or elements. Default: 100, or the type's own if that is less; 3 for ARRAY and MAP.",
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
        doc="Timestamps lie up to this long before the row is due.",
        changes="rows",
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
    text = options.get(name, default)
    try:
        value = int(text)
    except ValueError as error:
        raise ValueError(f"'{name}' is no whole number: {text!r}") from error
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
