"""Events made by hand, for what no healthy server writes."""

from __future__ import annotations

import struct
from zlib import crc32

from tidegate.pipelines.sources.mysql_cdc.binlog.events import (
    HEADER_BYTES,
    THREAD_SPECIFIC,
    Chunk,
    Event,
    split_events,
)
from tidegate.pipelines.sources.mysql_cdc.binlog.model import BinlogPosition, WantedTable
from tidegate.pipelines.sources.mysql_cdc.types import SourceColumn

FILE = "binlog.000007"
START = BinlogPosition(FILE)
COLLATIONS = {45: "utf8mb4", 46: "utf8mb4", 255: "utf8mb4", 224: "utf8mb4", 63: "binary", 8: "latin1", 28: "gbk"}
TABLE = WantedTable("d", "t", (SourceColumn("id", "int", "int(11)"),), ("id",))


def whole(data: bytes) -> Chunk:
    """Events, with nothing after them, in one chunk."""
    starts, end = split_events(data)
    assert end == len(data)
    return Chunk(data, starts)


class Log:
    """A binlog file in the making; `position` is where the next event goes."""

    def __init__(self, version: bytes = b"11.4.5-MariaDB-log", checksums: bool = True) -> None:
        self.data = b""
        self.position = 4
        self.checksums = checksums
        body = struct.pack("<H50sI", 4, version, 0) + bytes([HEADER_BYTES]) + bytes(160) + bytes([checksums])
        self.add(Event.FORMAT_DESCRIPTION, body, always_checksum=True)

    def add(
        self,
        kind: int,
        body: bytes,
        *,
        time: int = 1_700_000_000,
        flags: int = 0,
        written: bool = True,
        always_checksum: bool = False,
        server: int = 1,
    ) -> bytes:
        """Append an event and return it. `written`: its header says where it ends. `server`: which one it is of."""
        checksum = self.checksums or always_checksum
        length = HEADER_BYTES + len(body) + 4 * checksum
        self.position += length
        position = self.position if written else 0
        event = struct.pack("<IBIIIH", time, kind, server, length, position % 2**32, flags) + body
        if checksum:
            event += struct.pack("<I", crc32(event))
        self.data += event
        return event

    def gtid(self, number: int = 1, time: int = 1_700_000_000) -> None:
        """Begin a transaction."""
        self.add(Event.MARIADB_GTID, struct.pack("<QIB6x", number, 0, 0), time=time)

    def table_map(self, table_id: int = 5, name: bytes = b"t", metadata: bytes = b"\x01\x01\x00\x04\x03\x02id") -> None:
        """Describe table d.`name` of one INT column called id."""
        names = b"\x01d\x00" + bytes([len(name)]) + name + b"\x00"
        self.add(Event.TABLE_MAP, _table_id(table_id) + names + b"\x01\x03\x00\x01" + metadata, written=False)

    def rows(
        self,
        *ids: int,
        table_id: int = 5,
        kind: int = Event.WRITE_ROWS_V1,
        columns: bytes = b"\x01\xff",
        flags: int = 1,
    ) -> None:
        """Rows of that table."""
        images = b"".join(b"\xfe" + struct.pack("<i", number) for number in ids)
        self.add(kind, _table_id(table_id, flags) + columns + images, written=False)

    def xid(self) -> None:
        """Commit."""
        self.add(Event.XID, struct.pack("<Q", 1))

    def query(
        self,
        text: str,
        database: str = "d",
        status: bytes = b"",
        *,
        thread: int = 1,
        server: int = 1,
        marked: bool = False,
    ) -> None:
        """A statement of a connection. `marked`: it opened a TEMPORARY table."""
        head = struct.pack("<IIBHH", thread, 0, len(database), 0, len(status)) + status
        body = head + database.encode() + b"\0" + text.encode()
        self.add(Event.QUERY, body, server=server, flags=THREAD_SPECIFIC if marked else 0)

    def transaction(self, *ids: int) -> None:
        """A whole transaction that inserts `ids`."""
        self.gtid()
        self.table_map()
        self.rows(*ids)
        self.xid()

    def chunk(self) -> Chunk:
        """All of it, in one chunk."""
        return whole(self.data)


def _table_id(number: int, flags: int = 1) -> bytes:
    return number.to_bytes(6, "little") + flags.to_bytes(2, "little")
