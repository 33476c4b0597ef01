"""Which records have a number that is too long: those of another library have none, whatever bytes their text has."""

from __future__ import annotations

import random

import pyarrow as pa

from tests.pipelines.sources.formats.format_tables import wanted
from tests.pipelines.sources.formats.test_avro import COLUMNS, message_of, row_of
from tidegate.pipelines.sources.formats.avro import schema
from tidegate.pipelines.sources.formats.avro_numbers import TooLong


def test_what_a_writer_makes_has_none() -> None:
    dice = random.Random(13)
    written = [message_of(row_of(dice)) + b"the mark" for _ in range(500)]
    found = TooLong(schema(wanted(COLUMNS).columns, 8))(pa.array(written, pa.binary()))
    assert found.to_pylist() == [False] * len(written)


def test_each_place_of_a_number() -> None:
    too_long = TooLong(schema(wanted("a ARRAY<BIGINT NOT NULL> NOT NULL, s STRING NOT NULL").columns, 1))
    zero, more = b"\x80" * 9 + b"\0", b"\x80" * 9 + b"\2"
    # The count of a block, an element, the end, the length of a text.
    whole = [b"\2", b"\4", b"\0", b"\0", b"!"]
    assert too_long(pa.array([b"".join(whole), None])).to_pylist() == [False, None]
    for place in range(4):
        for number, found in ((zero, False), (more, True)):
            parts = list(whole)
            parts[place] = bytes([number[0] | parts[place][0], *number[1:]])
            assert too_long(pa.array([b"".join(parts)])).to_pylist() == [found], (place, found)


def test_nulls_alone() -> None:
    assert TooLong("{}")(pa.nulls(3, pa.binary())).to_pylist() == [None] * 3
