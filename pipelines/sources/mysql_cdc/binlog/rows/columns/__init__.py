"""Column types of the binlog: one module per family, and here the choice between them.

`decoder_of` goes by what the TABLE_MAP says, each for itself: type, sign, character set, members. Its values are then
those of the column as it is followed, or an error that names it. A column's layout is how many bytes it takes in a row:
a fixed number, or a length before its bytes. No value is looked at for it.
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
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns.values import FixedValues, VariableValues, binary_rows
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.table_map import BLOBS, ENUM_OR_SET, MapColumn
from tidegate.pipelines.sources.mysql_cdc.errors import SchemaChanged, UnsupportedEvent
from tidegate.pipelines.sources.mysql_cdc.types import (
    ADDRESSES,
    MAX_DECIMAL_DIGITS,
    SourceColumn,
    Type,
    canonical_integer,
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

_NAMES = {
    Type.TINY: "tinyint",
    Type.SHORT: "smallint",
    Type.INT24: "mediumint",
    Type.LONG: "int",
    Type.LONGLONG: "bigint",
}


def decoder_of(
    column: MapColumn, known: SourceColumn, collations: Collations, table: str, where: object = ""
) -> Decode:
    """What turns the column's bytes into the canonical array of `known`, whatever number type they are of.

    Raises SchemaChanged when the binlog's column cannot be the one that is known; so does what is returned, for a value
    that does not fit.
    """
    decode, kind = _decoder(column, known, collations, table, where)
    wanted = known.canonical.arrow
    if kind == wanted:
        return decode
    if not (_is_exact_number(kind) and _is_exact_number(wanted)):
        raise _changed(column, known, table, where)

    def cast(values: FixedValues) -> pa.Array:
        try:
            return decode(values).cast(wanted)
        except pa.ArrowInvalid as error:
            raise _changed(column, known, table, "") from error

    return cast


def _is_exact_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_decimal(kind)


def _changed(column: MapColumn, known: SourceColumn, table: str, where: object) -> SchemaChanged:
    return SchemaChanged(
        f"column {known.name} of {table} is followed as {known.column_type};"
        f" here the binlog has it as {column.type.name}{' UNSIGNED' if column.unsigned else ''}",
        where=where,
        next_command=FRESH,
    )


def exact(decode: Decode) -> Decode:
    """As `decode`, for a column of the key: NULL for what is none of its own. That is a date that does not exist, a
    text whose character set has another code for it, and the error value of an ENUM with a member ''."""
    own = (temporal.decode_date, temporal.decode_datetime, numbers.decode_enum, _decode_text)
    return partial(decode, exact=True) if getattr(decode, "func", decode) in own else decode


def _decoder(
    column: MapColumn, known: SourceColumn, collations: Collations, table: str, where: object
) -> tuple[Decode, pa.DataType]:
    """What turns the column's bytes into an Arrow array, and the array's type."""
    kind = column.type
    if kind in _NAMES:
        target = canonical_integer(_NAMES[kind], unsigned=column.unsigned).arrow
        return partial(numbers.decode_integer, kind=target, unsigned=column.unsigned), target
    if kind in (Type.FLOAT, Type.DOUBLE):
        target = pa.float32() if kind == Type.FLOAT else pa.float64()
        return partial(numbers.decode_float, kind=target), target
    if kind == Type.YEAR:
        return partial(numbers.decode_year, kind=pa.int32()), pa.int32()
    if kind in (Type.DATE, Type.NEWDATE):
        return temporal.decode_date, pa.date32()
    if kind == Type.DATETIME2:
        return temporal.decode_datetime, pa.timestamp("us")
    if kind == Type.TIMESTAMP2:
        return temporal.decode_timestamp, pa.timestamp("us", "UTC")
    if kind == Type.TIME2:
        return partial(temporal.decode_time, digits=column.metadata[0]), pa.string()
    if kind == Type.NEWDECIMAL:
        shape = DecimalShape(*column.metadata)
        if shape.precision > MAX_DECIMAL_DIGITS:
            return partial(decode_wide_decimal, shape=shape), pa.string()
        return partial(decode_decimal, shape=shape), pa.decimal128(shape.precision, shape.scale)
    if kind == Type.BIT:  # the most significant byte first
        one = tuple(column.metadata) == (1, 0)
        return (numbers.decode_boolean, pa.bool_()) if one else (binary_rows, pa.binary())
    if kind in ENUM_OR_SET:
        charset = _charset(column, known, collations, where)
        members = [decode_text(charset, raw, known.name, where) for raw in column.members]
        decode = numbers.decode_enum if kind == Type.ENUM else numbers.decode_set
        return partial(decode, members=members, column=known.name), pa.string()
    if kind == Type.JSON:
        return lambda values: decode_json(values.binary()), pa.string()
    if kind == Type.GEOMETRY:
        return lambda values: values.binary(skip=_SRID_BYTES), pa.binary()
    return _string_decoder(column, known, collations, table, where)


def _string_decoder(
    column: MapColumn, known: SourceColumn, collations: Collations, table: str, where: object
) -> tuple[Decode, pa.DataType]:
    """CHAR, VARCHAR, TEXT and their binary kin, and the types that look like BINARY(n)."""
    fixed = column.type == Type.STRING
    if column.collation != BINARY_COLLATION:
        charset, name = _charset(column, known, collations, where), f"{known.name} of {table}"
        decode = partial(_decode_text, unpack=_unpacked(column), charset=charset, column=name, where=where)
        return decode, pa.string()
    if fixed and known.data_type in ADDRESSES and column.max_bytes == texts.WIDTHS[known.data_type]:
        width = column.max_bytes
        address = texts.decode_uuid if known.data_type == "uuid" else texts.decode_address
        return lambda values: address(values.padded(width)), pa.string()
    if fixed:
        width = column.max_bytes
        return lambda values: _padded_binary(values, width), pa.binary()
    return _unpacked(column), pa.binary()


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
