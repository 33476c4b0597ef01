"""A compiled pipeline in words: SHOW CREATE TABLE, DESCRIBE, EXPLAIN. Secrets are shown as names or as `***`."""

from __future__ import annotations

from collections.abc import Iterable

from pipelines.sql.model import Column, Insert, Join, Pipeline, Table
from pipelines.sql.types import quoted, quoted_string

_PROOF = {
    "quarantine": "kept out, into the quarantine, with the reason",
    "block": "holds the whole epoch back",
    "publish": "published as SQL has it: LEFT fills up with NULL, INNER drops the row; both counted by reason",
}


def show_create_table(table: Table) -> str:
    """The CREATE TABLE that compiles to an equal Table (but for secrets written out in the script: they are `***`)."""
    parts = [_definition(column) for column in table.columns]
    if table.primary_key:
        parts.append(f"PRIMARY KEY ({', '.join(map(quoted, table.primary_key))}) NOT ENFORCED")
    if table.watermark is not None:
        path = ".".join(quoted(name) for name in table.watermark.column.split("."))
        parts.append(f"WATERMARK FOR {path} AS {table.watermark.sql}")
    lines = ",\n    ".join(parts)
    comment = f" COMMENT {quoted_string(table.comment)}" if table.comment is not None else ""
    options = ",\n    ".join(
        f"{quoted_string(key)} = {quoted_string(value)}" for key, value in table.options.redacted().items()
    )
    return f"CREATE TABLE {quoted(table.name)} (\n    {lines}\n){comment} WITH (\n    {options}\n);\n"


def _definition(column: Column) -> str:
    words = [quoted(column.name)]
    if column.sql is not None:
        words.append(f"AS {column.sql}")
    else:
        words.append(column.type if column.nullable else f"{column.type} NOT NULL")
    if column.metadata is not None:
        words.append(f"METADATA FROM {quoted_string(column.metadata)}")
    if column.comment is not None:
        words.append(f"COMMENT {quoted_string(column.comment)}")
    return " ".join(words)


def describe(table: Table) -> str:
    """The columns as a table: name, type, null, key, and what else is known."""
    rows = [("name", "type", "null", "key", "extras"), *(_described(table, column) for column in table.columns)]
    widths = [max(len(row[place]) for row in rows) for place in range(5)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    if table.watermark is not None:
        lines.append(f"watermark for {table.watermark.column}: {table.watermark.sql} ({table.watermark.type})")
    return "\n".join(lines) + "\n"


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
    key = f"PRI({', '.join(table.primary_key)})" if column.name in table.primary_key else ""
    return column.name, column.type, "TRUE" if column.nullable else "FALSE", key, "; ".join(extras)


def explain(pipeline: Pipeline) -> str:
    """What the pipeline will do: its tables; for each INSERT what is joined by which keys, and what waits for what."""
    parts = [f"pipeline {pipeline.name}\n"]
    parts += [_table(table) for table in pipeline.tables.values()]
    parts += [_insert(pipeline, insert) for insert in pipeline.inserts]
    return "\n".join(parts)


def _table(table: Table) -> str:
    lines = [f"table {table.name}: {table.role}, {table.connector}"]
    if table.comment:
        lines.append(f"  {table.comment}")
    width = max(len(column.name) for column in table.columns)
    for column in table.columns:
        words = f"{column.type}{'' if column.nullable else ' NOT NULL'}"
        if column.proctime:
            words = "the release's instant (PROCTIME())"
        elif column.sql is not None:
            words = f"{words} = {column.sql}"
        if column.metadata is not None:
            words = f"{words}, metadata '{column.metadata}'"
        lines.append(f"  {column.name.ljust(width)}  {words}")
    if table.primary_key:
        lines.append(f"  primary key: {', '.join(table.primary_key)}")
    if table.watermark is not None:
        lines.append(f"  watermark: for {table.watermark.column}, {table.watermark.sql}")
    shown = {key: value for key, value in table.options.redacted().items() if key != "connector"}
    if shown:
        lines += ["  options:", *(f"    {quoted_string(key)} = {quoted_string(value)}" for key, value in shown.items())]
    variables = sorted(table.options.variables())
    if variables:
        lines.append(f"  needs from the environment: {', '.join(variables)}")
    return "\n".join(lines) + "\n"


def _insert(pipeline: Pipeline, insert: Insert) -> str:
    target = pipeline.table(insert.target)
    lines = [f"insert {insert.id}: {_named(insert.probe, insert.probe_alias)} -> {insert.target}"]
    for join in insert.joins:
        lines += _join(join)
    if insert.joins:
        time = f"{insert.probe_alias}.{insert.joins[0].time_column}"
        lines.append(f"  time: {insert.time} time ({time})")
    if insert.where is not None:
        lines.append(f"  where: {insert.where}")
    lines.append(f"  waits: {_waits(insert)}")
    if insert.joins:
        policy = target.options.get("gate.on-unmatched", "quarantine")
        lines.append(f"  a released row without a match: {_PROOF.get(policy, policy)} ({policy})")
    lines.append("  columns:")
    width = max(len(item.name) for item in insert.projections)
    kinds = max(len(item.spark_type) for item in insert.projections)
    lines += [
        f"    {item.name.ljust(width)}  {item.spark_type.ljust(kinds)}  {item.expression}"
        for item in insert.projections
    ]
    return "\n".join(lines) + "\n"


def _join(join: Join) -> list[str]:
    keys = " AND ".join(f"{join.alias}.{key.column} = {key.probe}" for key in join.keys)
    lines = [f"  {join.kind} join {_named(join.build, join.alias)} on {keys}"]
    if join.predicate is not None:
        lines.append(f"    and, of the chosen version only: {join.predicate}")
    return lines


def _named(table: str, alias: str) -> str:
    return table if table == alias else f"{table} AS {alias}"


def _waits(insert: Insert) -> str:
    if not insert.joins:
        return "for nothing: rows are released as they land"
    flips = f"for {_and(insert.builds)} to flip"
    if insert.time == "processing":
        return f"every row of {insert.probe} {flips}; then it is joined to the latest version"
    sides = _and(dict.fromkeys((insert.probe, *insert.builds)))
    return f"every row of {insert.probe} {flips}, and for the watermarks of {sides} to reach its time"


def _and(names: Iterable[str]) -> str:
    known = list(names)
    return known[0] if len(known) == 1 else f"{', '.join(known[:-1])} and {known[-1]}"
