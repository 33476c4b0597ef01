"""What `verify` and `reconcile` found: for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import RenderableType
from rich.markup import escape

from tidegate.pipelines.commands import Commands, resnapshot
from tidegate.pipelines.runtime.verifying.report import VerifyReport
from tidegate.pipelines.text import counted, key
from tidegate.quality_checks.against_source import RowDifference, SourceReconciliation

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
            yield "  by the definition that the lake keeps: the script says something else of this INSERT"
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
        yield f"{escape(process)}: a process, whose epochs cannot be recomputed one by one; not verified"


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
