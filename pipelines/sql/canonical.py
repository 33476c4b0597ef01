"""The canonical form of a table or an INSERT, the same however it is written: the lake stores it as its definition.

A form is JSON. A path is in it as the script writes it, so that a project may be moved: which folder lies there is seen
by its own id (`runtime.places`). The case of words, comments, aliases, the order of statements and columns of a source
that an INSERT does not read are not in it, nor are options that change neither the source nor its rows
(`OptionSpec.changes`). Expressions are Spark SQL; `TRANSLATOR` is raised when the same SQL comes to mean something
else.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from typing import Any, Literal

from tidegate.pipelines.connectors.options import (
    SINK_OPTIONS,
    SOURCE_OPTIONS,
    WATERMARK_PREFIX,
    field_option,
    find_option,
)
from tidegate.pipelines.connectors.registry import InstalledConnectors
from tidegate.pipelines.connectors.spec import ERROR_OPTION, OptionSpec
from tidegate.pipelines.connectors.table import Column, Constraint, Options, Table
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.functions import UserFunction, load, used_in
from tidegate.pipelines.paths import as_written, problem
from tidegate.pipelines.process.engine.binding import shape_of
from tidegate.pipelines.process.identity import definition_of
from tidegate.pipelines.process.spec import ProcessSpec
from tidegate.pipelines.process.state.declared import column_type
from tidegate.pipelines.sql.explanation import show_create_function, show_create_table
from tidegate.pipelines.sql.model import CompiledScript, Insert, ProcessInsert
from tidegate.pipelines.sql.tree import KEPT, Branch
from tidegate.pipelines.syntax.secrets import is_secret
from tidegate.pipelines.syntax.settings import NOT_NULL_ENFORCER
from tidegate.pipelines.syntax.types import quoted, quoted_string

Form = dict[str, Any]

TRANSLATOR = 1
"""The version of what expressions mean. It is raised only when an expression gives another result than before."""

READ_FROM = " READ FROM "
"""In the form of a column: before the name of its field in the source."""

_POSITIONAL = ("csv", "avro", "debezium-avro-confluent")
"""Formats whose columns are found by position."""


def computes(pipeline: CompiledScript, insert: Insert) -> str:
    """Identifies what an INSERT computes; stored with every plan of it. A suite of its target is not part of it, as it
    only checks the result."""
    form = insert_form(pipeline, insert)
    return digest_of({name: part for name, part in form.items() if name != "suite"})


def statements_of(pipeline: CompiledScript, insert: Insert) -> str:
    """The statements that an INSERT needs, those that write what it reads among them, and the INSERT itself: a script
    by which its epochs can be recomputed. Nothing secret is in it. Empty for a process."""
    if isinstance(insert, ProcessInsert):
        return ""
    enforcer = pipeline.not_null_enforcer
    sets = f"SET '{NOT_NULL_ENFORCER}' = '{enforcer}';\n" if enforcer else ""
    chain = list(_chain(pipeline, insert))
    names = [name for each in chain for name in (*each.inputs, each.target)]
    views = dict.fromkeys(view for each in chain for view in each.views)
    return (
        sets + _declared_in(pipeline, names) + "".join(f"{text};\n" for text in (*views, *(one.sql for one in chain)))
    )


def _chain(pipeline: CompiledScript, insert: Insert) -> Iterable[Insert]:
    """The INSERTs that write what an INSERT reads, those that others read first, and itself; each once."""
    writers = [writer for name in insert.inputs if (writer := pipeline.writer_of(name)) is not None]
    found = {each.id: each for writer in writers for each in _chain(pipeline, writer)}
    return (*found.values(), insert)


def statement_of(pipeline: CompiledScript, table: str) -> str:
    """The statements that a source table needs, and its own. Nothing secret is in it."""
    return _declared_in(pipeline, [table])


def _declared_in(pipeline: CompiledScript, names: Iterable[str]) -> str:
    tables = [table for name in dict.fromkeys(names) for table in (*pipeline.table(name).parts, pipeline.table(name))]
    return "".join([*map(show_create_function, pipeline.functions.values()), *map(_without_suite, tables)])


def _without_suite(table: Table) -> str:
    options = {name: value for name, value in table.options.items() if name != "quality.suite"}
    return show_create_table(replace(table, options=Options(options)))


_OF_WHAT_IS_TO_COME = (ERROR_OPTION.name, ".ignore-parse-errors", ".fail-on-missing-field", "source.path.regex-pattern")
"""Options for data that does not fit, and of which files are read: they affect the next epochs, and no stored row."""


def digest_of(form: Mapping[str, Any]) -> str:
    """Identifies a form. 16 hex digits. An empty part counts like a missing one."""
    given = {name: part for name, part in form.items() if part not in (None, "", [], {})}
    text = json.dumps(given, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# --- tables ----------------------------------------------------------------------------------------------------------


def table_form(pipeline: CompiledScript, table: Table, environment: Mapping[str, str] | None = None) -> Form:
    """The form of a source table: where its rows come from, and how they are stored."""
    form = _declared(table, environment)
    form |= {"kind": "table", "role": table.roles if table.role == "build" else "probe"}
    if table.parts:
        form["parts"] = {part.name: _declared(part, environment) for part in table.parts}
    expressions = [column.expression for column in table.columns]
    if table.watermark is not None:
        expressions.append(table.watermark.expression)
    called = used_in(pipeline.functions.values(), *expressions)
    if called:
        form["functions"] = {function.name: function_digest(function) for function in called}
        form = json.loads(_named(json.dumps(form), called))
    if strategy := pipeline.strategies.get(table.name):
        parts = (strategy.generator_factory, strategy.timestamp_assigner)
        form["strategy"] = ", ".join(filter(None, map(definition_of, parts)))
        idle = strategy.idle_timeout
        form["watermark options"] |= {"idle timeout": str(idle) if idle else "", "gap": str(strategy.gap or "")}
    return form


def _declared(table: Table, environment: Mapping[str, str] | None) -> Form:
    columns = _columns(table)
    form: Form = {
        "connector": table.connector,
        "columns": columns,
        "primary key": sorted(table.primary_key),
        "source": _options(table, "identity", environment),
        "options": _options(table, "rows", environment),
        "watermark": None,
        "watermark options": {},
        "policy": {},
        "translator": TRANSLATOR,
    }
    options = form["options"]
    given = [name for name in options if name.startswith(WATERMARK_PREFIX)]
    form["watermark options"] = {name: options.pop(name) for name in given}
    for column in columns:  # of which they are a part, so that one that is left undeclared keeps it
        options.pop(field_option(column), None)
    form["policy"] = {name: options.pop(name) for name in [*options] if name.endswith(_OF_WHAT_IS_TO_COME)}
    if start := _options(table, "start", environment):
        form["start"] = start
    if spec := table.watermark:
        later = f" - {spec.delay}" if spec.delay else ""
        form["watermark"] = f"{spec.column} AS {'SYSTEM_WATERMARK(): ' if spec.source else ''}{spec.expression}{later}"
    if any(value.endswith(_POSITIONAL) for name, value in options.items() if "format" in name):
        form["order of columns"] = list(columns)
    if table.partition_columns:
        form["partitioned by"] = list(table.partition_columns)
    return form


def _columns(table: Table) -> dict[str, str]:
    return {column.name: _column(column) for column in table.stored_columns}


def _constraints(constraints: Iterable[Constraint]) -> dict[str, str]:
    return {item.name: f"{item.condition} ON VIOLATION {item.action.upper()}" for item in constraints}


def _column(column: Column) -> str:
    words = [column.type if column.nullable else f"{column.type} NOT NULL"]
    if column.expression is not None:
        words.append(f"AS {column.expression}")
    if column.metadata is not None:
        words.append(f"METADATA FROM '{column.metadata}'" + (f" ({column.delivered})" if column.delivered else ""))
    if column.field_name is not None:
        words.append(f"{READ_FROM.strip()} {quoted_string(column.field_name)}")
    return " ".join(words)


def _options(
    table: Table,
    changes: Literal["identity", "rows", "start"],
    environment: Mapping[str, str] | None,
    among: Sequence[OptionSpec] | None = None,
) -> dict[str, str]:
    """The options of a table that change which rows it has, with real values, without defaults.

    Secret values, and values from a variable that is not set, stay as written.
    """
    spec = InstalledConnectors()[table.connector]
    known = (*spec.options, *SOURCE_OPTIONS, *SINK_OPTIONS, *spec.foreign) if among is None else among
    shown = table.options.redacted()
    found: dict[str, str] = {}
    for name in sorted(table.options.keys() - {"connector"}):
        option = find_option(name, known)
        if (option is None and among is not None) or (option.changes if option else "identity") != changes:
            continue
        value = shown[name] if is_secret(name) else _real(table.options, name, environment)
        if name == "path" and not problem(value):
            value = as_written(value)
        if option is None or value != option.default:
            found[name] = value
    return found


def defines(table: Table, name: str) -> bool:
    """Whether an option of a source table is part of its definition."""
    spec = InstalledConnectors()[table.connector]
    option = find_option(name, (*spec.options, *SOURCE_OPTIONS, *spec.foreign))
    return option is None or option.changes != "neither"


def _real(options: Options, name: str, environment: Mapping[str, str] | None) -> str:
    try:
        value = options.one(name, environment)
    except PlanningError:
        value = options[name]
    return Options({name: value or ""}).redacted()[name]


# --- functions -------------------------------------------------------------------------------------------------------


def function_digest(function: UserFunction) -> str:
    """Identifies a user function's signature, and what it computes."""
    given = (function.parameters, function.type, function.gives_null)
    return f"{function.signature} {digest_of({'': [repr(given), _code_of(load(function.reference))]})}"


