"""Column families on bytes made by hand: (bytes of the values, what they mean)."""

from __future__ import annotations

import datetime
import ipaddress
import struct
import uuid
from contextlib import suppress
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.cases import at_length
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns import Width, numbers, temporal, width_of
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns.json_binary import decode_json, double_text, json_text
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns.numbers import (
    DecimalShape,
    decode_decimal,
    decode_wide_decimal,
)
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns.texts import (
    _EAST_ASIAN,
    _SINGLE_BYTE,
    SUPPORTED,
    decode_address,
    decode_uuid,
    decompress_column,
    to_own_utf8,
    to_utf8,
)
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns.values import FixedValues, VariableValues, binary_rows
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.table_map import MapColumn
from tidegate.pipelines.sources.mysql_cdc.errors import MalformedEvent, UnsupportedEvent
from tidegate.pipelines.sources.mysql_cdc.server import EmbeddedMariaDb
from tidegate.pipelines.sources.mysql_cdc.types import Type


def fixed(*values: str | bytes | None) -> FixedValues:
    """Values of one width, in hex; None is NULL, whose bytes are noise."""
    raw = [bytes.fromhex(value) if isinstance(value, str) else value for value in values]
    width = len(next(value for value in raw if value is not None))
    rows = np.frombuffer(b"".join(b"\xee" * width if value is None else value for value in raw), np.uint8)
    nulls = np.array([value is None for value in raw])
    return FixedValues(rows.reshape(-1, width), nulls if nulls.any() else None)


def variable(*values: bytes | None, gap: bytes = b"##") -> VariableValues:
    """Values of any length with something between them."""
    data, starts = b"", []
    for value in values:
        data += gap
        starts.append(len(data))
        data += value or b""
    nulls = np.array([value is None for value in values])
    lengths = np.array([len(value or b"") for value in values])
    return VariableValues(data, np.array(starts), lengths, nulls if nulls.any() else None)


@pytest.mark.parametrize(
    ("values", "kind", "unsigned", "expected"),
    [
        (fixed("80", None, "7f"), pa.int8(), False, [-128, None, 127]),
        (fixed("80", "ff"), pa.int16(), True, [128, 255]),
        (fixed("0080", "ff7f"), pa.int16(), False, [-32768, 32767]),
        (fixed("000080", "ffff7f", "ffffff"), pa.int32(), False, [-8388608, 8388607, -1]),
        (fixed("000080", "ffffff"), pa.int32(), True, [8388608, 16777215]),
        (fixed("ffffffff"), pa.int64(), True, [4294967295]),
        (fixed("ffffffffffffffff", None), pa.decimal128(20, 0), True, [Decimal(2**64 - 1), None]),
    ],
)
def test_integers(values: FixedValues, kind: pa.DataType, unsigned: bool, expected: list[object]) -> None:
    assert numbers.decode_integer(values, kind, unsigned=unsigned).to_pylist() == expected


def test_floats_keep_every_bit() -> None:
    raw = fixed("00000080", "0000c07f", None)
    found = numbers.decode_float(raw, pa.float32())
    assert found.null_count == 1
    assert np.frombuffer(found.buffers()[1], np.uint32)[:2].tolist() == [0x80000000, 0x7FC00000]


def test_years() -> None:
    assert numbers.decode_year(fixed("00", "01", "ff", None), pa.int32()).to_pylist() == [0, 1901, 2155, None]


@pytest.mark.parametrize(
    ("shape", "raw", "expected"),
    [
        # The examples of MySQL's own description of decimal2bin.
        (DecimalShape(14, 4), "810dfb38d204d2", "1234567890.1234"),
        (DecimalShape(14, 4), "7ef204c72dfb2d", "-1234567890.1234"),
        (DecimalShape(1, 0), "76", "-9"),
        (DecimalShape(4, 4), "80" + "01", "0.0001"),
        (DecimalShape(18, 9), "8000007b05f5e100", "123.100000000"),
        (DecimalShape(38, 0), "e33b9ac9ff3b9ac9ff3b9ac9ff3b9ac9ff", "9" * 38),
        (DecimalShape(38, 0), "1cc4653600c4653600c4653600c4653600", "-" + "9" * 38),
    ],
)
def test_decimals(shape: DecimalShape, raw: str, expected: str) -> None:
    assert shape.width == len(raw) // 2
    assert decode_decimal(fixed(raw, None), shape).to_pylist() == [Decimal(expected), None]
    assert decode_wide_decimal(fixed(raw, None), shape).to_pylist() == [expected, None]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [("21a00f", datetime.date(2000, 1, 1)), ("000000", None), ("00a00f", None), ("20a00f", None), ("210000", None)],
)
def test_dates(raw: str, expected: datetime.date | None) -> None:
    assert temporal.decode_date(fixed(raw)).to_pylist() == [expected]


