"""One INSERT of a script: the tables and columns that its names mean, and the expressions for the columns of its
target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidegate.pipelines.connectors.spec import ConnectorSpec
from tidegate.pipelines.connectors.table import Column, Table, WatermarkSpec, severest_first
from tidegate.pipelines.sql.coercion import assignable, castable
from tidegate.pipelines.sql.functions.user import UserFunctions
from tidegate.pipelines.sql.model import Insert, Join, ProcessInsert, Projection
from tidegate.pipelines.sql.scope import InsertScope, Relation, check_table_name, type_of
from tidegate.pipelines.sql.values import Value, fits
from tidegate.pipelines.syntax.dialect import parse_type
from tidegate.pipelines.syntax.errors import SqlError, suggest
from tidegate.pipelines.syntax.secrets import needs_variables
from tidegate.pipelines.syntax.source import Source, Span
from tidegate.pipelines.syntax.statements import CreateTable, InsertInto, Name, TableUse
from tidegate.pipelines.syntax.types import Kind, folded, quoted

NOT_FROM_THE_ENVIRONMENT = ("gate.on-unmatched", "gate.proof", "path")
"""Options of a target that are read where no environment is."""


@dataclass(frozen=True)
class Declared:
    """A table, its connector, and the statement that declares it. `writer`: the INSERT whose target it is, if that has
    been compiled."""

    table: Table
    spec: ConnectorSpec
    statement: CreateTable
    writer: Insert | None = None

    @property
    def only_grows(self) -> bool:
        """Whether it has inserts only; a target is read only where it does."""
        return self.writer is not None or self.spec.only_grows(self.table.options)


@dataclass(frozen=True)
class Output:
    """A column of the SELECT. `name` is what it is called, for messages."""

    value: Value
    span: Span
    name: str


def read_back(target: str) -> str:
    """How a script reads what it writes into a target, where no INSERT can take its rows as they are published."""
    shown = f"'connector' = 'delta', 'path' = '/data/{target}'"
    return f"write {target} WITH ({shown}), and read it by a second table WITH the same connector and path"


def carries(writer: Insert, probe: Table, spec: WatermarkSpec) -> bool:
    """Whether a target's watermark is that of its INSERT: it is of a column that holds the event time of the `probe`'s
    rows as it is."""
    own = probe.watermark
    if own is None or spec.expression != quoted(spec.column) or len(own.path) > 1:
        return False
    given = {item.name: item for item in writer.projections}.get(spec.column)
    column = f"{quoted(writer.probe_alias)}.{quoted(own.column)}"
    return given is not None and given.expression == column


@dataclass(frozen=True)
class InsertStatement:
    """One INSERT, and the tables and functions that stand before it. `writers`: the INSERTs of the script that are
    compiled, by their targets. Every method raises SqlError."""

    source: Source
    statement: InsertInto
    declared: Mapping[str, Declared]
    functions: UserFunctions
    writers: Mapping[str, Insert] = field(default_factory=dict)

    def error(self, span: Span, what: str, hint: str | None = None) -> SqlError:
        return self.source.error(span, what, hint)

    def scope(self, relations: Sequence[Relation], later: Sequence[str] = ()) -> InsertScope:
        """The scope in which its expressions find columns and functions."""
        return InsertScope(self.source, relations, self.functions, later)

    # Tables

    def _find(self, name: Name) -> Declared:
        found = self.declared.get(name.text)
        if found is None:
            hint = suggest(name.text, self.declared, "the script's tables") or "declare it with CREATE TABLE"
            raise self.error(name.span, f"unknown table `{name.text}`", hint)
        return self._written(found)

    def _written(self, found: Declared) -> Declared:
        return replace(found, writer=self.writers.get(found.table.name))

    def target(self) -> Declared:
        target = self._find(self.statement.target)
        if not target.spec.sink:
            what = f"{target.table.name} cannot be a target: {target.spec.name} can only be read"
            raise self.error(self.statement.target.span, what)
        for column in target.table.columns:
            if column.metadata is not None:
                what = f"{target.table.name} cannot be a target: its column `{column.name}` is METADATA"
                raise self.error(self.statement.target.span, what, "leave METADATA out")
        for option in target.statement.options:
            if option.key.text in NOT_FROM_THE_ENVIRONMENT and needs_variables(option.value.text):
                what = f"'{option.key.text}' of a target cannot come from the environment"
                raise self.error(option.value.span, what, "write the value")
        return target

    def read(self, use: TableUse, clause: str) -> Declared:
        """A table that can be read."""
        found = self._find(use.table)
        if found.writer is not None:
            return self._of_a_target(use, found, found.writer, clause)
        if not found.spec.source:
            what = f"{use.table.text} cannot stand in {clause}: {found.spec.name} can only be written"
            raise self.error(use.table.span, what)
        return found

    def _of_a_target(self, use: TableUse, found: Declared, writer: Insert, clause: str) -> Declared:
        """A target as what an INSERT reads row by row."""
        table, at = found.table, use.table.span
        if clause != "FROM":
            what = f"{table.name} is the target of an INSERT, and cannot be a build side yet"
            raise self.error(at, what, read_back(table.name))
        if isinstance(writer, ProcessInsert):
            what = f"{table.name} is written by windows, and no INSERT can read it yet"
            raise self.error(at, what, read_back(table.name))
        probe = self._written(self.declared[writer.probe])
        if not probe.only_grows:
            what = f"{table.name} has the updates of {writer.probe}, and no INSERT can read such a target"
            raise self.error(at, what, f"read {writer.probe} itself")
        for column in table.columns:
            if column.expression is not None and not column.proctime:
                what = f"`{column.name}` of {table.name} is computed, and no target stores what is computed"
                raise self.error(at, what, f"select it in the INSERT INTO {table.name}, or leave it out")
        spec = table.watermark
        if spec is not None and not carries(writer, probe.table, spec):
            own = probe.table.watermark
            what = f"WATERMARK FOR {spec.column} in {table.name} is not that of the rows which its INSERT takes"
            hint = (
                f"{writer.probe} has no WATERMARK FOR: leave this one out, and read {table.name} by PROCTIME()"
                if own is None
                else f"select {own.column} of {writer.probe} as it is, and declare WATERMARK FOR it AS it, without more"
            )
            raise self.error(at, what, hint)
        return found

    def relation(self, use: TableUse, found: Declared, known: list[Relation]) -> Relation:
        """The table by the name that it goes by."""
        name = use.name
        check_table_name(self.source, name)
        if folded(name.text) in [folded(relation.alias) for relation in known]:
            hint = f"give it another name: {use.table.text} … AS {use.table.text[:1]}{len(known) + 1}"
            raise self.error(name.span, f"two tables are called `{name.text}` in this INSERT", hint)
        return Relation(name.text, found.table)

    def compiled(
        self, target: Table, probe: Relation, outputs: Sequence[Output], where: str | None, joins: tuple[Join, ...] = ()
    ) -> Insert:
        """The INSERT of `outputs` into `target`."""
        return Insert(
            id=target.options.get("insert.id", target.name),
            target=target.name,
            probe=probe.table.name,
            probe_alias=probe.alias,
            joins=joins,
            where=where,
            projections=self._projections(target, outputs),
            sql=self.statement.written,
            location=self.source.location(self.statement.span.start),
            constraints=severest_first(target.constraints),
        )

    def _projections(self, target: Table, outputs: Sequence[Output]) -> tuple[Projection, ...]:
        """The expressions for the target's columns. Raises SqlError for too few, too many, or a type that does not
        fit."""
        columns = self._target_columns(target)
        if len(outputs) != len(columns):
            wanted, given = ", ".join(column.name for column in columns), ", ".join(output.name for output in outputs)
            what = (
                f"{target.name} takes {len(columns)} column{'' if len(columns) == 1 else 's'} ({wanted}), "
                f"the SELECT gives {len(outputs)} ({given})"
            )
            raise self.error(self.statement.select_span, what, f"or name the columns: INSERT INTO {target.name} (…)")
        chosen = {column.name: output for column, output in zip(columns, outputs, strict=True)}
        return tuple(self._projection(target, column, chosen.get(column.name)) for column in target.physical_columns)

    def _target_columns(self, target: Table) -> list[Column]:
        physical = {column.name: column for column in target.physical_columns}
        if self.statement.columns is None:
            return list(physical.values())
        chosen: list[Column] = []
        for name in self.statement.columns:
            if name.text not in physical:
                hint = suggest(name.text, physical, "its columns")
                raise self.error(name.span, f"unknown column `{name.text}` in {target.name}", hint)
            if physical[name.text] in chosen:
                raise self.error(name.span, f"column `{name.text}` is named twice")
            chosen.append(physical[name.text])
        return chosen

    def _projection(self, target: Table, column: Column, output: Output | None) -> Projection:
        if output is None:
            if not column.nullable:
                what = f"column `{column.name}` of {target.name} is NOT NULL and gets no value"
                raise self.error(self.statement.target.span, what, "name it among the INSERT's columns")
            return Projection(column.name, f"CAST(NULL AS {column.spark_type})", column.spark_type)
        value, wanted = output.value, type_of(column)
        if value.type.kind is Kind.NULL and not column.nullable:
            raise self.error(output.span, f"column `{column.name}` of {target.name} is NOT NULL and gets NULL")
        if not assignable(value.type, wanted) and not (value.literal and fits(value.constant, wanted)):
            hint = None
            if castable(value.type, wanted):
                hint = f"CAST({self.source.shown(output.span)} AS {parse_type(column.type)}) says that this is meant"
                if output.name == column.name and self.source.shown(output.span).endswith("*"):
                    hint = f"write the columns out, with CAST({column.name} AS {parse_type(column.type)})"
            what = f"type clash: column `{column.name}` of {target.name} is {column.type}"
            raise self.error(output.span, f"{what}, `{output.name}` is {value.type.null()}", hint)
        plain = value.column is not None and value.type.spark == wanted.spark
        sql = value.sql if plain else f"CAST({value.sql} AS {wanted.spark})"
        return Projection(column.name, sql, column.spark_type)
