"""What the binlog tests share: run statements, then read what the binlog says of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tests.conftest import Database
from tidegate.pipelines.sources.mysql_cdc.binlog.events import CHUNK_BYTES
from tidegate.pipelines.sources.mysql_cdc.binlog.model import BinlogPosition, BinlogRange, WantedTable
from tidegate.pipelines.sources.mysql_cdc.binlog.reading import read_range
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.table_reader import schema_of
from tidegate.pipelines.sources.mysql_cdc.catalog import read_columns
from tidegate.pipelines.sources.mysql_cdc.connection import ServerOptions
from tidegate.pipelines.sources.mysql_cdc.types import SourceColumn


def server_of(database: Database) -> ServerOptions:
    """How the binlog of `database` is reached."""
    return ServerOptions(database.server.host, database.server.port, database.user, database.password)


def position(database: Database) -> BinlogPosition:
    """Where the server's binlog ends now."""
    file, at = database.execute("SHOW MASTER STATUS")[0][:2]
    return BinlogPosition(file, int(at))


def gtid_events(database: Database, start: BinlogPosition) -> list[tuple[BinlogPosition, str]]:
    """Where the server itself says that transactions begin, and what they are called."""
    files = [name for name, *_ in database.execute("SHOW BINARY LOGS") if name >= start.file]
    return [
        (BinlogPosition(file, int(at)), info.removeprefix("BEGIN ").removeprefix("GTID "))
        for file in files
        for _, at, kind, _, _, info in database.execute(
            f"SHOW BINLOG EVENTS IN '{file}' FROM {start.position if file == start.file else 4}"
        )
        if kind == "Gtid"
    ]


def columns_of(database: Database, table: str) -> tuple[SourceColumn, ...]:
    """The table's columns as the server describes them."""
    with database.connect() as connection, connection.cursor() as cursor:
        return read_columns(cursor, database.name, table)


def wanted(database: Database, table: str, key: Sequence[str] = ("id",)) -> WantedTable:
    """The whole table."""
    return WantedTable(database.name, table, columns_of(database, table), tuple(key))


def read(
    database: Database,
    table: WantedTable,
    start: BinlogPosition,
    end: BinlogPosition | None = None,
    chunk_bytes: int = CHUNK_BYTES,
) -> pa.Table:
    """The changes of `table` since `start`."""
    span = BinlogRange(start, end or position(database))
    batches = read_range(server_of(database), span, table, chunk_bytes=chunk_bytes)
    return pa.Table.from_batches(list(batches), schema_of(table))


def changes(rows: pa.Table, *names: str) -> list[tuple[Any, ...]]:
    """(op, the named columns …) of each row, in order."""
    return list(zip(*(rows[name].to_pylist() for name in ("_op", *names)), strict=True))
