"""What the formats check of a table, and the options that several of them have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidegate.pipelines.connectors.spec import OptionSpec
from tidegate.pipelines.connectors.table import Column
from tidegate.pipelines.sources.formats import text
from tidegate.pipelines.syntax.dialect import parse_type
from tidegate.pipelines.syntax.types import STRINGS, FlinkType, Kind


def timestamp_option(name: str, default: str = text.DEFAULT_STANDARD) -> OptionSpec:
    """How timestamps are written."""
    return OptionSpec(
        name,
        "choice",
        default=default,
        choices=text.STANDARDS,
        doc="How timestamps are written. SQL: 2026-01-31 23:59:59.123; ISO-8601: 2026-01-31T23:59:59.123. A "
        "TIMESTAMP_LTZ ends with its offset: Z or +01:00.",
        changes="rows",
    )


def ignore_option(name: str) -> OptionSpec:
    """Whether what does not fit is passed over."""
    return OptionSpec(
        name, "boolean", default="false", doc="Messages that do not fit are passed over, each whole.", changes="rows"
    )


def map_keys(columns: Sequence[Column], told: str = "the keys of a JSON object are strings") -> list[str]:
    """Maps whose keys are no strings. `told`: why there are none."""
    return [
        f"column {column.name} is {column.type}: {told}"
        for column in columns
        if any(of.kind is Kind.MAP and of.arguments[0].kind not in STRINGS for of in inside(parse_type(column.type)))
    ]


def inside(of: FlinkType) -> Iterator[FlinkType]:
    """A type, and all types in it."""
    yield of
    for part in (*of.arguments, *(field.type for field in of.fields)):
        yield from inside(part)
