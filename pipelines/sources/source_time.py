"""Whether a table's event time is its source's own time of a change: then a plan can keep to alignment's limit."""

from __future__ import annotations

from tidegate.pipelines.connectors.protocol import PlanRequest
from tidegate.pipelines.connectors.table import Column, Table


def limit(request: PlanRequest, table: Table, metadata: str | None = None) -> int | None:
    """The time (ms, UTC) that no row of the next step should be past: alignment's, where the source's own time is the
    table's rowtime and the table has flipped; else None. `metadata` as of `is_rowtime`."""
    return request.limit if request.flipped and is_rowtime(table, metadata) else None


def is_rowtime(table: Table, metadata: str | None = None) -> bool:
    """Whether the source's own time is the table's rowtime: WATERMARK FOR a SYSTEM_ROWTIME() column, or for the
    METADATA column that says the same, whose key is `metadata`."""
    column = rowtime_column(table)
    return column is not None and (column.source_time or (metadata is not None and column.metadata == metadata))


def rowtime_column(table: Table) -> Column | None:
    """The column that the rowtime is, or is a field of; None of a table without WATERMARK FOR."""
    if table.watermark is None:
        return None
    return next((column for column in table.columns if column.name == table.watermark.path[0]), None)
