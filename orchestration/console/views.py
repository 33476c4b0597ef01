"""What commands report, as JSON and for people: runs, releases, and what was verified or compared with a source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.markup import escape

from tidegate.orchestration.console.grid import grid
from tidegate.orchestration.console.screen import as_data
from tidegate.pipelines.commands import Commands, resnapshot
from tidegate.pipelines.lake import Layout
from tidegate.pipelines.runtime.continuous import LONGEST_RETRY_S, Tick
from tidegate.pipelines.runtime.landing.advances import Advance
from tidegate.pipelines.runtime.releasing.insert_runner import Published
from tidegate.pipelines.runtime.runner import Released, RunReport
from tidegate.pipelines.runtime.verifying.verify import VerifyReport
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.text import counted, key, number, seconds
from tidegate.quality_checks.against_source import RowDifference, SourceReconciliation


def run_tables(pipeline: Pipeline, report: RunReport, lake: Path) -> Iterator[RenderableType]:
    """One run, for people."""
    sources = grid("source", "landed", "epochs", "phase", "position", "behind", right=("landed", "epochs", "behind"))
    for item in report.advances:
        last = item.last
        sources.add_row(
            escape(item.table),
            number(item.rows),
            str(len(item.epochs)),
            _phase(item),
            escape(last.position if last else ""),
            seconds(last.lag_ms) if last and last.lag_ms is not None else "",
        )
    yield sources
    yield ""
    layout = Layout(lake)
    counts = ("published", "quarantined", "dropped", "epochs")
    inserts = grid("INSERT", *counts, "then", right=counts)
    for item in report.releases:
        inserts.add_row(
            escape(item.insert),
            number(sum(done.rows for done in item.published)),
            number(sum(done.quarantined for done in item.published)),
            number(sum(done.dropped for done in item.published)),
            str(len(item.published)),
            escape(_then(item)),
        )
    yield inserts
    yield ""
    for insert in pipeline.inserts:
        target = pipeline.table(insert.target)
        yield escape(f"{insert.id}: {layout.target_path(target).shown()}")
        yield escape(f"  quarantine: {layout.quarantine_path(target, insert).shown()}")


def _phase(item: Advance) -> str:
    blocked = f", {counted(len(item.blocked), 'split')} blocked" if item.blocked else ""
    return f"{'complete' if item.flipped else 'loading'}{blocked}"


def _then(item: Released) -> str:
    waiting = item.waiting
    if waiting is None:
        return ""
    return f"{counted(waiting.rows, 'row')} wait: {waiting.reason}" if waiting.rows else "nothing waits"


def of_run(pipeline: Pipeline, report: RunReport) -> dict[str, Any]:
    """One run, for programs."""
    return {
        "pipeline": pipeline.name,
        "moved": report.moved,
        "definitions": list(report.changes),
        "sources": [of_advance(item) for item in report.advances],
        "inserts": [of_released(item) for item in report.releases],
    }


def of_advance(item: Advance) -> dict[str, Any]:
    """What an advance of one source did."""
    return {
        "table": item.table,
        "generation": item.generation,
        "rows": item.rows,
        "epochs": [epoch.epoch for epoch in item.epochs],
        "flipped": item.flipped,
        "position": item.last.position if item.last else None,
        "lag_ms": item.last.lag_ms if item.last else None,
        "blocked": [asdict(blocked) for blocked in item.blocked],
    }


def of_released(item: Released) -> dict[str, Any]:
    """What one INSERT released."""
    waiting = item.waiting
    return {
        "insert": item.insert,
        "published": [of_published(done) for done in item.published],
        "waiting": {"rows": waiting.rows, "reason": waiting.reason, "unflipped": list(waiting.unflipped)}
        if waiting
        else None,
    }


def of_published(done: Published | None) -> dict[str, Any]:
    """One published epoch."""
    if done is None:
        return {"published": False}
    return {
        "published": True,
        "insert": done.insert,
        "generation": done.generation,
        "epoch": done.epoch,
        "rows": done.rows,
        "quarantined": done.quarantined,
        "dropped": done.dropped,
        **({"again": done.plan.rows_again} if done.plan.asked and done.plan.asked.spans else {}),
        **({"from_quarantine": done.plan.rows_claimed} if done.plan.out_of_quarantine else {}),
        "pins": [{"table": pin.table, "generation": pin.generation, "epoch": pin.epoch} for pin in done.plan.pins],
    }


def published_line(done: Published | None) -> str:
    """One published epoch, for people."""
    if done is None:
        return "There was nothing to publish."
    rest = f", {counted(done.quarantined, 'row')} quarantined" if done.quarantined else ""
    rest += f", {counted(done.dropped, 'row')} dropped by WHERE or INNER" if done.dropped else ""
    return escape(f"Epoch {done.epoch} of {done.insert} is published: {counted(done.rows, 'row')}{rest}.")


def tick_line(tick: Tick) -> str:
    """One tick, for people."""
    parts = []
    for item in tick.advances:
        if item.epochs:
            lag = item.last.lag_ms if item.last else None
            behind = f" ({seconds(lag)} behind)" if lag else ""
            parts.append(f"{item.table} +{item.rows:,}{behind}{'' if item.flipped else ' loading'}")
        elif item.blocked:
            parts.append(f"{item.table} waits for its group")
    for item in tick.releases:
        for done in item.published:
            rest = f", {done.quarantined:,} quarantined" if done.quarantined else ""
            rest += f", {done.dropped:,} dropped" if done.dropped else ""
            parts.append(f"{item.insert} epoch {done.epoch}: {done.rows:,} published{rest}")
        if item.waiting and item.waiting.rows:
            parts.append(f"{item.insert}: {item.waiting.rows:,} waiting")
    return escape(f"{tick.number:>6}  {tick.seconds:5.1f} s  {'   '.join(parts)}")


def stuck_lines(tick: Tick, known: Mapping[str, str], commands: Commands) -> list[str]:
    """The lines for what got stuck at this tick, or is stuck for another reason than before, and for what goes on
    again; `known`: the errors of what was stuck before."""
    now = {item.owner: item for item in tick.stuck}
    lines = [f"{owner} goes on again." for owner in known if owner not in now]
    for owner, item in now.items():
        if known.get(owner) != item.error.what:
            lines.append(
                f"{owner} is stuck. It is tried again, after {LONGEST_RETRY_S:.0f} s at most. The others go on.\n"
                f"{item.error.text(commands)}"
            )
    return lines


def of_tick(tick: Tick) -> dict[str, Any]:
    """One tick, for programs."""
    return {
        "tick": tick.number,
        "seconds": round(tick.seconds, 3),
        "sources": [of_advance(item) for item in tick.advances if item.epochs],
        "inserts": [of_released(item) for item in tick.releases],
        "held": [error.what for error in tick.held],
        "stuck": [{"owner": item.owner, "attempts": item.attempts, **as_data(item.error)} for item in tick.stuck],
    }


_SHOWN = 20


def of_reports(reports: Sequence[VerifyReport]) -> dict[str, Any]:
    """The reports of all INSERTs."""
    return {
        "passed": all(report.passed for report in reports),
        "differences": sum(report.differences for report in reports),
        "inserts": [report.to_json() for report in reports],
    }


def report_lines(reports: Sequence[VerifyReport], left_out: Sequence[str] = ()) -> Iterator[RenderableType]:
    """One line an INSERT, and what differs below it; one for each process that was left out."""
    for report in reports:
        yield _headline(report)
        if report.script_differs:
            yield "  by the definition in the lake: the script defines this INSERT differently"
        for problem in report.problems:
            yield escape(f"  {problem}")
        yield from _differences(report)
        if beyond := sum(epoch.beyond_retention for epoch in report.epochs):
            yield f"  {counted(beyond, 'row')} found nothing: retention had removed the versions of their time"
        for epoch in report.unproved[:_SHOWN]:
            yield escape(f"  epoch {epoch.generation}/{epoch.epoch}: {epoch.state} ({epoch.detail})")
        if len(report.unproved) > _SHOWN:
            yield f"  and {len(report.unproved) - _SHOWN} more epochs"
    for process in left_out:
        yield f"[yellow]{escape(process)}: not recomputed:[/] windows and processes keep state from epoch to epoch"
    proved = [report for report in reports if report.epochs]
    if left_out and proved and all(report.passed for report in reports):
        yield f"So {len(proved)} of {counted(len(proved) + len(left_out), 'INSERT')} proved by recomputing."


def _headline(report: VerifyReport) -> str:
    name = escape(report.insert)
    if not report.epochs:
        return f"{name}: nothing is published yet"
    proved = len(report.epochs) - len(report.unproved)
    text = f"{counted(report.rows, 'released row')} in {counted(proved, 'epoch')} recomputed"
    if report.passed:
        rest = f", {counted(len(report.unproved), 'epoch')} cannot be recomputed" if report.unproved else ""
        return f"[green]{name}: {text}, no row differs{rest}[/]"
    found = [counted(report.differences, "row") + " differ"] if report.differences else []
    lost = sum(epoch.state == "rows lost" for epoch in report.epochs)
    found += [f"{counted(lost, 'epoch')} read rows that are lost"] if lost else []
    found += [counted(len(report.problems), "problem")] if report.problems else []
    others = sum(epoch.state == "other script" for epoch in report.epochs)
    found += [f"{counted(others, 'epoch')} of another script"] if others else []
    return f"[bold red]{name}: {text}, {' and '.join(found)}[/]"


def _differences(report: VerifyReport) -> Iterator[RenderableType]:
    shown = 0
    for epoch in report.epochs:
        for difference in epoch.differences:
            shown += 1
            if shown > _SHOWN:
                yield "  and more: see --json"
                return
            keys = f": {', '.join(difference.keys)}" if difference.keys else ""
            yield escape(
                f"  epoch {epoch.generation}/{epoch.epoch}, {difference.place}: "
                f"{counted(difference.rows, 'row')} {difference.kind}{keys}"
            )


def of_reconciled(found: Sequence[SourceReconciliation]) -> dict[str, Any]:
    """All tables."""
    return {
        "passed": all(item.passed for item in found),
        "tables": [{**asdict(item), "passed": item.passed} for item in found],
    }


def reconciled_lines(found: Sequence[SourceReconciliation], commands: Commands) -> Iterator[RenderableType]:
    """One line a table, and what differs below it."""
    for item in found:
        yield _table_line(item)
        for difference in item.shown[:_SHOWN]:
            yield escape(f"  {_line(difference)}")
        if item.differences > _SHOWN:
            yield f"  and {counted(item.differences - min(len(item.shown), _SHOWN), 'more key')}: see --json"
        if item.differences:
            again = commands.shown(resnapshot(item.table))
            text = "begins anew from a fresh snapshot; readers stay on this one until it is complete"
            yield escape(f"  next:  {again}   ({text})")


def _table_line(item: SourceReconciliation) -> str:
    name, at = escape(item.table), escape(item.cut.text)
    if item.passed:
        again = f", {counted(item.rechecked, 'key')} read twice" if item.rechecked else ""
        return f"[green]{name}: {counted(item.rows, 'row')}, as the source has them at {at}{again}[/]"
    if item.differences:
        return (
            f"[bold red]{name}: {counted(item.differences, 'key')} of {item.rows:,} differ from the source at {at}[/]"
        )
    return f"[bold red]{name}: {counted(item.unsettled, 'key')} changed at every reading: not compared[/]"


def _line(difference: RowDifference) -> str:
    kinds = {
        "missing": "is not in the lake",
        "extra": "is in the lake, and not in the source",
        "changed": f"differs in {', '.join(difference.columns)}",
    }
    return f"{key(difference.key)} {kinds[difference.kind]}"
