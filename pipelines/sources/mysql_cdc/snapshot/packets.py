"""The rows of a result set as they come over the network: pieces of whole rows, found in the packets they travel in.

A packet is a length of 3 bytes, a number of 1 byte and so many bytes; a row of 16 MB or more takes several. Each row
begins with 0x00; a packet that begins otherwise ends the rows, by an EOF or an error. Nothing is copied but what is
handed on, and rows of several packets, which have to be joined.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymysql

from tidegate.pipelines.sources.cdc.errors import MalformedRows
from tidegate.pipelines.sources.mysql_cdc.binlog.wire.framing import EOF, ERROR, MAX_PACKET, PACKET_HEADER_BYTES
from tidegate.pipelines.sources.mysql_cdc.binlog.wire.gather import Offsets

PIECE_BYTES = 2 << 20
"""Of 2, 8 and 32 MB the best: what is decoded at once stays in the processor's cache."""

SLACK_BYTES = 16
"""So many bytes after its last row can be read of every piece, whatever they are."""

_LEAST_RECEIVED, _MOST_RECEIVED = 1 << 16, 8 << 20
"""At once. The most is less than a packet of a row that takes several: its header is seen before its end is there."""
_ROW = 0x00
_uint32 = struct.Struct("<I").unpack_from


@dataclass(frozen=True)
class Piece:
    """Whole rows of one buffer, in order: row i is data[starts[i] : ends[i]]."""

    data: bytes
    starts: Offsets
    ends: Offsets


def pieces(sock: Any, begun: bytes, piece_bytes: int = PIECE_BYTES) -> Iterator[Piece]:
    """The rows of a result set, of whose packets `begun` has been received already, up to its end.

    Raises pymysql's errors where the server sends one in the middle, OSError, and MalformedRows for another packet.
    """
    buffer = bytearray(max(piece_bytes, len(begun)) + _LEAST_RECEIVED + SLACK_BYTES)
    buffer[: len(begun)] = begun
    size = len(begun)
    while True:
        walker = _Walker()
        walker.walk(buffer, size)
        while not walker.stopped and not (walker.starts and size >= piece_bytes):
            buffer = _with_room(buffer, size)
            size += _some(sock, memoryview(buffer)[size : min(len(buffer) - SLACK_BYTES, size + _MOST_RECEIVED)])
            walker.walk(buffer, size)
        starts, ends = walker.rows()
        rest, last = walker.at, None
        stop = np.flatnonzero(np.frombuffer(buffer, np.uint8)[starts] != _ROW)
        if len(stop):
            first = int(stop[0])
            last = bytes(buffer[starts[first] : ends[first]])
            starts, ends = starts[:first], ends[:first]
        if len(starts):
            yield Piece(bytes(memoryview(buffer)[: int(ends[-1]) + SLACK_BYTES]), starts, ends)
        if last is not None:
            return _end(last)
        if walker.long_row:
            row, begun = _long_row(sock, bytes(buffer[rest:size]))
            if row[0] != _ROW:
                return _end(row)
            yield Piece(row + bytes(SLACK_BYTES), np.zeros(1, np.int64), np.array([len(row)]))
        else:
            begun = bytes(buffer[rest:size])
        buffer[: len(begun)] = begun
        size = len(begun)


class _Walker:
    """Finds the packets that have arrived in one buffer. `at` is where the first that is not whole begins."""

    def __init__(self) -> None:
        self._places = array("q")
        self.at = 0
        self.stopped = False
        self.long_row = False

    @property
    def starts(self) -> bool:
        """Whether there is a whole packet."""
        return bool(self._places)

    def rows(self) -> tuple[Offsets, Offsets]:
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
            self.long_row = _uint32(data, at)[0] & MAX_PACKET == MAX_PACKET
        self.at = at
        self.stopped = self.long_row or (bool(places) and data[places[-1] + PACKET_HEADER_BYTES] != _ROW)


def _with_room(buffer: bytearray, size: int) -> bytearray:
    """`buffer`, or one of twice its length where it is full: a row may be longer than a piece."""
    if len(buffer) - SLACK_BYTES - size >= _LEAST_RECEIVED // 2:
        return buffer
    return buffer + bytes(len(buffer))


def _some(sock: Any, into: memoryview) -> int:
    received = sock.recv_into(into)
    if not received:
        raise ConnectionResetError("the server closed it")
    return received


def _long_row(sock: Any, begun: bytes) -> tuple[bytes, bytes]:
    """A row of several packets, of which `begun` is there, and what has been received after it."""
    parts: list[bytes] = []
    data = bytearray(begun)
    at = 0
    while True:
        while len(data) < at + PACKET_HEADER_BYTES:
            data += sock.recv(_LEAST_RECEIVED) or _closed()
        length = _uint32(data, at)[0] & MAX_PACKET
        body = at + PACKET_HEADER_BYTES
        while len(data) < body + length:
            data += sock.recv(body + length - len(data)) or _closed()
        parts.append(bytes(data[body : body + length]))
        data = data[body + length :]
        if length < MAX_PACKET:
            return b"".join(parts), bytes(data)


def _closed() -> bytes:
    raise ConnectionResetError("the server closed it")


def _end(packet: bytes) -> None:
    """Return at the end of the rows. Raises the server's error, or MalformedRows."""
    if packet[0] == ERROR:
        pymysql.err.raise_mysql_exception(packet)
    if packet[0] != EOF or len(packet) >= 9:
        raise MalformedRows(f"a packet of {len(packet)} bytes that begins with {packet[0]:#04x} is no row")
