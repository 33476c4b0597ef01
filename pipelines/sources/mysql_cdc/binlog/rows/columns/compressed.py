"""COMPRESSED columns of MariaDB (VARCHAR(…) COMPRESSED, TEXT COMPRESSED): one Python call per value.

Format: MariaDB `sql/field.cc`, Field_longstr::compress: a byte that is 0 before plain bytes; else it has the method in
its upper four bits (8: zlib), then a bit for raw deflate, then the size of the original length that follows.
"""

from __future__ import annotations

import zlib

import pyarrow as pa

from tidegate.pipelines.sources.mysql_cdc.errors import MalformedEvent

_ZLIB = 8
_RAW_DEFLATE = 0x08
_LENGTH_BYTES = 0x07


def decompress_column(raw: pa.Array) -> pa.Array:
    """The binary array of stored values as the values themselves."""
    return pa.array([None if value is None else _decompress(value) for value in raw.to_pylist()], pa.binary())


def _decompress(value: bytes) -> bytes:
    if not value or value[0] == 0:
        return value[1:]
    head = value[0]
    if head >> 4 != _ZLIB:
        raise MalformedEvent(f"a COMPRESSED column's value begins with {head:#04x}, which names no known method")
    start = 1 + (head & _LENGTH_BYTES)
    length = int.from_bytes(value[1:start], "big")
    try:
        plain = zlib.decompress(value[start:], -zlib.MAX_WBITS if head & _RAW_DEFLATE else zlib.MAX_WBITS)
    except zlib.error as error:
        raise MalformedEvent(f"a COMPRESSED column's value cannot be decompressed: {error}") from error
    if len(plain) != length:
        raise MalformedEvent(f"a COMPRESSED column's value has {len(plain)} bytes where {length} were said")
    return plain
