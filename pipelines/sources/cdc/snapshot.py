"""The bounded phase: all chunks are planned at once, read in batches, and over at the greatest of their cuts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tidegate.pipelines.connectors.protocol import Json, SourceContext
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.cdc.chunks import Bound, Chunk, SnapshotKey, chunk_name, chunks_between
from tidegate.pipelines.sources.cdc.database import S, SourceTable
from tidegate.pipelines.sources.cdc.errors import resnapshot

STEP_ROWS = 1_000_000
"""Rows of chunks in one step, about: 1M rows took 2.8 s in one step, 3.0 s in two, 3.6 s in four."""
STEP_CHUNKS = 64
"""Chunks in one step at most: each has a connection and a row of the `splits` table, and a crash costs a step."""


def declared_columns(found: SourceTable, table: Table) -> tuple[Any, ...]:
    """The declared columns as the server describes them, under the names of the script."""
    described = [
        (column.name, found.column(column.name)) for column in table.physical_columns if column.metadata is None
    ]
    return tuple(replace(column, name=name) for name, column in described if column is not None)


def new_splits(key: SnapshotKey, bounds: Sequence[Bound]) -> list[Json]:
    """The chunks as the `splits` table keeps them; `bounds` are the lower ones of all but the first."""
    # The first chunk has no lower bound; it keeps the key instead, which the bounds are of.
    first = {"split": chunk_name(0), "ordinal": 0, "detail": {"lower": None, "key": key.to_json()}}
    return [
        first,
        *(
            {"split": chunk_name(ordinal), "ordinal": ordinal, "detail": {"lower": list(bound)}}
            for ordinal, bound in enumerate(bounds, 1)
        ),
    ]


def chunks_of(splits: Sequence[Json]) -> list[Chunk]:
    """The chunks that the `splits` table holds, in order."""
    return chunks_between(row["detail"]["lower"] for row in splits)


def next_batch(before: S, chunk_rows: int) -> S:
    """The batch of chunks, of about `chunk_rows` each, after `before`."""
    batch = max(1, min(STEP_CHUNKS, STEP_ROWS // chunk_rows))
    return replace(before, first=before.last, last=min(before.total, before.last + batch))


def cuts_of(context: SourceContext, where: str) -> list[Json]:
    """The cuts of all chunks. Raises SourceError when one is not known, which no run leaves behind."""
    rows = context.splits.rows()
    for row in rows:
        if row["cut"] is None:
            raise SourceError(
                f"{context.table.name}: the cut of {row['split']} is not known",
                where=f"splits table, generation {context.generation}; {where}",
                state="the snapshot's rows are kept, and cannot be trusted to be whole",
                next_command=resnapshot(context.table.name),
            )
    return [row["cut"] for row in rows]
