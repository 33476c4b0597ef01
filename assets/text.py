"""Any record as Dagster's metadata: a sentence, the facts that are shown at once (numbers are plotted over time), and
the rest folded; and Markdown tables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any

import dagster as dg

from tidegate.pipelines.commands import AS_WRITTEN, Advice, Commands, NextCommand
from tidegate.pipelines.records.kinds import Drawn, Fact, cells_of, columns_of, head_of, notes_of
from tidegate.pipelines.records.kinds import facts_of as facts_of_record
from tidegate.pipelines.watermarks.watermark import instant

_ACTS = re.compile(r"[\\`*<\[|~]|&(?=#?\w+;)|(?<![^\W_])_|_(?![^\W_])|:(?=//)|(?<=www)\.")
"""Characters with a meaning inside a line of GitHub's Markdown. An underscore within a word has none. An address would
become a link, and show the backslashes in it."""
_LINE_END = re.compile(r"\r\n?|\n")


SHOWN_ROWS = 20
"""Rows of a table before the rest is only counted."""
LISTED = 10
"""Rows of a table that are shown without a click."""


def in_short(
    summary: str, facts: Mapping[str, Any], details: Mapping[str, Any] | None = None, **shown: Any
) -> dict[str, Any]:
    """Metadata of one event: a sentence, some facts (at most five, numbers if they are to be plotted), what is `shown`
    as it is, and everything else as one JSON value, which Dagster folds. Nothing is left out."""
    known = {name: value for name, value in {**facts, **shown}.items() if value is not None}
    folded = {"details": dg.MetadataValue.json(dict(details))} if details else {}
    return {"summary": summary, **known, **folded}


def metadata(record: Any, commands: Commands = AS_WRITTEN) -> dict[str, Any]:
    """A record: its `summary`, the facts that its `at_once` names, and all others folded. One without these is shown as
    in a terminal: its first sentence, its numbers, its other sentences and its tables."""
    shown = folded(record, commands)
    facts = facts_of_record(type(record))
    if hasattr(record, "at_once"):
        names = {each.name: _heading(each) for each in facts}
        at_once = {names[name]: shown.pop(names[name], None) for name in record.at_once}
        return in_short(record.summary, at_once, shown)
    first, *said = [line for note in (*head_of(record), *notes_of(record)) for line in (note.text, *note.details)]
    numbers = {_heading(each): shown.pop(_heading(each), None) for each in facts if each.kind in ("count", "bytes")}
    more: dict[str, Any] = {f"line {number}": text for number, text in enumerate(said[:LISTED], 1)}
    for each in facts:
        if found := _table(each.value(record)):
            more |= listed(_heading(each), _heading(each).removesuffix("s"), *found)
            shown.pop(_heading(each), None)
    for group in getattr(record, "groups", ()):
        if found := _table(group.rows):
            more[group.heading] = dg.MetadataValue.md(markdown_table(*found))
    return in_short(first, numbers, shown, **more)


def _table(items: Any) -> tuple[list[str], list[tuple[str, ...]]] | None:
    """The headings and the rows of a table of records; None for what is none."""
    columns = columns_of(type(items[0])) if isinstance(items, tuple) and items and is_dataclass(items[0]) else ()
    cells = [column for fact, title in columns for column in cells_of(fact, title, items)]
    return ([title for title, _ in cells], list(zip(*(column for _, column in cells), strict=True))) if cells else None


def folded(value: Any, commands: Commands = AS_WRITTEN, kind: str = "plain") -> Any:
    """A value as JSON for people: facts by their headings, times as ISO 8601; what there is not is left out."""
    if isinstance(value, Drawn):
        return dg.MetadataValue.md(value.markdown())
    if isinstance(value, (Advice, NextCommand)):
        return commands.shown(value)
    if is_dataclass(value):
        items = {_heading(each): (each, each.value(value)) for each in facts_of_record(type(value))}
        return {name: folded(item, commands, each.kind) for name, (each, item) in items.items() if item is not None}
    if isinstance(value, Mapping):
        return {name: folded(each, commands) for name, each in value.items()}
    if isinstance(value, (tuple, list)):
        found = [folded(each, commands, kind) for each in value[:SHOWN_ROWS]]
        return found if len(value) <= SHOWN_ROWS else [*found, {"more": len(value) - SHOWN_ROWS}]
    return instant(value) if kind in ("moment", "age") and isinstance(value, int) else value


def _heading(fact: Fact) -> str:
    return fact.column.title if fact.column else fact.name.replace("_", " ")


def values_of(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The values of metadata, by name."""
    return {name: getattr(value, "value", value) for name, value in metadata.items()}


def facts_of(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The values of metadata, by name, with those of its folded details."""
    values = values_of(metadata)
    return {**values, **values.get("details", {})}


def records(headers: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """A table inside of `details`."""
    found = [dict(zip(headers, row, strict=True)) for row in rows[:SHOWN_ROWS]]
    return found if len(rows) <= SHOWN_ROWS else [*found, {"more": len(rows) - SHOWN_ROWS}]


def listed(name: str, one: str, headers: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Metadata of a table: its first LISTED rows, a text each, called `one` and a number; then all of them as Markdown.
    Dagster shows texts at once, and Markdown, tables and JSON after a click."""
    lines = {f"{one} {number}": _line(headers, row) for number, row in enumerate(rows[:LISTED], 1)}
    return {**lines, name: dg.MetadataValue.md(markdown_table(headers, rows))}


def _line(headers: Sequence[str], row: Sequence[Any]) -> str:
    """What is in a row, as text."""
    cells = [(header, _plain(value)) for header, value in zip(headers, row, strict=True)]
    return "; ".join(f"{header}: {text}" for header, text in cells if text)


def markdown_table(headers: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A markdown table, which shows every text as it is."""
    lines = [f"| {' | '.join(map(_cell, headers))} |", f"| {' | '.join('---' for _ in headers)} |"]
    lines += [f"| {' | '.join(_cell(value) for value in row)} |" for row in rows]
    return "\n".join(lines)


def _plain(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return _LINE_END.sub(" ", text)


def _cell(value: Any) -> str:
    return _ACTS.sub(r"\\\g<0>", _plain(value))
