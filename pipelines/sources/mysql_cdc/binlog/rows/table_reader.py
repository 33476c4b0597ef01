"""Reads the row events of one wanted table as one TABLE_MAP describes it: Arrow batches of the table's columns, then
those that every row of a changelog carries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidegate.pipelines.commands import then
from tidegate.pipelines.connectors.spec import SOURCE_COLUMNS
from tidegate.pipelines.sources.arrow_types import SOURCE_TYPES, seq_array
from tidegate.pipelines.sources.cdc.changelog import LOG_EPOCH, LOG_PHASE, SOURCE_FIELDS
from tidegate.pipelines.sources.cdc.errors import FRESH
from tidegate.pipelines.sources.mysql_cdc.binlog.events import (
    FIRST_COMPRESSED,
    HEADER_BYTES,
    KIND_OF,
    VERSION_2,
    Kind,
    Offsets,
    offsets,
    unsigned_at,
)
from tidegate.pipelines.sources.mysql_cdc.binlog.model import WantedTable
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns import Collations, Decode, decoder_of, exact, width_of
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns.values import FixedValues, VariableValues, array_of
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.compression import decompress_rows
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.lockstep import Images, RowLayout, columns_of, locate
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.table_map import POST_HEADER_BYTES, TableMap
from tidegate.pipelines.sources.mysql_cdc.errors import (
    MalformedEvent,
    SchemaChanged,
    UnreadableKey,
    UnsupportedEvent,
    unreadable_key,
)
from tidegate.pipelines.sources.mysql_cdc.names import lowered
from tidegate.pipelines.syntax.types import quoted

SPLIT = "binlog"

CREATE, UPDATE, DELETE, TRUNCATE = 0, 1, 2, 3
_OPS = pa.array(["c", "u", "d", "t"])


def schema_of(table: WantedTable) -> pa.Schema:
    """The Arrow schema of the batches: the table's columns in their canonical types, then SOURCE_COLUMNS."""
    columns = [pa.field(column.name, column.canonical.arrow) for column in table.columns]
    return pa.schema([*columns, *SOURCE_FIELDS])


def spark_schema_of(table: WantedTable) -> str:
    """The same as Spark's DDL."""
    columns = [f"{quoted(column.name)} {column.canonical.spark}" for column in table.columns]
    return ", ".join([*columns, *(f"{name} {kind}" for name, kind in SOURCE_COLUMNS.items())])


def batch_of(
    schema: pa.Schema,
    columns: Sequence[pa.Array],
    *,
    file_number: int,
    ops: NDArray[np.int8],
    positions: Offsets,
    rows: Offsets,
    times: Offsets,
) -> pa.RecordBatch:
    """The table's `columns` and the source columns, as one batch of `schema`. `ops`, `positions` in the file, `rows`
    (numbers in the event) and `times` (microseconds, UTC) are of each row."""
    count = len(ops)
    at, row = array_of(pa.int64(), positions, None), array_of(pa.int32(), rows.astype(np.int32), None)
    source = [
        _OPS.take(pa.array(ops)),
        seq_array(count, phase=LOG_PHASE, log=LOG_EPOCH, file=file_number, position=at, row=row),
        array_of(SOURCE_TYPES["_rowtime"], times, None),
        pa.repeat(SPLIT, count),
        array_of(pa.int64(), offsets(file_number, positions, rows), None),
    ]
    return pa.RecordBatch.from_arrays([*columns, *source], schema=schema)


_LONG_COUNT = 251
_OP_OF_KIND = np.array([CREATE, UPDATE, DELETE], np.int8)
_V2 = np.isin(np.arange(256), sorted(VERSION_2))


@dataclass(frozen=True)
class Rows:
    """The rows of some events: the table's columns, and for each row its op, its event and its image's index there."""

    columns: Sequence[pa.Array]
    ops: NDArray[np.int8]
    event: Offsets
    row: Offsets


