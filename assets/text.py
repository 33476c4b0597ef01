"""Small texts for people: markdown tables, times, watermarks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dagster as dg

from tidegate.pipelines.watermarks.watermark import instant

_ACTS = re.compile(r"[\\`*<\[|~]|&(?=#?\w+;)|(?<![^\W_])_|_(?![^\W_])|:(?=//)|(?<=www)\.")
"""What is no plain text inside a line of GitHub's Markdown. An underscore within a word is. An address would become a
link by itself, and show the backslashes of what else is in it."""
_LINE_END = re.compile(r"\r\n?|\n")


SHOWN_ROWS = 20
"""Rows of a table before the rest is only counted."""


def in_short(
    summary: str, facts: Mapping[str, Any], details: Mapping[str, Any] | None = None, **shown: Any
) -> dict[str, Any]:
    """Metadata of one event: a sentence, some facts (five at most, a number each where it is to be plotted), what is
    `shown` as it is, and everything else as one JSON value, which Dagster folds. None is left out."""
    known = {name: value for name, value in {**facts, **shown}.items() if value is not None}
    folded = {"details": dg.MetadataValue.json(dict(details))} if details else {}
    return {"summary": summary, **known, **folded}


def records(headers: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """A table inside of `details`."""
    found = [dict(zip(headers, row, strict=True)) for row in rows[:SHOWN_ROWS]]
    return found if len(rows) <= SHOWN_ROWS else [*found, {"more": len(rows) - SHOWN_ROWS}]


def markdown_table(headers: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A markdown table, which shows every text as it is."""
    lines = [f"| {' | '.join(map(_cell, headers))} |", f"| {' | '.join('---' for _ in headers)} |"]
    lines += [f"| {' | '.join(_cell(value) for value in row)} |" for row in rows]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return _ACTS.sub(r"\\\g<0>", _LINE_END.sub(" ", text))


def watermark(timestamp: int, use_processing_time: bool) -> str:
    """A watermark as FLIP-326 writes it: (timestamp, use processing time)."""
    return f"({instant(timestamp)}, {str(use_processing_time).lower()})"
