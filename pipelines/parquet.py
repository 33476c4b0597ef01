"""Writing Arrow batches as one Parquet file that a Delta table can adopt, whole or not at all; reading a few rows for
people, and the bounds of a column from footers.

Spark and Arrow read the files alike: plain types, microseconds, and statistics of every column in their footers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.pipelines.location import Address, Location

GROUP_BYTES = 64 << 20
"""Bytes in memory of the rows of one row group: so much is held, however long the file gets."""

OF_SPARK = {"parquet.statistics.truncate.length": "64"}
"""Options with which Spark writes files of a table: bounds of text are cut (the upper one rounded up). Spark leaves out
all statistics of a column with longer ones than 4 KB, and delta-rs takes NULLs that are not counted for none."""

PAGE_BYTES = 1 << 20
"""The bytes of a column's values in a page; Arrow's own default."""

UNFINISHED_ROWS = ".writing"
"""Suffix of a file that is not whole yet."""

_SAMPLE = 4096
_REPEATED = 2
"""How often the values of a sample must repeat, on average, for a dictionary to pay."""


def python_rows(rows: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """A few rows as Python values. A column of dates or times with a value outside of the years 1 to 9999, which Python
    cannot hold, comes as text."""
    columns = {name: _python_values(rows.column(name)) for name in rows.schema.names}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _python_values(values: pa.Array | pa.ChunkedArray) -> list[Any]:
    try:
        return values.to_pylist()
    except (OverflowError, ValueError):
        if pa.types.is_temporal(values.type):
            return values.cast(pa.string()).to_pylist()
        # It is inside of a STRUCT or an ARRAY, which Arrow writes in lines.
        return [" ".join(str(values.slice(row, 1)).split()) for row in range(len(values))]


def together(batches: Iterable[pa.RecordBatch], most_bytes: int, most_rows: int) -> Iterator[pa.RecordBatch]:
    """The rows of batches, in larger ones: neighbours of one schema, until they have about so many bytes or rows."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if held and batch.schema != held[0].schema:
            yield from _joined(held)
            held, rows, size = [], 0, 0
        if batch.num_rows:
            held.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= most_rows or size >= most_bytes:
            yield from _joined(held)
            held, rows, size = [], 0, 0
    if held:
        yield from _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The rows in one batch; in more where a column of text has more than 2 GB."""
    if len(batches) == 1:
        return batches
    return pa.Table.from_batches(batches).unify_dictionaries().combine_chunks().to_batches()


class BatchWriter:
    """A file that is written batch by batch, all of one schema: `with BatchWriter(path) as file: file.write(batch)`.

    It has a temporary name until it is whole, so nobody reads half of it. Without rows neither the file nor its folder
    is made.
    """

    def __init__(self, path: Address) -> None:
        self.path, self.rows = Location(path), 0
        self._unfinished = self.path.parent / f"_{self.path.name}{UNFINISHED_ROWS}"
        self._writer: pq.ParquetWriter | None = None
        self._held: list[pa.RecordBatch] = []
        self._size = 0

    def __enter__(self) -> Self:
        return self

    def write(self, batch: pa.RecordBatch) -> None:
        """Add a batch. Raises OSError, as the end of the block does."""
        if batch.num_rows:
            self._held.append(batch)
            self._size += batch.nbytes
        if self._size >= GROUP_BYTES:
            self._flush()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._give_up()
            return
        try:
            self._flush()
            if self._writer is not None:
                self._writer.close()
                self._unfinished.move(self.path)
        except BaseException:
            self._give_up()
            raise

    def _flush(self) -> None:
        if not self._held:
            return
        table = pa.Table.from_batches(self._held).unify_dictionaries()
        if self._writer is None:
            self.path.parent.make()
            self._writer = self._unfinished.parquet_writer(
                table.schema,
                version="2.6",
                compression="snappy",
                use_dictionary=_repeating(table),
                write_statistics=bounded(table.schema),
                write_batch_size=_written_at_once(table),
                store_schema=False,
                store_decimal_as_integer=True,
            )
        self._writer.write_table(table, row_group_size=table.num_rows)
        self.rows += table.num_rows
        self._held, self._size = [], 0

    def _give_up(self) -> None:
        try:
            if self._writer is not None:
                self._writer.close()
        except Exception:  # noqa: BLE001 a full disk refuses the footer too: what went wrong first is what is reported
            pass
        finally:
            self._unfinished.delete()


def write_file(path: Address, batches: Iterable[pa.RecordBatch]) -> int:
    """Write `batches`, all of one schema, to `path`; the number of rows."""
    with BatchWriter(path) as file:
        for batch in batches:
            file.write(batch)
    return file.rows


def bounded(schema: pa.Schema) -> bool | list[str]:
    """The columns that get bounds in the footer: not those that may hold NaN, which Arrow leaves out of bounds while
    Spark counts it as the greatest."""
    leaves = [(name, values.type) for name, values in _leaves("", schema.empty_table())]
    known = [name for name, kind in leaves if not pa.types.is_floating(kind)]
    return True if len(known) == len(leaves) else known


def _repeating(table: pa.Table) -> list[str]:
    """The paths of columns whose first values repeat; for other columns a dictionary costs time and makes files
    longer."""
    found: list[str] = []
    for name, values in _leaves("", table.slice(0, _SAMPLE)):
        # Of lists and maps Arrow has no separate values.
        if not pa.types.is_nested(values.type) and len(values.unique()) * _REPEATED <= len(values):
            found.append(name)
    return found


def _written_at_once(table: pa.Table) -> int:
    """How many values are written into a column at once: about a page of the widest column. Arrow's default is 1,024,
    and it computes the bounds of a dictionary text column anew for each such piece."""
    width = max((column.nbytes for _, column in _leaves("", table)), default=0) / max(table.num_rows, 1)
    return min(max(int(PAGE_BYTES / max(width, 1.0)), 1024), 1 << 16)


def _leaves(prefix: str, columns: pa.Table) -> Iterator[tuple[str, pa.ChunkedArray]]:
    for name, column in zip(columns.column_names, columns.columns, strict=True):
        if pa.types.is_struct(column.type):
            inner = pa.Table.from_arrays(column.flatten(), [field.name for field in column.type])
            yield from _leaves(f"{prefix}{name}.", inner)
        else:
            yield f"{prefix}{name}", column


def column_bounds(footer: pq.FileMetaData, column: str) -> tuple[Any, Any] | None:
    """Least and greatest value of a column (a dotted path) without NULLs; None if the footer does not say."""
    found = [statistics_of(footer.row_group(group), column) for group in range(footer.num_row_groups)]
    known = [each for each in found if each is not None and not each.null_count]
    if not known or len(known) < len(found):
        return None
    return min(each.min for each in known), max(each.max for each in known)


def bounds_of(statistics: pq.Statistics) -> tuple[Any, Any] | None:
    """Least and greatest value; None if they are not known, or are dates and times outside of the years 1 to 9999,
    which Python cannot hold."""
    try:
        return (statistics.min, statistics.max) if statistics.has_min_max else None
    except (OverflowError, ValueError):
        return None


def statistics_of(group: pq.RowGroupMetaData, column: str) -> pq.Statistics | None:
    """A row group's statistics of a column (a dotted path); None where they have no bounds."""
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