class TableReader:
    """Decodes row events of `table`. Raises SchemaChanged when `seen` cannot be the table that is wanted."""

    def __init__(self, table: WantedTable, seen: TableMap, collations: Collations, where: object = "") -> None:
        self.table = table
        self.schema = schema_of(table)
        self._where = where
        self._layout = RowLayout(tuple(width_of(column, str(seen), where) for column in seen.columns))
        ordinals = self._ordinals(seen)
        self._columns: list[tuple[int, Decode] | None] = []
        for known in table.columns:
            ordinal = ordinals.get(lowered(known.name))
            decode = None if ordinal is None else decoder_of(seen.columns[ordinal], known, collations, str(seen), where)
            if decode is not None and known.name in table.primary_key:
                decode = exact(decode)
            self._columns.append(None if ordinal is None or decode is None else (ordinal, decode))
        missing = [name for name in table.primary_key if lowered(name) not in ordinals]
        if missing:
            raise SchemaChanged(
                f"{table} has no column {', '.join(missing)} any more, which is declared as its primary key",
                where=where,
                next_command=FRESH,
            )
        self._key = [ordinals[lowered(name)] for name in table.primary_key]

    def _ordinals(self, seen: TableMap) -> dict[str, int]:
        if any(column.name is None for column in seen.columns):
            raise UnsupportedEvent(
                f"the binlog does not say what the columns of {seen} are called;"
                " on the server: SET GLOBAL binlog_row_metadata = 'FULL'",
                where=self._where,
                next_command=FRESH,
            )
        return {lowered(str(column.name)): ordinal for ordinal, column in enumerate(seen.columns)}

    def read(self, data: bytes, starts: Offsets, ends: Offsets, types: NDArray[np.uint8]) -> Rows | None:
        """The rows of whole row events; `ends` are without checksums. None when no row is left.

        An update gives its row after; one that changes the primary key a delete of the row before and a create of the
        row after.
        """
        data, bodies, ends, kinds = self._bodies(data, starts, ends, types)
        images = locate(data, self._layout, bodies, ends)
        if not len(images):
            return None
        ops = _OP_OF_KIND[kinds[images.event]]
        if (kinds == Kind.UPDATE).any():
            images, ops = self._without_befores(data, images, ops)
        wanted = [column[0] for column in self._columns if column is not None]
        values = columns_of(data, self._layout, images, wanted)
        columns = [
            pa.nulls(len(images), known.canonical.arrow) if column is None else column[1](values[column[0]])
            for known, column in zip(self.table.columns, self._columns, strict=True)
        ]
        for known, values in zip(self.table.columns, columns, strict=True):
            if known.name in self.table.primary_key and values.null_count:
                what, mend = unreadable_key(known)
                raise UnreadableKey(what, next_command=then(mend, FRESH))
            if known.numbered and pc.any(pc.equal(values, pa.scalar(0, values.type))).as_py():  # type: ignore[attr-defined]
                raise SchemaChanged(
                    f"a row of {self.table} has 0 in {known.name}, which has become AUTO_INCREMENT: that gives it"
                    " another number, which the log does not show",
                    next_command=FRESH,
                )
        return Rows(columns, ops, images.event, images.row)

    def _bodies(
        self, data: bytes, starts: Offsets, ends: Offsets, types: NDArray[np.uint8]
    ) -> tuple[bytes, Offsets, Offsets, NDArray[np.int8]]:
        """Where the row images of each event begin and end, in `data` or in a buffer of decompressed ones."""
        kinds = KIND_OF[types]
        at = starts + HEADER_BYTES + POST_HEADER_BYTES
        if _V2[types].any():
            at = at + np.where(_V2[types], unsigned_at(data, at, 2), 0)  # extra data, its length included
        count = len(self._layout.widths)
        long_count = count >= _LONG_COUNT
        if (unsigned_at(data, at + long_count, 1 + long_count) != count).any():
            raise MalformedEvent(f"a row event of {self.table} has not the {count} columns of its table map")
        at = at + (3 if long_count else 1)
        self._require_full_images(np.frombuffer(data, np.uint8), at, kinds == Kind.UPDATE)
        at = at + self._layout.null_bytes * np.where(kinds == Kind.UPDATE, 2, 1)
        compressed = types >= FIRST_COMPRESSED
        if compressed.any():
            parts = [
                decompress_rows(data[start:end]) if packed else data[start:end]
                for start, end, packed in zip(at.tolist(), ends.tolist(), compressed.tolist(), strict=True)
            ]
            ends = np.cumsum([len(part) for part in parts])
            at = ends - np.array([len(part) for part in parts])
            data = b"".join(parts)
        return data, at, ends, kinds

    def _require_full_images(self, octets: NDArray[np.uint8], at: Offsets, updates: NDArray[np.bool_]) -> None:
        """Every column must be present in every image: that is binlog_row_image=FULL."""
        for index in range(self._layout.null_bytes):
            every = self._layout.last_null_mask if index == self._layout.null_bytes - 1 else 0xFF
            after = at[updates] + self._layout.null_bytes
            present = np.concatenate([octets.take(at + index), octets.take(after + index)])
            if ((present & every) != every).any():
                raise UnsupportedEvent(
                    f"row images of {self.table} lack columns; on the server: SET GLOBAL binlog_row_image = 'FULL',"
                    " and no session that sets another",
                    next_command=FRESH,
                )

    def _without_befores(self, data: bytes, images: Images, ops: NDArray[np.int8]) -> tuple[Images, NDArray[np.int8]]:
        """Images without those before an update, but where the update moved the row to another key."""
        updates = np.flatnonzero(ops == UPDATE)
        befores, afters = updates[0::2], updates[1::2]
        if len(befores) != len(afters) or (images.event[befores] != images.event[afters]).any():
            raise MalformedEvent(f"an update event of {self.table} has a row before without a row after")
        keep = np.ones(len(images), bool)
        keep[befores] = False
        moved = self._moved(data, images if len(updates) == len(images) else images.take(updates))
        if moved.any():
            ops = ops.copy()
            ops[befores[moved]] = DELETE
            ops[afters[moved]] = CREATE
            keep[befores[moved]] = True
        return images.take(keep), ops[keep]

    def _moved(self, data: bytes, pairs: Images) -> NDArray[np.bool_]:
        """Which updates changed a byte of the primary key. `pairs`: row before, row after, row before, …"""
        moved = np.zeros(len(pairs) // 2, bool)
        if self._key:
            keys = columns_of(data, self._layout, pairs, self._key)
            for ordinal in self._key:
                moved |= _differ(keys[ordinal])
        return moved


def _differ(pairs: FixedValues | VariableValues) -> NDArray[np.bool_]:
    """Whether each value at an odd place is another than the one before it."""
    if isinstance(pairs, FixedValues):
        differ = (pairs.rows[0::2] != pairs.rows[1::2]).any(axis=1)
    else:
        values = pairs.binary()
        old, new = (
            values.take(pa.array(np.arange(0, len(values), 2))),
            values.take(pa.array(np.arange(1, len(values), 2))),
        )
        differ = pc.fill_null(pc.call_function("not_equal", [old, new]), False).to_numpy(zero_copy_only=False)
    if pairs.nulls is not None:
        # Of a NULL there are no bytes to compare.
        old_null, new_null = pairs.nulls[0::2], pairs.nulls[1::2]
        differ = (differ & ~old_null & ~new_null) | (old_null != new_null)
    return differ
