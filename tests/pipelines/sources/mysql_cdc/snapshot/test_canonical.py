"""Values of a result set in their canonical types; what cannot be of the column is told, never misread."""

from __future__ import annotations

import datetime
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from tests.pipelines.sources.mysql_cdc.snapshot.made import row, sized
from tidegate.pipelines.sources.cdc.errors import MalformedRows, TableChanged
from tidegate.pipelines.sources.mysql_cdc.field_types import Type
from tidegate.pipelines.sources.mysql_cdc.snapshot.canonical import canonical_array
from tidegate.pipelines.sources.mysql_cdc.snapshot.packets import SLACK_BYTES, Piece
from tidegate.pipelines.sources.mysql_cdc.snapshot.results import ResultColumn, values_of
from tidegate.pipelines.sources.mysql_cdc.types import SourceColumn, canonical

TEXT = Type.VAR_STRING


def column(data_type: str, column_type: str = "", **more: Any) -> SourceColumn:
    return SourceColumn("c", data_type, column_type or data_type, **more)


def read(source: SourceColumn, wire: int, values: list[bytes | None], *, unsigned: bool = False) -> Any:
    rows = [row([value]) for value in values]
    ends = np.cumsum([len(each) for each in rows])
    starts = ends - np.array([len(each) for each in rows])
    found = ResultColumn("c", wire, unsigned)
    (read,) = values_of(Piece(b"".join(rows) + bytes(SLACK_BYTES), starts, ends), [found])
    array = canonical_array(read, found, source)
    assert array.type == canonical(source).arrow
    return array.to_pylist()


BIG = column("bigint", "bigint unsigned")


@pytest.mark.parametrize(
    ("source", "wire", "unsigned", "values", "expected"),
    [
        (column("tinyint"), Type.TINY, False, [b"\x80", None], [-128, None]),
        (column("tinyint", "tinyint unsigned"), Type.TINY, True, [b"\xff"], [255]),
        (column("int", "int unsigned"), Type.LONG, True, [b"\xff" * 4], [2**32 - 1]),
        (BIG, Type.LONGLONG, True, [b"\xff" * 8, None], [Decimal(2**64 - 1), None]),
        (column("year"), Type.YEAR, True, [b"\x6b\x08", b"\x00\x00"], [2155, 0]),
        (column("bit", precision=1), Type.LONGLONG, False, [bytes(8), b"\x01" + bytes(7), None], [False, True, None]),
        (column("float"), Type.FLOAT, False, [struct.pack("<f", 0.1)], [struct.unpack("<f", b"\xcd\xcc\xcc\x3d")[0]]),
        (column("decimal", precision=5, scale=2), TEXT, False, [sized(b"-007.50")], [Decimal("-7.50")]),
        (column("date"), Type.LONG, False, [struct.pack("<i", n) for n in (1, -719_162, -719_163)],
         [datetime.date(1970, 1, 2), datetime.date(1, 1, 1), None]),
        (column("datetime"), Type.LONGLONG, False, [struct.pack("<q", 1), struct.pack("<q", -62_135_596_800_000_001)],
         [datetime.datetime(1970, 1, 1, 0, 0, 0, 1), None]),
        (column("timestamp"), Type.LONGLONG, False, [struct.pack("<q", 1), bytes(8)],
         [datetime.datetime(1970, 1, 1, 0, 0, 0, 1, datetime.UTC), None]),
        (column("text"), TEXT, False, [sized("é😀".encode()), sized(b""), None], ["é😀", "", None]),
        (column("blob"), TEXT, False, [sized(b"\xff\x00")], [b"\xff\x00"]),
    ],
)  # fmt: skip
def test_values(source: SourceColumn, wire: int, unsigned: bool, values: list[bytes | None], expected: Any) -> None:
    assert read(source, wire, values, unsigned=unsigned) == expected


@pytest.mark.parametrize(
    ("source", "wire", "unsigned", "value"),
    [
        (column("int"), Type.LONGLONG, False, struct.pack("<q", 2**31)),
        (column("int"), Type.LONG, True, b"\xff" * 4),
        (column("tinyint"), Type.TINY, True, b"\x80"),
        (column("int"), TEXT, False, sized(b"7")),
        (column("text"), Type.LONG, False, bytes(4)),
        (column("float"), Type.DOUBLE, False, bytes(8)),
        (column("decimal", precision=5, scale=2), Type.LONG, False, bytes(4)),
        (column("date"), TEXT, False, sized(b"2024-02-29")),
    ],
)
def test_a_column_that_was_altered_meanwhile(source: SourceColumn, wire: int, unsigned: bool, value: bytes) -> None:
    with pytest.raises(TableChanged, match=f"began: column c was .* and its values come as {Type(wire).name} now"):
        read(source, wire, [value], unsigned=unsigned)


def test_a_wider_type_whose_values_fit_is_read() -> None:
    assert read(column("int"), Type.LONGLONG, [struct.pack("<q", -7), None]) == [-7, None]


def test_a_value_that_is_none_of_its_type() -> None:
    with pytest.raises(MalformedRows, match="column c holds a value that is no text"):
        read(column("text"), TEXT, [sized(b"\xff")])