@settings(deadline=None)
@given(st.tuples(st.integers(0, 9999), st.integers(0, 12), st.integers(0, 31)))
@example((2023, 2, 29))
@example((2024, 2, 29))
@example((9999, 12, 31))
@example((1900, 2, 29))
def test_dates_that_do_not_exist_are_null_where_values_must_be_exact(parts: tuple[int, int, int]) -> None:
    year, month, day = parts
    try:
        expected = datetime.date(*parts)
    except ValueError:
        expected = None
    packed = (day | month << 5 | year << 9).to_bytes(3, "little").hex()
    assert temporal.decode_date(fixed(packed), exact=True).to_pylist() == [expected]
    moment = ((((year * 13 + month) << 5 | day) << 17) | 1 << 39).to_bytes(5, "big").hex()
    midnight = expected and datetime.datetime.combine(expected, datetime.time())
    assert temporal.decode_datetime(fixed(moment), exact=True).to_pylist() == [midnight]


@settings(deadline=None)
@given(st.dates())
def test_days_are_those_of_the_calendar(day: datetime.date) -> None:
    year, month, number = (np.array([part]) for part in (day.year, day.month, day.day))
    assert temporal.days_since_epoch(year, month, number)[0] == (day - datetime.date(1970, 1, 1)).days


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("9981825080", datetime.datetime(2009, 1, 1, 5, 2)),
        ("998182508001e240", datetime.datetime(2009, 1, 1, 5, 2, 0, 123456)),
        ("99818250804d", datetime.datetime(2009, 1, 1, 5, 2, 0, 770000)),
        ("99818250800d05", datetime.datetime(2009, 1, 1, 5, 2, 0, 333300)),
        ("8000000000", None),
        ("9980000000", None),
    ],
)
def test_datetimes(raw: str, expected: datetime.datetime | None) -> None:
    assert temporal.decode_datetime(fixed(raw)).to_pylist() == [expected]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("00000001", datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC)),
        ("7fffffff0f423f", datetime.datetime(2038, 1, 19, 3, 14, 7, 999999, tzinfo=datetime.UTC)),
        ("ffffffff", datetime.datetime(2106, 2, 7, 6, 28, 15, tzinfo=datetime.UTC)),
        ("00000000", None),
    ],
)
def test_timestamps(raw: str, expected: datetime.datetime | None) -> None:
    assert temporal.decode_timestamp(fixed(raw)).to_pylist() == [expected]


@pytest.mark.parametrize(
    ("raw", "digits", "expected"),
    [
        ("800000", 0, "00:00:00"),
        ("b46efb", 0, "838:59:59"),
        ("4b9105", 0, "-838:59:59"),
        ("7fffffff", 2, "-00:00:00.01"),
        ("7fffff9d", 1, "-00:00:00.9"),
        ("80000063", 2, "00:00:00.99"),
        ("7fffffffffff", 6, "-00:00:00.000001"),
        ("80f00f0003e8", 6, "15:00:15.001000"),
    ],
)
def test_times(raw: str, digits: int, expected: str) -> None:
    assert temporal.decode_time(fixed(raw, None), digits).to_pylist() == [expected, None]


def test_bits() -> None:
    assert numbers.decode_boolean(fixed("01", "00", None)).to_pylist() == [True, False, None]
    assert binary_rows(fixed("0105", None)).to_pylist() == [b"\x01\x05", None]


def test_enums() -> None:
    assert numbers.decode_enum(fixed("00", "01", "03", None), ["a", "b", "ü"], "c").to_pylist() == ["", "a", "ü", None]
    assert numbers.decode_enum(fixed("0201"), [f"m{number}" for number in range(300)], "c").to_pylist() == ["m257"]
    with pytest.raises(MalformedEvent, match="column c holds member 4 of an ENUM of 3"):
        numbers.decode_enum(fixed("04"), ["a", "b", "c"], "c")


