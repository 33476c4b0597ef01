"""What the footers of Parquet files tell of a column without reading a row."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow.parquet as pq


def column_bounds(footer: pq.FileMetaData, column: str) -> tuple[Any, Any] | None:
    """Least and greatest value of a column (a dotted path) without NULLs; None where the footer does not say."""
    found = [statistics_of(footer.row_group(group), column) for group in range(footer.num_row_groups)]
    known = [each for each in found if each is not None and not each.null_count]
    if not known or len(known) < len(found):
        return None
    return min(each.min for each in known), max(each.max for each in known)


def bounds_of(statistics: pq.Statistics) -> tuple[Any, Any] | None:
    """Least and greatest value; None where they are not told, or are dates and times outside of the years 1 to 9999,
    which Python has no value for."""
    try:
        return (statistics.min, statistics.max) if statistics.has_min_max else None
    except (OverflowError, ValueError):
        return None


def statistics_of(group: pq.RowGroupMetaData, column: str) -> pq.Statistics | None:
    """What a row group tells of a column (a dotted path), where it tells its bounds."""
    chunk = next((c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == column), None)
    if chunk is None or not chunk.is_stats_set or bounds_of(chunk.statistics) is None:
        return None
    return chunk.statistics


def bounds_of_files(footers: Iterable[pq.FileMetaData], column: str) -> tuple[Any, Any] | None:
    """The same over several files; (None, None) where they have no row at all."""
    found = [column_bounds(footer, column) for footer in footers if footer.num_rows]
    known = [bounds for bounds in found if bounds is not None]
    if len(known) < len(found):
        return None
    return (min(low for low, _ in known), max(high for _, high in known)) if known else (None, None)
