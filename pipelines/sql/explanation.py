"""A compiled pipeline as text: its tables, its functions, and which INSERT waits for what; SET, SHOW CREATE TABLE, SHOW
CREATE FUNCTION and DESCRIBE. Secrets are names or `***`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidegate.pipelines.connectors.options import on_unmatched, without_effect
from tidegate.pipelines.connectors.registry import InstalledConnectors
from tidegate.pipelines.connectors.table import Column, Constraint, Table, WatermarkSpec
from tidegate.pipelines.functions import UserFunction, as_called
from tidegate.pipelines.process.windows.windowed import WindowedQuery
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.sql.model import Insert, Join, ProcessInsert
from tidegate.pipelines.sql.processes import waits_for_flip
from tidegate.pipelines.sql.tree import KEPT
from tidegate.pipelines.syntax.durations import format_duration
from tidegate.pipelines.syntax.settings import AUTO_WATERMARK_INTERVAL, NOT_NULL_ENFORCER
from tidegate.pipelines.syntax.types import quoted, quoted_string


def show_create_table(table: Table) -> str:
    """The CREATE TABLE that compiles to an equal Table (but for secrets written out in the script: they are `***`)."""
    parts = [_definition(column) for column in table.columns]
    if table.primary_key:
        parts.append(f"PRIMARY KEY ({', '.join(map(quoted, table.primary_key))}) NOT ENFORCED")
    if table.watermark is not None:
        path = ".".join(map(quoted, table.watermark.path))
        parts.append(f"WATERMARK FOR {path} AS {table.watermark.sql}")
    parts += [constraint_clause(constraint) for constraint in table.constraints]
    lines = ",\n    ".join(parts)
    comment = f" COMMENT {quoted_string(table.comment)}" if table.comment is not None else ""
    by = f"\nPARTITIONED BY ({', '.join(map(quoted, table.partition_columns))})" if table.partition_columns else ""
    options = ",\n    ".join(_assigned(table.options.redacted()))
    return f"CREATE TABLE {quoted(table.name)} (\n    {lines}\n){comment}{by} WITH (\n    {options}\n);\n"


def _assigned(values: Mapping[str, str]) -> list[str]:
    """Options, or settings, as a script has them."""
    return [f"{quoted_string(key)} = {quoted_string(value)}" for key, value in values.items()]


def constraint_clause(constraint: Constraint) -> str:
    """CONSTRAINT … EXPECT …, as CREATE TABLE has it."""
    action = constraint.action.upper()
    return f"CONSTRAINT {quoted(constraint.name)} EXPECT ({constraint.sql}) ON VIOLATION {action}"


def show_create_function(function: UserFunction) -> str:
    """The CREATE FUNCTION that declares an equal function."""
    reference = quoted_string(function.reference)
    return f"CREATE FUNCTION {quoted(function.name)} AS {reference} LANGUAGE {function.language};\n"


def settings_of(pipeline: Pipeline) -> dict[str, str]:
    """What the script sets, by key."""
    interval, enforcer = pipeline.auto_watermark_interval, pipeline.not_null_enforcer
    found = {} if interval is None else {AUTO_WATERMARK_INTERVAL: format_duration(interval)}
    return found if enforcer is None else {**found, NOT_NULL_ENFORCER: enforcer}


def show_settings(pipeline: Pipeline) -> str:
    """The script's settings, as SET statements; empty if it has none."""
    return "".join(f"SET {setting};\n" for setting in _assigned(settings_of(pipeline)))


def show_statements(pipeline: Pipeline) -> str:
    """What a script declares, statement by statement, as sections that are headed as in a SQL client."""
    sections = [f"SET\n{show_settings(pipeline)}"] if show_settings(pipeline) else []
    sections += [
        f"SHOW CREATE FUNCTION {name}\n{show_create_function(function)}"
        for name, function in pipeline.functions.items()
    ]
    for name, table in pipeline.tables.items():
        sections += [f"DESCRIBE {name}\n{describe(table)}", f"SHOW CREATE TABLE {name}\n{show_create_table(table)}"]
    return "\n".join(sections)


