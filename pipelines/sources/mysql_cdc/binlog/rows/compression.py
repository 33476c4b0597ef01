"""Compressed events: MariaDB's row and query events (log_bin_compress), and MySQL's whole transactions."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import pyarrow as pa

from tidegate.pipelines.sources.mysql_cdc.binlog.events import CHUNK_BYTES, Chunk, split_events
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.table_map import lenenc
from tidegate.pipelines.sources.mysql_cdc.errors import MalformedEvent, UnsupportedEvent

_ZLIB = 0
_METHOD = 0x70
_LENGTH_BYTES = 0x07

_PAYLOAD_END, _PAYLOAD_SIZE, _PAYLOAD_METHOD, _PAYLOAD_PLAIN_SIZE = 0, 1, 2, 3
_ZSTD, _PLAIN = 0, 255


def decompress_rows(data: bytes, where: object = "") -> bytes:
    """What a MariaDB compressed event holds behind its header (`sql/log_event.cc`, binlog_buf_uncompress).

    A byte with the method in its upper bits and, in its lowest three, the size of the length that follows.
    """
    if not data or data[0] & _METHOD != _ZLIB << 4:
        raise UnsupportedEvent("an event is compressed in a way that is not known (zlib is)", where=where)
    start = 1 + (data[0] & _LENGTH_BYTES)
    length = int.from_bytes(data[1:start], "big")
    try:
        plain = zlib.decompress(data[start:], bufsize=max(length, 1))
    except zlib.error as error:
        raise MalformedEvent(f"a compressed event cannot be decompressed: {error}", where=where) from error
    if len(plain) != length:
        raise MalformedEvent(f"a compressed event holds {len(plain)} bytes where it says {length}", where=where)
    return plain


def decompress_transaction(body: bytes, where: object = "", chunk_bytes: int = CHUNK_BYTES) -> Iterator[Chunk]:
    """The events inside a TRANSACTION_PAYLOAD event, by chunks so that memory stays flat. They carry no checksums.

    Layout: MySQL `libs/mysql/binlog/event/control_events.h`, Transaction_payload_event: fields of type, length and
    value, then the payload.
    """
    at, method = 0, _PLAIN
    while True:
        try:
            kind, at = lenenc(body, at)
            if kind == _PAYLOAD_END:
                break
            size, at = lenenc(body, at)
            if kind == _PAYLOAD_METHOD:
                method, _ = lenenc(body, at)
        except IndexError as error:
            raise MalformedEvent("a compressed transaction's header is cut short", where=where) from error
        at += size
    payload = pa.BufferReader(pa.py_buffer(body)[at:])
    if method not in (_ZSTD, _PLAIN):
        raise UnsupportedEvent(f"a transaction is compressed by the method {method}; zstd (0) is known", where=where)
    stream = pa.CompressedInputStream(payload, "zstd") if method == _ZSTD else payload
    rest = b""
    while True:
        try:
            piece = stream.read(chunk_bytes)
        except OSError as error:
            raise MalformedEvent(f"a compressed transaction cannot be decompressed: {error}", where=where) from error
        if not piece:
            break
        data = rest + piece
        starts, end = split_events(data)
        rest = data[end:]
        if len(starts):
            yield Chunk(data, starts)
    if rest:
        raise MalformedEvent("a compressed transaction ends in the middle of an event", where=where)
