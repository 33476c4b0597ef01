"""Rows of the binlog as Arrow batches: the table's columns, then those that every row of a changelog carries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidegate.pipelines.connectors.spec import SOURCE_COLUMNS
from tidegate.pipelines.sources.cdc.changelog import ARROW, LOG_PHASE, SEQ, SOURCE_FIELDS
from tidegate.pipelines.sources.mysql_cdc.binlog.model import WantedTable
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns.values import array_of
from tidegate.pipelines.sources.mysql_cdc.binlog.wire.events import offsets
from tidegate.pipelines.sources.mysql_cdc.binlog.wire.gather import Offsets
from tidegate.pipelines.sources.mysql_cdc.types import quote

SPLIT = "binlog"

CREATE, UPDATE, DELETE, TRUNCATE = 0, 1, 2, 3
_OPS = pa.array(["c", "u", "d", "t"])


def schema_of(table: WantedTable) -> pa.Schema:
    """The Arrow schema of the batches: the table's columns in their canonical types, then SOURCE_COLUMNS."""
    columns = [pa.field(column.name, column.canonical.arrow) for column in table.columns]
    return pa.schema([*columns, *SOURCE_FIELDS])


def spark_schema_of(table: WantedTable) -> str:
    """The same as Spark's DDL."""
    columns = [f"{quote(column.name)} {column.canonical.spark}" for column in table.columns]
    return ", ".join([*columns, *(f"{name} {kind}" for name, kind in SOURCE_COLUMNS.items())])


@dataclass(frozen=True)
class Origin:
    """Where rows come from: one entry per row but for the file. `times` are microseconds, UTC."""

    log: int
    file_number: int
    ops: NDArray[np.int8]
    positions: Offsets
    rows: Offsets
    times: Offsets


def batch_of(schema: pa.Schema, columns: Sequence[pa.Array], origin: Origin) -> pa.RecordBatch:
    """The table's `columns` and the source columns of `origin`, as one batch of `schema`."""
    count = len(origin.ops)
    seq = pa.StructArray.from_arrays(
        [
            array_of(pa.int32(), np.full(count, LOG_PHASE, np.int32), None),
            array_of(pa.int32(), np.full(count, origin.log, np.int32), None),
            array_of(pa.int64(), np.full(count, origin.file_number, np.int64), None),
            array_of(pa.int64(), origin.positions, None),
            array_of(pa.int32(), origin.rows.astype(np.int32), None),
        ],
        fields=list(SEQ),
    )
    source = [
        _OPS.take(pa.array(origin.ops)),
        seq,
        array_of(ARROW["_rowtime"], origin.times, None),
        pa.repeat(SPLIT, count),
        array_of(pa.int64(), offsets(origin.file_number, origin.positions, origin.rows), None),
    ]
    return pa.RecordBatch.from_arrays([*columns, *source], schema=schema)
