"""What `reconcile` found: for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import RenderableType
from rich.markup import escape

from tidegate.orchestration.text import counted, key
from tidegate.pipelines.commands import Commands, resnapshot
from tidegate.quality_checks.against_source import RowDifference, SourceReconciliation

_SHOWN = 20


def of_reconciled(found: Sequence[SourceReconciliation]) -> dict[str, Any]:
    """All tables."""
    return {
        "passed": all(item.passed for item in found),
        "tables": [{**asdict(item), "passed": item.passed} for item in found],
    }


def reconciled_lines(found: Sequence[SourceReconciliation], commands: Commands) -> Iterator[RenderableType]:
    """One line a table, and what differs below it."""
    for item in found:
        yield _headline(item)
        for difference in item.shown[:_SHOWN]:
            yield escape(f"  {_line(difference)}")
        if item.differences > _SHOWN:
            yield f"  and {counted(item.differences - min(len(item.shown), _SHOWN), 'more key')}: see --json"
        if item.differences:
            again = commands.shown(resnapshot(item.table))
            text = "begins anew from a fresh snapshot; readers stay on this one until it is complete"
            yield escape(f"  next:  {again}   ({text})")


def _headline(item: SourceReconciliation) -> str:
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
