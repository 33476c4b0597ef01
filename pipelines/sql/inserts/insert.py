"""INSERT INTO … SELECT becomes an Insert: tables found, columns resolved, every projection of its target's type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipelines.sources.protocol import ConnectorSpec
from pipelines.sql.coercion import assignable, castable
from pipelines.sql.errors import SqlError, suggest
from pipelines.sql.inserts.joins import JoinCompiler
from pipelines.sql.model import Column, Condition, Insert, Join, Projection, Table, needs_variables, severest_first
from pipelines.sql.names import check_table_name
from pipelines.sql.scope import InsertScope, Relation, type_of, value_of
from pipelines.sql.source import Source, Span
from pipelines.sql.syntax import CreateTable, InsertInto, Name, SelectItem, TableUse
from pipelines.sql.translate import Translator
from pipelines.sql.types import Kind, parse_type
from pipelines.sql.user_functions import UserFunctions
from pipelines.sql.values import Value, fits

NOT_FROM_THE_ENVIRONMENT = ("gate.on-unmatched", "gate.proof", "path")
"""Options of a target that are read where no environment is."""


@dataclass(frozen=True)
class Declared:
    """A table, its connector, and the statement that declares it."""

    table: Table
    spec: ConnectorSpec
    statement: CreateTable


@dataclass(frozen=True)
class Output:
    """A column of the SELECT. `name` is what it is called, for messages."""

    value: Value
    span: Span
    name: str


class InsertCompiler:
    """Compiles one INSERT."""

    def __init__(
        self,
        source: Source,
        statement: InsertInto,
        declared: Mapping[str, Declared],
        functions: UserFunctions | None = None,
    ) -> None:
        self.source = source
        self.statement = statement
        self.declared = declared
        self.functions = functions

    def compile(self) -> Insert:
        """The INSERT. Raises SqlError."""
        if self.statement.window is not None:
            from pipelines.sql.inserts.windows import WindowedCompiler

            return WindowedCompiler(self).compile()
        target = self.target()
        probe = self.read(self.statement.probe, "FROM")
        relations = [self.relation(self.statement.probe, probe, [])]
        joins: list[Join] = []
        for position, join in enumerate(self.statement.joins):
            build = self.read(join.build, "JOIN")
            relation = self.relation(join.build, build, relations)
            later = [further.build.name.text for further in self.statement.joins[position + 1 :]]
            compiler = JoinCompiler(
                self.source, join, relations, relation, probe.spec, build.spec, later, self.functions
            )
            joins.append(compiler.compile())
            relations = [*relations, relation]
        self._one_time(joins)
        if not joins and not probe.spec.only_grows(probe.table.options):
            raise self._error(
                self.statement.probe.table.span,
                f"{probe.table.name} ({probe.spec.name}) has updates, and this INSERT joins nothing in event time",
                "a probe that is read in processing time only grows",
            )
        scope = InsertScope(self.source, relations, functions=self.functions)
        conditions = self._where(scope)
        return Insert(
            id=target.table.options.get("insert.id", target.table.name),
            target=target.table.name,
            probe=probe.table.name,
            probe_alias=relations[0].alias,
            joins=tuple(joins),
            where=" AND ".join(condition.expression for condition in conditions) or None,
            projections=self.projections(target.table, self._selected(scope)),
            sql=self.statement.written,
            location=self.source.location(self.statement.span.start),
            conditions=tuple(conditions),
            constraints=severest_first(target.table.constraints),
            proof=target.table.options.get("gate.proof") == "columns",
        )

    def _error(self, span: Span, what: str, hint: str | None = None) -> SqlError:
        return self.source.error(span, what, hint)

    # Tables

    def _find(self, name: Name) -> Declared:
        found = self.declared.get(name.text)
        if found is None:
            hint = suggest(name.text, self.declared, "the script's tables") or "declare it with CREATE TABLE"
            raise self._error(name.span, f"unknown table `{name.text}`", hint)
        return found

    def target(self) -> Declared:
        """The table behind INSERT INTO. Raises SqlError."""
        target = self._find(self.statement.target)
        if not target.spec.sink:
            what = f"{target.table.name} can not be a target: {target.spec.name} can only be read"
            raise self._error(self.statement.target.span, what)
        for column in target.table.columns:
            if column.metadata is not None:
                what = f"{target.table.name} can not be a target: its column `{column.name}` is METADATA"
                raise self._error(self.statement.target.span, what, "leave METADATA out")
        for option in target.statement.options:
            if option.key.text in NOT_FROM_THE_ENVIRONMENT and needs_variables(option.value.text):
                what = f"'{option.key.text}' of a target can not come from the environment"
                raise self._error(option.value.span, what, "write the value")
        return target

    def read(self, use: TableUse, clause: str) -> Declared:
        """A table that can be read. Raises SqlError."""
        found = self._find(use.table)
        if not found.spec.source:
            what = f"{use.table.text} can not stand in {clause}: {found.spec.name} can only be written"
            raise self._error(use.table.span, what)
        return found

    def relation(self, use: TableUse, found: Declared, known: list[Relation]) -> Relation:
        """The table by the name that it goes by. Raises SqlError."""
        name = use.name
        check_table_name(self.source, name)
        if name.text.casefold() in [relation.alias.casefold() for relation in known]:
            hint = f"give it another name: {use.table.text} … AS {use.table.text[:1]}{len(known) + 1}"
            raise self._error(name.span, f"two tables are called `{name.text}` in this INSERT", hint)
        return Relation(name.text, found.table)

    def _one_time(self, joins: list[Join]) -> None:
        for join, statement in zip(joins, self.statement.joins, strict=True):
            if join.time != joins[0].time:
                raise self._error(
                    statement.time.span,
                    f"one INSERT can not mix processing time and event time ({joins[0].build}: {joins[0].time}, "
                    f"{join.build}: {join.time})",
                    "join all builds AS OF the same time attribute, or write two INSERTs",
                )

    # WHERE

    def _where(self, scope: InsertScope) -> list[Condition]:
        if self.statement.where is None:
            return []
        terms = Translator(self.source, scope).conjuncts(self.statement.where)
        return [Condition(value.sql, value.aliases) for _, value in terms]

    # SELECT

    def _selected(self, scope: InsertScope) -> list[Output]:
        return [output for item in self.statement.items for output in self._outputs(item, scope)]

    def projections(self, target: Table, outputs: Sequence[Output]) -> tuple[Projection, ...]:
        """What the target's columns get. Raises SqlError: too few, too many, of another type."""
        columns = self._target_columns(target)
        if len(outputs) != len(columns):
            wanted, given = ", ".join(column.name for column in columns), ", ".join(output.name for output in outputs)
            what = (
                f"{target.name} takes {len(columns)} column{'' if len(columns) == 1 else 's'} ({wanted}), "
                f"the SELECT gives {len(outputs)} ({given})"
            )
            raise self._error(self.statement.select_span, what, f"or name the columns: INSERT INTO {target.name} (…)")
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
                raise self._error(name.span, f"unknown column `{name.text}` in {target.name}", hint)
            if physical[name.text] in chosen:
                raise self._error(name.span, f"column `{name.text}` is named twice")
            chosen.append(physical[name.text])
        return chosen

    def _outputs(self, item: SelectItem, scope: InsertScope) -> list[Output]:
        if item.expression is not None:
            value = Translator(self.source, scope).value(item.expression)
            written = item.alias.text if item.alias else item.expression.written
            return [Output(value, item.expression.span, written)]
        relations = [scope.relation(item.qualifier)] if item.qualifier else scope.relations
        return [
            Output(value_of(column, relation.alias), item.span, column.name)
            for relation in relations
            for column in relation.table.columns
        ]

    def _projection(self, target: Table, column: Column, output: Output | None) -> Projection:
        if output is None:
            if not column.nullable:
                what = f"column `{column.name}` of {target.name} is NOT NULL and gets no value"
                raise self._error(self.statement.target.span, what, "name it among the INSERT's columns")
            return Projection(column.name, f"CAST(NULL AS {column.spark_type})", column.spark_type)
        value, wanted = output.value, type_of(column)
        if value.type.kind is Kind.NULL and not column.nullable:
            raise self._error(output.span, f"column `{column.name}` of {target.name} is NOT NULL and gets NULL")
        if not assignable(value.type, wanted) and not (value.literal and fits(value.constant, wanted)):
            hint = None
            if castable(value.type, wanted):
                hint = f"CAST({self.source.shown(output.span)} AS {parse_type(column.type)}) says that this is meant"
                if output.name == column.name and self.source.shown(output.span).endswith("*"):
                    hint = f"write the columns out, with CAST({column.name} AS {parse_type(column.type)})"
            what = f"type clash: column `{column.name}` of {target.name} is {column.type}"
            raise self._error(output.span, f"{what}, `{output.name}` is {value.type.null()}", hint)
        plain = value.column is not None and value.type.spark == wanted.spark
        sql = value.sql if plain else f"CAST({value.sql} AS {wanted.spark})"
        return Projection(column.name, sql, column.spark_type)
