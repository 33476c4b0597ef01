"""The rows of a result set, as values in the canonical types of their columns.

Values are what the binlog's decoder gives. `snapshot_expression` (types.py) is what the server was asked for: dates and
times come as whole numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pymysql
from numpy.typing import NDArray
from pymysql.connections import Connection
from pymysql.protocol import FieldDescriptorPacket

from tidegate.pipelines.sources.cdc.changelog import BINARY, BOOLEAN, DATE, INSTANT, LOCAL_TIME, STRING
from tidegate.pipelines.sources.cdc.errors import FRESH, MalformedRows, TableChanged
from tidegate.pipelines.sources.mysql_cdc.binlog.events import Offsets, little_endian, rows_at, unsigned_at
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns.numbers import decode_float, decode_integer
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns.values import (
    FixedValues,
    Nulls,
    VariableValues,
    array_of,
    merged,
)
from tidegate.pipelines.sources.mysql_cdc.packets import EOF, ERROR, Packets, Piece
from tidegate.pipelines.sources.mysql_cdc.types import WHOLE_NUMBERS, SourceColumn, Type

PIECE_BYTES = 2 << 20
"""Of 2, 8 and 32 MB the best: what is decoded at once stays in the processor's cache."""


def rows(sock: Any, begun: bytes, piece_bytes: int = PIECE_BYTES) -> Iterator[Piece]:
    """The rows of a result set, of whose packets `begun` has been received already, up to its end.

    Raises pymysql's errors where the server sends one in the middle, OSError, and MalformedRows for another packet.
    """
    packets = Packets(sock, begun, piece_bytes)
    yield from packets
    last = packets.last
    if last.startswith(ERROR):
        pymysql.err.raise_mysql_exception(last)
    if not last.startswith(EOF) or len(last) >= 9:
        raise MalformedRows(f"a packet of {len(last)} bytes that begins with 0x{last[:1].hex()} is no row")


_PREPARE, _EXECUTE = 0x16, 0x17
_NO_CURSOR, _ONCE = 0, 1
_UNSIGNED = 0x20


WIDTHS = {
    Type.TINY: 1,
    Type.SHORT: 2,
    Type.YEAR: 2,
    Type.INT24: 4,
    Type.LONG: 4,
    Type.LONGLONG: 8,
    Type.FLOAT: 4,
    Type.DOUBLE: 8,
}
"""Bytes of a value. One of a type that is not here comes after its length, or has a shape of its own."""


@dataclass(frozen=True)
class ResultColumn:
    """A column of a result set. `type` is a code of Type, or one that is not known."""

    name: str
    type: int
    unsigned: bool = False


def select(connection: Connection[Any], query: str) -> tuple[Sequence[ResultColumn], Iterator[Piece]]:
    """The columns of `query` and its rows, which must be read to their end, or the connection be cut.

    Raises pymysql's errors and OSError, also while the rows are read.
    """
    # pymysql has no command for this, so its parts are used.
    client: Any = connection
    client._execute_command(_PREPARE, query)
    statement, columns, parameters = struct.unpack_from("<IHH", client._read_packet().get_all_data(), 1)
    for described in (parameters, columns):
        for _ in range(described + 1 if described else 0):
            client._read_packet()
    client._execute_command(_EXECUTE, struct.pack("<IBI", statement, _NO_CURSOR, _ONCE))
    count = client._read_packet().read_length_encoded_integer()
    fields = [client._read_packet(FieldDescriptorPacket) for _ in range(count)]
    client._read_packet()
    found = [ResultColumn(field.name, field.type_code, bool(field.flags & _UNSIGNED)) for field in fields]
    return found, rows(client._sock, _received(client))


def _received(client: Any) -> bytes:
    """What the client's own reader has read ahead."""
    return client._rfile.read(len(client._rfile.peek()))


Values = FixedValues | VariableValues

_FIRST_NULL_BIT = 2
_LONGEST_IN_A_BYTE = 250
_LENGTHS = {0xFC: 2, 0xFD: 3, 0xFE: 8}
"""The byte in the place of a length that needs more than one byte -> how many bytes that length has."""

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


_FIRST_DAY = -719_162
_FIRST_MICROSECOND = _FIRST_DAY * 86_400_000_000
"""0001-01-01. The servers count year 0 as 365 days, the calendar as 366, so year 0 (outside their documented range)
is read as NULL, like a zero date."""


def canonical_array(values: Values, found: ResultColumn, column: SourceColumn) -> pa.Array:
    """`values`, which the server calls `found`, in the canonical type of `column`.

    Raises TableChanged where they cannot be of that column, MalformedRows for bytes that are no value of its type.
    """
    kind = column.canonical
    if isinstance(values, FixedValues) and found.type in WHOLE_NUMBERS:
        return _whole_numbers(values, found, column)
    if isinstance(values, FixedValues):
        if kind.arrow == {Type.FLOAT: pa.float32(), Type.DOUBLE: pa.float64()}.get(Type(found.type)):
            return decode_float(values, kind.arrow)
    elif kind is BINARY or kind is STRING or pa.types.is_decimal(kind.arrow):
        try:
            return values.binary() if kind is BINARY else _of_text(values.binary().cast(pa.string()), kind.arrow)
        except pa.ArrowInvalid as error:
            raise MalformedRows(f"column {column.name} holds a value that is no {column.column_type}") from error
    raise _changed(found, column)


def _of_text(text: pa.Array, kind: pa.DataType) -> pa.Array:
    return text if kind == pa.string() else text.cast(kind)


def _whole_numbers(values: FixedValues, found: ResultColumn, column: SourceColumn) -> pa.Array:
    kind = column.canonical
    numbers: NDArray[np.integer] = little_endian(values.rows, signed=not found.unsigned)  # type: ignore[assignment]
    if kind is BOOLEAN:
        return pa.array(numbers != 0, mask=values.nulls)
    if kind is DATE:
        nulls = merged(values.nulls, numbers < _FIRST_DAY)
        return array_of(kind.arrow, numbers.astype(np.int32), nulls)
    if kind is LOCAL_TIME:
        return array_of(kind.arrow, numbers.astype(np.int64), merged(values.nulls, numbers < _FIRST_MICROSECOND))
    if kind is INSTANT:  # the zero date is 0
        return array_of(kind.arrow, numbers.astype(np.int64), merged(values.nulls, numbers == 0))
    if pa.types.is_decimal(kind.arrow) and found.unsigned and numbers.dtype == np.uint64:
        return decode_integer(values, kind.arrow, unsigned=True)
    if not pa.types.is_integer(kind.arrow):
        raise _changed(found, column)
    wanted = np.dtype(kind.arrow.to_pandas_dtype())
    if not np.can_cast(numbers.dtype, wanted) and _outside(numbers, values.nulls, wanted):
        raise _changed(found, column)
    return array_of(kind.arrow, numbers.astype(wanted), values.nulls)


def _outside(numbers: NDArray[np.generic], nulls: NDArray[np.bool_] | None, kind: np.dtype) -> bool:
    """Whether a number that is not NULL does not fit into `kind`."""
    shown = numbers if nulls is None else numbers[~nulls]
    limits = np.iinfo(kind)
    return len(shown) > 0 and (int(shown.min()) < limits.min or int(shown.max()) > limits.max)


def _changed(found: ResultColumn, column: SourceColumn) -> TableChanged:
    return TableChanged(
        f"the table is not what it was when this snapshot began: column {column.name} was {column.column_type}, and its"
        f" values come as {Type(found.type).name if found.type in set(Type) else f'type {found.type}'} now",
        next_command=FRESH,
    )
