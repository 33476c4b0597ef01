"""The values of a piece of rows, all rows in lockstep, column by column: a row is 0x00, which values are NULL, values.

https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_binary_resultset.html
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns.values import FixedValues, Nulls, VariableValues
from tidegate.pipelines.sources.mysql_cdc.binlog.wire.gather import Offsets, rows_at, unsigned_at
from tidegate.pipelines.sources.mysql_cdc.field_types import Type
from tidegate.pipelines.sources.mysql_cdc.snapshot.errors import MalformedRows
from tidegate.pipelines.sources.mysql_cdc.snapshot.packets import Piece
from tidegate.pipelines.sources.mysql_cdc.snapshot.results import WIDTHS, ResultColumn

Values = FixedValues | VariableValues

_FIRST_NULL_BIT = 2
_LONGEST_IN_A_BYTE = 250
_LENGTHS = {0xFC: 2, 0xFD: 3, 0xFE: 8}
"""What stands in the place of a length that needs more than a byte, and how many bytes it then has."""

_SHAPED = frozenset({Type.NULL, Type.TIMESTAMP, Type.DATE, Type.TIME, Type.DATETIME})
"""Values of shapes of their own, which no query of a snapshot asks for."""


def values_of(piece: Piece, columns: Sequence[ResultColumn]) -> list[Values]:
    """The values of each column. Raises MalformedRows where the rows do not end with their last value."""
    nulls_at = piece.starts + 1
    at = nulls_at + (len(columns) + _FIRST_NULL_BIT + 7) // 8
    found: list[Values] = []
    try:
        for number, column in enumerate(columns):
            value, at = _column(piece.data, at, column, _nulls(piece, nulls_at, number + _FIRST_NULL_BIT))
            found.append(value)
    except IndexError as error:
        raise MalformedRows("a value reaches beyond the rows that have been received") from error
    if (at != piece.ends).any():
        raise MalformedRows(f"a row does not end with its last value, of {columns[-1].name}")
    return found


def _nulls(piece: Piece, at: Offsets, bit: int) -> Nulls:
    nulls = np.frombuffer(piece.data, np.uint8)[at + (bit >> 3)] >> (bit & 7) & 1 != 0
    return nulls if nulls.any() else None


def _column(data: bytes, at: Offsets, column: ResultColumn, nulls: Nulls) -> tuple[Values, Offsets]:
    """One column's values, which begin at `at`, and where those of the next one begin. A NULL takes no byte."""
    if column.type in _SHAPED:
        raise MalformedRows(f"column {column.name} comes as {Type(column.type).name}, which was not asked for")
    if column.type in WIDTHS:
        width = WIDTHS[Type(column.type)]
        return FixedValues(rows_at(data, at, width), nulls), at + (width if nulls is None else width * ~nulls)
    lengths = np.frombuffer(data, np.uint8)[at].astype(np.int64)
    starts = at + 1
    if nulls is not None:
        lengths[nulls], starts[nulls] = 0, at[nulls]
    if len(lengths) and lengths.max() > _LONGEST_IN_A_BYTE:
        marks = lengths.copy()
        for mark, width in _LENGTHS.items():
            marked = np.flatnonzero(marks == mark)
            lengths[marked] = unsigned_at(data, at[marked] + 1, width)
            starts[marked] += width
    return VariableValues(data, starts, lengths, nulls), starts + lengths
