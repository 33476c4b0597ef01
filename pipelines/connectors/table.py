"""A table as a CREATE TABLE declares it: plain records, without a Spark object and without a secret."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from tidegate.pipelines.generations import name_of
from tidegate.pipelines.syntax.dialect import parse_type
from tidegate.pipelines.syntax.errors import Location
from tidegate.pipelines.syntax.secrets import CREDENTIALS, VARIABLE, is_secret, is_variable
from tidegate.pipelines.syntax.types import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Role = Literal["build", "probe", "sink", "part", "unused"]
BOTH = "build and probe"
"""What the roles of a table are called that has both."""
OnViolation = Literal["fail", "quarantine", "warn"]

RESERVED_PREFIX = "_"
"""Columns of the lake's own begin with it, so columns of a script must not."""

SOURCE_TIME = "_rowtime"
"""The hidden name that SYSTEM_ROWTIME() becomes: the source's own time of the change."""


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        type: Flink's spelling ("TIMESTAMP(3)"); `spark_type` is Spark's DDL ("TIMESTAMP_NTZ").
        expression: of a computed column; `sql` is the same as the script has it. `proctime` marks one that is
            PROCTIME(), which no table stores.
        metadata: the key of a METADATA column; `delivered` is the type of the connector's value, in Flink's spelling,
            None where that is `type`; else `conversion` is Spark SQL that makes the declared value of it.
        field_name: the name that the source has for it ('fields.#.name'), where that is another one.

    Two columns that differ only in where they were written are equal.
    """

    name: str
    type: str
    spark_type: str
    nullable: bool = True
    expression: str | None = None
    proctime: bool = False
    metadata: str | None = None
    comment: str | None = None
    location: Location = field(default=Location(0, 0), compare=False, repr=False)
    sql: str | None = None
    # Pipeline.digest is of the repr: stored plans keep theirs.
    delivered: str | None = field(default=None, repr=False)
    conversion: str | None = field(default=None, repr=False, compare=False)
    field_name: str | None = field(default=None, repr=False)

    @property
    def source_name(self) -> str:
        """The name by which a connector finds the column in what it reads."""
        return self.name if self.field_name is None else self.field_name

    @property
    def physical(self) -> bool:
        """Whether the connector itself delivers the column."""
        return self.expression is None and not self.proctime

    @property
    def source_time(self) -> bool:
        """Whether the column is SYSTEM_ROWTIME()."""
        return self.expression == SOURCE_TIME

    @property
    def as_delivered(self) -> Column:
        """This column as the connector is to read it."""
        if self.delivered is None:
            return self
        spark_type = parse_type(self.delivered).spark
        return replace(self, type=self.delivered, spark_type=spark_type, delivered=None, conversion=None)


@dataclass(frozen=True)
class WatermarkSpec:
    """WATERMARK FOR `column` AS `expression` (FLIP-66).

    Attributes:
        column: may be a dotted path.
        type: the expression's, in Flink's spelling: TIMESTAMP(p), TIMESTAMP_LTZ(p), or BIGINT (ms since the epoch,
            UTC).
        sql: the expression as the script has it; two that differ only in this are equal.
        source: AS SYSTEM_WATERMARK(): the source's own watermarks (`Landed.watermarks`). For a source without any,
            `expression` is FLIP-126's monotonous timestamps: 1 ms before the row's SYSTEM_ROWTIME().
        delay: AS SYSTEM_WATERMARK() - INTERVAL …: by how much either is later; `expression` is without it.
    """

    column: str
    expression: str
    type: str
    location: Location = field(default=Location(0, 0), compare=False, repr=False)
    sql: str | None = field(default=None, compare=False)
    source: bool = False
    delay: timedelta = timedelta(0)

    @property
    def path(self) -> tuple[str, ...]:
        """`column` in parts: the column's name, then names of fields."""
        return tuple(self.column.split("."))


