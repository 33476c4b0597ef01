"""Arrow batches as one Parquet file that a Delta table can adopt: whole or not there at all.

It is read by Spark and by Arrow alike: plain types, microseconds, and what their footers tell of every column.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

GROUP_BYTES = 64 << 20
"""Rows of about so many bytes in memory make a row group: that much is held, however long the file gets."""

_SAMPLE = 4096
_REPEATED = 2
"""How often the values of a sample must repeat for a dictionary to be worth its while."""


def write_file(path: Path, batches: Iterable[pa.RecordBatch]) -> int:
    """Write `batches`, all of one schema, to `path`; the number of rows. No file for no rows.

    The file has another name until it is whole, so that one of half its rows is taken by nobody.
    """
    unfinished = path.with_name(f"_{path.name}.writing")
    rows, writer = 0, None
    try:
        for table in _groups(batches):
            if writer is None:
                writer = pq.ParquetWriter(
                    unfinished,
                    table.schema,
                    version="2.6",
                    compression="snappy",
                    use_dictionary=_repeating(table),  # pyright: ignore[reportArgumentType] also a list
                    store_schema=False,
                    store_decimal_as_integer=True,
                )
            writer.write_table(table, row_group_size=table.num_rows)
            rows += table.num_rows
        if writer is not None:
            writer.close()
            os.replace(unfinished, path)
    except BaseException:
        try:
            if writer is not None:
                writer.close()
        except Exception:  # noqa: BLE001 a full disk refuses the footer too: what went wrong first is what is told
            pass
        finally:
            unfinished.unlink(missing_ok=True)
        raise
    return rows


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            size += batch.nbytes
        if size >= GROUP_BYTES:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _repeating(table: pa.Table) -> list[str]:
    """The paths of the columns whose first values repeat: a dictionary of others costs time and makes files longer."""
    found: list[str] = []
    for name, values in _leaves("", table.slice(0, _SAMPLE)):
        if len(values.unique()) * _REPEATED <= len(values):
            found.append(name)
    return found


def _leaves(prefix: str, columns: pa.Table) -> Iterator[tuple[str, pa.ChunkedArray]]:
    for name, column in zip(columns.column_names, columns.columns, strict=True):
        if pa.types.is_struct(column.type):
            inner = pa.Table.from_arrays(column.flatten(), [field.name for field in column.type])
            yield from _leaves(f"{prefix}{name}.", inner)
        else:
            yield f"{prefix}{name}", column
