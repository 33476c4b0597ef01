"""What a format is: it defines how the bytes of a message become rows of a table, all in Spark SQL.

A connector that reads messages (lines of a file, records of a topic) gives their bytes and decides what happens to a
message that does not fit; the format only reports it.

Below: the options that several formats have, the checks of all of them, and the columns that every `Format.decode` ends
with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from tidegate.pipelines.connectors.options import flag
from tidegate.pipelines.connectors.spec import OptionSpec
from tidegate.pipelines.connectors.table import Column, Role, Table
from tidegate.pipelines.sources.formats import shape
from tidegate.pipelines.sources.formats.records import JsonRecords, Records
from tidegate.pipelines.syntax.dialect import parse_type
from tidegate.pipelines.syntax.types import STRINGS, FlinkType, Kind, quoted

if TYPE_CHECKING:
    from pyspark.sql import Column as Col
    from pyspark.sql import DataFrame

VALUE = "_value"
"""The column of `Format.decode` that holds a message's bytes: BINARY."""

DECODED: Mapping[str, str] = {
    "_op": "STRING",
    "_fields": "STRUCT",
    "_error": "STRING",
    "_sub": "INT",
    "_time": "TIMESTAMP",
    "_marks": "STRING",
}
"""The columns that `Format.decode` returns in place of VALUE.

`_op`: r c u d t for a build side, +I -U +U -D for a probe (SOURCE_COLUMNS). `_fields`: the table's physical columns in
their Spark types; null if the message has no row (an error, a truncate, a null message). `_error`: null, or one
sentence that says what does not fit, and in which column. `_sub`: the order of rows of one message, from 0. `_time`:
the source's own time of the change, null if the format has none. `_marks`: what the source says of its snapshot
(Debezium's `source.snapshot`, and of which table), null otherwise.
"""


@dataclass(frozen=True)
class Wanted:
    """What a table needs of a format: its columns, its role, and the options by their plain names (`json.…`)."""

    columns: tuple[Column, ...]
    options: Mapping[str, str]
    role: Role = "probe"
    primary_key: tuple[str, ...] = ()
    metadata: tuple[str, ...] = ()
    """Keys of FormatSpec.metadata that the table names: `decode` gives each as `metadata_column(key)`."""

    @property
    def build(self) -> bool:
        return self.role == "build"

    def option(self, option: OptionSpec) -> str:
        """An option's value, or its default. Raises KeyError for one that has neither."""
        value = self.options.get(option.name, option.default)
        if value is None:
            raise KeyError(option.name)
        return value

    def flag(self, name: str) -> bool:
        """A boolean option; false where it is not given."""
        return flag(self.options, name)


def wanted(table: Table, options: Mapping[str, str], *, prefix: str = "", metadata: tuple[str, ...] = ()) -> Wanted:
    """What `table` wants, with `options` resolved. `prefix`: what stands before the format's options (`value.`)."""
    plain = {key.removeprefix(prefix): value for key, value in options.items() if key.startswith(prefix)}
    columns = table.message_columns
    inside = {column.name for column in columns}
    key = tuple(name for name in table.primary_key if name in inside)
    return Wanted(columns, plain, table.role, key, metadata)


QUICK = "_quick"
"""The row that the short way of JSON gives (json_arrow.py); null where the message must take the long one."""


@dataclass(frozen=True)
class Quick:
    """A short way. `column`: gives a column over VALUE, in a session of Spark. `row`: SQL over that, named QUICK."""

    column: Callable[[], Col]
    row: str


@dataclass(frozen=True)
class Metadata:
    """What a message says beside its rows: Flink's type, and SQL. `ms`: SQL of a time's text, which must be a number of
    ms since 1970; empty for anything else."""

    type: str
    sql: str
    ms: str = ""


@dataclass(frozen=True)
class FormatSpec:
    """What the planner knows of a format. `changelog`: its messages are changes of rows; otherwise each adds one.
    `metadata`: what a message says beside its rows, by Flink's keys. `records`: how its messages stand in a file one
    after another. `rows`: the rows that a message has, as parsed from JSON (whatever it is), whose members are the
    columns by `Column.source_name`; None where columns are found by their place."""

    name: str
    options: tuple[OptionSpec, ...]
    doc: str
    changelog: bool = False
    metadata: Mapping[str, Metadata] = field(default_factory=dict)
    records: Callable[[Wanted], Records] = lambda wanted: JsonRecords()
    rows: Callable[[Any], Iterable[Any]] | None = None


