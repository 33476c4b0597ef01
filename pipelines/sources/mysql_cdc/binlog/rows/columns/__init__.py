"""Column types of the binlog: one module per family, and here the choice between them.

`decoder_of` compares what the TABLE_MAP says with what the generation knows of the column, so that a column whose
type has changed is an error and never a misread value. A column's layout is how many bytes it takes in a row: a fixed
number, or a length before its bytes. No value is looked at for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from tidegate.pipelines.sources.cdc.errors import FRESH
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns import numbers, temporal, texts
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns.json_binary import decode_json
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns.numbers import (
    DecimalShape,
    decode_decimal,
    decode_wide_decimal,
)
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns.temporal import (
    DATETIME_BYTES,
    TIME_BYTES,
    TIMESTAMP_BYTES,
    fraction_bytes,
)
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns.texts import (
    BINARY_COLLATION,
    decode_text,
    decompress_column,
    to_own_utf8,
    to_utf8,
)
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns.values import VariableValues, binary_rows
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.table_map import BLOBS, MapColumn
from tidegate.pipelines.sources.mysql_cdc.errors import SchemaChanged, UnsupportedEvent
from tidegate.pipelines.sources.mysql_cdc.types import (
    ADDRESSES,
    BYTES,
    GEOMETRIES,
    INTEGERS,
    MAX_DECIMAL_DIGITS,
    TEXTS,
    SourceColumn,
    Type,
)


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
_LENGTH_IN_METADATA = BLOBS | {Type.JSON, Type.GEOMETRY, Type.VECTOR}
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
        return Width(DecimalShape(*column.metadata).width)
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


Collations = Mapping[int, str]
"""The server's collation ids -> the character set of each."""

Decode = Callable[..., pa.Array]
"""Takes FixedValues, or VariableValues where the column has a length; gives the canonical Arrow array."""

_SRID_BYTES = 4

_SAME_TYPE: Mapping[Type, frozenset[str]] = {
    Type.TINY: frozenset({"tinyint"}),
    Type.SHORT: frozenset({"smallint"}),
    Type.INT24: frozenset({"mediumint"}),
    Type.LONG: frozenset({"int"}),
    Type.LONGLONG: frozenset({"bigint"}),
    Type.FLOAT: frozenset({"float"}),
    Type.DOUBLE: frozenset({"double"}),
    Type.YEAR: frozenset({"year"}),
    Type.DATE: frozenset({"date"}),
    Type.NEWDATE: frozenset({"date"}),
    Type.DATETIME2: frozenset({"datetime"}),
    Type.TIMESTAMP2: frozenset({"timestamp"}),
    Type.TIME2: frozenset({"time"}),
    Type.NEWDECIMAL: frozenset({"decimal"}),
    Type.BIT: frozenset({"bit"}),
    Type.ENUM: frozenset({"enum"}),
    Type.SET: frozenset({"set"}),
    Type.JSON: frozenset({"json"}),
    Type.GEOMETRY: GEOMETRIES,
}
"""Type codes that mean one data type, whatever else the column says. The others are strings of some kind."""


def decoder_of(
    column: MapColumn, known: SourceColumn, collations: Collations, table: str, where: object = ""
) -> Decode:
    """What turns the column's bytes into the canonical array of `known`.

    Raises SchemaChanged when the binlog's column cannot be the one that is known.
    """
    kind = column.type
    if kind in _SAME_TYPE:
        fits = known.data_type in _SAME_TYPE[kind] and _same_numbers(column, known)
        decode = _simple_decoder(column, known, collations, where) if fits else None
    else:
        decode = _string_decoder(column, known, collations, table, where)
    if decode is None:
        raise SchemaChanged(
            f"column {known.name} of {table} was {known.column_type} when this generation began;"
            f" here the binlog has it as {kind.name}{' UNSIGNED' if column.unsigned else ''}",
            where=where,
            next_command=FRESH,
        )
    return decode


def exact(decode: Decode) -> Decode:
    """As `decode`, for a column of the key: NULL for what is none of its own. That is a date that does not exist, a
    text whose character set has another code for it, and the error value of an ENUM with a member ''."""
    own = (temporal.decode_date, temporal.decode_datetime, numbers.decode_enum, _decode_text)
    return partial(decode, exact=True) if getattr(decode, "func", decode) in own else decode


