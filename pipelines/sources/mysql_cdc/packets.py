"""The packets of an answer, rows or events, found while they arrive.

A packet is a length of 3 bytes, a number of 1 byte and so many bytes; what takes 16 MB or more comes in several. A row
or an event begins with 0x00; a packet that begins otherwise ends the answer, by an EOF or an error. Nothing is copied
but what is handed on, and what comes in several packets, which has to be joined.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Never

import numpy as np
from numpy.typing import NDArray

PACKET_HEADER_BYTES = 4
MAX_PACKET = 0xFFFFFF
EOF, ERROR = b"\xfe", b"\xff"
"""What the packet that ends an answer begins with."""

_OK = 0x00

SLACK_BYTES = 16
"""So many bytes after its last packet can be read of every piece, whatever they are."""

_LEAST_RECEIVED, _MOST_RECEIVED = 1 << 16, 8 << 20
"""At once. The most is less than a packet of something that takes several: its header is seen before its end is
there."""

_uint32 = struct.Struct("<I").unpack_from

Offsets = NDArray[np.int64]


@dataclass(frozen=True)
class Piece:
    """What whole packets of one buffer hold, in order: data[starts[i] : ends[i]], with its 0x00."""

    data: bytes
    starts: Offsets
    ends: Offsets


class Packets:
    """An answer, of whose packets `begun` has been received already: pieces of about `piece_bytes`, or what there is
    before the answer ends. `last` is then the packet that ended it.

    Raises OSError where the connection ends before.
    """

    def __init__(self, sock: Any, begun: bytes, piece_bytes: int) -> None:
        self._sock, self._begun, self._piece_bytes = sock, begun, piece_bytes
        self.last = b""

    def __iter__(self) -> Iterator[Piece]:
        sock, begun, piece_bytes = self._sock, self._begun, self._piece_bytes
        buffer = bytearray(max(piece_bytes, len(begun)) + _LEAST_RECEIVED + SLACK_BYTES)
        buffer[: len(begun)] = begun
        size = len(begun)
        while True:
            walker = _Walker()
            walker.walk(buffer, size)
            while not walker.stopped and not (walker.found and size >= piece_bytes):
                buffer = _with_room(buffer, size)
                room = memoryview(buffer)[size : min(len(buffer) - SLACK_BYTES, size + _MOST_RECEIVED)]
                size += sock.recv_into(room) or _closed()
                walker.walk(buffer, size)
            starts, ends = walker.bodies()
            stop = np.flatnonzero(np.frombuffer(buffer, np.uint8)[starts] != _OK)
            if len(stop):
                first = int(stop[0])
                self.last = bytes(buffer[starts[first] : ends[first]])
                starts, ends = starts[:first], ends[:first]
            if len(starts):
                yield Piece(bytes(memoryview(buffer)[: int(ends[-1]) + SLACK_BYTES]), starts, ends)
            if len(stop):
                return
            begun = bytes(buffer[walker.at : size])
            if walker.several:
                joined, begun = _joined(sock, begun)
                if joined[0] != _OK:
                    self.last = joined
                    return
                yield Piece(joined + bytes(SLACK_BYTES), np.zeros(1, np.int64), np.array([len(joined)]))
            buffer[: len(begun)] = begun
            size = len(begun)


class _Walker:
    """Finds the packets that have arrived in one buffer. `at` is where the first that is not whole begins; `several`:
    it is the first of several that belong together. `stopped`: that one, or a packet that ends the answer, is there."""

    def __init__(self) -> None:
        self._places = array("q")
        self.at = 0
        self.stopped = False
        self.several = False

    @property
    def found(self) -> bool:
        """Whether there is a whole packet."""
        return bool(self._places)

    def bodies(self) -> tuple[Offsets, Offsets]:
        """Where the bodies of the whole packets begin and end."""
        places = np.array(self._places, np.int64)
        return places + PACKET_HEADER_BYTES, np.append(places[1:], self.at)[: len(places)]

    def walk(self, data: bytearray, size: int) -> None:
        """Go on through the first `size` bytes of `data`."""
        at, places, last = self.at, self._places, size - PACKET_HEADER_BYTES
        add, uint32 = places.append, _uint32
        while at <= last:  # nothing more: it is done for each row
            add(at)
            at += (uint32(data, at)[0] & MAX_PACKET) + PACKET_HEADER_BYTES
        if at > size:
            at = places.pop()
            self.several = _uint32(data, at)[0] & MAX_PACKET == MAX_PACKET
        self.at = at
        self.stopped = self.several or (bool(places) and data[places[-1] + PACKET_HEADER_BYTES] != _OK)


def _with_room(buffer: bytearray, size: int) -> bytearray:
    """`buffer`, or one of twice its length where it is full: a packet may be longer than a piece."""
    if len(buffer) - SLACK_BYTES - size >= _LEAST_RECEIVED // 2:
        return buffer
    return buffer + bytes(len(buffer))


def _joined(sock: Any, begun: bytes) -> tuple[bytes, bytes]:
    """What several packets hold, of which `begun` is there, and what has been received after them."""
    parts: list[bytes] = []
    data = bytearray(begun)
    while True:
        while len(data) < PACKET_HEADER_BYTES:
            data += sock.recv(_LEAST_RECEIVED) or _closed()
        length = _uint32(data)[0] & MAX_PACKET
        end = PACKET_HEADER_BYTES + length
        while len(data) < end:
            data += sock.recv(end - len(data)) or _closed()
        parts.append(bytes(data[PACKET_HEADER_BYTES:end]))
        data = data[end:]
        if length < MAX_PACKET:
            return b"".join(parts), bytes(data)


def _closed() -> Never:
    raise ConnectionResetError("the server closed it")
