"""What `verify` found: for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import RenderableType
from rich.markup import escape

from tidegate.orchestration.text import counted
from tidegate.pipelines.runtime.verifying.report import VerifyReport

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
