"""A script becomes a `Pipeline`, to which the functions of a Python program can be added. Every error that can be
known before anything runs is found here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from tidegate.pipelines.connectors.registry import InstalledConnectors
from tidegate.pipelines.connectors.spec import ConnectorSpec
from tidegate.pipelines.sql.functions.user import UserFunctions
from tidegate.pipelines.sql.inserts.chains import Chains
from tidegate.pipelines.sql.inserts.queries import Binder, Named
from tidegate.pipelines.sql.inserts.statement import InsertStatement
from tidegate.pipelines.sql.inserts.windows import WindowedCompiler
from tidegate.pipelines.sql.model import CompiledScript, Insert, Join
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
from tidegate.pipelines.syntax.statements import CreateFunction, CreateTable, InsertInto, View
from tidegate.pipelines.syntax.types import quoted


@dataclass(frozen=True)
class Pipeline(CompiledScript):
    """A compiled script, to which process functions can be added."""

    def process(
        self,
        name: str | Sequence[str],
        inputs: Any,
        key: Any,
        function: Any,
        schema: Any = None,
        *,
        options: Mapping[str, str] | None = None,
        buckets: int = 64,
    ) -> Pipeline:
        """This pipeline, with a process function (FLIP-499) whose output is a target as those of INSERTs are.

        Args:
            name: Of the output's table; two for a function with two outputs.
            inputs: A table, or several in the function's order. `(table, generator)` gives the table's event time by
                a generator that `EventTimeExtension` has built.
            key: The columns that make the key, the same of every input, or a mapping by table; None for none.
            function: A plain process function, or a wrapped event-time one.
            schema: The output's columns, as in a CREATE TABLE or name -> type; None where the script declares it. Two
                for two outputs.
            options: WITH options of an output whose schema is given; a Delta table otherwise.
            buckets: Into how many parts the keys are put; it stays what it was when the process first ran.

        Raises PlanningError, SqlError.
        """
        from tidegate.pipelines.sql.processes import with_process

        return with_process(self, name, inputs, key, function, schema, options=options, buckets=buckets)


@dataclass(frozen=True)
class KeyedJoin:
    """A join of an INSERT. `keys`: column of the build (its primary key, in order) -> column of the probe; empty where
    one is an expression. `types`: the Spark types of the columns that the build stores."""

    probe: str
    build: str
    alias: str
    time: str
    keys: Mapping[str, str]
    types: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class MissedKey:
    """A probe row without a match: its key (column of the build -> value), the reason (`key-absent@user_info`), and the
    nearest version of that key, as text."""

    key: Mapping[str, Any]
    reason: str
    nearest: str


def keyed_joins(pipeline: Pipeline, insert: Insert) -> tuple[KeyedJoin, ...]:
    """The joins of an INSERT, as far as they compare plain columns."""
    return tuple(_keyed(pipeline, insert, join) for join in insert.joins)


def _keyed(pipeline: Pipeline, insert: Insert, join: Join) -> KeyedJoin:
    entries = [
        (insert.probe_alias, each.name, each.name) for each in insert.probe_table(pipeline.tables).stored_columns
    ]
    entries += [(each.alias, each.column, each.stored) for each in insert.entries]
    names = {f"{quoted(alias)}.{quoted(column)}": stored for alias, column, stored in entries}
    plain = {key.column: names[key.probe] for key in join.keys if key.probe in names}
    types = {column.name: column.spark_type for column in pipeline.table(join.build).stored_columns}
    whole = len(plain) == len(join.keys)
    return KeyedJoin(insert.probe, join.build, join.alias, join.time, plain if whole else {}, types if whole else {})


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
    known = InstalledConnectors() if connectors is None else connectors
    statements = read_script(source)
    if not statements:
        raise source.error(Span(0, 1), "the script is empty", "declare tables with CREATE TABLE, and INSERT INTO one")
    later = [statement.name.text for statement in statements if isinstance(statement, CreateFunction)]
    functions = UserFunctions(source, later)
    given = settings(source, statements)
    targets = {statement.target.text for statement in statements if isinstance(statement, InsertInto)}
    quarantined = targets if given.get(NOT_NULL_ENFORCER) == "DROP" else set()
    declared: dict[str, Declared] = {}
    views, uses = dict[str, Named](), list[Use]()
    chains = Chains(source, targets)
    for statement in with_hints(source, statements):
        try:
            if isinstance(statement, CreateTable):
                _declare(source, statement, declared, known, functions, quarantined, views)
            elif isinstance(statement, CreateFunction):
                functions.declare(statement)
            elif isinstance(statement, InsertInto):
                chains.add(statement, partial(_insert, statement, chains, dict(declared), dict(views), functions, uses))
            elif isinstance(statement, View) and not _there(source, statement, declared, views):
                binder = Binder(source, declared, views, functions, chains, waits=False)
                binder.view(statement, {}, None, statement.name.span)
                views[statement.name.text] = Named(statement, {})
            continue
        except RecursionError:
            pass
        hint = "take it apart with computed columns"
        raise source.error(statement.span, "an expression in this statement is nested too deeply", hint)
    chains.require_all()
    found, both = roles(source, chains.done, uses, declared)
    read = {part.name for table in found for part in declared[table].table.parts}
    tables = {
        table: with_role(owner.table, found.get(table, "part" if table in read else "unused"), also_probe=table in both)
        for table, owner in declared.items()
    }
    return Pipeline(
        name=name,
        tables=tables,
        inserts=tuple(insert for _, insert in chains.done),
        script=source.text,
        functions=functions.declared,
        auto_watermark_interval=given.get(AUTO_WATERMARK_INTERVAL),
        not_null_enforcer=given.get(NOT_NULL_ENFORCER),
        without_effect=without_effect(statements),
        views=tuple(views),
    )


def _there(
    source: Source, statement: CreateTable | View, declared: Mapping[str, Declared], views: Mapping[str, Named]
) -> bool:
    """Whether what is declared IF NOT EXISTS is there. Raises SqlError for a name that another table or view has."""
    name = statement.name.text
    lines = {known: owner.table.location.line for known, owner in declared.items()}
    kinds = dict.fromkeys(lines, "table")
    for known, named in views.items():
        lines[known], kinds[known] = source.location(named.view.span.start).line, "view"
    other = next((known for known in lines if known.casefold() == name.casefold()), None)
    if other is None or (other == name and statement.if_not_exists):
        return other is not None
    hint = "give it another name" if other == name else f"`{other}` differs in case only"
    what = f"{kinds[other]} `{name}` is declared already, in line {lines[other]}"
    raise source.error(statement.name.span, what, hint)


def _insert(
    statement: InsertInto,
    chains: Chains,
    declared: Mapping[str, Declared],
    views: Mapping[str, Named],
    functions: UserFunctions,
    uses: list[Use],
) -> Insert:
    """An INSERT over what stands before it. Adds the tables that it names to `uses`. Raises SqlError, NotWritten."""
    binder = Binder(chains.source, declared, views, functions, chains)
    insert = InsertStatement(chains.source, statement, binder)
    windowed = statement.query.window is not None and not statement.query.more
    made = WindowedCompiler(insert).compile() if windowed else insert.compile()
    uses += [Use(statement.target, "sink"), *binder.uses]
    return made


def _declare(
    source: Source,
    statement: CreateTable,
    declared: dict[str, Declared],
    connectors: Mapping[str, ConnectorSpec],
    functions: UserFunctions,
    quarantined: Collection[str],
    views: Mapping[str, Named],
) -> None:
    """Declare a table; `quarantined`: the targets that quarantine rows with NULL in a NOT NULL column."""
    name = statement.name.text
    if _there(source, statement, declared, views):
        return
    known = {name: (owner.table, owner.spec) for name, owner in declared.items()}
    statement = by_another(source, statement, declared)
    try:
        table, spec = TableCompiler(source, statement, connectors, functions, known).compile()
    except SqlError as error:
        if statement.like is not None and error.also is None:
            error.also = source.error(statement.like.span, "see also")
        raise
    for part in table.parts:
        for option in declared[part.name].statement.hinted[:1]:
            what = f"a hint would change {name}, of which {part.name} is a part"
            raise source.error(option.key.span, what, f"write it in the WITH of {part.name}", statement.name.span)
    table = replace(table, home=None if source.path is None else str(Path(source.path).absolute().parent))
    table = quarantining_nulls(table) if name in quarantined else table
    declared[name] = Declared(table, spec, statement)


__all__ = ["SqlError", "compile_script"]
