"""A compiled pipeline as text: its tables, its functions, what waits for what. Secrets are names or `***`."""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.pipelines.connectors.table import Table, WatermarkSpec
from tidegate.pipelines.functions import UserFunction
from tidegate.pipelines.process.windows.windowed import WindowedQuery
from tidegate.pipelines.sql.model import Insert, Join
from tidegate.pipelines.sql.options import on_unmatched
from tidegate.pipelines.sql.pipeline import Pipeline
from tidegate.pipelines.sql.show import settings_of, sources_own
from tidegate.pipelines.syntax.types import quoted_string

_PROOF = {
    "quarantine": "kept out, into the quarantine, with the reason",
    "block": "holds the whole epoch back",
    "publish": "published as SQL has it: LEFT fills up with NULL, INNER drops the row; both counted by reason",
}


_VIOLATED = {
    "fail": "holds the whole epoch back",
    "quarantine": "kept out, into the quarantine, with the constraint's name",
    "warn": "published, and counted",
}


def explain(pipeline: Pipeline) -> str:
    """What the pipeline will do: its tables; for each INSERT what is joined by which keys, and what waits for what."""
    parts = [f"pipeline {pipeline.name}\n"]
    if settings := settings_of(pipeline):
        lines = [f"  {quoted_string(key)} = {quoted_string(value)}" for key, value in settings.items()]
        parts.append("\n".join(["settings:", *lines]) + "\n")
    parts += [_function(function) for function in pipeline.functions.values()]
    parts += [_table(table) for table in pipeline.tables.values()]
    parts += [_insert(pipeline, insert) for insert in pipeline.inserts]
    return "\n".join(parts)


def _function(function: UserFunction) -> str:
    lines = [f"function {function.name}: {function.language.lower()}, {function.reference}", f"  {function.signature}"]
    return "\n".join(lines) + "\n"


def _table(table: Table) -> str:
    lines = [f"table {table.name}: {table.role}, {table.connector}"]
    if table.comment:
        lines.append(f"  {table.comment}")
    width = max(len(column.name) for column in table.columns)
    for column in table.columns:
        shown = f"{column.type}{'' if column.nullable else ' NOT NULL'}"
        if column.proctime:
            shown = "the release's instant (PROCTIME())"
        elif column.sql is not None:
            shown = f"{shown} = {column.sql}"
        if column.metadata is not None:
            shown = f"{shown}, metadata '{column.metadata}'"
        lines.append(f"  {column.name.ljust(width)}  {shown}")
    if table.primary_key:
        lines.append(f"  primary key: {', '.join(table.primary_key)}")
    if table.watermark is not None:
        lines.append(f"  watermark: for {table.watermark.column}, {_watermark(table.watermark)}")
    shown = {key: value for key, value in table.options.redacted().items() if key != "connector"}
    if shown:
        lines += ["  options:", *(f"    {quoted_string(key)} = {quoted_string(value)}" for key, value in shown.items())]
    variables = sorted(table.options.variables())
    if variables:
        lines.append(f"  needs from the environment: {', '.join(variables)}")
    return "\n".join(lines) + "\n"


def _watermark(spec: WatermarkSpec) -> str:
    return f"{spec.sql} ({sources_own(spec)})" if spec.source else f"{spec.sql}"


def _insert(pipeline: Pipeline, insert: Insert) -> str:
    target = pipeline.table(insert.target)
    lines = [f"insert {insert.id}: {_named(insert.probe, insert.probe_alias)} -> {insert.target}"]
    if insert.windowed is not None:
        lines = [f"windows {insert.id}: {_named(insert.probe, insert.probe_alias)} -> {insert.target}"]
        lines += _windows(insert.windowed)
    elif insert.process is not None:
        lines = [f"process {insert.id}: {_and(insert.inputs)} -> {_and(insert.process.outputs)}"]
        lines.append(f"  {insert.process.shape.name}{_by_key(insert)}")
    for join in insert.joins:
        lines += _join(join)
    if insert.joins:
        time = f"{insert.probe_alias}.{insert.joins[0].time_column}"
        lines.append(f"  time: {insert.time} time ({time})")
    if insert.where is not None:
        lines.append(f"  where: {insert.where}")
    lines.append(f"  waits: {_waits(insert)}")
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
    return "\n".join(lines) + "\n"


def _in_flink(insert: Insert) -> str:
    """What SQL's own meaning makes of a row that one of the builds has no version for."""
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
    lines += [f"  kept of a window: {part.name} = {part.expression}" for part in query.parts]
    lines += [f"  having: {query.having}"] if query.having else []
    late = ["  a row that is late for all of its windows: left out, and counted"]
    return lines + (late if query.event_time else [])


def _join(join: Join) -> list[str]:
    keys = " AND ".join(f"{join.alias}.{key.column} = {key.probe}" for key in join.keys)
    lines = [f"  {join.kind} join {_named(join.build, join.alias)} on {keys}"]
    if join.predicate is not None:
        lines.append(f"    and, of the chosen version only: {join.predicate}")
    return lines


def _named(table: str, alias: str) -> str:
    return table if table == alias else f"{table} AS {alias}"


def _by_key(insert: Insert) -> str:
    assert insert.process is not None
    keys = [f"{item.table} by {_and(item.key)}" for item in insert.process.inputs if item.key]
    whole = [f"{item.table} broadcast" for item in insert.process.inputs if item.broadcast]
    return f": {', '.join([*keys, *whole])}" if keys or whole else ""


def _waits(insert: Insert) -> str:
    if insert.windowed is not None:
        emitted = "a window is emitted when"
        if insert.windowed.event_time:
            return f"{emitted} the watermark of {insert.probe} has come to its end"
        return f"{emitted} the clock has come to its end"
    if insert.process is not None:
        return f"for nothing: rows are processed as they land; timers follow the watermarks of {_and(insert.inputs)}"
    if not insert.joins:
        return "for nothing: rows are released as they land"
    flips = f"for {_and(insert.builds)} to flip"
    if insert.time == "processing":
        return f"every row of {insert.probe} {flips}; then it is joined to the latest version"
    sides = _and(dict.fromkeys((insert.probe, *insert.builds)))
    return f"every row of {insert.probe} {flips}, and for the watermarks of {sides} to reach its time"


def _or(names: Iterable[str]) -> str:
    return " or ".join(names)


def _and(names: Iterable[str]) -> str:
    known = list(names)
    return known[0] if len(known) == 1 else f"{', '.join(known[:-1])} and {known[-1]}"
