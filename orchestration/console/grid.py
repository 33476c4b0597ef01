"""The one style of tables, and of lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

FILE_WIDTH = 160
"""The width of a table in a file or a pipe, which has no width of its own."""
BETWEEN = 2
"""Columns between those of a table."""


def line(text: str, marked: int = 0, style: str = "bold red") -> Text:
    """A line for people, or a cell, as it is read; its first `marked` characters are highlighted."""
    found = Text(text)
    if marked:
        found.stylize(style, 0, marked)
    return found


@dataclass
class Grid:
    """A table of `columns`, of which those in `right` are flush right. `by_row`: where it is too wide, each row stands
    by itself, a line for each of its cells."""

    columns: Sequence[str]
    right: Sequence[str] = ()
    rows: list[tuple[Text, ...]] = field(default_factory=list)
    by_row: bool = False

    def add_row(self, *cells: str | Text) -> None:
        """A row; text is taken as it is."""
        self.rows.append(tuple(Text(cell) if isinstance(cell, str) else cell for cell in cells))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(map(cell_len, str(self).splitlines()))
        if not self.by_row or width <= options.max_width:
            yield self._table()
            return
        for number, row in enumerate(self.rows):
            one = Grid([f"row {number + 1}", ""])
            for name, cell in zip(self.columns, row, strict=True):
                one.add_row(name, cell)
            yield one

    def _table(self) -> Table:
        table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, BETWEEN, 0, 0))
        for name in self.columns:
            table.add_column(name, justify="right" if name in self.right else "left", overflow="fold")
        for row in self.rows:
            table.add_row(*row)
        return table

    def __str__(self) -> str:
        lines, placed = [self.columns, *([cell.plain for cell in row] for row in self.rows)], []
        for name, *cells in zip(self.columns, *lines, strict=True):
            width = max(map(len, cells))
            placed.append([cell.rjust(width) if name in self.right else cell.ljust(width) for cell in cells])
        return "\n".join((" " * BETWEEN).join(line) for line in zip(*placed, strict=True))