def _type(column: Column) -> str:
    return column.type if column.nullable else f"{column.type} NOT NULL"


def _definition(column: Column) -> str:
    parts = [quoted(column.name)]
    if column.sql is not None:
        parts.append(f"AS {column.sql}")
    else:
        parts.append(_type(column))
    if column.metadata is not None:
        parts.append(f"METADATA FROM {quoted_string(column.metadata)}")
    if column.comment is not None:
        parts.append(f"COMMENT {quoted_string(column.comment)}")
    return " ".join(parts)


def describe(table: Table) -> str:
    """The columns as a table: name, type, null, key, extras."""
    rows = [("name", "type", "null", "key", "extras"), *(_described(table, column) for column in table.columns)]
    widths = [max(len(row[place]) for row in rows) for place in range(5)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    if table.watermark is not None:
        own = f", {sources_own(table.watermark)}" if table.watermark.source else ""
        lines.append(f"watermark for {table.watermark.column}: {table.watermark.sql} ({table.watermark.type}{own})")
    lines += [
        f"constraint {constraint.name}: {constraint.sql} (on violation {constraint.action})"
        for constraint in table.constraints
    ]
    return "\n".join(lines) + "\n"


def sources_own(spec: WatermarkSpec) -> str:
    """SYSTEM_WATERMARK() as text."""
    return "the source's own" + (f", delayed by {format_duration(spec.delay)}" if spec.delay else "")


def _described(table: Table, column: Column) -> tuple[str, str, str, str, str]:
    extras = []
    if column.proctime:
        extras.append("the release's instant")
    elif column.sql is not None:
        extras.append(f"computed: {column.sql}")
    if column.metadata is not None:
        extras.append(f"metadata '{column.metadata}'")
    if column.field_name is not None:
        extras.append(f"field '{column.field_name}'")
    if column.comment is not None:
        extras.append(column.comment)
    if column.name in table.partition_columns:
        extras.append("from a folder's name")
    key = f"PRI({', '.join(table.primary_key)})" if column.name in table.primary_key else ""
    return column.name, column.type, "TRUE" if column.nullable else "FALSE", key, "; ".join(extras)


_PROOF = {
    "quarantine": "quarantined, with the reason",
    "block": "holds the whole epoch back",
    "publish": "published as SQL has it: LEFT fills up with NULL, INNER drops the row; both counted by reason",
}


_VIOLATED = {
    "fail": "holds the whole epoch back",
    "quarantine": "quarantined, with the constraint's name",
    "warn": "published, and counted",
}


def explain(pipeline: Pipeline) -> str:
    """What the pipeline will do: its tables; for each INSERT what is joined by which keys, and what waits for what."""
    parts = [f"pipeline {pipeline.name}\n"]
    if settings := _assigned(settings_of(pipeline)):
        parts.append("".join(f"{line}\n" for line in ["settings:", *(f"  {setting}" for setting in settings)]))
    if pipeline.without_effect:
        parts.append("".join(f"{line}\n" for line in _no_effect(pipeline.without_effect)))
    parts += [
        f"function {each.name}: {each.language.lower()}, {each.reference}\n  {each.signature}\n"
        for each in pipeline.functions.values()
    ]
    parts += [_table(table) for table in pipeline.tables.values()]
    parts += [_insert(pipeline, insert) for insert in pipeline.inserts]
    return "\n".join(parts)


def _no_effect(why: Mapping[str, str]) -> list[str]:
    return [f"{quoted_string(key)} has no effect here. {reason}." for key, reason in why.items()]


def _table(table: Table) -> str:
    lines = [f"table {table.name}: {table.roles}, {table.connector}"]
    if table.comment:
        lines.append(f"  {table.comment}")
    width = max(len(column.name) for column in table.columns)
    for column in table.columns:
        shown = _type(column)
        if column.proctime:
            shown = "the release's instant (PROCTIME())"
        elif column.sql is not None:
            shown = f"{shown} = {column.sql}"
        if column.metadata is not None:
            shown = f"{shown}, metadata '{column.metadata}'"
        lines.append(f"  {column.name.ljust(width)}  {shown}")
    if table.primary_key:
        lines.append(f"  primary key: {', '.join(table.primary_key)}")
        if table.role == "sink":
            lines.append(f"  {not_enforced(table)}")
    if table.watermark is not None:
        own = f" ({sources_own(table.watermark)})" if table.watermark.source else ""
        lines.append(f"  watermark: for {table.watermark.column}, {table.watermark.sql}{own}")
    shown = {key: value for key, value in table.options.redacted().items() if key != "connector"}
    if shown:
        lines += ["  options:", *(f"    {option}" for option in _assigned(shown))]
    spec = InstalledConnectors().get(table.connector)
    lines += [f"  {line}" for line in _no_effect(without_effect(table, spec) if spec is not None else {})]
    variables = sorted(table.options.variables())
    if variables:
        lines.append(f"  needs from the environment: {', '.join(variables)}")
    return "\n".join(lines) + "\n"


def not_enforced(target: Table) -> str:
    """What PRIMARY KEY of a target means."""
    key = ", ".join(target.primary_key)
    return f"PRIMARY KEY ({key}) is NOT ENFORCED, as in Flink: a hint. Rows with one key are all published"


def _insert(pipeline: Pipeline, insert: Insert) -> str:
    target = pipeline.table(insert.target)
    kind = "insert" if insert.windowed is None else "windows"
    lines = [f"{kind} {insert.id}: {_named(insert.probe, insert.probe_alias)} -> {insert.target}"]
    if insert.windowed is not None:
        lines += _windows(insert.windowed)
    elif isinstance(insert, ProcessInsert):
        lines = [f"process {insert.id}: {_and(insert.inputs)} -> {_and(insert.outputs)}"]
        lines.append(f"  {insert.process.shape.name}{_by_key(insert)}")
    lines += [f"  through: {view}" for view in insert.views]
    writers = filter(None, map(pipeline.writer_of, insert.inputs))
    lines += [f"  follows: {writer.id}, whose target it reads" for writer in writers]
    for number, branch in enumerate(insert.branches, 1):
        where = " and ".join(step.kept for step in branch.steps if step.kept)
        of = "".join(f", unnested {step.elements.sql}" for step in branch.steps if step.elements)
        named = _named(branch.table, branch.steps[0].alias)
        lines.append(f"  branch {number}: {named}{f' where {where}' if where else ''}{of}")
    for join in insert.joins:
        lines += _join(join)
    if insert.joins:
        times = dict[str, dict[str, None]]()
        for join in insert.joins:
            times.setdefault(join.time, {})[f"{join.of or insert.probe_alias}.{join.time_column}"] = None
        shown = [f"{kind} time ({_and(times[kind])})" for kind in sorted(times)]
        lines.append(f"  time: {' and '.join(shown)}")
    own = f"{quoted(insert.probe_alias)}.{quoted(KEPT)}"  # what the queries of its branches have left in
    terms = [term.expression for term in insert.conditions] or [insert.where]
    if where := [text for text in terms if text not in (None, own)]:
        lines.append(f"  where: {' AND '.join(where)}")
    lines.append(f"  waits: {_waits(pipeline, insert)}")
    if insert.joins:
        policy = on_unmatched(target)
        lines.append(f"  a released row without a match: {_PROOF.get(policy, policy)} ({policy})")
        lines += [] if policy == "publish" else [f"    Flink {_in_flink(insert)}"]
    lines += [
        f"  a row that violates {constraint.name} ({constraint.sql}): {_VIOLATED[constraint.action]}"
        for constraint in insert.constraints
    ]
    lines.append("  columns:")
    width = max(len(item.name) for item in insert.projections)
    kinds = max(len(item.spark_type) for item in insert.projections)
    lines += [
        f"    {item.name.ljust(width)}  {item.spark_type.ljust(kinds)}  {item.expression}"
        for item in insert.projections
    ]
    return as_called(pipeline.functions.values(), "\n".join(lines)) + "\n"


def _in_flink(insert: Insert) -> str:
    """What Flink does with a row for which a build has no version."""
    inner = [join.alias for join in insert.joins if join.kind == "INNER"]
    left = [join.alias for join in insert.joins if join.kind != "INNER"]
    filled = f"publish it with NULL for all columns of {_or(left)}{', if WHERE lets it' if insert.where else ''}"
    if not inner:
        return f"would {filled}"
    return f"would leave it out where {_or(inner)} has none, and else {filled}" if left else "would leave it out"


def _windows(query: WindowedQuery) -> list[str]:
    time = "event" if query.event_time else "processing"
    lines = [f"  {query.table}, by {time} time ({query.alias}.{query.time_column})"]
    lines += [f"  grouped by: {group.name} = {group.expression}" for group in query.groups]
    lines += [f"  stored of a window: {part.name} = {part.expression}" for part in query.parts]
    lines += [f"  having: {query.having}"] if query.having else []
    late = ["  a row that is late for all of its windows: left out, and counted"]
    return lines + (late if query.event_time else [])


def _join(join: Join) -> list[str]:
    keys = " AND ".join(f"{join.alias}.{key.column} = {key.probe}" for key in join.keys)
    of = f" for the rows of {join.of} alone," if join.of else ""
    lines = [f"  {join.kind} join {_named(join.build, join.alias)}{of} on {keys}"]
    if join.predicate is not None:
        lines.append(f"    and, of the chosen version only: {join.predicate}")
    return lines


def _named(table: str, alias: str) -> str:
    return table if table == alias else f"{table} AS {alias}"


def _by_key(insert: ProcessInsert) -> str:
    keys = [f"{item.table} by {_and(item.key)}" for item in insert.process.inputs if item.key]
    whole = [f"{item.table} broadcast" for item in insert.process.inputs if item.broadcast]
    return f": {', '.join([*keys, *whole])}" if keys or whole else ""


def _waits(pipeline: Pipeline, insert: Insert) -> str:
    if insert.windowed is not None:
        emitted = "a window is emitted when"
        if insert.windowed.event_time:
            return f"{emitted} the watermark of {insert.probe} has come to its end"
        return f"{emitted} the clock has come to its end"
    if isinstance(insert, ProcessInsert):
        timers = f"timers follow the watermarks of {_and(insert.inputs)}"
        awaited = [item.table for item in insert.process.inputs if waits_for_flip(pipeline, insert.process, item)]
        if awaited:
            first = f"for {_and(awaited)} to flip, whose rows until then are processed first"
            return f"{first}; after that for nothing: rows are processed as they land; {timers}"
        return f"for nothing: rows are processed as they land; {timers}"
    if not insert.joins:
        return "for nothing: rows are released as they land"
    flips = f"for {_and(insert.builds)} to flip"
    if insert.time == "processing":
        return f"every row of {insert.probe} {flips}; then it is joined to the latest version"
    sides = _and(dict.fromkeys([*insert.probes, *insert.by_version]))
    latest = f"; then it is joined to the latest version of {_and(insert.by_latest)}" if insert.by_latest else ""
    return f"every row of {insert.probe} {flips}, and for the watermarks of {sides} to reach its time{latest}"


def _or(names: Iterable[str]) -> str:
    return " or ".join(names)


def _and(names: Iterable[str]) -> str:
    known = list(names)
    return known[0] if len(known) == 1 else f"{', '.join(known[:-1])} and {known[-1]}"
