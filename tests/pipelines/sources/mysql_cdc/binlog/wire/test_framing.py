"""Whole events out of files and packets, however the bytes are cut."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pipelines.sources.mysql_cdc.binlog.made import Log
from tidegate.pipelines.sources.mysql_cdc.binlog.wire.checksum import all_match, first_mismatch
from tidegate.pipelines.sources.mysql_cdc.binlog.wire.framing import (
    MAGIC,
    MAX_PACKET,
    PacketWalker,
    join_packets,
    read_file,
    split_events,
)
from tidegate.pipelines.sources.mysql_cdc.errors import MalformedEvent


def event(body: bytes) -> bytes:
    return struct.pack("<IBIIIH", 0, 2, 1, 19 + len(body), 0, 0) + body


def packets(payload: bytes) -> bytes:
    """As the protocol cuts a payload: full packets, and one that is not full."""
    out, at, number = b"", 0, 1
    while True:
        part = payload[at : at + MAX_PACKET]
        out += len(part).to_bytes(3, "little") + bytes([number & 255]) + part
        at, number = at + len(part), number + 1
        if len(part) < MAX_PACKET:
            return out


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=20), st.integers(1, 60))
def test_a_file_gives_the_same_events_whatever_the_size_of_its_pieces(
    tmp_path_factory: pytest.TempPathFactory, bodies: list[bytes], piece: int
) -> None:
    path = tmp_path_factory.mktemp("file") / "binlog.000001"
    path.write_bytes(MAGIC + b"".join(event(body) for body in bodies))
    found = [chunk.data[start : start + 19 + len(body)] for chunk, start, body in _with_bodies(path, bodies, piece)]
    assert found == [event(body) for body in bodies]


def _with_bodies(path: Path, bodies: list[bytes], piece: int):
    starts = ((chunk, start) for chunk in read_file(path, piece) for start in chunk.starts.tolist())
    return [(chunk, start, body) for (chunk, start), body in zip(starts, bodies, strict=True)]


def test_a_file_that_ends_inside_an_event_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "binlog.000001"
    path.write_bytes(MAGIC + event(b"whole") + event(b"cut short")[:-1])
    with pytest.raises(MalformedEvent, match=r"27 bytes of it are there") as caught:
        list(read_file(path))
    assert caught.value.where == "binlog.000001:28"


def test_a_file_that_is_no_binlog_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "binlog.000001"
    path.write_bytes(b"PAR1" + event(b""))
    with pytest.raises(MalformedEvent, match="not a binlog file"):
        list(read_file(path))


def test_an_event_shorter_than_its_header_is_an_error() -> None:
    log = Log()
    log.data += struct.pack("<IBIIIH", 0, 2, 1, 18, 0, 0)
    with pytest.raises(MalformedEvent, match="18 bytes long"):
        log.chunk()


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=10), st.data())
def test_packets_give_their_events_as_they_arrive(bodies: list[bytes], data: st.DataObject) -> None:
    end = b"\x05\x00\x00\x09\xfe\x00\x00\x00\x00"
    wire = b"".join(packets(b"\0" + event(body)) for body in bodies) + end
    walker, size = PacketWalker(), 0
    while size < len(wire):
        size = min(len(wire), size + data.draw(st.integers(1, 30)))
        walker.walk(wire, size)
    assert [wire[start : start + 19 + len(body)] for start, body in zip(walker.starts, bodies, strict=True)] == [
        event(body) for body in bodies
    ]
    assert walker.end == end[4:]


@pytest.mark.parametrize("length", [MAX_PACKET - 1, MAX_PACKET, MAX_PACKET + 5, 2 * MAX_PACKET - 1, 2 * MAX_PACKET])
def test_an_event_of_several_packets_is_joined(length: int) -> None:
    whole = event(b"x" * (length - 19))
    wire = packets(b"\0" + whole)
    walker = PacketWalker()
    walker.walk(wire, len(wire))
    assert walker.long_event == len(wire)
    assert walker.at == 0
    assert join_packets(wire) == whole


def _one_by_one(data: bytes) -> tuple[list[int], int]:
    starts, at = [], 0
    while at + 19 <= len(data) and at + (length := int.from_bytes(data[at + 9 : at + 13], "little")) <= len(data):
        starts.append(at)
        at += length
    return starts, at


@pytest.mark.parametrize("body", ["small", "own header inside", "server id inside", "other server"])
def test_many_small_events_are_found_as_one_by_one(body: str) -> None:
    chosen = random.Random(body)
    fake = struct.pack("<IBIIIH", 0, 2, 1, 19, 0, 0)
    parts = []
    for _ in range(9_000):
        inside = {"own header inside": fake * chosen.randint(0, 9), "server id inside": b"\1\0\0\0" * 9}.get(body, b"")
        own = event(inside + chosen.randbytes(chosen.randint(0, 30)))
        other = body == "other server" and chosen.random() < 0.3
        parts.append(own[:5] + b"\2\0\0\0" + own[9:] if other else own)
    data = b"".join(parts)
    for piece in (data, data[:-7], data[: len(data) // 2]):
        starts, at = split_events(piece)
        assert (starts.tolist(), at) == _one_by_one(piece)


def test_an_event_that_is_too_short_is_named_among_many() -> None:
    good = event(b"small") * 6_000
    bad = struct.pack("<IBIIIH", 0, 2, 1, 5, 0, 0)
    with pytest.raises(MalformedEvent, match="an event says it is 5 bytes long") as caught:
        split_events(good + bad + good)
    assert caught.value.where == f"byte {len(good)} of the chunk"


def chain(bodies: list[bytes], gap: int, before: bytes = b"", seed: int = 0) -> tuple[bytearray, list[int], list[int]]:
    """Events with their checksums, `gap` bytes apart: data, starts, ends."""
    data, starts, ends = bytearray(before), [], []
    noise = random.Random(seed)
    for number, body in enumerate(bodies):
        data += noise.randbytes(gap) if number else b""
        starts.append(len(data))
        data += body + crc32(body).to_bytes(4, "little")
        ends.append(len(data))
    return data, starts, ends


@given(
    st.lists(st.binary(max_size=40), min_size=1, max_size=60),
    st.integers(0, 8),
    st.binary(max_size=5),
    st.randoms(use_true_random=False),
)
def test_right_and_wrong(bodies: list[bytes], gap: int, before: bytes, noise: random.Random) -> None:
    data, starts, ends = chain(bodies, gap, before, noise.randrange(1000))
    places = np.array(starts), np.array(ends)
    assert all_match(bytes(data + before), *places) is True
    wrong = noise.randrange(len(starts))
    at = noise.randrange(starts[wrong], ends[wrong])
    data[at] ^= 1 << noise.randrange(8)
    assert all_match(bytes(data), *places) is False
    assert first_mismatch(bytes(data), *places) == wrong


@pytest.mark.parametrize("gap", [0, 5])
def test_long_events_beside_short_ones(gap: int) -> None:
    noise = random.Random(3)
    bodies = [noise.randbytes(noise.choice([19, 60, 5_000, 300_000])) for _ in range(200)]
    data, starts, ends = chain(bodies, gap)
    assert all_match(bytes(data), np.array(starts), np.array(ends)) is True
    assert first_mismatch(bytes(data), np.array(starts), np.array(ends)) is None
    data[starts[150] + 7] ^= 1
    assert first_mismatch(bytes(data), np.array(starts), np.array(ends)) == 150


def test_two_events_that_changed_places_and_two_wrongs_that_are_alike() -> None:
    data, starts, ends = chain([b"a" * 30] * 100, 0)
    for event in (10, 20):
        data[starts[event]] ^= 1
    assert first_mismatch(bytes(data), np.array(starts), np.array(ends)) == 10


@pytest.mark.parametrize("gaps", [[3, 4], [9, 9], [-1, -1]], ids=["uneven", "wide", "overlapping"])
def test_it_says_when_it_can_not_tell(gaps: list[int]) -> None:
    starts = np.array([0, 20 + gaps[0], 40 + sum(gaps)])
    assert all_match(bytes(100), starts, starts + 20) is None