def metadata_column(key: str) -> str:
    """The column in which `Format.decode` gives a metadata key, quoted."""
    return quoted(f"_f_{key}")


class Format(Protocol):
    """One format."""

    @property
    def spec(self) -> FormatSpec: ...

    def check(self, wanted: Wanted) -> Sequence[str]:
        """What is wrong with a table of this format, known at planning; each string is an error to show. Options may
        still hold `${VAR}`."""
        ...

    def decode(self, messages: DataFrame, wanted: Wanted) -> DataFrame:
        """The rows of `messages`: every column but VALUE as it is, the metadata that is wanted, and DECODED beside it.

        A null message of a format that only adds says that its key is gone: `_op` is d or -D, `_fields` null. A
        connector without keys leaves such messages out before. A changelog passes them over, as it does messages that
        are no change of a row (heartbeats, schema changes, borders of transactions).
        """
        ...


def member(value: Any, name: str) -> Any:
    """A member of a JSON value; None where it has none."""
    return value.get(name) if isinstance(value, Mapping) else None


def members(value: Any, name: str) -> Sequence[Any]:
    """The elements of a member that is an array; none where it is none."""
    found = member(value, name)
    return found if isinstance(found, list) else ()


def timestamp_option(name: str, default: str = shape.STANDARDS[0]) -> OptionSpec:
    """How timestamps are written."""
    return OptionSpec(
        name,
        "choice",
        default=default,
        choices=shape.STANDARDS,
        doc="How timestamps are written. SQL: 2026-01-31 23:59:59.123; ISO-8601: 2026-01-31T23:59:59.123. A "
        "TIMESTAMP_LTZ ends with its offset: Z or +01:00.",
        changes="rows",
    )


def ignore_option(name: str, *, by_column: bool = False) -> OptionSpec:
    """Whether what does not fit is ignored: messages, or columns of a message (`by_column`)."""
    doc = "Messages that do not fit are skipped as a whole."
    if by_column:
        doc = (
            "A column that does not fit is NULL, as in Flink. A message is skipped that cannot be read at all, or has "
            "no value for a column that is NOT NULL."
        )
    return OptionSpec(name, "boolean", default="false", doc=doc, changes="rows")


def map_keys(columns: Sequence[Column], why: str = "the keys of a JSON object are strings") -> list[str]:
    """Maps whose keys are no strings. `why`: why there are none."""
    return [
        f"column {column.name} is {column.type}: {why}"
        for column in columns
        if any(of.kind is Kind.MAP and of.arguments[0].kind not in STRINGS for of in inside(parse_type(column.type)))
    ]


def inside(of: FlinkType) -> Iterator[FlinkType]:
    """A type, and all types in it."""
    yield of
    for part in (*of.arguments, *(member.type for member in of.fields)):
        yield from inside(part)


def other_columns(messages: DataFrame) -> list[str]:
    """The columns that pass through."""
    return [quoted(name) for name in messages.columns if name != VALUE]


def added(rows: DataFrame, others: list[str], wanted: Wanted, ignore: str | None) -> DataFrame:
    """DECODED of a format that only adds: `rows` have `others`, `_fields`, `_error`, and `_null` if the message is
    null. `ignore`: the option that ignores messages which do not fit."""
    op = "IF(_null, 'd', 'c')" if wanted.build else "IF(_null, '-D', '+I')"
    decoded = rows.selectExpr(
        *others,
        f"{op} AS _op",
        "IF(_error IS NULL, _fields, NULL) AS _fields",
        "_error",
        "0 AS _sub",
        "CAST(NULL AS TIMESTAMP) AS _time",
        "CAST(NULL AS STRING) AS _marks",
    )
    return fitting(decoded, wanted, ignore)


def fitting(decoded: DataFrame, wanted: Wanted, ignore: str | None) -> DataFrame:
    """`decoded`, without what does not fit if the option `ignore` says so."""
    return decoded.where("_error IS NULL") if ignore and wanted.flag(ignore) else decoded
