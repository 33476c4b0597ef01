"""SET, SHOW CREATE TABLE, SHOW CREATE FUNCTION and DESCRIBE. Secrets are shown as names or as `***`."""

from __future__ import annotations

from tidegate.pipelines.connectors.table import Column, Constraint, Table, WatermarkSpec
from tidegate.pipelines.functions import UserFunction
from tidegate.pipelines.sql.pipeline import Pipeline
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
    options = ",\n    ".join(
        f"{quoted_string(key)} = {quoted_string(value)}" for key, value in table.options.redacted().items()
    )
    return f"CREATE TABLE {quoted(table.name)} (\n    {lines}\n){comment}{by} WITH (\n    {options}\n);\n"


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
    """What the script sets, as it can be written; empty where it sets nothing."""
    return "".join(
        f"SET {quoted_string(key)} = {quoted_string(value)};\n" for key, value in settings_of(pipeline).items()
    )


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


def _definition(column: Column) -> str:
    parts = [quoted(column.name)]
    if column.sql is not None:
        parts.append(f"AS {column.sql}")
    else:
        parts.append(column.type if column.nullable else f"{column.type} NOT NULL")
    if column.metadata is not None:
        parts.append(f"METADATA FROM {quoted_string(column.metadata)}")
    if column.comment is not None:
        parts.append(f"COMMENT {quoted_string(column.comment)}")
    return " ".join(parts)


def describe(table: Table) -> str:
    """The columns as a table: name, type, null, key, and what else is known."""
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
    if column.comment is not None:
        extras.append(column.comment)
    if column.name in table.partition_columns:
        extras.append("from a folder's name")
    key = f"PRI({', '.join(table.primary_key)})" if column.name in table.primary_key else ""
    return column.name, column.type, "TRUE" if column.nullable else "FALSE", key, "; ".join(extras)
