"""What is asked of the server for a chunk: its rows, and what tells where its read view stands in the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.pipelines.sources.cdc.chunks import Chunk, SnapshotKey
from tidegate.pipelines.sources.mysql_cdc.types import SourceColumn, exact_expression, quote, snapshot_expression


@dataclass(frozen=True)
class SnapshotQuery:
    """What is read of a table, whatever the chunk. `columns` are named as the script names them.

    `cut_columns` are the SQL of the cut's file number and position, to be asked in the chunk's read view. `exact`:
    names of the columns, those of the declared key, that have a value of their own in every row.
    """

    database: str
    table: str
    columns: Sequence[SourceColumn]
    key: SnapshotKey
    cut_columns: tuple[str, str]
    exact: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"

    def rows(self, chunk: Chunk, condition: str | None = None) -> str:
        """The chunk's rows; with a `condition` (the server's SQL) those of them that it holds for."""
        values = ", ".join(f"{self._value(column)} AS {quote(column.name)}" for column in self.columns)
        wanted = " AND ".join(f"({part})" for part in (chunk.predicate(self.key), condition) if part)
        source = f"{quote(self.database)}.{quote(self.table)}{'' if condition else self.key.hint}"
        return f"SELECT {values} FROM {source}" + (f" WHERE {wanted}" if wanted else "")  # noqa: S608 quoted

    def _value(self, column: SourceColumn) -> str:
        expression = snapshot_expression(column)
        return exact_expression(column, expression) if column.name in self.exact else expression
