"""Plans the bounded phase: all chunks at once, then batches of them, then the greatest cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from pymysql.cursors import Cursor

from tidegate.pipelines.connectors.protocol import SourceContext
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.mysql_cdc.binlog.model import BinlogPosition
from tidegate.pipelines.sources.mysql_cdc.catalog import SourceTable
from tidegate.pipelines.sources.mysql_cdc.chunks import Chunk, SnapshotKey, chunk_name, plan_bounds
from tidegate.pipelines.sources.mysql_cdc.headers import birth
from tidegate.pipelines.sources.mysql_cdc.log import resnapshot
from tidegate.pipelines.sources.mysql_cdc.options import MysqlOptions
from tidegate.pipelines.sources.mysql_cdc.preflight import check_prepared, refused
from tidegate.pipelines.sources.mysql_cdc.snapshot.cut import CutRule
from tidegate.pipelines.sources.mysql_cdc.steps import SnapshotStep
from tidegate.pipelines.sources.mysql_cdc.types import SourceColumn, quote

STEP_ROWS = 1_000_000
"""Rows of chunks in one step, about: 1M rows took 2.8 s in one step, 3.0 s in two, 3.6 s in four."""
STEP_CHUNKS = 64
"""Chunks in one step at most: each has a connection and a row of the `splits` table, and a crash costs a step."""


def declared_columns(found: SourceTable, table: Table) -> tuple[SourceColumn, ...]:
    """The declared columns as the server describes them, under the names of the script."""
    described = [
        (column.name, found.column(column.name)) for column in table.physical_columns if column.metadata is None
    ]
    return tuple(replace(column, name=name) for name, column in described if column is not None)


def first_batch(
    cursor: Cursor, context: SourceContext, options: MysqlOptions, found: SourceTable, rule: CutRule
) -> SnapshotStep:
    """Plan all chunks, take the position that the binlog will be read from, and plan the first batch.

    Chunks that a run has left without a plan are taken up: whatever the bounds, they divide all possible keys.
    """
    splits = context.splits.rows()
    if not splits:
        context.splits.add(list(_new_splits(cursor, context, options, found)))
        splits = context.splits.rows()
    start = rule.start(cursor)
    # Only now: one that is prepared after this comes in the log after `start`, where the reader refuses it.
    prepared = list(check_prepared(cursor))
    if prepared:
        raise refused(prepared, options)
    whole = SnapshotStep(
        first=0,
        last=0,
        total=len(splits),
        start=start,
        birth=birth(options.server, start),
        key=SnapshotKey.from_json(splits[0]["detail"]["key"]),
        columns=declared_columns(found, context.table),
    )
    return next_batch(whole, options)


def _new_splits(
    cursor: Cursor, context: SourceContext, options: MysqlOptions, found: SourceTable
) -> Iterator[dict[str, Any]]:
    key = found.snapshot_key
    name = f"{quote(options.database)}.{quote(options.table)}"
    bounds = plan_bounds(cursor, name, key, found.rows, options.chunk_rows, context.progress)
    # The first chunk has no lower bound; it keeps the key instead, which the bounds are of.
    yield {"split": chunk_name(0), "ordinal": 0, "detail": {"lower": None, "key": key.to_json()}}
    for ordinal, bound in enumerate(bounds, 1):
        yield {"split": chunk_name(ordinal), "ordinal": ordinal, "detail": {"lower": list(bound)}}


def next_batch(before: SnapshotStep, options: MysqlOptions) -> SnapshotStep:
    """The batch of chunks after `before`."""
    batch = max(1, min(STEP_CHUNKS, STEP_ROWS // options.chunk_rows))
    return replace(before, first=before.last, last=min(before.total, before.last + batch))


def chunks_of(splits: Sequence[dict[str, Any]]) -> list[Chunk]:
    """The chunks that the `splits` table holds, in order."""
    lowers = [row["detail"]["lower"] for row in splits]
    bounds = [None if lower is None else tuple(lower) for lower in lowers]
    return [
        Chunk(ordinal, lower, upper)
        for ordinal, (lower, upper) in enumerate(zip(bounds, [*bounds[1:], None], strict=True))
    ]


def greatest_cut(context: SourceContext, step: SnapshotStep, where: str) -> BinlogPosition:
    """The greatest cut of all chunks. Raises SourceError when one is not known, which no run leaves behind."""
    cuts = [step.start]
    for row in context.splits.rows():
        if row["cut"] is None:
            raise SourceError(
                f"{context.table.name}: the cut of {row['split']} is not known",
                where=f"splits table, generation {context.generation}; {where}",
                state="the snapshot's rows are kept, and cannot be trusted to be whole",
                next_command=resnapshot(context.table.name),
            )
        cuts.append(BinlogPosition.from_json(row["cut"]))
    return max(cuts, key=lambda cut: cut.order)
