"""Rows are found in the packets that they come in, however the network cuts them."""

from __future__ import annotations

import random

import pymysql
import pytest

from tests.pipelines.sources.mysql_cdc.snapshot.made import EOF, LONGEST, Socket, packet
from tidegate.pipelines.sources.cdc.errors import MalformedRows
from tidegate.pipelines.sources.mysql_cdc.snapshot.results import pieces


def rows_of(stream: bytes, *, begun: int = 0, most: int = 1 << 30, piece: int = 1 << 16) -> list[bytes]:
    found = pieces(Socket(stream[begun:], most), stream[:begun], piece)
    return [each.data[start:end] for each in found for start, end in zip(each.starts, each.ends, strict=True)]


@pytest.mark.parametrize("seed", range(8))
def test_rows_of_all_lengths_come_whole_and_in_order(seed: int) -> None:
    chance = random.Random(seed)
    rows = [b"\x00" + chance.randbytes(chance.choice((0, 1, 7, 300, 70_000, 200_000))) for _ in range(60)]
    stream = b"".join(map(packet, rows)) + packet(EOF)
    begun = chance.randrange(len(stream))
    assert rows_of(stream, begun=begun, most=chance.choice((3_000, 1 << 17, 1 << 30))) == rows


def test_no_rows() -> None:
    assert rows_of(packet(EOF)) == []
    assert rows_of(packet(EOF), begun=5, most=1) == []


@pytest.mark.parametrize("length", [LONGEST - 1, LONGEST, LONGEST + 1, 2 * LONGEST, 2 * LONGEST + 5])
def test_a_row_of_several_packets_is_joined(length: int) -> None:
    long = b"\x00" + bytes([1 + length % 200]) * (length - 1)
    rows = [b"\x00first", long, b"\x00after", b"\x00last"]
    assert rows_of(b"".join(map(packet, rows)) + packet(EOF), most=1 << 20) == rows


def test_an_error_in_the_middle_comes_after_the_rows_before_it() -> None:
    error = b"\xff\x25\x05#70100Query execution was interrupted"
    found = pieces(Socket(packet(b"\x00one") + packet(b"\x00two") + packet(error)), b"")
    first = next(found)
    assert [first.data[start:end] for start, end in zip(first.starts, first.ends, strict=True)] == [
        b"\x00one",
        b"\x00two",
    ]
    with pytest.raises(pymysql.err.OperationalError, match="interrupted") as failed:
        next(found)
    assert failed.value.args[0] == 1317


def test_a_connection_that_ends_is_no_end_of_the_rows() -> None:
    with pytest.raises(ConnectionResetError):
        rows_of(packet(b"\x00one"))
    with pytest.raises(ConnectionResetError):
        rows_of(packet(b"\x00" + bytes(LONGEST))[:-1])


def test_a_packet_that_is_no_row() -> None:
    with pytest.raises(MalformedRows, match="begins with 0x42"):
        rows_of(packet(b"\x42???"))