@cache
def _code_of(function: Callable[..., Any]) -> str:
    return definition_of(function)


def _named(text: str, called: Iterable[UserFunction]) -> str:
    """Calls of functions by their own names, in place of their names in Spark."""
    for function in called:
        text = text.replace(function.spark_name, function.name)
    return text


# --- INSERTs ---------------------------------------------------------------------------------------------------------


def insert_form(pipeline: CompiledScript, insert: Insert) -> Form:
    """The form of an INSERT or a process: what it reads, how it joins, and what it writes where."""
    target = pipeline.table(insert.target)
    form: Form = {
        "kind": "process" if isinstance(insert, ProcessInsert) else "insert",
        "target": insert.target,
        "target columns": _columns(target),
        "probe": insert.probe,
        "select": {item.name: item.expression for item in insert.projections},
        "constraints": _constraints(insert.constraints),
        "policy": _options(target, "rows", None, SINK_OPTIONS),
        "translator": TRANSLATOR,
    }
    if pipeline.not_null_enforcer is not None:
        form["policy"] |= {NOT_NULL_ENFORCER: pipeline.not_null_enforcer}
    if path := target.options.get("path"):
        form["target path"] = as_written(path)
    if target.suite is not None:
        form["suite"] = target.suite.digest
    if insert.united is not None:
        form["union"] = {name: of for name, of in _columns(insert.united).items() if name != KEPT}
        form["branches"] = {str(number): _branch(branch) for number, branch in enumerate(insert.branches, 1)}
    if insert.joins:
        by = next((join.time_column for join in insert.joins if join.time == "event"), None)
        form["time"] = "processing time" if by is None else f"event time, by {by}"
        form["joins"] = [
            {
                "build": join.build,
                "kind": join.kind,
                "on": sorted(f"{key.probe} = {quoted(key.column)}" for key in join.keys),
                "and": join.predicate,
                **({} if join.time == insert.time else {"time": "processing time"}),
                **({"of": f"{quoted(join.of)}."} if join.of else {}),
            }
            for join in insert.joins
        ]
    if isinstance(insert, ProcessInsert):
        form |= _process(pipeline, insert.process)
    else:
        form["where"] = sorted(item.expression for item in insert.conditions)
    called = used_in(pipeline.functions.values(), json.dumps(form))
    if called:
        form["functions"] = {function.name: function_digest(function) for function in called}
    text = _named(json.dumps(form), called)
    aliases = [insert.probe_alias, *(join.alias for join in insert.joins)]
    aliases += dict.fromkeys(entry.alias for entry in insert.entries)
    places = {json.dumps(f"{quoted(alias)}.")[1:-1]: f"`${place}`." for place, alias in enumerate(aliases)}
    # A field of a column that is called like an alias comes after a dot.
    named = re.compile(r"(?<!\.)(?:" + "|".join(map(re.escape, places)) + ")")
    return json.loads(named.sub(lambda found: places[found.group()], text))


