"""Result sets of the prepared-statement protocol, made byte by byte, and a socket that they come out of."""

from __future__ import annotations

from collections.abc import Sequence

EOF = b"\xfe\x00\x00\x02\x00"
LONGEST = 0xFFFFFF


def packet(body: bytes) -> bytes:
    """As it travels; one of 16 MB and more in several."""
    parts = []
    while True:
        part, body = body[:LONGEST], body[LONGEST:]
        parts.append(len(part).to_bytes(3, "little") + b"\x07" + part)
        if len(part) < LONGEST:
            return b"".join(parts)


def sized(value: bytes) -> bytes:
    """A value of any length, behind its length."""
    size = len(value)
    if size <= 250:
        return bytes([size]) + value
    mark, width = next((m, w) for m, w in ((0xFC, 2), (0xFD, 3), (0xFE, 8)) if size < 1 << 8 * w)
    return bytes([mark]) + size.to_bytes(width, "little") + value


def row(values: Sequence[bytes | None]) -> bytes:
    """A row of values that have their wire form already; None is NULL."""
    nulls = 0
    for number, value in enumerate(values):
        nulls |= (value is None) << (number + 2)
    return b"\x00" + nulls.to_bytes((len(values) + 9) // 8, "little") + b"".join(value or b"" for value in values)


class Socket:
    """Gives `stream` in pieces of at most `most` bytes, and then nothing, as one that was closed."""

    def __init__(self, stream: bytes, most: int = 1 << 30) -> None:
        self.stream, self.most, self.at = stream, most, 0

    def recv(self, size: int) -> bytes:
        found = self.stream[self.at : self.at + min(size, self.most)]
        self.at += len(found)
        return found

    def recv_into(self, into: memoryview) -> int:
        found = self.recv(len(into))
        into[: len(found)] = found
        return len(found)
