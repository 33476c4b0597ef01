"""MySQL's binary JSON as text: documents made by hand after its description, and one that MySQL recorded."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest

from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns.json_binary import decode_json, double_text, json_text
from tidegate.pipelines.sources.mysql_cdc.errors import MalformedEvent


def opaque(kind: int, raw: bytes) -> bytes:
    return bytes([15, kind, len(raw)]) + raw


def packed(whole: int, micros: int = 0) -> bytes:
    return struct.pack("<q", (whole << 24) + micros)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (b"", "null"),
        (b"\x04\x00", "null"),
        (b"\x04\x01", "true"),
        (b"\x04\x02", "false"),
        (b"\x05\xfe\xff", "-2"),
        (b"\x06\xfe\xff", "65534"),
        (b"\x07\xfe\xff\xff\xff", "-2"),
        (b"\x09" + struct.pack("<q", -(2**63)), "-9223372036854775808"),
        (b"\x0a" + struct.pack("<Q", 2**64 - 1), "18446744073709551615"),
        (b"\x0b" + struct.pack("<d", 1.5), "1.5"),
        (b"\x0c\x02hi", '"hi"'),
        (b"\x0c\x06" + b'"\\\n\x01\xc3\xbc', '"\\"\\\\\\n\\u0001ü"'),
        (b"\x0c\xc8\x01" + b"x" * 200, '"' + "x" * 200 + '"'),
        (b"\x02\x00\x00\x04\x00", "[]"),
        (b"\x00\x00\x00\x04\x00", "{}"),
        # [1, "a", null]: small array of three, the string after the entries
        (b"\x02\x03\x00\x0f\x00\x05\x01\x00\x0c\x0d\x00\x04\x00\x00\x01a", '[1, "a", null]'),
        # {"a": 1234}, as MySQL recorded it
        (bytes.fromhex("000100" + "0c00" + "0b000100" + "05d204" + "61"), '{"a": 1234}'),
        # large array of one INT32, inlined
        (b"\x03\x01\x00\x00\x00\x0d\x00\x00\x00\x07\xff\xff\xff\xff", "[-1]"),
        (opaque(246, bytes([14, 4]) + bytes.fromhex("810dfb38d204d2")), "1234567890.1234"),
        (opaque(10, packed((2024 * 13 + 2) << 22 | 29 << 17)), '"2024-02-29"'),
        (
            opaque(12, packed((2024 * 13 + 2) << 22 | 29 << 17 | 23 << 12 | 5 << 6 | 9, 500)),
            '"2024-02-29 23:05:09.000500"',
        ),
        (opaque(11, packed(100 << 12 | 59 << 6 | 1, 7)), '"100:59:01.000007"'),
        (opaque(11, struct.pack("<q", -((1 << 12) << 24))), '"-01:00:00.000000"'),
        (opaque(252, b"\x00\xff"), '"base64:type252:AP8="'),
    ],
)
def test_documents(document: bytes, expected: str) -> None:
    assert json_text(document) == expected


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (-3.14, "-3.14"),
        (0.1, "0.1"),
        (1e14, "100000000000000.0"),
        (1e15, "1e15"),
        (1.5e20, "1.5e20"),
        (1e-5, "0.00001"),
        (1.25e-16, "1.25e-16"),
        (123456789012345.0, "123456789012345.0"),
    ],
)
def test_doubles_are_printed_as_the_server_does(number: float, expected: str) -> None:
    assert double_text(number) == expected


def test_a_column_of_documents() -> None:
    raw = pa.array([b"\x04\x01", None, b"\x04\x01", b"\x05\x07\x00"], pa.binary())
    assert decode_json(raw).to_pylist() == ["true", None, "true", "7"]


@pytest.mark.parametrize("document", [b"\x05\x01", b"\x77", b"\x04\x09", b"\x02\x03\x00", b"\x0c\x02\xff\xff"])
def test_a_broken_document_is_an_error(document: bytes) -> None:
    with pytest.raises(MalformedEvent, match="JSON"):
        json_text(document)
