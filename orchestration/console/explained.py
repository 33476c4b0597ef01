"""What a script means, and what a run of it would do next. Values of secrets are not in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.markup import escape

from tidegate.orchestration.console.grid import grid
from tidegate.pipelines.commands import Commands, NextCommand
from tidegate.pipelines.connectors.options import on_unmatched
from tidegate.pipelines.connectors.registry import connector
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.functions import UserFunction
from tidegate.pipelines.runtime.differences import Difference
from tidegate.pipelines.sql import show_create_function, show_create_table, to_properties
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.sql.explanation import settings_of
from tidegate.pipelines.sql.model import Insert
from tidegate.pipelines.text import counted, number

if TYPE_CHECKING:
    from tidegate.pipelines.runtime.dry_run import DryRun, InsertDraft
    from tidegate.pipelines.runtime.landing.advances import SourceDraft


def of_pipeline(pipeline: Pipeline) -> dict[str, Any]:
    """A compiled script, for programs."""
    return {
        "pipeline": pipeline.name,
        "settings": settings_of(pipeline),
        "functions": [_of_function(function) for function in pipeline.functions.values()],
        "tables": [_of_table(table) for table in pipeline.tables.values()],
        "inserts": [_of_insert(pipeline, insert) for insert in pipeline.inserts],
        "environment": sorted({name for table in pipeline.tables.values() for name in table.options.variables()}),
    }


def definition_lines(found: Sequence[Difference], lake: Path) -> Iterator[str]:
    """The differences between the lake's definitions and the script's, for people."""
    if not found:
        yield escape(f"{lake} keeps the same definitions.")
    for item in found:
        verdict = "[bold red]refused[/]" if item.refused else "goes on from the next epoch on"
        yield f"{escape(item.owner)}, {escape(item.what)}: {verdict}"
        yield escape(f"  lake:   {item.lake}")
        yield escape(f"  script: {item.script}")


def missing_variables(pipeline: Pipeline, environment: Mapping[str, str]) -> list[str]:
    """The environment variables that its tables need, and that are not set."""
    needed = {name for table in pipeline.tables.values() for name in table.options.variables()}
    return sorted(name for name in needed if name not in environment)


def verdict_lines(
    pipeline: Pipeline, environment: Mapping[str, str], commands: Commands, differences: Sequence[Difference] | None
) -> Iterator[str]:
    """Whether the script can be run, and the next command. `differences`: from a lake; None without one."""
    refused = [item for item in differences or () if item.refused]
    missing = missing_variables(pipeline, environment)
    first = escape(f"  first: export {' '.join(f'{name}=…' for name in missing)}")
    size = f"{counted(len(pipeline.tables), 'table')}, {counted(len(pipeline.inserts), 'INSERT')}"
    if refused:
        yield f"[bold red]A run of it is refused:[/] {counted(len(refused), 'definition')} of the lake changed"
        if missing:
            yield f"{first}   (what they say may be the same)"
        else:
            in_another = NextCommand("run", ("--lake", "DIR"), "in another lake; this one stays as it is")
            yield escape(f"  next:  put the old declarations back, or: {commands.shown(in_another)}")
        return
    goes_on = "" if differences is None else "; the lake goes on with it"
    yield f"[green]The script is right:[/] {size}{goes_on}. Nothing was run."
    if not pipeline.inserts:
        yield "  It has no INSERT, so a run of it lands nothing."
    if missing:
        yield first
    yield escape(f"  next:  {commands.shown(NextCommand('run'))}")


def _of_function(function: UserFunction) -> dict[str, Any]:
    return {
        "name": function.name,
        "language": function.language,
        "reference": function.reference,
        "signature": function.signature,
        "create": show_create_function(function),
    }


def _of_table(table: Table) -> dict[str, Any]:
    return {
        "name": table.name,
        "role": table.role,
        "connector": table.connector,
        "columns": [
            {"name": column.name, "type": column.type, "nullable": column.nullable, "computed": column.sql}
            for column in table.columns
        ],
        "primary_key": list(table.primary_key),
        "watermark": table.watermark.sql or table.watermark.expression if table.watermark else None,
        "properties": to_properties(table.watermark) if table.watermark else {},
        **_phases(table),
        "create": show_create_table(table),
        "options": dict(table.options.redacted()),
    }


def _of_insert(pipeline: Pipeline, insert: Insert) -> dict[str, Any]:
    return {
        "id": insert.id,
        "target": insert.target,
        "probe": insert.probe,
        "time": insert.time,
        "joins": [
            {"build": join.build, "kind": join.kind, "time": join.time, "key": [key.column for key in join.keys]}
            for join in insert.joins
        ],
        "columns": [item.name for item in insert.projections],
        "on_unmatched": on_unmatched(pipeline.table(insert.target)),
        "digest": pipeline.digest(insert),
    }


def _phases(table: Table) -> dict[str, bool]:
    """Whether a source has a bounded phase first, and reports its end."""
    if table.role not in ("build", "probe"):
        return {}
    spec = connector(table.connector).spec
    return {"phases": spec.phases(table.options), "signals": spec.signals(table.options)}


def dry_run_tables(found: DryRun) -> Iterator[RenderableType]:
    """Tables for people."""
    sources = grid("source", "next epoch", "phase", "what")
    for item in found.sources:
        epoch = f"{item.generation}/{item.epoch}" if item.step else ""
        sources.add_row(escape(item.table), epoch, item.step.phase if item.step else "", escape(_what(item)))
    yield sources
    yield ""
    inserts = grid("INSERT", "next epoch", "rows", "pins", "what", right=("rows",))
    for item in found.inserts:
        plan = item.plan
        pins = ", ".join(map(str, plan.pins)) if plan else ""
        epoch = f"{plan.generation}/{plan.epoch}" if plan else ""
        inserts.add_row(escape(item.insert), epoch, number(item.rows), escape(pins), escape(_then(item)))
    yield inserts
    yield ""
    for change in found.changes:
        yield escape(f"{change.owner} changes from its next epoch on: {change}")
    yield "Nothing was stored. INSERTs are planned of what has landed by now."


def _what(item: SourceDraft) -> str:
    if item.step is None:
        return "nothing to land"
    flips = "; the flip" if item.step.flips else ""
    before = "unfinished, goes on first: " if item.unfinished else ""
    return f"{before}{item.step.summary}{flips}"


def _then(item: InsertDraft) -> str:
    match item.state:
        case "held":
            return f"held: {item.reason}"
        case "waiting":
            return f"waits: {item.reason}"
        case "unfinished":
            return "unfinished, goes on first"
        case _:
            return item.plan.kind if item.plan else ""


def of_dry_run(pipeline: Pipeline, found: DryRun) -> dict[str, Any]:
    """The same for programs."""
    return {
        "pipeline": pipeline.name,
        "definitions": [asdict(item) for item in found.changes],
        "dry_run": True,
        "sources": [
            {
                "table": item.table,
                "generation": item.generation,
                "epoch": item.epoch if item.step else None,
                "unfinished": item.unfinished,
                "phase": item.step.phase if item.step else None,
                "flips": item.step.flips if item.step else False,
                "summary": item.step.summary if item.step else "",
            }
            for item in found.sources
        ],
        "inserts": [
            {
                "insert": item.insert,
                "state": item.state,
                "generation": item.plan.generation if item.plan else None,
                "epoch": item.plan.epoch if item.plan else None,
                "kind": item.plan.kind if item.plan else None,
                "rows": item.rows,
                "reason": item.reason,
                "pins": [
                    {"table": pin.table, "generation": pin.generation, "epoch": pin.epoch}
                    for pin in (item.plan.pins if item.plan else ())
                ],
            }
            for item in found.inserts
        ],
    }
