"""Finds whole events: in a piece of a binlog file, and in the packets of a dump connection.

A chunk is one buffer and where its whole events start. Nothing is copied but events of 16 MB and more, whose packets
have to be joined.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import numpy as np

from tidegate.pipelines.sources.mysql_cdc.binlog.model import FIRST_POSITION
from tidegate.pipelines.sources.mysql_cdc.binlog.wire.events import HEADER_BYTES, LENGTH_AT, SERVER_ID_AT, Offsets
from tidegate.pipelines.sources.mysql_cdc.errors import MalformedEvent

CHUNK_BYTES = 8 << 20
"""Measured best of 1, 8 and 32 MB: enough events to decode at once, small enough for the processor's cache."""

MAGIC = b"\xfebin"
PACKET_HEADER_BYTES = 4
MAX_PACKET = 0xFFFFFF
OK, EOF, ERROR = 0x00, 0xFE, 0xFF
_uint32 = struct.Struct("<I").unpack_from
_LENGTH_BYTES = 4
_LOOK, _WORTH = 256, 8
"""Events that are looked at before they count as small, and how often their bytes must fit into the rest."""
_STRETCH, _TRIES, _HOPS = 8 << 10, 8, 2


@dataclass(frozen=True)
class Chunk:
    """Whole events of one buffer, in order: event i is data[starts[i] : starts[i] + its header's length]."""

    data: bytes
    starts: Offsets


def split_events(data: bytes, at: int = 0) -> tuple[Offsets, int]:
    """Starts of the whole events in `data` from `at` on, and where the unfinished rest begins.

    Raises MalformedEvent for an event that is shorter than its own header.
    """
    size = len(data)
    first, at = _walk(data, at, _LOOK)
    starts = first
    if len(first) == _LOOK and (size - at) // max(at - int(first[0]), 1) >= _WORTH:
        guessed = _walk_side_by_side(data, at)
        if guessed is not None:
            starts, at = np.concatenate([first, guessed[0]]), guessed[1]
    if len(starts) == len(first):
        rest, at = _walk(data, at, size)
        starts = np.concatenate([first, rest])
    if len(starts) and at > size:
        starts, at = starts[:-1], int(starts[-1])
    short = np.flatnonzero(np.diff(starts, append=at) < HEADER_BYTES)
    if len(short):
        where = int(starts[short[0]])
        raise MalformedEvent(
            f"an event says it is {_uint32(data, where + LENGTH_AT)[0]} bytes long", where=f"byte {where} of the chunk"
        )
    return starts, at