class Options(Mapping[str, str]):
    """WITH options as written: `${VAR}` stays a name until `resolve()`, the only place that gives real values."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    def __getitem__(self, key: str) -> str:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Options({self.redacted()})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Options) and self._values == other._values

    def __hash__(self) -> int:
        return hash(tuple(sorted(self._values.items())))

    def redacted(self) -> dict[str, str]:
        """The options as they may be shown: values of secret options are `***`, and so are passwords inside of
        addresses; `${VAR}` stays a name."""
        return {
            key: "***" if is_secret(key) and not is_variable(value) else CREDENTIALS.sub(r"\1:***@", value)
            for key, value in self._values.items()
        }

    def variables(self) -> set[str]:
        """The names of the environment variables that the values need."""
        return {name for value in self._values.values() for name in VARIABLE.findall(value)}

    def one(self, name: str, environment: Mapping[str, str] | None = None) -> str | None:
        """The real value of one option, without resolving the others; None if it is not given. Raises PlanningError."""
        return Options({name: self[name]}).resolve(environment)[name] if name in self else None

    def resolve(self, environment: Mapping[str, str] | None = None, table: str = "") -> dict[str, str]:
        """The real values. Raises PlanningError that names the variables which are not set, and the `table`."""
        known: Mapping[str, str] = os.environ if environment is None else environment
        require_variables({table: self}, known)
        return {key: VARIABLE.sub(lambda found: known[found.group(1)], value) for key, value in self._values.items()}


def require_variables(options: Mapping[str, Options], environment: Mapping[str, str]) -> None:
    """Raise PlanningError that names every variable which any of them needs and which is not set, and the tables that
    need one. `options`: table ("" where they are no table's) -> its options."""
    from tidegate.pipelines.errors import PlanningError

    lacks = {table: each.variables() - environment.keys() for table, each in options.items()}
    missing = sorted(set().union(*lacks.values()))
    if missing:
        tables = ", ".join(table for table, names in lacks.items() if table and names)
        raise PlanningError(
            f"the environment has no {', '.join(missing)}",
            where=f"WITH options of {tables}" if tables else "WITH options",
            state="nothing was run",
            next_command=f"export {' '.join(f'{name}=…' for name in missing)}",
        )


@dataclass(frozen=True)
class Constraint:
    """CONSTRAINT `name` EXPECT (`condition`) ON VIOLATION `action`, of a target.

    `condition` is Spark SQL over the columns that an INSERT writes; a row violates it where it is false (not where it
    is NULL, as with SQL's CHECK). `sql` is the condition as the script has it.
    """

    name: str
    condition: str
    action: OnViolation
    sql: str = field(default="", compare=False)
    location: Location = field(default=Location(0, 0), compare=False, repr=False)


@dataclass(frozen=True)
class Suite:
    """'quality.suite' of a target: the `path` as written, the file's `text` when the script was compiled (JSON), and
    the text's `digest`."""

    path: str
    text: str = field(repr=False)
    digest: str


SEVEREST_FIRST: tuple[OnViolation, ...] = ("fail", "quarantine", "warn")


def severest_first(constraints: Iterable[Constraint]) -> tuple[Constraint, ...]:
    """FAIL before QUARANTINE before WARN, and as written among equals: the first constraint that a row violates decides
    where the row goes."""
    return tuple(sorted(constraints, key=lambda constraint: SEVEREST_FIRST.index(constraint.action)))


@dataclass(frozen=True)
class Table:
    """A CREATE TABLE. Two are equal when they declare the same; role and place do not count.

    Attributes:
        role: by the INSERTs: the right (build) or left (probe) side of a temporal join, or a target (sink); a `part` is
            read by another table only.
        also_probe: of a build side: an INSERT or a process takes its rows one by one as well, so it may have inserts
            only.
        parts: the tables that this one reads in its place, in its role.
        partition_columns: PARTITIONED BY: columns that the connector derives from where a row lies, in order.
        home: the folder of the script, where a relative 'path' begins; None if the script is not a file.
        beside: of a target: the number of the generation that publishes into a folder of its own inside of it; None for
            the target itself.
    """

    name: str
    columns: tuple[Column, ...]
    options: Options
    primary_key: tuple[str, ...] = ()
    watermark: WatermarkSpec | None = None
    role: Role = field(default="unused", compare=False)
    comment: str | None = None
    location: Location = field(default=Location(0, 0), compare=False, repr=False)
    parts: tuple[Table, ...] = field(default=(), compare=False)
    partition_columns: tuple[str, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    suite: Suite | None = field(default=None, compare=False)
    home: str | None = field(default=None, compare=False, repr=False)
    beside: int | None = field(default=None, compare=False, repr=False)
    also_probe: bool = field(default=False, compare=False, repr=False)

    @property
    def roles(self) -> str:
        """Its role, for people."""
        return BOTH if self.also_probe else self.role

    @property
    def connector(self) -> str:
        return self.options["connector"]

    @property
    def log_name(self) -> str:
        """The owner of its rows of the watermark log. Readers of a target see none of a generation beside it."""
        return self.name if self.beside is None else name_of(self.name, self.beside)

    @property
    def physical_columns(self) -> tuple[Column, ...]:
        """What the connector delivers."""
        return tuple(column for column in self.columns if column.physical)

    @property
    def message_columns(self) -> tuple[Column, ...]:
        """The physical columns that are in the messages, files or rows themselves."""
        beside = self.partition_columns
        return tuple(c for c in self.physical_columns if c.metadata is None and c.name not in beside)

    @property
    def as_in_source(self) -> Table:
        """This table with its columns under the names that the source has for them, for a reader that goes by these
        from end to end. Columns that are not in the source get names that none there can have."""
        if all(column.field_name is None for column in self.columns):
            return self
        beside = {column.name for column in self.columns} - {column.name for column in self.message_columns}
        names = {c.name: f"{c.name} " if c.name in beside else c.source_name for c in self.columns}
        watermark = self.watermark
        if watermark is not None:
            path = ".".join((names[watermark.path[0]], *watermark.path[1:]))
            watermark = replace(watermark, column=path)
        return replace(
            self,
            columns=tuple(replace(column, name=names[column.name], field_name=None) for column in self.columns),
            primary_key=tuple(names[name] for name in self.primary_key),
            partition_columns=tuple(names[name] for name in self.partition_columns),
            watermark=watermark,
        )

    @property
    def stored_columns(self) -> tuple[Column, ...]:
        """What the lake stores: all but PROCTIME() columns, which are an instant of the release."""
        return tuple(column for column in self.columns if not column.proctime)

    @property
    def delivered(self) -> Table:
        """This table as its connector is to read it: METADATA columns in the types that the connector has them in."""
        return replace(self, columns=tuple(column.as_delivered for column in self.columns))

    def as_declared(self, rows: DataFrame) -> DataFrame:
        """`rows` as the connector of `delivered` gives them, with METADATA columns cast to their declared types."""
        cast = {column.name: column.conversion for column in self.physical_columns if column.conversion is not None}
        if not cast:
            return rows
        return rows.selectExpr(
            *(f"{cast[name]} AS {quoted(name)}" if name in cast else quoted(name) for name in rows.columns)
        )

    def column(self, name: str) -> Column:
        """The column called `name` (as written). Raises KeyError."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)
