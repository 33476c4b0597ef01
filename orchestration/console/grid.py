"""The one style of tables."""

from __future__ import annotations

from rich.table import Table


def grid(*columns: str, right: tuple[str, ...] = ()) -> Table:
    """An empty table in the style of this command."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left")
    return table