def _walk(data: bytes, at: int, count: int) -> tuple[Offsets, int]:
    """Starts of up to `count` events from `at` on whose length can be read, and where the one after them begins."""
    lengths = array("q")  # the places of the length fields: one addition less for each event
    last, at = len(data) - (HEADER_BYTES - LENGTH_AT), at + LENGTH_AT
    if at <= last:
        add, uint32 = lengths.append, _uint32
        for _ in repeat(None, min(count, len(data) // HEADER_BYTES + 1)):
            add(at)
            at += uint32(data, at)[0]
            if at > last:
                break
    return np.frombuffer(lengths, np.int64) - LENGTH_AT, at - LENGTH_AT


def _walk_side_by_side(data: bytes, at: int) -> tuple[Offsets, int] | None:
    """What `_walk` gives, but walked from many places at once, each up to the next one.

    The places are guesses: where the server's id is, and again one and two events later. They are events for
    certain if the walk from `at` comes by the first of them, that one's walk by the second, and so on. None if one does
    not.
    """
    begins = np.array([at, *_guesses(data, at)], np.int64)
    last = len(data) - HEADER_BYTES
    ends = np.append(begins[1:], last + 1)
    lengths = np.ndarray((len(data) - _LENGTH_BYTES + 1,), "<u4", data, strides=(1,))
    reached, chain, places, found = begins.copy(), np.arange(len(begins)), begins, []
    while len(places):
        found.append(places)
        length = lengths[places + LENGTH_AT]
        if (length < HEADER_BYTES).any():
            return None
        places = places + length
        reached[chain] = places
        alive = places < ends[chain]
        chain, places = chain[alive], places[alive]
    if (reached[:-1] != begins[1:]).any():
        return None
    return np.sort(np.concatenate(found)), int(reached[-1])


def _guesses(data: bytes, at: int) -> Iterator[int]:
    """Where an event may begin, about one in every stretch of `_STRETCH` bytes after `at`."""
    server, last = data[at + SERVER_ID_AT : at + LENGTH_AT], len(data) - HEADER_BYTES
    for stretch in range(at + _STRETCH, last - _STRETCH, _STRETCH):
        place = stretch
        for _ in repeat(None, _TRIES):
            place = data.find(server, place + SERVER_ID_AT, stretch + _STRETCH) - SERVER_ID_AT
            if place < stretch:
                break
            behind = place
            for _ in repeat(None, _HOPS):
                length = _uint32(data, behind + LENGTH_AT)[0]
                behind += length
                if length < HEADER_BYTES or behind > last or not data.startswith(server, behind + SERVER_ID_AT):
                    break
            else:
                yield place
                break
            place += 1


class PacketWalker:
    """Finds events in dump packets (3-byte length, sequence number, 0x00, event) while they arrive in one buffer.

    `starts` are the whole events so far and `at` is where the first packet that is not whole begins. A walk ends at a
    packet that is no event (`end` holds it: EOF or an error), or before an event that is spread over several packets
    (`long_event` is what it takes on the wire, once its header is there).
    """

    def __init__(self) -> None:
        self.starts = array("q")
        self.at = 0
        self.end: bytes | None = None
        self.long_event = 0

    def walk(self, data: bytes | bytearray, size: int) -> None:
        """Go on through the first `size` bytes of `data`. Raises MalformedEvent for a packet too short for an event."""
        at, add = self.at, self.starts.append
        while at + PACKET_HEADER_BYTES < size:
            (length,) = _uint32(data, at)
            length &= MAX_PACKET
            body = at + PACKET_HEADER_BYTES
            if length == MAX_PACKET:
                if body + 1 + HEADER_BYTES <= size:
                    self.long_event = _wire_bytes(_uint32(data, body + 1 + LENGTH_AT)[0])
                break
            if body + length > size:
                break
            if data[body] != OK:
                self.end = bytes(data[body : body + length])
                break
            if length < 1 + HEADER_BYTES:
                raise MalformedEvent(f"a packet of {length} bytes holds no event", where="the dump connection")
            add(body + 1)
            at = body + length
        self.at = at


def _wire_bytes(event: int) -> int:
    """What an event takes in several packets. A last packet that is full is followed by an empty one."""
    packets = (event + 1) // MAX_PACKET + 1
    return event + 1 + packets * PACKET_HEADER_BYTES


def join_packets(data: bytes | bytearray) -> bytes:
    """The event whose packets `data` holds."""
    parts, at = [], 0
    while at < len(data):
        length = _uint32(data, at)[0] & MAX_PACKET
        parts.append(data[at + PACKET_HEADER_BYTES : at + PACKET_HEADER_BYTES + length])
        at += PACKET_HEADER_BYTES + length
    return b"".join(parts)[1:]


def read_file(path: Path, chunk_bytes: int = CHUNK_BYTES) -> Iterator[Chunk]:
    """Chunks of the binlog file `path`. Raises MalformedEvent when the last event is cut short."""
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise MalformedEvent("not a binlog file: it does not begin with fe 'bin'", where=path.name)
        rest, wanted, start = b"", chunk_bytes, FIRST_POSITION
        while piece := file.read(wanted):
            data = rest + piece
            starts, end = split_events(data)
            rest, start = data[end:], start + end
            wanted = chunk_bytes
            if len(rest) > LENGTH_AT + 4:
                wanted = max(chunk_bytes, _uint32(rest, LENGTH_AT)[0] - len(rest))
            if len(starts):
                yield Chunk(data, starts)
        if rest:
            raise MalformedEvent(
                f"the file ends in the middle of an event ({len(rest)} bytes of it are there)",
                where=f"{path.name}:{start}",
            )
