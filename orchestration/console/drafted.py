"""What a run would do next, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.console import RenderableType
from rich.markup import escape

from tidegate.orchestration.console.grid import grid
from tidegate.pipelines.runtime.dry_run import DryRun, InsertDraft
from tidegate.pipelines.runtime.landing.advances import SourceDraft
from tidegate.pipelines.sql.pipeline import Pipeline
from tidegate.pipelines.text import number


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
        pins = ", ".join(f"{pin.table} {pin.generation}/{pin.epoch}" for pin in plan.pins) if plan else ""
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
