"""The one style of tables, and of lines. Rich draws them only if needed; plain text for a file or a pipe is written
without it, since its import takes a fifth of the time of `tidegate status`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table
    from rich.text import Text

FILE_WIDTH = 160
"""The width of a table in a file or a pipe, which has no width of its own."""
BETWEEN = 2
"""Columns between those of a table."""


@dataclass(frozen=True)
class Line:
    """A line for people, or a cell, as it is read; its first `marked` characters are highlighted."""

    text: str
    marked: int = 0
    style: str = "bold red"

    def __str__(self) -> str:
        return self.text

    def __rich__(self) -> Text:
        from rich.text import Text

        found = Text(self.text)
        if self.marked:
            found.stylize(self.style, 0, self.marked)
        return found


@dataclass
class Grid:
    """A table of `columns`, of which those in `right` are flush right. `by_row`: where it is too wide, each row stands
    by itself, a line for each of its cells."""

    columns: Sequence[str]
    right: Sequence[str] = ()
    rows: list[tuple[str | Line, ...]] = field(default_factory=list)
    by_row: bool = False

    def add_row(self, *cells: str | Line) -> None:
        """A row; text is taken as it is."""
        self.rows.append(cells)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.cells import cell_len

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
        from rich.table import Table

        table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, BETWEEN, 0, 0))
        for name in self.columns:
            table.add_column(name, justify="right" if name in self.right else "left", overflow="fold")
        for row in self.rows:
            table.add_row(*(cell if isinstance(cell, Line) else Line(cell) for cell in row))
        return table

    def __str__(self) -> str:
        lines = [self.columns, *([str(cell) for cell in row] for row in self.rows)]
        placed = []
        for name, *cells in zip(self.columns, *lines, strict=True):
            width = max(map(len, cells))
            placed.append([cell.rjust(width) if name in self.right else cell.ljust(width) for cell in cells])
        return "\n".join((" " * BETWEEN).join(line) for line in zip(*placed, strict=True))


def drawn(item: Line | Grid, width: int) -> str | None:
    """The table as text with so many columns a line; None if Rich has to lay it out: it is wider, has characters other
    than plain letters, or cells that begin or end with a space."""
    text = str(item)
    if isinstance(item, Grid):
        cells = [str(cell) for row in item.rows for cell in row]
        if any(cell != cell.strip() or not cell.isprintable() for cell in cells):
            return None
        if any(len(line) > width for line in text.splitlines()):
            return None
    return text if text.isascii() and text.replace("\n", "").isprintable() else None