def _branch(branch: Branch) -> list[Form]:
    """The steps of a branch, whatever their aliases are."""
    found = list[Form]()
    for step in branch.steps:
        own = re.compile(rf"(?<!\.){re.escape(quoted(step.alias))}\.")
        texts = {name: own.sub("`$`.", text) for name, text in step.columns}
        form: Form = {"where": own.sub("`$`.", step.kept or ""), "select": texts}
        if (of := step.elements) is not None:
            form["unnest"] = {"of": own.sub("`$`.", of.sql), "outer": of.outer}
        found.append(form)
    return [{"table": branch.table}, *found]


def _process(pipeline: CompiledScript, spec: ProcessSpec) -> Form:
    form: Form = {
        "inputs": [{"table": item.table, "key": list(item.key), "broadcast": item.broadcast} for item in spec.inputs],
        "buckets": spec.buckets,
        "outputs": list(spec.outputs),
    }
    for name in spec.outputs[1:]:
        second = pipeline.table(name)
        form |= {f"columns of {name}": _columns(second), f"constraints of {name}": _constraints(second.constraints)}
        if path := second.options.get("path"):
            form[f"path of {name}"] = as_written(path)
    if spec.windowed is None:
        states = {state.name: column_type(state) for state in shape_of(spec.function).states}
        return form | {"function": definition_of(spec.function), "states": states}
    window = spec.windowed
    kept: Form = {
        "groups": [asdict(group) for group in window.groups],
        "parts": [asdict(part) for part in window.parts],
        "time": f"{'event' if window.event_time else 'processing'}, of {window.time_column}",
        "where": window.where,
        "window": str(window.table),
    }
    return form | {"windows": kept, "having": window.having}
