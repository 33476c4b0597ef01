"""Whether a table's event time is its source's own time of a change: then a plan can keep to alignment's limit."""

from __future__ import annotations

from pipelines.sources.protocol import SourceContext


def limit(context: SourceContext) -> int | None:
    """The time (ms, UTC) that no row of the next step should be past: alignment's, where the source's own time is the
    table's rowtime (WATERMARK FOR a SYSTEM_ROWTIME() column) and the table has flipped; else None."""
    table = context.table
    if table.watermark is None or not context.flipped or table.watermark.path[0] not in _source_times(context):
        return None
    return context.limit


def _source_times(context: SourceContext) -> set[str]:
    return {column.name for column in context.table.columns if column.source_time}
