"""Values of a result set in their canonical types; a value that cannot be of the column is an error, never misread.

Values of rows, in lockstep, against the values that the rows were made of.
"""

from __future__ import annotations

import datetime
import random
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from tests.pipelines.sources.mysql_cdc.snapshot.made import row, sized
from tidegate.pipelines.sources.cdc.errors import MalformedRows, TableChanged
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns.values import FixedValues, VariableValues
from tidegate.pipelines.sources.mysql_cdc.packets import SLACK_BYTES, Piece
from tidegate.pipelines.sources.mysql_cdc.snapshot.results import ResultColumn, Values, canonical_array, values_of
from tidegate.pipelines.sources.mysql_cdc.types import SourceColumn, Type

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
    assert array.type == source.canonical.arrow
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


PLAIN_TEXT = Type.VAR_STRING


def piece_of(rows: list[bytes]) -> Piece:
    lengths = np.array([len(each) for each in rows], np.int64)
    ends = np.cumsum(lengths)
    return Piece(b"".join(rows) + bytes(SLACK_BYTES), ends - lengths, ends)


def shown(values: Values) -> list[bytes | None]:
    if isinstance(values, VariableValues):
        return values.binary().to_pylist()
    assert isinstance(values, FixedValues)
    nulls = np.zeros(len(values.rows), bool) if values.nulls is None else values.nulls
    return [None if null else bytes(each) for each, null in zip(values.rows, nulls, strict=True)]


@pytest.mark.parametrize("seed", range(6))
def test_values_of_all_widths_and_nulls_among_them(seed: int) -> None:
    chance = random.Random(seed)
    kinds = [
        Type.TINY,
        PLAIN_TEXT,
        Type.SHORT,
        Type.LONG,
        PLAIN_TEXT,
        Type.LONGLONG,
        Type.DOUBLE,
        PLAIN_TEXT,
        Type.FLOAT,
        Type.YEAR,
    ] * 2
    widths = {Type.TINY: 1, Type.SHORT: 2, Type.YEAR: 2, Type.LONG: 4, Type.LONGLONG: 8, Type.DOUBLE: 8, Type.FLOAT: 4}
    lengths = (0, 1, 250, 251, 252, 253, 254, 255, 65_535, 65_536, 70_000)
    made: list[list[bytes | None]] = []
    for _ in range(40):
        values = [chance.randbytes(widths[kind] if kind in widths else chance.choice(lengths)) for kind in kinds]
        made.append([None if chance.random() < 0.3 else value for value in values])
    wire = [
        row(
            [
                value if value is None or kind in widths else sized(value)
                for kind, value in zip(kinds, each, strict=True)
            ]
        )
        for each in made
    ]
    columns = [ResultColumn(f"c{number}", kind) for number, kind in enumerate(kinds)]
    found = [shown(values) for values in values_of(piece_of(wire), columns)]
    assert found == [list(column) for column in zip(*made, strict=True)]


def test_a_value_of_16_mb_and_its_length_of_8_bytes() -> None:
    value = bytes(range(256)) * (1 << 16)
    found = values_of(
        piece_of([row([sized(value), b"\x05"])]), [ResultColumn("b", PLAIN_TEXT), ResultColumn("n", Type.TINY)]
    )
    assert [shown(each) for each in found] == [[value], [b"\x05"]]


def test_rows_of_another_shape_are_refused() -> None:
    columns = [ResultColumn("n", Type.LONG), ResultColumn("t", PLAIN_TEXT)]
    good = row([struct.pack("<i", 7), sized(b"abc")])
    assert values_of(piece_of([good]), columns)
    for bad in (good + b"x", good[:-1]):
        with pytest.raises(MalformedRows, match="does not end with its last value"):
            values_of(piece_of([bad, good]), columns)
    with pytest.raises(MalformedRows, match="reaches beyond"):
        values_of(piece_of([row([sized(b"abc")])[:-3] + b"\xfe" + b"\xff" * 7]), [ResultColumn("t", PLAIN_TEXT)] * 3)
    with pytest.raises(MalformedRows, match="comes as DATETIME"):
        values_of(piece_of([row([b"\x00"])]), [ResultColumn("d", Type.DATETIME)])
