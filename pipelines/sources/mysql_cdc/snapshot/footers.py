"""The cuts of a batch of chunks, and the time of a step's newest change, from the footers of the files that hold them:
no row is read again.

A chunk is read by one task and written to one file, whose footer has the least and the greatest of every column. Where
that does not tell (a file that was compacted since, say), the rows are asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow.parquet as pq

from tidegate.pipelines.lake.footers import bounds_of_files, column_bounds


@dataclass(frozen=True)
class Span:
    """What the rows of one chunk carry: least and greatest cut, as (file number, position), and how many they are."""

    least: tuple[int, int]
    greatest: tuple[int, int]
    rows: int


def spans_of(files: Iterable[str], generation: int, epoch: int) -> dict[str, Span] | None:
    """By split; None where the footers of `files` (URIs or paths) do not tell it for this very epoch."""
    found: dict[str, Span] = {}
    for name in files:
        parsed = urlparse(name)
        if parsed.scheme not in ("", "file"):
            return None
        footer = pq.read_metadata(unquote(parsed.path))
        split, bounds = _one(footer, "_split"), [column_bounds(footer, f"_seq.{part}") for part in ("file", "position")]
        own = _one(footer, "_generation") == generation and _one(footer, "_epoch") == epoch
        if not own or not isinstance(split, str) or split in found or None in bounds:
            return None
        (file, last_file), (position, last_position) = bounds  # type: ignore[misc]
        found[split] = Span((file, position), (last_file, last_position), footer.num_rows)
    return found


def newest_rowtime(files: Iterable[str]) -> int | None:
    """The greatest rowtime (ms, UTC) of the rows in `files` (URIs or paths); None where their footers do not tell."""
    parsed = [urlparse(name) for name in files]
    if any(name.scheme not in ("", "file") for name in parsed):
        return None
    found = bounds_of_files((pq.read_metadata(unquote(name.path)) for name in parsed), "_rowtime")
    if found is None or found[1] is None:
        return None
    newest: datetime = found[1]
    return round((newest if newest.tzinfo else newest.replace(tzinfo=UTC)).timestamp() * 1000)


def _one(footer: pq.FileMetaData, column: str) -> Any:
    """The one value that a column has in a file; None where it has several, or where the footer does not say."""
    bounds = column_bounds(footer, column)
    return bounds[0] if bounds is not None and bounds[0] == bounds[1] else None
