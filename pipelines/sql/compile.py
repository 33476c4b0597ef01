"""A script becomes a `Pipeline`, to which the functions of a Python program can be added. Every error that can be
known before anything runs is found here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from tidegate.pipelines.connectors.registry import InstalledConnectors
from tidegate.pipelines.connectors.spec import ConnectorSpec
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.sql.functions.user import UserFunctions
from tidegate.pipelines.sql.inserts.chains import Chains
from tidegate.pipelines.sql.inserts.queries import Binder, Named
from tidegate.pipelines.sql.inserts.statement import InsertStatement
from tidegate.pipelines.sql.inserts.windows import WindowedCompiler
from tidegate.pipelines.sql.model import Insert, Join
from tidegate.pipelines.sql.processes import Pipeline
from tidegate.pipelines.sql.roles import Use, roles
from tidegate.pipelines.sql.tables.constraints import quarantining_nulls
from tidegate.pipelines.sql.tables.like import by_another, with_hints
from tidegate.pipelines.sql.tables.table import TableCompiler
from tidegate.pipelines.sql.tables.with_options import with_role
from tidegate.pipelines.sql.tree import Declared
from tidegate.pipelines.syntax.dialect import read_script
from tidegate.pipelines.syntax.errors import SqlError
from tidegate.pipelines.syntax.settings import AUTO_WATERMARK_INTERVAL, NOT_NULL_ENFORCER, settings, without_effect
from tidegate.pipelines.syntax.source import Source, Span
from tidegate.pipelines.syntax.statements import CreateFunction, CreateTable, InsertInto, Statement, View
from tidegate.pipelines.syntax.types import quoted


@dataclass(frozen=True)
class KeyedJoin:
    """A join of an INSERT. `keys`: column of the build (its primary key, in order) -> column of the probe; empty where
    one is an expression. `types`: the Spark types of the columns that the build stores. `targets`: of probe and
    build, where those lie that are targets of other INSERTs."""

    probe: str
    build: str
    alias: str
    time: str
    keys: Mapping[str, str]
    types: Mapping[str, str] = field(default_factory=dict)
    targets: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class MissedKey:
    """A probe row without a match: its key (column of the build -> value), the reason (`key-absent@user_info`), and the
    nearest version of that key, as text."""

    key: Mapping[str, Any]
    reason: str
    nearest: str


def keyed_joins(pipeline: Pipeline, insert: Insert, place: Callable[[Table], object]) -> tuple[KeyedJoin, ...]:
    """The joins of an INSERT, as far as they compare plain columns. `place`: where a target lies."""
    return tuple(_keyed(pipeline, insert, join, place) for join in insert.joins)


def _keyed(pipeline: Pipeline, insert: Insert, join: Join, place: Callable[[Table], object]) -> KeyedJoin:
    entries = [
        (insert.probe_alias, each.name, each.name) for each in insert.probe_table(pipeline.tables).stored_columns
    ]
    entries += [(each.alias, each.column, each.stored) for each in insert.entries]
    columns = {f"{quoted(alias)}.{quoted(column)}": stored for alias, column, stored in entries}
    plain = {key.column: columns[key.probe] for key in join.keys if key.probe in columns}
    types = {column.name: column.spark_type for column in pipeline.table(join.build).stored_columns}
    whole = len(plain) == len(join.keys)
    written = [name for name in (*insert.taken, join.build) if pipeline.writer_of(name) is not None]
    targets = {name: str(place(pipeline.table(name))) for name in written}
    names = (insert.probe, join.build, join.alias, join.time)
    return KeyedJoin(*names, plain if whole else {}, types if whole else {}, targets)


def compile_script(
    text: str,
    *,
    name: str = "pipeline",
    path: str | None = None,
    connectors: Mapping[str, ConnectorSpec] | None = None,
) -> Pipeline:
    """Compile a script of SET, CREATE TABLE, CREATE FUNCTION and INSERT INTO statements.

    Modules that CREATE FUNCTION names are imported; nothing else runs.

    Args:
        text: The SQL.
        name: What the pipeline is called.
        path: The script's file, for messages.
        connectors: What `'connector' = …` may name; the installed ones by default, loaded as they are named.

    Raises:
        SqlError: with line, column, the underlined source line and a hint. Nothing has run.
    """
    source = Source(text.removeprefix("\ufeff"), path)
    statements = read_script(source)
    if not statements:
        raise source.error(Span(0, 1), "the script is empty", "declare tables with CREATE TABLE, and INSERT INTO one")
    given = settings(source, statements)
    targets = {statement.target.text for statement in statements if isinstance(statement, InsertInto)}
    script = _ScriptCompiler(
        source,
        InstalledConnectors() if connectors is None else connectors,
        UserFunctions(source, [each.name.text for each in statements if isinstance(each, CreateFunction)]),
        Chains(source, targets),
        quarantined=targets if given.get(NOT_NULL_ENFORCER) == "DROP" else set(),
    )
    for statement in with_hints(source, statements):
        try:
            script.add(statement)
            continue
        except RecursionError:
            pass
        hint = "take it apart with computed columns"
        raise source.error(statement.span, "an expression in this statement is nested too deeply", hint)
    tables, inserts = script.tables_and_inserts()
    return Pipeline(
        name=name,
        tables=tables,
        inserts=inserts,
        script=source.text,
        functions=script.functions.declared,
        auto_watermark_interval=given.get(AUTO_WATERMARK_INTERVAL),
        not_null_enforcer=given.get(NOT_NULL_ENFORCER),
        without_effect=without_effect(statements),
        views=tuple(script.views),
    )


@dataclass
class _ScriptCompiler:
    """Compiles the statements of a script one by one: `declared` and `views` hold what the next one may name, `uses`
    the tables that the INSERTs so far name. `quarantined`: the targets that quarantine rows with NULL in a NOT NULL
    column. Every method raises SqlError."""

    source: Source
    connectors: Mapping[str, ConnectorSpec]
    functions: UserFunctions
    chains: Chains
    quarantined: Collection[str]
    declared: dict[str, Declared] = field(default_factory=dict)
    views: dict[str, Named] = field(default_factory=dict)
    uses: list[Use] = field(default_factory=list)

    def add(self, statement: Statement) -> None:
        """Compile the next statement; an INSERT that reads a target which is not written yet waits for that."""
        if isinstance(statement, CreateFunction):
            self.functions.declare(statement)
        elif isinstance(statement, InsertInto):
            self.chains.add(statement, partial(self._insert, statement, dict(self.declared), dict(self.views)))
        elif isinstance(statement, CreateTable) and not self._there(statement):
            self._declare(statement)
        elif isinstance(statement, View) and not self._there(statement):
            binder = Binder(self.source, self.declared, self.views, self.functions, self.chains, waits=False)
            binder.view(statement, {}, None, statement.name.span)
            self.views[statement.name.text] = Named(statement, {})

    def tables_and_inserts(self) -> tuple[dict[str, Table], tuple[Insert, ...]]:
        """What all statements make: the tables in their roles, and the INSERTs in their order."""
        self.chains.require_all()
        found, both = roles(self.source, self.chains.done, self.uses, self.declared)
        read = {part.name for table in found for part in self.declared[table].table.parts}
        tables = {
            name: with_role(owner.table, found.get(name, "part" if name in read else "unused"), also_probe=name in both)
            for name, owner in self.declared.items()
        }
        return tables, tuple(insert for _, insert in self.chains.done)

    def _there(self, statement: CreateTable | View) -> bool:
        """Whether what is declared IF NOT EXISTS is there. A name that another table or view has is refused."""
        name = statement.name.text
        known = {other: ("table", owner.table.location.line) for other, owner in self.declared.items()}
        for other, named in self.views.items():
            known[other] = "view", self.source.location(named.view.span.start).line
        other = next((other for other in known if other.casefold() == name.casefold()), None)
        if other is None or (other == name and statement.if_not_exists):
            return other is not None
        kind, line = known[other]
        hint = "give it another name" if other == name else f"`{other}` differs in case only"
        raise self.source.error(statement.name.span, f"{kind} `{name}` is declared already, in line {line}", hint)

    def _insert(self, statement: InsertInto, declared: Mapping[str, Declared], views: Mapping[str, Named]) -> Insert:
        """An INSERT over what stands before it. Raises NotWritten, too."""
        binder = Binder(self.source, declared, views, self.functions, self.chains)
        insert = InsertStatement(self.source, statement, binder)
        windowed = statement.query.window is not None and not statement.query.more
        made = WindowedCompiler(insert).compile() if windowed else insert.compile()
        self.uses += [Use(statement.target, "sink"), *binder.uses]
        return made

    def _declare(self, statement: CreateTable) -> None:
        name = statement.name.text
        known = {name: (owner.table, owner.spec) for name, owner in self.declared.items()}
        statement = by_another(self.source, statement, self.declared)
        try:
            table, spec = TableCompiler(self.source, statement, self.connectors, self.functions, known).compile()
        except SqlError as error:
            if statement.like is not None and error.also is None:
                error.also = self.source.error(statement.like.span, "see also")
            raise
        for part in table.parts:
            for option in self.declared[part.name].statement.hinted[:1]:
                what, hint = f"a hint would change {name}, of which {part.name} is a part", "write it in the WITH of"
                raise self.source.error(option.key.span, what, f"{hint} {part.name}", statement.name.span)
        path = self.source.path
        table = replace(table, home=None if path is None else str(Path(path).absolute().parent))
        table = quarantining_nulls(table) if name in self.quarantined else table
        self.declared[name] = Declared(table, spec, statement)
