"""Giving the rows of a target places, where a statement begins to read what was published without them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.schema import Field, PrimitiveType

from tidegate.pipelines.lake import delta_log
from tidegate.pipelines.lake.adopt import replace, require_plain, survey
from tidegate.pipelines.lake.by_name import DataFile, TableState
from tidegate.pipelines.lake.commits import by_delta_rs
from tidegate.pipelines.lake.rows import add_columns
from tidegate.pipelines.lake.statistics import SKIPPED_BY, fields_of, skipping
from tidegate.pipelines.lake.stream import PLACED
from tidegate.pipelines.location import Location
from tidegate.pipelines.parquet import write_file

_KINDS = {"STRING": "string", "BIGINT": "long", "TIMESTAMP": "timestamp"}
_FIELDS = [Field(name, PrimitiveType(_KINDS[kind])) for name, kind in PLACED.items()]


def place_rows(path: Location, time: str | None) -> None:
    """Give the rows of a target places: that of a row is its file's number and its own in there; `time` is the column
    that holds its event time. The same rows are in the table afterwards, in other files, and a reader that follows the
    table has none to read. The columns come last: cut short, it is done once more.

    Raises LakeError where the files alone do not give the rows, CommitFailedError where another writer is at work. The
    caller holds the INSERT's lease.
    """
    table = delta_log.opened(path)
    if table is None:
        return
    require_plain(table, "no statement can begin to read it; what is published stays")
    files = list(table.files.values())
    folder = path / f"placed-{uuid.uuid4().hex[:8]}"
    before, later = fields_of(table), [json.loads(field.to_json()) for field in _FIELDS]
    try:
        for number, file in enumerate(files):
            write_file(folder / f"{number}.parquet", _placed(table, file, number, time))
        if files:
            replace(path, folder, survey(folder), files, note="rows get places", same_rows=True, later=later)
    except BaseException:
        folder.delete_all(where_it_can=True)
        raise
    properties = skipping([*before, *later])
    if table.metadata.configuration.get(SKIPPED_BY) == skipping(before)[SKIPPED_BY]:
        by_delta_rs(path, lambda at: DeltaTable(at).alter.set_table_properties(properties))
    add_columns(path, _FIELDS)


def _placed(table: TableState, file: DataFile, number: int, time: str | None) -> Iterator[pa.RecordBatch]:
    """The rows of a file. The split begins as that of a row of epoch 0 would: nobody knows in which one of the probe it
    had landed."""
    offset = 0
    for batch in table.rows([file]).to_batches():
        rows, kind = batch.num_rows, pa.timestamp("us", "UTC")
        columns = {
            "_split": pa.repeat(pa.scalar(f"{0:010d}/{number}"), rows),
            "_offset": pa.array(range(offset, offset + rows), pa.int64()),
            "_rowtime": pa.nulls(rows, kind) if time is None else batch.column(time).cast(kind),
        }
        there = {field.name: column for field, column in zip(batch.schema, batch.columns, strict=True)}
        yield pa.RecordBatch.from_pydict({**there, **columns})
        offset += rows
