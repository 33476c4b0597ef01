"""Finds whole events: in a piece of a binlog file, and in the packets of a dump connection.

A chunk is one buffer and where its whole events start. Nothing is copied but events of 16 MB and more, whose packets
have to be joined.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipelines.sources.mysql_cdc.binlog.errors import MalformedEvent
from pipelines.sources.mysql_cdc.binlog.events import HEADER_BYTES, LENGTH_AT
from pipelines.sources.mysql_cdc.binlog.model import FIRST_POSITION

CHUNK_BYTES = 8 << 20
"""Measured best of 1, 8 and 32 MB: enough events to decode at once, small enough for the processor's cache."""

MAGIC = b"\xfebin"
PACKET_HEADER_BYTES = 4
MAX_PACKET = 0xFFFFFF
OK, EOF, ERROR = 0x00, 0xFE, 0xFF
_uint32 = struct.Struct("<I").unpack_from


@dataclass(frozen=True)
class Chunk:
    """Whole events of one buffer, in order: event i is data[starts[i] : starts[i] + its header's length]."""

    data: bytes
    starts: NDArray[np.int64]


def split_events(data: bytes, at: int = 0) -> tuple[NDArray[np.int64], int]:
    """Starts of the whole events in `data` from `at` on, and where the unfinished rest begins.

    Raises MalformedEvent for an event that is shorter than its own header.
    """
    starts, size = array("q"), len(data)
    add = starts.append
    while at + HEADER_BYTES <= size:
        (length,) = _uint32(data, at + LENGTH_AT)
        if at + length > size:
            break
        if length < HEADER_BYTES:
            raise MalformedEvent(f"an event says it is {length} bytes long", where=f"byte {at} of the chunk")
        add(at)
        at += length
    return np.frombuffer(starts, np.int64), at


@dataclass(frozen=True)
class Packets:
    """What a buffer of packets holds: whole events, where the rest begins, and what the rest needs.

    `needs` is how many bytes the next event takes from `rest` on, 0 when that is not known yet. `long_event` says that
    the event at `rest` is spread over several packets. `end` is a packet that ends the stream (EOF or error), if seen.
    """

    starts: NDArray[np.int64]
    rest: int
    needs: int = 0
    long_event: bool = False
    end: bytes | None = None


def split_packets(data: bytes) -> Packets:
    """The events in raw dump packets: 3-byte length, sequence number, 0x00, event."""
    starts, size, at = array("q"), len(data), 0
    add = starts.append
    long_event, needs, end = False, 0, None
    while at + PACKET_HEADER_BYTES < size:
        (length,) = _uint32(data, at)
        length &= MAX_PACKET
        body = at + PACKET_HEADER_BYTES
        if data[body] != OK:
            if body + length <= size:
                end = data[body : body + length]
            break
        if length == MAX_PACKET:
            long_event = True
            if body + 1 + HEADER_BYTES <= size:
                needs = _long_event_bytes(_uint32(data, body + 1 + LENGTH_AT)[0])
            break
        if body + length > size:
            needs = PACKET_HEADER_BYTES + length
            break
        if length < 1 + HEADER_BYTES:
            raise MalformedEvent(f"a packet of {length} bytes holds no event", where="the dump connection")
        add(body + 1)
        at = body + length
    return Packets(np.frombuffer(starts, np.int64), at, needs, long_event, end)


def _long_event_bytes(event: int) -> int:
    """Bytes on the wire of an event that needs several packets. A full last packet is followed by an empty one."""
    packets = (event + 1) // MAX_PACKET + 1
    return event + 1 + packets * PACKET_HEADER_BYTES


def join_packets(data: bytes, at: int, needs: int) -> bytes:
    """The event whose packets are data[at : at + needs]."""
    parts, end = [], at + needs
    while at < end:
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
