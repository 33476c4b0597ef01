"""`Pipeline.process`: a Python process function over tables of a script, as a kind of INSERT.

It is planned, staged, judged and published like every INSERT; only how its rows are computed differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidegate.pipelines.connectors.options import QUARANTINE_RETENTION
from tidegate.pipelines.connectors.registry import InstalledConnectors, connector, only_grows
from tidegate.pipelines.connectors.table import Table, severest_first
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.process.engine.binding import Shape, shape_of
from tidegate.pipelines.process.errors import shown
from tidegate.pipelines.process.generator import EventTimeGeneratorFunction, WatermarkGeneratorBuilder
from tidegate.pipelines.process.spec import BUCKETS, ProcessInput, ProcessSpec
from tidegate.pipelines.process.state.declared import state_types
from tidegate.pipelines.process.watermarks.combining import by_identifier
from tidegate.pipelines.process.watermarks.declarations import WatermarkDeclaration
from tidegate.pipelines.sql.functions.user import UserFunctions
from tidegate.pipelines.sql.inserts.chains import unreadable
from tidegate.pipelines.sql.model import CompiledScript, ProcessInsert, Projection
from tidegate.pipelines.sql.roles import OF_A_PROCESS, PROCESS_TARGET
from tidegate.pipelines.sql.tables.constraints import quarantining_nulls
from tidegate.pipelines.sql.tables.table import TableCompiler
from tidegate.pipelines.sql.tables.with_options import with_role
from tidegate.pipelines.syntax.dialect import parse_type, read_script
from tidegate.pipelines.syntax.source import Source
from tidegate.pipelines.syntax.statements import CreateTable
from tidegate.pipelines.syntax.types import APPROXIMATE, NESTED, quoted, quoted_string

Inputs = str | Sequence[Any]
"""A table, or several; instead of a name `(name, generator)`, where the generator gives the table's event time."""

Key = str | Sequence[str] | Mapping[str, Any] | None
"""Columns that make the key, the same of every input, or by the input's name; None for an input without keys."""

Schema = str | Mapping[str, str] | None
"""Columns of an output, as in a CREATE TABLE or name -> type; None for a table that the script declares."""


