"""The dump connection when things go wrong: each error is typed and says where the reader was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import Database, own_server
from tests.pipelines.sources.mysql_cdc.binlog.recording import position, server_of, wanted
from tidegate.pipelines.sources.mysql_cdc.binlog.model import BinlogPosition, BinlogRange, WantedTable
from tidegate.pipelines.sources.mysql_cdc.binlog.reading import read_range
from tidegate.pipelines.sources.mysql_cdc.binlog.transport import connect, dump, facts
from tidegate.pipelines.sources.mysql_cdc.connection import ServerOptions
from tidegate.pipelines.sources.mysql_cdc.errors import BinlogEnded, BinlogPurged, BinlogRefused, ConnectionLost


@pytest.fixture
def table(database: Database) -> WantedTable:
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, body TEXT)")
    return wanted(database, "t")


def test_facts(database: Database) -> None:
    with closing(connect(server_of(database))) as connection:
        known = facts(connection)
    assert known.collations[45] == "utf8mb4"
    assert known.collations[63] == "binary"
    assert known.collations[max(known.collations)]  # those of UCA 14.0.0 have ids above 2,000
    assert max(known.collations) > 2_000
    assert not known.lower


def test_a_file_that_the_server_does_not_have(database: Database) -> None:
    with pytest.raises(BinlogPurged, match=r"does not have the binlog from binlog\.999999:4") as caught:
        list(dump(server_of(database), BinlogPosition("binlog.999999")))
    assert "--resnapshot" in caught.value.next_command


@pytest.mark.thorough  # test_stops.py runs into such a file
@pytest.mark.usefixtures("server")
def test_a_purged_file(tmp_path: Path) -> None:
    with own_server(tmp_path) as database:
        start = position(database)
        # The server keeps a file until its last transactions are safe in InnoDB, which it finds out by and by.
        while start.file in {name for name, *_ in database.execute("SHOW BINARY LOGS")}:
            database.server.execute("FLUSH BINARY LOGS")
            database.execute(f"PURGE BINARY LOGS TO '{position(database).file}'")
        with pytest.raises(BinlogPurged):
            list(dump(server_of(database), start))


def test_a_position_beyond_the_file(database: Database) -> None:
    end = position(database)
    with pytest.raises(BinlogPurged):
        list(dump(server_of(database), replace(end, position=end.position + 1_000)))


def test_a_position_that_no_server_can_be_asked_for(database: Database) -> None:
    with pytest.raises(BinlogEnded, match="beyond 4 GB"):
        next(dump(server_of(database), BinlogPosition("binlog.000001", 2**32)))


def test_a_wrong_password_is_not_in_the_error(database: Database) -> None:
    server = replace(server_of(database), password="not-the-password")
    with pytest.raises(BinlogRefused) as caught:
        next(dump(server, position(database)))
    assert "not-the-password" not in str(caught.value)
    assert "not-the-password" not in repr(server)


def test_a_user_without_the_grant(database: Database) -> None:
    database.execute("CREATE OR REPLACE USER 'nobody'@'127.0.0.1' IDENTIFIED BY 'secret'")
    server = replace(server_of(database), username="nobody", password="secret")
    with pytest.raises(BinlogRefused, match="GRANT REPLICATION SLAVE"):
        list(dump(server, position(database)))


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(ConnectionLost, match="no connection to the server"):
        next(dump(ServerOptions("127.0.0.1", 1, "u", "p", connect_timeout=2), BinlogPosition("binlog.000001")))


def killed(database: Database, chunks: Iterator[object]) -> None:
    """Read a little, have the server kill the connection, and read on."""
    next(chunks)
    for (number,) in database.execute(
        "SELECT ID FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%' AND USER = 'reader'"
    ):
        database.execute(f"KILL {number}")
    for _ in chunks:
        pass


def test_a_killed_connection(database: Database, table: WantedTable) -> None:
    """What is still under way is 40 MB: more than the sockets between hold."""
    start = position(database)
    fill = "INSERT INTO t SELECT seq, REPEAT('x', 40000) FROM seq_1_to_1000"
    database.execute(fill)
    with pytest.raises(ConnectionLost) as caught:
        killed(database, dump(server_of(database), start, chunk_bytes=1))
    assert caught.value.where == str(start)
    span = BinlogRange(start, position(database))
    batches = read_range(server_of(database), span, table, chunk_bytes=1)
    with pytest.raises(ConnectionLost) as caught:
        killed(database, batches)
    assert "reads the same range again" in caught.value.next_command
    assert str(table) in caught.value.where


def test_two_readers_at_once_do_not_disturb_each_other(database: Database, table: WantedTable) -> None:
    start = position(database)
    database.execute("INSERT INTO t SELECT seq, '' FROM seq_1_to_5000")
    span = BinlogRange(start, position(database))
    readers = [read_range(server_of(database), span, table, chunk_bytes=1_000) for _ in range(3)]
    counts = [0, 0, 0]
    while any(batches := [next(reader, None) for reader in readers]):
        counts = [count + (batch.num_rows if batch else 0) for count, batch in zip(counts, batches, strict=True)]
    assert counts == [5_000, 5_000, 5_000]
