"""The algebra of a query: what each node gives, as values over the base tables, and when.

Names are bound by substitution, so a `Column` of any node is an expression over the tables of the `Scan`s below it: a
view, a query of WITH and a query in brackets leave nothing but their filters, their joins and a `Project`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from tidegate.pipelines.sql.functions.times import INSTANT_SQL
from tidegate.pipelines.sql.scope import CALLED_NOW, value_of
from tidegate.pipelines.sql.values import Value
from tidegate.pipelines.syntax.errors import Location
from tidegate.pipelines.syntax.source import Span
from tidegate.pipelines.syntax.types import FlinkType, quoted

if TYPE_CHECKING:
    from tidegate.pipelines.connectors.spec import ConnectorSpec
    from tidegate.pipelines.connectors.table import Table
    from tidegate.pipelines.process.windows.windowed import WindowedQuery
    from tidegate.pipelines.syntax.statements import CreateTable

JoinKind = Literal["INNER", "LEFT"]
TimeAttribute = Literal["processing", "event"]


@dataclass(frozen=True)
class Key:
    """One equality of an ON: `probe` is Spark SQL over what is left of the join, `column` is a column of the build."""

    probe: str
    column: str


@dataclass(frozen=True)
class Join:
    """… JOIN build [AS alias] FOR SYSTEM_TIME AS OF probe.time ON keys AND predicate.

    `predicate` is what ON holds beside the key equalities; it is tested on the chosen version only.
    `time_column` is the probe's time attribute. `of`: the branch of a UNION ALL whose rows alone it asks for a version,
    by the name of its rows in SQL; None for all rows.
    """

    build: str
    alias: str
    kind: JoinKind
    keys: tuple[Key, ...]
    predicate: str | None
    time: TimeAttribute
    time_column: str
    location: Location = field(default=Location(0, 0), compare=False, repr=False)
    of: str | None = None

    @property
    def asked(self) -> str:
        """SQL: whether a row asks it for a version."""
        return "true" if self.of is None else here(self.of)


@dataclass(frozen=True)
class Condition:
    """One of the terms that WHERE joins by AND; `aliases` are the tables of the INSERT that it names."""

    expression: str
    aliases: frozenset[str]


KEPT = "_kept"
"""The column of a union that says whether the WHERE of its queries leave a row in."""


HERE = "_here"
"""The column of a branch that joins which is true in its rows alone. Its other columns may have values in any row."""


def here(alias: str) -> str:
    """SQL: whether a row is one of a branch that joins, by the name of its rows."""
    return f"coalesce({quoted(alias)}.{quoted(HERE)}, false)"


@dataclass(frozen=True)
class Entry:
    """A column of a branch that joins, `` `alias`.`column` `` in SQL: the union has it as its column `stored`."""

    alias: str
    column: str
    stored: str


@dataclass(frozen=True)
class Elements:
    """UNNEST of an ARRAY or MAP, `sql`: a row for each element, which expressions call `names` (after its place, from 0
    on). A row without elements gives one of NULLs if `outer`, else it is left out."""

    sql: str
    names: tuple[str, ...]
    outer: bool

    @property
    def exploded(self) -> str:
        """The generator, of rows that WHERE `_now` keeps."""
        return f"posexplode_outer(CASE WHEN _now THEN ({self.sql}) END) AS (_position, {', '.join(self.names)})"


@dataclass(frozen=True)
class Step:
    """SELECT columns FROM alias [, UNNEST] WHERE kept: `columns` as name, Spark SQL; `kept`, tested before UNNEST, is
    None where every row is."""

    alias: str
    kept: str | None
    columns: tuple[tuple[str, str], ...]
    elements: Elements | None = None


@dataclass(frozen=True)
class Branch:
    """One of the queries of a UNION ALL, or of UNNEST: the rows of `table`, step by step. The last step gives the
    columns that they have in common."""

    table: str
    steps: tuple[Step, ...]

    @property
    def filters(self) -> bool:
        """Whether it leaves rows out."""
        return any(step.kept or (step.elements and not step.elements.outer) for step in self.steps)

    @property
    def unnests(self) -> int:
        """How many UNNEST a row goes through."""
        return sum(step.elements is not None for step in self.steps)


Emission = Literal["as landed", "rowtime", "window end"]
"""When a row is final: as it lands, once the watermark has reached its rowtime, or once it has reached the window's
end."""


@dataclass(frozen=True)
class Declared:
    """A table, its connector, and the statement that declares it. `is_target`: a query reads what an INSERT of the
    script publishes in it."""

    table: Table
    spec: ConnectorSpec
    statement: CreateTable
    is_target: bool = False

    @property
    def only_grows(self) -> bool:
        """Whether it has inserts only; a target is read only where it does."""
        return self.is_target or self.spec.only_grows(self.table.options)


@dataclass(frozen=True)
class Column:
    """A column of a node. `written`: how messages call it; `span`: where it is made; `of`: where the view makes it that
    it is copied from."""

    name: str
    value: Value
    span: Span
    written: str
    of: Span | None = None

    @property
    def type(self) -> FlinkType:
        return self.value.type


@dataclass(frozen=True)
class Node:
    """What gives rows. A node on top of another has its columns, times and emission, but for what it overrides."""

    @property
    def below(self) -> Node | None:
        return None

    @property
    def columns(self) -> tuple[Column, ...]:
        assert self.below is not None
        return self.below.columns

    @property
    def emission(self) -> Emission:
        assert self.below is not None
        return self.below.emission

    @property
    def nodes(self) -> Iterator[Node]:
        """The node and those below it, from the top."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.below

    @cached_property
    def scan(self) -> Scan:
        """The table whose rows it gives."""
        return next(node for node in self.nodes if isinstance(node, Scan))

    @property
    def joins(self) -> tuple[Join, ...]:
        """The joins, the first one first; those of the branches of a UNION ALL before those behind it."""
        return (*self.scan.joined, *(node.join for node in reversed([*self.nodes]) if isinstance(node, TemporalJoin)))

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The terms of all WHERE that are tested behind the scan, the innermost first."""
        filters = [node.terms for node in self.nodes if isinstance(node, Filter)]
        return (*self.scan.tested, *(condition for each in reversed(filters) for condition in each))

    @property
    def times(self) -> dict[str, TimeAttribute]:
        """Which columns (or fields of them) are time attributes, those in processing time first."""
        return self.scan.times_among({column.name: column.value for column in self.columns})


@dataclass(frozen=True)
class Scan(Node):
    """The rows of a table, called `alias` in SQL. Of a UNION ALL also what its queries join: `entries`, the columns of
    their rows before that; `joined`, the joins of all of them; `tested`, their WHERE as far as it needs a build."""

    declared: Declared
    alias: str
    span: Span
    entries: tuple[Entry, ...] = ()
    joined: tuple[Join, ...] = ()
    tested: tuple[Condition, ...] = ()

    @property
    def taken(self) -> tuple[Branch, ...]:
        """The tables whose rows these are; of a union those of its queries, and of a union among them, one by one."""
        return (Branch(self.declared.table.name, ()),)

    @property
    def leaves(self) -> tuple[Scan, ...]:
        """Each of these tables."""
        return (self,)

    @cached_property
    def columns(self) -> tuple[Column, ...]:  # type: ignore[override]
        columns = self.declared.table.columns
        return tuple(Column(each.name, value_of(each, self.alias), self.span, each.name) for each in columns)

    @property
    def emission(self) -> Emission:
        return "as landed"

    def times_among(self, values: Mapping[str, Value]) -> dict[str, TimeAttribute]:
        """Which of `values` are time attributes of the table, or hold it in a field."""
        spec = self.declared.table.watermark
        found: dict[str, TimeAttribute] = {
            name: "processing"
            for name, value in values.items()
            if value.sql == INSTANT_SQL
            and value.column
            and (value.column == CALLED_NOW or value.column[0] == self.alias)
        }
        if spec is None:
            return found
        path = [quoted(self.alias), *map(quoted, spec.path)]
        for name, value in values.items():
            for length in range(2, len(path) + 1):
                if value.sql == ".".join(path[:length]):
                    found[".".join([name, *spec.path[length - 1 :]])] = "event"
        return found


@dataclass(frozen=True)
class Union(Scan):
    """The rows of several queries, as those of one table: `declared` has the columns that they have in common, and
    those that the rows of a query that joins have before. `named`: the former by their names in SQL; `made`: the last
    step of each query."""

    branches: tuple[Node, ...] = ()
    named: tuple[Column, ...] = ()
    made: tuple[Step, ...] = ()

    @property
    def word(self) -> str:
        """What makes it, as it is written."""
        return "an UNNEST" if isinstance(self.branches[0], Unnested) else "a UNION ALL"

    @property
    def columns(self) -> tuple[Column, ...]:  # type: ignore[override]
        return self.named

    @property
    def taken(self) -> tuple[Branch, ...]:
        of = zip(self.branches, self.made, strict=True)
        return tuple(Branch(each.table, (*each.steps, step)) for node, step in of for each in node.scan.taken)

    @property
    def leaves(self) -> tuple[Scan, ...]:
        return tuple(leaf for node in self.branches for leaf in node.scan.leaves)


@dataclass(frozen=True)
class Over(Node):
    """A node on top of another, its `input`."""

    input: Node

    @property
    def below(self) -> Node:
        return self.input


@dataclass(frozen=True)
class Unnested(Over):
    """Each row with each of its elements, whose columns are `gives`. It is the branch of a `Union` of its own."""

    elements: Elements
    gives: tuple[Column, ...]

    @cached_property
    def columns(self) -> tuple[Column, ...]:  # type: ignore[override]
        return (*self.input.columns, *self.gives)


@dataclass(frozen=True)
class Filter(Over):
    """The rows for which all conditions hold."""

    terms: tuple[Condition, ...]


@dataclass(frozen=True)
class TemporalJoin(Over):
    """Each row with the version of a build that was valid at its time. `gives`: the build's columns after the join."""

    join: Join
    build: Scan
    gives: tuple[Column, ...] = field(default=())

    @cached_property
    def columns(self) -> tuple[Column, ...]:  # type: ignore[override]
        return (*self.input.columns, *self.gives)

    @property
    def emission(self) -> Emission:
        return "rowtime" if self.join.time == "event" else self.input.emission


@dataclass(frozen=True)
class Project(Over):
    """The rows with other columns."""

    made: tuple[Column, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.made


@dataclass(frozen=True)
class WindowAggregate(Over):
    """Groups of the rows of a table's windows, by a process function."""

    query: WindowedQuery
    made: tuple[Column, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.made

    @property
    def emission(self) -> Emission:
        return "window end"