def test_sets() -> None:
    members = [f"m{number}" for number in range(64)]
    assert numbers.decode_set(fixed("00", "03", None), ["a", "b"], "c").to_pylist() == ["", "a,b", None]
    assert numbers.decode_set(fixed("0100000000000080"), members, "c").to_pylist() == ["m0,m63"]
    with pytest.raises(MalformedEvent, match="a bit that none of the SET's 2 members has"):
        numbers.decode_set(fixed("04"), ["a", "b"], "c")


@settings(deadline=None)
@given(st.lists(st.none() | st.uuids(), min_size=1).filter(any))
def test_uuids(values: list[uuid.UUID | None]) -> None:
    raw = fixed(*(value and value.bytes for value in values))
    assert decode_uuid(raw).to_pylist() == [value and str(value) for value in values]


def test_addresses() -> None:
    texts = ["0.0.0.0", "255.255.255.255", None, "10.1.2.3"]
    raw = [text and ipaddress.ip_address(text).packed for text in texts]
    assert decode_address(fixed(*raw)).to_pylist() == texts
    texts = ["::", "::1", None, "2001:db8::1", "::ffff:1.2.3.4"]
    raw = [text and ipaddress.ip_address(text).packed for text in texts]
    assert decode_address(fixed(*raw)).to_pylist() == texts


@settings(deadline=None)
@given(st.lists(st.none() | st.binary(max_size=9)), st.sampled_from([b"", b"##"]))
def test_values_of_any_length_are_copied_out(values: list[bytes | None], gap: bytes) -> None:
    found = variable(*values, gap=gap)
    assert found.binary().to_pylist() == values
    assert found.binary(skip=4).to_pylist() == [value if value is None else value[4:] for value in values]
    if values:
        padded = found.padded(9).rows.tobytes()
        assert padded == b"".join((value or b"").ljust(9, b"\0") for value in values)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [(b"", b""), (b"\x00plain", b"plain"), (bytes.fromhex("8a01f44b4a1a05230d0000"), b"b" * 500)],
)
def test_compressed_columns(raw: bytes, expected: bytes) -> None:
    assert decompress_column(pa.array([raw, None], pa.binary())).to_pylist() == [expected, None]


@pytest.mark.parametrize("raw", [b"\x90\x01x", b"\x81\x05\x78\x9c\x00", bytes.fromhex("8a01f54b4a1a05230d0000")])
def test_a_compressed_column_that_is_broken_is_an_error(raw: bytes) -> None:
    with pytest.raises(MalformedEvent):
        decompress_column(pa.array([raw], pa.binary()))


def test_fixed_and_variable_widths() -> None:
    assert width_of(MapColumn(Type.BIT, b"\x03\x01"), "d.t") == Width(2)
    assert width_of(MapColumn(Type.TIME2, b"\x05"), "d.t") == Width(6)
    assert width_of(MapColumn(Type.NEWDECIMAL, bytes([65, 30])), "d.t") == Width(30)
    assert width_of(MapColumn(Type.SET, b"\xf8\x08"), "d.t") == Width(8)
    assert width_of(MapColumn(Type.BLOB, b"\x03"), "d.t") == Width(length_bytes=3)
    assert width_of(MapColumn(Type.VARCHAR, b"\xff\x00"), "d.t") == Width(length_bytes=1)
    assert width_of(MapColumn(Type.VARCHAR, b"\x00\x01"), "d.t") == Width(length_bytes=2)
    assert width_of(MapColumn(Type.STRING, b"\xee\xfe"), "d.t") == Width(length_bytes=2)  # CHAR of 510 bytes


@pytest.mark.parametrize("kind", [Type.TIME, Type.DATETIME, Type.TIMESTAMP, Type.DECIMAL])
def test_formats_before_mysql_5_6_are_refused_with_the_fix(kind: Type) -> None:
    with pytest.raises(UnsupportedEvent) as caught:
        width_of(MapColumn(kind, b"", "old"), "d.t", "binlog.000001:4")
    assert "column old of d.t" in caught.value.what
    assert caught.value.next_command.startswith("ALTER TABLE d.t FORCE")


def convert(server: EmbeddedMariaDb, charset: str, codes: list[bytes]) -> list[str]:
    """What the server makes of each of `codes`."""
    parts = ", ".join(f"CONVERT(CONVERT(_binary x'{code.hex()}' USING {charset}) USING utf8mb4)" for code in codes)
    return list(server.execute(f"SELECT {parts}")[0])


@pytest.mark.parametrize("charset", sorted(_SINGLE_BYTE))
def test_every_byte_of_a_single_byte_set(mariadb: EmbeddedMariaDb, charset: str) -> None:
    codes = [bytes([byte]) for byte in range(256)]
    assert to_utf8(charset, pa.array(codes, pa.binary()), "c").to_pylist() == convert(mariadb, charset, codes)


