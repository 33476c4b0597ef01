"""Packets of rows and of events, however they arrive."""

from __future__ import annotations

import random
import struct

import pymysql
import pytest

from tests.pipelines.sources.mysql_cdc.snapshot.made import EOF, LONGEST, Socket, packet
from tidegate.pipelines.sources.cdc.errors import MalformedRows
from tidegate.pipelines.sources.mysql_cdc.binlog.events import HEADER_BYTES
from tidegate.pipelines.sources.mysql_cdc.binlog.transport import _receive
from tidegate.pipelines.sources.mysql_cdc.errors import MalformedEvent
from tidegate.pipelines.sources.mysql_cdc.snapshot.results import rows


def rows_of(stream: bytes, *, begun: int = 0, most: int = 1 << 30, piece: int = 1 << 16) -> list[bytes]:
    found = rows(Socket(stream[begun:], most), stream[:begun], piece)
    return [each.data[start:end] for each in found for start, end in zip(each.starts, each.ends, strict=True)]


@pytest.mark.parametrize("seed", range(8))
def test_rows_of_all_lengths_come_whole_and_in_order(seed: int) -> None:
    chance = random.Random(seed)
    made = [b"\x00" + chance.randbytes(chance.choice((0, 1, 7, 300, 70_000, 200_000))) for _ in range(60)]
    stream = b"".join(map(packet, made)) + packet(EOF)
    begun = chance.randrange(len(stream))
    assert rows_of(stream, begun=begun, most=chance.choice((3_000, 1 << 17, 1 << 30))) == made


def test_no_rows() -> None:
    assert rows_of(packet(EOF)) == []
    assert rows_of(packet(EOF), begun=5, most=1) == []


@pytest.mark.parametrize("length", [LONGEST - 1, LONGEST, LONGEST + 1, 2 * LONGEST, 2 * LONGEST + 5])
def test_a_row_of_several_packets_is_joined(length: int) -> None:
    long = b"\x00" + bytes([1 + length % 200]) * (length - 1)
    made = [b"\x00first", long, b"\x00after", b"\x00last"]
    assert rows_of(b"".join(map(packet, made)) + packet(EOF), most=1 << 20) == made


def test_an_error_in_the_middle_comes_after_the_rows_before_it() -> None:
    error = b"\xff\x25\x05#70100Query execution was interrupted"
    found = rows(Socket(packet(b"\x00one") + packet(b"\x00two") + packet(error)), b"")
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


def event(body: bytes) -> bytes:
    return struct.pack("<IBIIIH", 0, 2, 1, HEADER_BYTES + len(body), 0, 0) + body


def events_of(*bodies: bytes) -> list[bytes]:
    """Those of a dump connection, whose packets have these bodies."""
    chunks = _receive(Socket(b"".join(map(packet, bodies)), most=1 << 20), 1 << 16)
    return [chunk.data[at:][: int.from_bytes(chunk.data[at + 9 : at + 13], "little")]
            for chunk in chunks for at in chunk.starts.tolist()]  # fmt: skip


def test_events_of_a_dump_connection_begin_behind_a_zero() -> None:
    made = [event(b"x" * length) for length in (0, 40, 70_000, LONGEST, 7)]
    assert events_of(*(b"\x00" + each for each in made), EOF) == made


def test_what_ends_a_dump_connection_before_its_end_is_an_error() -> None:
    for other in (event(b"")[:-1], b"\x42???"):
        with pytest.raises(MalformedEvent, match="holds no event"):
            events_of(b"\x00" + event(b"good"), b"\x00" + other if len(other) > 4 else other, EOF)
    with pytest.raises(pymysql.err.MySQLError, match="Could not find first log file"):
        events_of(b"\xff\xd4\x04#HY000Could not find first log file")
