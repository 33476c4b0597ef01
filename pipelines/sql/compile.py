"""A script becomes a `Pipeline`, to which the functions of a Python program can be added. Every error that can be
known before anything runs is found here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tidegate.pipelines.connectors.registry import InstalledConnectors
from tidegate.pipelines.connectors.spec import ConnectorSpec
from tidegate.pipelines.sql.functions.user import UserFunctions
from tidegate.pipelines.sql.inserts.joins import SelectCompiler
from tidegate.pipelines.sql.inserts.statement import Declared, InsertStatement
from tidegate.pipelines.sql.inserts.windows import WindowedCompiler
from tidegate.pipelines.sql.model import CompiledScript, Insert, Join
from tidegate.pipelines.sql.roles import roles
from tidegate.pipelines.sql.tables.constraints import quarantining_nulls
from tidegate.pipelines.sql.tables.table import TableCompiler
from tidegate.pipelines.sql.tables.with_options import with_role
from tidegate.pipelines.syntax.dialect import read_script
from tidegate.pipelines.syntax.errors import SqlError
from tidegate.pipelines.syntax.settings import AUTO_WATERMARK_INTERVAL, NOT_NULL_ENFORCER, settings, without_effect
from tidegate.pipelines.syntax.source import Source, Span
from tidegate.pipelines.syntax.statements import CreateFunction, CreateTable, InsertInto
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
    own = f"{quoted(insert.probe_alias)}."
    keys = {key.column: key.probe.removeprefix(own) for key in join.keys if key.probe.startswith(own)}
    plain = {column: name[1:-1].replace("``", "`") for column, name in keys.items() if quoted(name[1:-1]) == name}
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
    inserts = InsertsInOrder(source, declared, functions, targets)
    for statement in statements:
        try:
            if isinstance(statement, CreateTable):
                _declare(source, statement, declared, known, functions, quarantined)
            elif isinstance(statement, CreateFunction):
                functions.declare(statement)
            elif isinstance(statement, InsertInto):
                inserts.add(statement)
            continue
        except RecursionError:
            pass
        hint = "take it apart with computed columns"
        raise source.error(statement.span, "an expression in this statement is nested too deeply", hint)
    found = roles(source, inserts.compiled(), declared)
    read = {part.name for table in found for part in declared[table].table.parts}
    tables = {
        table: with_role(owner.table, found.get(table, "part" if table in read else "unused"))
        for table, owner in declared.items()
    }
    return Pipeline(
        name=name,
        tables=tables,
        inserts=tuple(insert for _, insert in inserts.compiled()),
        script=source.text,
        functions=functions.declared,
        auto_watermark_interval=given.get(AUTO_WATERMARK_INTERVAL),
        not_null_enforcer=given.get(NOT_NULL_ENFORCER),
        without_effect=without_effect(statements),
    )


@dataclass(frozen=True)
class InsertsInOrder:
    """The INSERTs of a script, each behind the one whose target it reads, and else as they are written. `targets`: of
    all INSERTs of the script."""

    source: Source
    declared: dict[str, Declared]
    functions: UserFunctions
    targets: Collection[str]
    _writers: dict[str, Insert] = field(default_factory=dict)
    _waiting: list[InsertStatement] = field(default_factory=list)
    _done: list[tuple[InsertInto, Insert]] = field(default_factory=list)

    def add(self, statement: InsertInto) -> None:
        """Compile the next INSERT, or leave it until the target that it reads is written. It sees what stands before
        it. Raises SqlError."""
        insert = InsertStatement(self.source, statement, self.declared, self.functions, self._writers)
        read = statement.probe.table.text
        if read in self.targets and read not in self._writers:
            self._waiting.append(replace(insert, declared=dict(self.declared)))
        else:
            self._compile(insert)

    def _compile(self, insert: InsertStatement) -> None:
        compiler = SelectCompiler if insert.statement.window is None else WindowedCompiler
        made = compiler(insert).compile()
        self._done.append((insert.statement, made))
        self._writers.setdefault(made.target, made)
        ready = [each for each in self._waiting if each.statement.probe.table.text == made.target]
        for each in ready:
            self._waiting.remove(each)
            self._compile(each)

    def compiled(self) -> list[tuple[InsertInto, Insert]]:
        """All of them. Raises SqlError where targets are read in a circle."""
        if self._waiting:
            first = self._waiting[0].statement
            into = {each.statement.target.text: each.statement.probe.table for each in self._waiting}
            round_trip, name = [first.target.text], first.probe.table.text
            while name not in round_trip:
                round_trip.append(name)
                name = into[name].text
            circle = round_trip[round_trip.index(name) :]
            other = into[circle[-1]]
            places = ", ".join(f"line {self.source.location(into[each].span.start).line}" for each in circle)
            raise self.source.error(
                other.span,
                f"{' reads '.join([*circle, circle[0]])}: no row could ever enter this circle ({places})",
                "let one of them read a source table",
            )
        return self._done


def _declare(
    source: Source,
    statement: CreateTable,
    declared: dict[str, Declared],
    connectors: Mapping[str, ConnectorSpec],
    functions: UserFunctions,
    quarantined: Collection[str],
) -> None:
    """Declare a table; `quarantined`: the targets that quarantine rows with NULL in a NOT NULL column."""
    name = statement.name.text
    folded = {known.casefold(): known for known in declared}
    other = folded.get(name.casefold())
    if other is not None:
        if other == name and statement.if_not_exists:
            return
        line = declared[other].table.location.line
        hint = "give it another name" if other == name else f"`{other}` differs in case only"
        raise source.error(statement.name.span, f"table `{name}` is declared already, in line {line}", hint)
    known = {name: (owner.table, owner.spec) for name, owner in declared.items()}
    table, spec = TableCompiler(source, statement, connectors, functions, known).compile()
    table = replace(table, home=None if source.path is None else str(Path(source.path).absolute().parent))
    table = quarantining_nulls(table) if name in quarantined else table
    declared[name] = Declared(table, spec, statement)


__all__ = ["SqlError", "compile_script"]