@dataclass(frozen=True)
class Pipeline(CompiledScript):
    """A compiled script, to which process functions can be added."""

    def process(
        self,
        name: str | Sequence[str],
        inputs: Inputs,
        key: Key,
        function: Any,
        schema: Schema | Sequence[Schema] = None,
        *,
        options: Mapping[str, str] | None = None,
        buckets: int = BUCKETS,
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
        names = (name,) if isinstance(name, str) else tuple(name)
        where = f"process {', '.join(names)}"
        shape = shape_of(function)
        state_types(shape.states, shape.name)  # a type that does not exist is refused now, and not by the first run
        if isinstance(function, EventTimeGeneratorFunction):
            raise _error(
                where, "a generator of watermarks gives no table", "give it beside its input: (table, generator)"
            )
        read = _inputs(where, inputs)
        _counted(where, shape, len(read), len(names))
        if not isinstance(buckets, int) or not 1 <= buckets <= 4096:
            raise _error(where, f"the number of buckets is 1 to 4096, not {buckets!r}", "leave it out")
        if len({table for table, _ in read}) < len(read):
            raise _error(where, f"{read[0][0]} is read twice", "declare it twice in the script, under two names")
        pipeline = self
        for table, generator in read:
            pipeline = _readable(pipeline, where, table, generator)
        strange = sorted(set(key) - {table for table, _ in read}, key=str) if isinstance(key, Mapping) else ()
        if strange:
            raise _error(where, f"the key names {strange[0]}, which is no input", "name the inputs")
        keys = [_key(where, pipeline.table(table), key) for table, _ in read]
        found = tuple(
            ProcessInput(
                table,
                () if shape.broadcast and place else own,
                shape.broadcast and place == 1,
                generator.builder if generator else None,
            )
            for place, ((table, generator), own) in enumerate(zip(read, keys, strict=True))
        )
        for item in found:
            writer = pipeline.writer_of(item.table) if item.broadcast else None
            if writer is not None and not isinstance(writer, ProcessInsert):
                what = f"{item.table} is the target of an INSERT, and cannot be broadcast yet"
                raise _error(where, what, "read the table that it comes from")
        _same_types(where, pipeline, [item for item in found if not item.broadcast])
        if not found[0].key and (shape.event_time or shape.keyed):
            raise _error(
                where, f"{shape.name} has timers or keyed state, and no key is given", "give the key's columns"
            )
        if len({one.casefold() for one in names}) < len(names):
            raise _error(where, f"both outputs are called {names[0]}", "give each a name of its own")
        schemas = _schemas(where, schema, len(names))
        if options and schemas == [None] * len(names):
            raise _error(
                where, "options are given, and no schema", "write them into the WITH of the output's CREATE TABLE"
            )
        targets = [_target(pipeline, where, one, columns, options) for one, columns in zip(names, schemas, strict=True)]
        if pipeline.not_null_enforcer == "DROP":
            targets = [quarantining_nulls(target) for target in targets]
        for target in targets[1:]:
            if target.suite is not None:
                what = f"the suite {target.suite.path} of {target.name} would hold the epochs of {names[0]}"
                raise _error(where, what, "make it one of the first output")
            for constraint in target.constraints:
                if constraint.action == "fail":
                    what = f"constraint {constraint.name} of {target.name} would hold the epochs of {names[0]}"
                    raise _error(where, what, "let it QUARANTINE or WARN, or make it one of the first output")
        brought = _brought(pipeline, [table for table, _ in read], shape)
        spec = ProcessSpec(function, found, names, buckets, brought)
        return _added(pipeline, spec, targets)


def waits_for_flip(pipeline: CompiledScript, spec: ProcessSpec, item: ProcessInput) -> bool:
    """Whether a process takes no row before this input has flipped: one of several inputs that is broadcast, or that
    has phases. A process with a single input never waits."""
    return len(spec.inputs) > 1 and (item.broadcast or has_phases(pipeline, item.table))


def has_phases(pipeline: CompiledScript, name: str) -> bool:
    """Whether a table has a bounded phase before its unbounded one; what a statement writes has none."""
    table = pipeline.table(name)
    return pipeline.writer_of(name) is None and connector(table.connector).spec.phases(table.options)


def _inputs(where: str, inputs: Inputs) -> list[tuple[str, EventTimeGeneratorFunction | None]]:
    several = isinstance(inputs, Sequence) and not isinstance(inputs, str)
    if not several or (len(inputs) == 2 and not isinstance(inputs[1], str | Sequence)):
        return [_input(where, inputs)]
    return [_input(where, item) for item in inputs]


def _input(where: str, item: Any) -> tuple[str, EventTimeGeneratorFunction | None]:
    match item:
        case str():
            return item, None
        case (str(table), EventTimeGeneratorFunction() as generator):
            return table, generator
        case (str(table), WatermarkGeneratorBuilder()):
            what = f"the generator of {table} is not built yet"
            raise _error(where, what, "end it with .build_as_process_function()")
    raise _error(where, f"{shown(item)} is no input", "give a table's name, or (name, generator)")


def _schemas(where: str, schema: Schema | Sequence[Schema], outputs: int) -> list[Schema]:
    if schema is None or (outputs == 1 and isinstance(schema, str | Mapping)):
        return [schema] * outputs
    if isinstance(schema, str | Mapping) or len(schema) != outputs:
        given = 1 if isinstance(schema, str | Mapping) else len(schema)
        raise _error(where, f"of {outputs} outputs, {given} schemas are given", "give a schema for each, or None")
    return list(schema)


def _counted(where: str, shape: Shape, inputs: int, outputs: int) -> None:
    for what, has, given in (("input", shape.inputs, inputs), ("output", shape.outputs, outputs)):
        if has != given:
            plural = "" if has == 1 else "s"
            raise _error(where, f"{shape.name} has {has} {what}{plural}, {given} are given", f"give {has}")


def _readable(pipeline: Pipeline, where: str, name: str, generator: EventTimeGeneratorFunction | None) -> Pipeline:
    """The pipeline with `name` as a source, if it is not one already."""
    if name in pipeline.views:
        what = f"{name} is a view, and a process function reads tables"
        raise _error(where, what, "name the view's table, and leave out in the function what its WHERE leaves out")
    if name not in pipeline.tables:
        known = ", ".join(pipeline.tables)
        raise _error(where, f"there is no table {name}", f"the script declares {known}")
    table, writer = pipeline.table(name), pipeline.writer_of(name)
    if writer is not None:
        if generator is not None:
            raise _error(where, f"{name} is written by {writer.id}, which gives its time", "leave the generator out")
        problem = None if isinstance(writer, ProcessInsert) else unreadable(table, writer)
        if problem is not None:
            raise _error(where, *problem)
        return pipeline
    spec = InstalledConnectors()[table.connector]
    if not spec.source:
        raise _error(where, f"{name} ({spec.name}) can only be written", "name a source")
    for problem in spec.check(with_role(table, "probe")):
        raise _error(where, f"{name}: {problem}", "mend its CREATE TABLE")
    if not only_grows(table):
        raise _error(where, f"{name} has updates and deletes", "a process function reads tables that only grow")
    if table.role in ("unused", "part"):
        tables = {**pipeline.tables, name: with_role(table, "probe")}
        pipeline = replace(pipeline, tables=tables)
    elif table.role == "build":
        pipeline = replace(pipeline, tables={**pipeline.tables, name: with_role(table, "build", also_probe=True)})
    if generator is None:
        return pipeline
    if any(time != generator.builder for time in pipeline.generators(name)):
        raise _error(where, f"another process has given {name} another generator", "give both the same one")
    return pipeline.with_strategy(name, generator.strategy)


def _brought(pipeline: CompiledScript, tables: Sequence[str], shape: Shape) -> tuple[WatermarkDeclaration, ...]:
    """The declarations of what the processes before this one emit. Raises InvalidDeclaration if one of them, or of the
    function's own, has the name of another."""
    before = [insert.process for insert in pipeline.processes]
    sent = [item for spec in before if set(spec.outputs) & set(tables) for item in spec.sends]
    by_identifier([*sent, *shape.watermarks])
    return tuple(by_identifier(sent).values())


def _key(where: str, table: Table, key: Key) -> tuple[str, ...]:
    if isinstance(key, Mapping):
        key = key.get(table.name)
    if not isinstance(key, str | Sequence | None):
        raise _error(where, f"{shown(key)} is no key", "name a column, several, or None")
    columns = () if key is None else (key,) if isinstance(key, str) else tuple(key)
    if len(set(columns)) < len(columns):
        raise _error(where, f"the key of {table.name} has a column twice", "name each once")
    for name in columns:
        if name not in {column.name for column in table.stored_columns}:
            raise _error(where, f"{table.name} has no column {name}, which is to be its key", "name a stored column")
        kind = parse_type(table.column(name).type).kind
        if kind in NESTED or kind in APPROXIMATE:
            what = f"{name} of {table.name} is a {kind.value}, which makes no key"
            raise _error(where, what, "cast it in the script")
    return columns


def _same_types(where: str, pipeline: CompiledScript, inputs: Sequence[ProcessInput]) -> None:
    tables = [pipeline.table(item.table) for item in inputs]
    kinds = [[table.column(name).spark_type for name in item.key] for table, item in zip(tables, inputs, strict=True)]
    if any(kind != kinds[0] for kind in kinds):
        keys = " and ".join(f"{item.table} ({', '.join(kind)})" for item, kind in zip(inputs, kinds, strict=True))
        raise _error(where, f"the keys of {keys} are of different types", "cast one of them in the script")


def _target(
    pipeline: CompiledScript, where: str, name: str, schema: Schema, options: Mapping[str, str] | None
) -> Table:
    if schema is None:
        if name not in pipeline.tables or pipeline.table(name).role != "unused":
            raise _error(where, f"the script has no table {name} that nothing uses yet", "give the output's schema")
        return with_role(pipeline.table(name), "sink")
    if name in pipeline.tables:
        raise _error(where, f"there is a table {name} already", "leave the schema out, or choose another name")
    columns = schema if isinstance(schema, str) else ", ".join(f"{quoted(one)} {kind}" for one, kind in schema.items())
    keys = {"connector": "delta", **(options or {})}
    listed = ", ".join(f"{quoted_string(option)} = {quoted_string(value)}" for option, value in keys.items())
    source = Source(f"CREATE TABLE {quoted(name)} (\n{columns}\n) WITH ({listed})", where)
    (statement,) = [one for one in read_script(source) if isinstance(one, CreateTable)]
    table, _ = TableCompiler(source, statement, InstalledConnectors(), UserFunctions(source)).compile()
    return with_role(table, "sink")


def _added(pipeline: Pipeline, spec: ProcessSpec, targets: Sequence[Table]) -> Pipeline:
    first = targets[0]
    key = ", ".join(spec.inputs[0].key)
    inputs = ", ".join(f"{item.table}{' BROADCAST' if item.broadcast else ''}" for item in spec.inputs)
    insert = ProcessInsert(
        id=first.name,
        target=first.name,
        probe=spec.inputs[0].table,
        probe_alias=spec.inputs[0].table,
        joins=(),
        where=None,
        projections=tuple(
            Projection(column.name, quoted(column.name), column.spark_type) for column in first.stored_columns
        ),
        sql=f"-- {spec.shape.name} over {inputs}{f' by {key}' if key else ''}, into {', '.join(spec.outputs)}",
        constraints=severest_first(first.constraints),
        process=spec,
    )
    if any(other.id.casefold() == insert.id.casefold() for other in pipeline.inserts):
        raise _error(f"process {insert.id}", f"there is an INSERT with the id {insert.id}", "choose another name")
    for table in targets:
        if QUARANTINE_RETENTION in table.options:
            what = f"'{QUARANTINE_RETENTION}' has no meaning here: {table.name} is {PROCESS_TARGET}"
            raise _error(f"process {insert.id}", what, OF_A_PROCESS)
    tables = {**pipeline.tables, **{table.name: table for table in targets}}
    return replace(pipeline, tables=tables, inserts=(*pipeline.inserts, insert))


def _error(where: str, what: str, hint: str) -> PlanningError:
    return PlanningError(what, where=where, state="nothing was run", next_command=hint)
