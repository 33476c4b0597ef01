"""Any record in a terminal, by the types of its facts: its sentences, and a table for each list of records in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.text import Text

from tidegate.orchestration.console.grid import Grid, line
from tidegate.pipelines.commands import AS_WRITTEN, Commands
from tidegate.pipelines.records.kinds import Note, cells_of, columns_of, head_of, notes_of, tables_of

MOST_ROWS = 40
"""Rows of a table that are shown; the last line counts the others."""
_STYLES = {"plain": "", "good": "green", "bad": "bold red", "warn": "yellow"}


def shown(record: Any, commands: Commands = AS_WRITTEN) -> Iterator[Text | Grid]:
    """What a person sees of a record: what stands above, a table for each of its lists of records with what each of
    them says below it, and what it says of itself."""
    now = getattr(record, "at", 0)
    for note in head_of(record):
        yield from said(note, commands)
    for number, rows in enumerate(tables_of(record)):
        if number:
            yield line("")
        yield table(rows, now, getattr(record, "MOST_ROWS", MOST_ROWS))
        for row in rows:
            for note in notes_of(row):
                yield from said(note, commands)
    for note in notes_of(record):
        yield from said(note, commands)


def table(rows: Sequence[Any], now: int = 0, most: int = MOST_ROWS) -> Grid:
    """Records of one kind, a column for each fact that is one; of more than `most`, the others are counted."""
    columns, first = columns_of(type(rows[0])), rows[:most]
    placed = [column for fact, name in columns for column in cells_of(fact, name, first, now)]
    right = [title for fact, title in columns if fact.right]
    grid = Grid([title for title, _ in placed], right, by_row=any(fact.kind == "values" for fact, _ in columns))
    for row, *cells in zip(first, *(cells for _, cells in placed), strict=True):
        alarm = getattr(row, "alarm", False)
        grid.add_row(*(line(cell, len(cell)) if alarm and cell == row.state else cell for cell in cells))
    if len(rows) > most:
        grid.add_row(f"and {len(rows) - most:,} more", *([""] * (len(placed) - 1)))
    return grid


def said(note: Note, commands: Commands) -> Iterator[Text]:
    """A sentence in lines, its next command in the last."""
    begin = "\n" if note.apart else ""
    marked = len(note.text) if note.marked is None else note.marked
    style = _STYLES[note.tone]
    yield line(begin + note.text, len(begin) + marked if style else 0, style)
    for detail in note.details:
        yield line(f"  {detail}" if detail else "")
    if note.next:
        yield line(f"  next:  {commands.shown(note.next)}")
