"""MySQL's binary JSON as the text that MySQL prints: `{"a": 1, "b": [true, null]}`. MariaDB's JSON is text already.

Format: MySQL `sql-common/json_binary.h`; printing: `sql-common/json_dom.cc`. One Python call per distinct value.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator
from decimal import Decimal

import numpy as np
import pyarrow as pa

from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns.numbers import DecimalShape, decode_wide_decimal
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns.values import FixedValues
from tidegate.pipelines.sources.mysql_cdc.errors import MalformedEvent

_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY = 0, 1, 2, 3
_LITERAL, _STRING, _OPAQUE, _DOUBLE = 4, 12, 15, 11
_NUMBERS = {5: "<h", 6: "<H", 7: "<i", 8: "<I", 9: "<q", 10: "<Q"}
_LITERALS = {0: "null", 1: "true", 2: "false"}
_INLINED = {False: (_LITERAL, 5, 6), True: (_LITERAL, 5, 6, 7, 8)}
_OPAQUE_DECIMAL, _OPAQUE_DATE, _OPAQUE_TIME = (246,), (10,), (11,)
_OPAQUE_DATETIME = (7, 12)


def decode_json(raw: pa.Array) -> pa.Array:
    """The binary array of JSON documents as text."""
    encoded = raw.dictionary_encode()
    return pa.array([json_text(value) for value in encoded.dictionary.to_pylist()], pa.string()).take(encoded.indices)


def json_text(document: bytes) -> str:
    """One document as text. Raises MalformedEvent."""
    if not document:
        return "null"  # what the server reads in a column that was added without a default
    try:
        return "".join(_value(document[0], document, 1))
    except (IndexError, KeyError, struct.error, UnicodeDecodeError) as error:
        raise MalformedEvent(f"a JSON value that cannot be read: {error!r}") from error


def _value(kind: int, data: bytes, at: int) -> Iterator[str]:
    if kind in (_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY):
        yield from _container(kind, data, at)
    elif kind == _LITERAL:
        yield _LITERALS[data[at]]
    elif kind in _NUMBERS:
        yield str(struct.unpack_from(_NUMBERS[kind], data, at)[0])
    elif kind == _DOUBLE:
        yield double_text(struct.unpack_from("<d", data, at)[0])
    elif kind == _STRING:
        size, start = _varlen(data, at)
        yield _quoted(data[start : start + size].decode())
    elif kind == _OPAQUE:
        size, start = _varlen(data, at + 1)
        yield _opaque(data[at], data[start : start + size])
    else:
        raise KeyError(kind)


def _container(kind: int, data: bytes, at: int) -> Iterator[str]:
    large = kind in (_LARGE_OBJECT, _LARGE_ARRAY)
    is_object = kind in (_SMALL_OBJECT, _LARGE_OBJECT)
    number, width = ("<I", 4) if large else ("<H", 2)
    (count,) = struct.unpack_from(number, data, at)
    keys = at + 2 * width
    values = keys + count * (width + 2) * is_object
    yield "{" if is_object else "["
    for index in range(count):
        if index:
            yield ", "
        if is_object:
            entry = keys + index * (width + 2)
            start = at + struct.unpack_from(number, data, entry)[0]
            size = struct.unpack_from("<H", data, entry + width)[0]
            yield _quoted(data[start : start + size].decode()) + ": "
        entry = values + index * (1 + width)
        inner = data[entry]
        place = entry + 1 if inner in _INLINED[large] else at + struct.unpack_from(number, data, entry + 1)[0]
        yield from _value(inner, data, place)
    yield "}" if is_object else "]"


def _varlen(data: bytes, at: int) -> tuple[int, int]:
    """A length of 7 bits a byte, lowest first; and where it ends."""
    size = shift = 0
    while True:
        byte = data[at]
        size |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return size, at


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _opaque(kind: int, raw: bytes) -> str:
    if kind in _OPAQUE_DECIMAL:
        shape = DecimalShape(raw[0], raw[1])
        rows = np.frombuffer(raw[2:], np.uint8).reshape(1, -1)
        return decode_wide_decimal(FixedValues(rows, None), shape)[0].as_py()
    if kind in _OPAQUE_DATE:
        return f'"{_date(_packed(raw) >> 24)}"'
    if kind in _OPAQUE_DATETIME:
        packed = _packed(raw)
        return f'"{_date(packed >> 24)} {_clock(packed >> 24 & 0x1FFFF)}.{packed & 0xFFFFFF:06d}"'
    if kind in _OPAQUE_TIME:
        packed = _packed(raw)
        sign, packed = ("-" if packed < 0 else ""), abs(packed)
        return f'"{sign}{_clock(packed >> 24)}.{packed & 0xFFFFFF:06d}"'
    return f'"base64:type{kind}:{base64.b64encode(raw).decode()}"'


def _packed(raw: bytes) -> int:
    return struct.unpack("<q", raw)[0]


def _date(whole: int) -> str:
    months, day = whole >> 22, whole >> 17 & 31
    return f"{months // 13:04d}-{months % 13:02d}-{day:02d}"


def _clock(whole: int) -> str:
    return f"{whole >> 12 & 1023:02d}:{whole >> 6 & 63:02d}:{whole & 63:02d}"


_MOST_PLAIN_DIGITS = 15


def double_text(number: float) -> str:
    """A double as MySQL prints it in JSON: the shortest digits, plain where the point is near them, else 1.5e20."""
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    if not isinstance(exponent, int):
        raise KeyError(number)  # JSON has neither infinity nor NaN
    text = "".join(map(str, digits))
    point = len(text) + exponent  # where the decimal point stands, counted in digits
    minus = "-" if sign else ""
    if text == "0":
        return minus + "0.0"
    if not 1 - _MOST_PLAIN_DIGITS < point <= _MOST_PLAIN_DIGITS:
        return f"{minus}{text[0]}{'.' + text[1:] if len(text) > 1 else ''}e{point - 1}"
    if point <= 0:
        return f"{minus}0.{'0' * -point}{text}"
    return f"{minus}{text[:point].ljust(point, '0')}.{text[point:] or '0'}"
