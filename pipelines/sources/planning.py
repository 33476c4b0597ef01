"""What the planners of several sources share: the flip of a source without phases, and alignment's limit.

A source without phases has flipped when it is past its ends as of its first plan, never at once. Those ends are stored
in the first step, so that every later run compares with the same ones.
"""

from __future__ import annotations

from tidegate.pipelines.connectors.protocol import Json, PlanRequest
from tidegate.pipelines.connectors.table import Column, Table

_FIRST_ENDS = "first_ends"


def first_ends(request: PlanRequest) -> Json:
    """The ends as of the first plan of this generation; those of `request` if this is that plan."""
    return request.ends if request.first is None else request.first.step.ranges[_FIRST_ENDS]


def is_first(ranges: Json) -> bool:
    """Whether these are the ranges of a generation's first step."""
    return _FIRST_ENDS in ranges


def ranges(request: PlanRequest, ends: Json, **own: object) -> Json:
    """The ranges of a step: the connector's `own`, and with the first plan its `ends`."""
    return {**own, _FIRST_ENDS: ends} if request.first is None else own


def limit(request: PlanRequest, table: Table, metadata: str | None = None) -> int | None:
    """The time (ms, UTC) that no row of the next step should be past: alignment's limit, if the source's own time is
    the table's rowtime and the table has flipped; else None. `metadata`: see `is_rowtime`."""
    return request.limit if request.flipped and is_rowtime(table, metadata) else None


def is_rowtime(table: Table, metadata: str | None = None) -> bool:
    """Whether the source's own time is the table's rowtime: WATERMARK FOR a SYSTEM_ROWTIME() column, or for the
    METADATA column with the same value, whose key is `metadata`."""
    column = rowtime_column(table)
    return column is not None and (column.source_time or (metadata is not None and column.metadata == metadata))


def rowtime_column(table: Table) -> Column | None:
    """The column that is the rowtime, or that the rowtime is a field of; None for a table without WATERMARK FOR."""
    if table.watermark is None:
        return None
    return next((column for column in table.columns if column.name == table.watermark.path[0]), None)
