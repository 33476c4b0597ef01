"""Small texts for people: markdown tables, times, watermarks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from tidegate.pipelines.watermarks.watermark import instant

_ACTS = re.compile(r"[\\`*<\[|~]|&(?=#?\w+;)|(?<![^\W_])_|_(?![^\W_])|:(?=//)|(?<=www)\.")
"""What is no plain text inside a line of GitHub's Markdown. An underscore within a word is. An address would become a
link by itself, and show the backslashes of what else is in it."""
_LINE_END = re.compile(r"\r\n?|\n")


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