@pytest.mark.parametrize("charset", sorted(_EAST_ASIAN))
def test_every_two_byte_code_of_an_east_asian_set(mariadb: EmbeddedMariaDb, charset: str) -> None:
    words = mariadb.execute(
        f"SELECT seq, CONVERT(CONVERT(UNHEX(HEX(seq)) USING {charset}) USING utf8mb4) FROM seq_33088_to_65279",
        database="mysql",
    )
    known = [(int(code).to_bytes(2, "big"), word) for code, word in words if word and len(word) == 1 and word != "?"]
    assert len(known) > 5_000
    raw = pa.array([code for code, _ in known], pa.binary())
    assert to_utf8(charset, raw, "c").to_pylist() == [word for _, word in known]


def written_again(server: EmbeddedMariaDb, charset: str, codes: str, size: int) -> dict[bytes, bool]:
    """Of each of a sequence of numbers, as a code: whether the server writes its character with this code."""
    raw = f"UNHEX(LPAD(HEX(seq), {2 * size}, '0'))"
    again = f"CONVERT(CONVERT(CONVERT({raw} USING {charset}) USING utf8mb4) USING {charset})"
    found = server.execute(f"SELECT {raw}, HEX({again}) = HEX({raw}) FROM {codes}", database="mysql")
    return {bytes(code): bool(same) for code, same in found}


@pytest.mark.parametrize("charset", sorted(_SINGLE_BYTE))
def test_a_byte_is_own_where_the_server_writes_its_character_so(mariadb: EmbeddedMariaDb, charset: str) -> None:
    found = written_again(mariadb, charset, "seq_0_to_255", 1)
    texts = to_own_utf8(charset, pa.array(list(found), pa.binary()), "c").to_pylist()
    assert [text is not None for text in texts] == list(found.values())
    words = pa.array([b"a" + code + b"b" for code in found] + [None, b""], pa.binary())
    assert [text is not None for text in to_own_utf8(charset, words, "c").to_pylist()] == [*found.values(), False, True]


@pytest.mark.parametrize("charset", at_length(["cp932", *sorted({*_EAST_ASIAN} - {"cp932"})]))
def test_a_code_is_own_where_the_server_writes_its_character_so(mariadb: EmbeddedMariaDb, charset: str) -> None:
    differ = []
    for code, same in written_again(mariadb, charset, "seq_33088_to_65279", 2).items():
        with suppress(UnsupportedEvent):
            if (to_own_utf8(charset, pa.array([code], pa.binary()), "c")[0].as_py() is not None) is not same:
                differ.append(code.hex())
    assert differ == []


@pytest.mark.parametrize("charset", ["ucs2", "utf16", "utf16le", "utf32", "utf8mb4", "latin1", "gbk"])
def test_values_keep_their_borders_and_nulls(charset: str) -> None:
    texts = ["", "a", None, "über", "" if charset in ("ucs2", "latin1", "gbk") else "a😀b", "é" * 300]
    codec = {"ucs2": "utf-16-be", "utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be"}
    raw = pa.array(
        [text and text.encode(codec.get(charset, "utf-8" if charset == "utf8mb4" else charset)) for text in texts],
        pa.binary(),
    )
    assert to_utf8(charset, raw, "c").to_pylist() == texts
    assert to_utf8(charset, raw[2:5], "c").to_pylist() == texts[2:5]


def test_a_value_that_is_not_text_is_an_error() -> None:
    with pytest.raises(UnsupportedEvent, match="column c holds a value that is not text in utf8mb4"):
        to_utf8("utf8mb4", pa.array([b"\xff"]), "c", "binlog.000001:4")


def test_a_set_that_is_not_supported_is_named_with_the_fix(mariadb: EmbeddedMariaDb) -> None:
    every = {name for (name,) in mariadb.execute("SELECT CHARACTER_SET_NAME FROM information_schema.CHARACTER_SETS")}
    missing = every - SUPPORTED - {"binary"}
    assert missing == {"armscii8", "big5", "dec8", "eucjpms", "geostd8", "keybcs2", "swe7", "ujis"}
    for charset in missing:
        with pytest.raises(UnsupportedEvent) as caught:
            to_utf8(charset, pa.array([b"a"]), "c")
        assert "CONVERT TO CHARACTER SET utf8mb4" in caught.value.next_command


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
