"""A transaction that MySQL 8.0.28 compressed, opened and read with the names that its TABLE_MAP does not have."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest

from tests.pipelines.sources.mysql_cdc.binlog.made import COLLATIONS, Log, whole
from tests.pipelines.sources.mysql_cdc.binlog.rows.test_table_map import FIXTURES
from tidegate.pipelines.sources.mysql_cdc.binlog.events import (
    CHECKSUM_BYTES,
    HEADER_BYTES,
    Chunk,
    Event,
    unsigned_at,
)
from tidegate.pipelines.sources.mysql_cdc.binlog.model import WantedTable
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.compression import decompress_rows, decompress_transaction
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.table_map import POST_HEADER_BYTES, parse
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.table_reader import TableReader
from tidegate.pipelines.sources.mysql_cdc.errors import MalformedEvent, UnsupportedEvent
from tidegate.pipelines.sources.mysql_cdc.types import SourceColumn

NAMES = ["id", "title", "year", "country", "genre", "cast", "director", "music", "writer", "camera", "studio"]


def payload() -> bytes:
    chunk = whole((FIXTURES / "mysql-8.0.28-compressed-transaction.bin").read_bytes()[4:])
    start, end = events(chunk)[Event.TRANSACTION_PAYLOAD]
    return chunk.data[start + HEADER_BYTES : end - CHECKSUM_BYTES]


def events(chunk: Chunk) -> dict[int, tuple[int, int]]:
    lengths = unsigned_at(chunk.data, chunk.starts + 9, 4)
    return {
        chunk.data[start + 4]: (start, start + length)
        for start, length in zip(chunk.starts.tolist(), lengths.tolist(), strict=True)
    }


@pytest.mark.parametrize("chunk_bytes", [1 << 20, 50])
def test_its_events_are_whole_whatever_the_size_of_a_piece(chunk_bytes: int) -> None:
    kinds = [kind for chunk in decompress_transaction(payload(), chunk_bytes=chunk_bytes) for kind in events(chunk)]
    assert kinds == [Event.QUERY, Event.TABLE_MAP, Event.UPDATE_ROWS, Event.XID]


def test_its_row() -> None:
    (chunk,) = decompress_transaction(payload())
    found = events(chunk)
    start, end = found[Event.TABLE_MAP]
    seen = parse(chunk.data[start + HEADER_BYTES + POST_HEADER_BYTES : end], mariadb=False)
    seen = replace(
        seen, columns=tuple(replace(column, name=name) for column, name in zip(seen.columns, NAMES, strict=True))
    )
    kinds = {name: SourceColumn(name, "varchar", "varchar(1)") for name in NAMES}
    kinds |= {name: SourceColumn(name, "int", "int") for name in ("id", "year")}
    table = WantedTable("demo", "movies", tuple(kinds[name] for name in NAMES), ("id",))
    reader = TableReader(table, seen, COLLATIONS)
    start, end = found[Event.UPDATE_ROWS]
    rows = reader.read(chunk.data, np.array([start]), np.array([end]), np.array([Event.UPDATE_ROWS], np.uint8))
    assert rows is not None
    row = {name: values.to_pylist() for name, values in zip(NAMES, rows.columns, strict=True)}
    assert rows.row.tolist() == [1]
    assert row["id"] == [1]
    assert row["title"] == ["Once Upon a Time in the West"]
    assert row["year"] == [1968]
    assert row["genre"] == ["Western|Action"]
    assert row["studio"] == ["Paramount Pictures"]


def test_a_broken_payload_is_an_error() -> None:
    broken = bytearray(payload())
    broken[30] ^= 0xFF
    with pytest.raises(MalformedEvent):
        list(decompress_transaction(bytes(broken)))


def test_a_payload_cut_short_is_an_error() -> None:
    with pytest.raises(MalformedEvent):
        list(decompress_transaction(payload()[:-20]))


def test_an_event_shorter_than_its_header_is_an_error() -> None:
    log = Log()
    log.data += struct.pack("<IBIIIH", 0, 2, 1, 18, 0, 0)
    with pytest.raises(MalformedEvent, match="18 bytes long"):
        log.chunk()


def test_an_unknown_method_is_an_error() -> None:
    with pytest.raises(UnsupportedEvent, match="method 7"):
        list(decompress_transaction(b"\x02\x01\x07\x00rest"))


@pytest.mark.parametrize("data", [b"", b"\x91\x04abcd", b"\x81\x04not zlib"])
def test_rows_that_cannot_be_decompressed_are_an_error(data: bytes) -> None:
    with pytest.raises((MalformedEvent, UnsupportedEvent)):
        decompress_rows(data)
