"""Values of rows, in lockstep, against the values that the rows were made of."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest

from tests.pipelines.sources.mysql_cdc.snapshot.made import row, sized
from tidegate.pipelines.sources.cdc.errors import MalformedRows
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns.values import FixedValues, VariableValues
from tidegate.pipelines.sources.mysql_cdc.field_types import Type
from tidegate.pipelines.sources.mysql_cdc.snapshot.packets import SLACK_BYTES, Piece
from tidegate.pipelines.sources.mysql_cdc.snapshot.results import ResultColumn, Values, values_of

TEXT = Type.VAR_STRING


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
    kinds = [Type.TINY, TEXT, Type.SHORT, Type.LONG, TEXT, Type.LONGLONG, Type.DOUBLE, TEXT, Type.FLOAT, Type.YEAR] * 2
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
    found = values_of(piece_of([row([sized(value), b"\x05"])]), [ResultColumn("b", TEXT), ResultColumn("n", Type.TINY)])
    assert [shown(each) for each in found] == [[value], [b"\x05"]]


def test_rows_of_another_shape_are_told() -> None:
    columns = [ResultColumn("n", Type.LONG), ResultColumn("t", TEXT)]
    good = row([struct.pack("<i", 7), sized(b"abc")])
    assert values_of(piece_of([good]), columns)
    for bad in (good + b"x", good[:-1]):
        with pytest.raises(MalformedRows, match="does not end with its last value"):
            values_of(piece_of([bad, good]), columns)
    with pytest.raises(MalformedRows, match="reaches beyond"):
        values_of(piece_of([row([sized(b"abc")])[:-3] + b"\xfe" + b"\xff" * 7]), [ResultColumn("t", TEXT)] * 3)
    with pytest.raises(MalformedRows, match="comes as DATETIME"):
        values_of(piece_of([row([b"\x00"])]), [ResultColumn("d", Type.DATETIME)])