def _same_numbers(column: MapColumn, known: SourceColumn) -> bool:
    if known.data_type in INTEGERS:
        return column.unsigned == known.unsigned
    if known.data_type == "decimal":
        return (known.precision, known.scale) == tuple(column.metadata)
    if known.data_type == "bit":
        bits_left, whole_bytes = column.metadata
        return known.precision == 8 * whole_bytes + bits_left
    return True


def _simple_decoder(column: MapColumn, known: SourceColumn, collations: Collations, where: object) -> Decode:
    kind, target = column.type, known.canonical.arrow
    if kind in (Type.TINY, Type.SHORT, Type.INT24, Type.LONG, Type.LONGLONG):
        return partial(numbers.decode_integer, kind=target, unsigned=column.unsigned)
    if kind in (Type.FLOAT, Type.DOUBLE):
        return partial(numbers.decode_float, kind=target)
    if kind == Type.YEAR:
        return partial(numbers.decode_year, kind=target)
    if kind in (Type.DATE, Type.NEWDATE):
        return temporal.decode_date
    if kind == Type.DATETIME2:
        return temporal.decode_datetime
    if kind == Type.TIMESTAMP2:
        return temporal.decode_timestamp
    if kind == Type.TIME2:
        return partial(temporal.decode_time, digits=column.metadata[0])
    if kind == Type.NEWDECIMAL:
        shape = DecimalShape(*column.metadata)
        return partial(decode_decimal if shape.precision <= MAX_DECIMAL_DIGITS else decode_wide_decimal, shape=shape)
    if kind == Type.BIT:
        return numbers.decode_boolean if known.precision == 1 else binary_rows  # the most significant byte first
    if kind in (Type.ENUM, Type.SET):
        charset = _charset(column, known, collations, where)
        members = [decode_text(charset, raw, known.name, where) for raw in column.members]
        decode = numbers.decode_enum if kind == Type.ENUM else numbers.decode_set
        return partial(decode, members=members, column=known.name)
    if kind == Type.JSON:
        return lambda values: decode_json(values.binary())
    return lambda values: values.binary(skip=_SRID_BYTES)


def _string_decoder(
    column: MapColumn, known: SourceColumn, collations: Collations, table: str, where: object
) -> Decode | None:
    """CHAR, VARCHAR, TEXT and their binary kin, and the types that look like BINARY(n)."""
    if known.data_type in ADDRESSES:
        if column.type != Type.STRING or column.max_bytes != texts.WIDTHS[known.data_type]:
            return None
        decode = texts.decode_uuid if known.data_type == "uuid" else texts.decode_address
        width = texts.WIDTHS[known.data_type]
        return lambda values: decode(values.padded(width))
    binary = column.collation == BINARY_COLLATION
    if known.data_type not in (BYTES if binary else TEXTS - {"enum", "set"}):
        return None
    unpack = _unpacked(column)
    if not binary:
        charset = _charset(column, known, collations, where)
        return partial(_decode_text, unpack=unpack, charset=charset, column=f"{known.name} of {table}", where=where)
    if known.data_type == "binary":
        width = column.max_bytes
        return lambda values: _padded_binary(values, width)
    return unpack


def _decode_text(
    values: VariableValues,
    *,
    unpack: Callable[[VariableValues], pa.Array],
    charset: str,
    column: str,
    where: object,
    exact: bool = False,
) -> pa.Array:
    return (to_own_utf8 if exact else to_utf8)(charset, unpack(values), column, where)


def _unpacked(column: MapColumn) -> Callable[[VariableValues], pa.Array]:
    if column.type in (Type.BLOB_COMPRESSED, Type.VARCHAR_COMPRESSED):
        return lambda values: decompress_column(values.binary())
    return lambda values: values.binary()


def _padded_binary(values: VariableValues, width: int) -> pa.Array:
    if values.nulls is None and (values.lengths == width).all():
        return values.binary()
    return binary_rows(values.padded(width))


def _charset(column: MapColumn, known: SourceColumn, collations: Collations, where: object) -> str:
    if column.collation is not None and column.collation in collations:
        return collations[column.collation]
    raise UnsupportedEvent(
        f"column {known.name} has the collation {column.collation}, which the server does not list",
        where=where,
        next_command="SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATIONS   (on the server)",
    )
