"""How many bytes a column takes in a row: a fixed number, or a length before its bytes. No value is looked at."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns.numbers import DecimalShape
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns.temporal import (
    DATETIME_BYTES,
    TIME_BYTES,
    TIMESTAMP_BYTES,
    fraction_bytes,
)
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.table_map import MapColumn
from tidegate.pipelines.sources.mysql_cdc.errors import UnsupportedEvent
from tidegate.pipelines.sources.mysql_cdc.types import Type


@dataclass(frozen=True)
class Width:
    """`fixed` bytes, or, where `length_bytes` is not 0, as many as a little-endian length of that size says."""

    fixed: int = 0
    length_bytes: int = 0


_PLAIN = {
    Type.TINY: 1,
    Type.SHORT: 2,
    Type.INT24: 3,
    Type.LONG: 4,
    Type.LONGLONG: 8,
    Type.FLOAT: 4,
    Type.DOUBLE: 8,
    Type.YEAR: 1,
    Type.DATE: 3,
    Type.NEWDATE: 3,
    Type.NULL: 0,
}
_WITH_FRACTION = {
    Type.TIMESTAMP2: TIMESTAMP_BYTES,
    Type.DATETIME2: DATETIME_BYTES,
    Type.TIME2: TIME_BYTES,
}
_LENGTH_IN_METADATA = frozenset(
    {
        Type.BLOB,
        Type.TINY_BLOB,
        Type.MEDIUM_BLOB,
        Type.LONG_BLOB,
        Type.BLOB_COMPRESSED,
        Type.JSON,
        Type.GEOMETRY,
        Type.VECTOR,
    }
)
_SHORT_STRING = 255
_OLD = {Type.TIMESTAMP: "TIMESTAMP", Type.TIME: "TIME", Type.DATETIME: "DATETIME", Type.DECIMAL: "DECIMAL"}


def width_of(column: MapColumn, table: str, where: object = "") -> Width:
    """The width of `column`. Raises UnsupportedEvent for the storage formats of servers before MySQL 5.6."""
    kind = column.type
    if kind in _PLAIN:
        return Width(_PLAIN[kind])
    if kind in _WITH_FRACTION:
        return Width(_WITH_FRACTION[kind] + fraction_bytes(column.metadata[0]))
    if kind == Type.NEWDECIMAL:
        return Width(decimal_shape(column).width)
    if kind == Type.BIT:
        bits, whole_bytes = column.metadata
        return Width(whole_bytes + (bits > 0))
    if kind in (Type.ENUM, Type.SET):
        return Width(column.metadata[1])
    if kind in _LENGTH_IN_METADATA:
        return Width(length_bytes=column.metadata[0])
    if kind in _OLD:
        # Their metadata does not say how many bytes a fraction takes, so guessing would misread all columns after.
        raise UnsupportedEvent(
            f"column {column.name or '?'} of {table} is stored in the {_OLD[kind]} format of servers before MySQL 5.6",
            where=where,
            next_command=f"ALTER TABLE {table} FORCE   (on the server: rewrites it in today's format)",
        )
    return Width(length_bytes=1 if column.max_bytes <= _SHORT_STRING else 2)


def decimal_shape(column: MapColumn) -> DecimalShape:
    """Precision and scale of a DECIMAL column."""
    return DecimalShape(column.metadata[0], column.metadata[1])
