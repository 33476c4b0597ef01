"""The statements of a script, before any name is looked up: one record a statement, with the place of every part.

Scalar expressions are sqlglot trees; `spanned` and `span_of` keep their places.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from sqlglot import exp
from sqlglot.expressions.core import Expression

from tidegate.pipelines.syntax.source import Span
from tidegate.pipelines.syntax.types import FlinkType

E = TypeVar("E", bound=exp.Expr)


@dataclass(frozen=True)
class Name:
    """An identifier; `quoted` when it was in backquotes."""

    text: str
    span: Span
    quoted: bool = False


@dataclass(frozen=True)
class Text:
    """A string literal."""

    text: str
    span: Span


@dataclass(frozen=True)
class Option:
    """'key' = 'value' in WITH."""

    key: Text
    value: Text


@dataclass(frozen=True)
class Scalar:
    """An expression, its place and how it was written."""

    tree: exp.Expr
    span: Span
    written: str


@dataclass(frozen=True)
class PrimaryKey:
    """PRIMARY KEY … NOT ENFORCED."""

    columns: tuple[Name, ...]
    span: Span


@dataclass(frozen=True)
class Expect:
    """CONSTRAINT name EXPECT (condition) [ON VIOLATION action]; `action` is a word of `Action`, None where it is left
    out."""

    name: Name
    condition: Scalar
    action: str | None
    span: Span


@dataclass(frozen=True)
class Watermark:
    """WATERMARK FOR path AS expression."""

    path: tuple[Name, ...]
    expression: Scalar
    span: Span


@dataclass(frozen=True)
class ColumnDefinition:
    """A column: `type` with or without `metadata_key`, or `computed`."""

    name: Name
    type: FlinkType | None
    type_span: Span
    null_written: Span | None = None
    computed: Scalar | None = None
    metadata: Text | None = None
    comment: str | None = None


@dataclass(frozen=True)
class CreateTable:
    """CREATE [TEMPORARY] TABLE. `partitioned` is the place of PARTITIONED BY and what it names; `hinted` are options of
    hints, and `plain` those without them, where there are any."""

    name: Name
    columns: tuple[ColumnDefinition, ...]
    primary_keys: tuple[PrimaryKey, ...]
    watermarks: tuple[Watermark, ...]
    options: tuple[Option, ...]
    comment: str | None
    span: Span
    if_not_exists: bool = False
    partitions: tuple[Name, ...] = ()
    partitioned: Span | None = None
    constraints: tuple[Expect, ...] = ()
    like: Like | None = None
    hinted: tuple[Option, ...] = ()
    plain: tuple[Option, ...] | None = None


@dataclass(frozen=True)
class Like:
    """LIKE table [(INCLUDING | EXCLUDING | OVERWRITING kind …)]: what is taken of each kind, and where that is said."""

    table: Name
    rules: tuple[tuple[str, str, Span], ...]
    span: Span


@dataclass(frozen=True)
class CreateFunction:
    """CREATE [TEMPORARY] FUNCTION name AS 'reference' LANGUAGE PYTHON."""

    name: Name
    reference: Text
    span: Span
    if_not_exists: bool = False


@dataclass(frozen=True)
class SelectItem:
    """expression [AS alias]; without an expression `*`, or with a qualifier `alias.*`."""

    span: Span
    expression: Scalar | None = None
    alias: Name | None = None
    qualifier: Name | None = None


@dataclass(frozen=True)
class TableUse:
    """A table, a view or a query in brackets in FROM or JOIN, and its name or alias there. `columns`: other names of
    its columns; `options` override those of the table. Of a query without a name, `table` is empty."""

    table: Name
    alias: Name | None
    columns: tuple[Name, ...] | None = None
    query: Query | None = None
    options: tuple[Option, ...] = ()

    @property
    def name(self) -> Name:
        """What columns are qualified with."""
        return self.alias or self.table


@dataclass(frozen=True)
class TemporalJoin:
    """[INNER | LEFT] JOIN build FOR SYSTEM_TIME AS OF time [AS alias] ON condition."""

    kind: str
    build: TableUse
    time: Scalar
    condition: Scalar
    span: Span


@dataclass(frozen=True)
class Argument:
    """One of a table function: `TABLE t`, `DESCRIPTOR(column)` or an expression, with `NAME =>` in front or without."""

    span: Span
    name: Name | None = None
    table: Name | None = None
    descriptor: tuple[Name, ...] | None = None
    scalar: Scalar | None = None


@dataclass(frozen=True)
class WindowFunctionCall:
    """TUMBLE(TABLE t, DESCRIPTOR(column), …) in FROM; `function` as written."""

    function: Name
    arguments: tuple[Argument, ...]
    span: Span


@dataclass(frozen=True)
class Query:
    """[WITH views] SELECT items FROM probe joins [WHERE where]; `span` is that of SELECT and its items.

    With `window`, FROM is a window's table function over `probe`; `group_by` and `having` go with it, and `grouped` is
    the place of GROUP BY. `more`: the queries behind UNION ALL; `views` is in front of all of them.
    """

    views: tuple[View, ...]
    items: tuple[SelectItem, ...]
    probe: TableUse
    joins: tuple[TemporalJoin, ...]
    where: Scalar | None
    span: Span
    window: WindowFunctionCall | None = None
    group_by: tuple[Scalar, ...] = ()
    grouped: Span | None = None
    having: Scalar | None = None
    more: tuple[Query, ...] = ()


@dataclass(frozen=True)
class View:
    """CREATE [TEMPORARY] VIEW name [(columns)] AS query, or `name [(columns)] AS (query)` of a WITH."""

    name: Name
    columns: tuple[Name, ...] | None
    query: Query
    span: Span
    written: str = ""
    if_not_exists: bool = False


@dataclass(frozen=True)
class InsertInto:
    """INSERT INTO target [(columns)] query. `options` override those of the target."""

    target: Name
    columns: tuple[Name, ...] | None
    query: Query
    span: Span
    written: str
    options: tuple[Option, ...] = ()


@dataclass(frozen=True)
class SetOption:
    """SET 'key' = 'value'."""

    key: Text
    value: Text
    span: Span


Statement = CreateTable | CreateFunction | View | InsertInto | SetOption


def spanned(node: E, span: Span) -> E:
    """`node`, which is at `span`."""
    node.meta["start"], node.meta["end"] = span.start, span.end - 1
    return node


def place(node: exp.Expr) -> Span | None:
    """The place of a tree, which the grammar notes as it makes it; None for one that it has not made."""
    return Span(node.meta["start"], node.meta["end"] + 1) if "start" in node.meta else None


class CastTo(Expression):
    """CAST(this AS target), TRY_CAST when `safe`. The target is a FlinkType, in `meta`."""

    arg_types = {"this": True, "safe": False}  # noqa: RUF012

    @property
    def target(self) -> FlinkType:
        """What is cast to."""
        return self.meta["target"]


class TypedLiteral(Expression):
    """DATE '…' or TIMESTAMP '…'; `kind` is the word in front."""

    arg_types = {"this": True, "kind": True}  # noqa: RUF012


class Known(Expression):
    """A part of an expression whose value is known already: in `meta`, a `tidegate.pipelines.sql.values.Value`."""

    arg_types = {}  # noqa: RUF012
