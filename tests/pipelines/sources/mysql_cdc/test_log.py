"""How long the server still has what has not been read, asked of a real server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from pymysql.cursors import Cursor

from tests.conftest import Database
from tidegate.pipelines.connectors.protocol import LogRetention
from tidegate.pipelines.sources.mysql_cdc.binlog.model import BinlogPosition
from tidegate.pipelines.sources.mysql_cdc.catalog import read_server
from tidegate.pipelines.sources.mysql_cdc.log import retention
from tidegate.pipelines.sources.mysql_cdc.options import parse

KEPT = 864_000


@pytest.fixture
def kept(database: Database) -> Iterator[None]:
    """The server keeps its binlog for ten days."""
    before = database.execute("SELECT @@GLOBAL.binlog_expire_logs_seconds")[0][0]
    database.execute(f"SET GLOBAL binlog_expire_logs_seconds = {KEPT}")
    yield
    database.execute(f"SET GLOBAL binlog_expire_logs_seconds = {before}")


def end(cursor: Cursor) -> BinlogPosition:
    cursor.execute("SHOW MASTER STATUS")
    found = cursor.fetchone()
    assert found is not None
    return BinlogPosition(found[0], int(found[1]))


def asked(database: Database, position: BinlogPosition | None = None, now: float | None = None) -> LogRetention:
    options = parse(database.options("any"))
    with closing(database.connect()) as connection, connection.cursor() as cursor:
        at = position or end(cursor)
        when = round((time.time() if now is None else now) * 1000)
        return retention(cursor, read_server(cursor), options.server, at, when)


def test_nothing_of_the_newest_file_goes_by_age(database: Database, kept: None):
    assert asked(database).left_s is None


def test_a_closed_file_goes_once_its_days_are_over(database: Database, kept: None):
    with closing(database.connect()) as connection, connection.cursor() as cursor:
        position = end(cursor)
    database.execute("FLUSH BINARY LOGS")
    found = asked(database, position)
    assert found.kept_s == KEPT
    assert found.left_s is not None
    assert KEPT - 3600 < found.left_s <= KEPT
    assert found.position == str(position)
    assert asked(database, position, time.time() + KEPT - 60).left_s == pytest.approx(60, abs=30)
    assert asked(database, position, time.time() + KEPT + 60).left_s == 0


def test_a_server_that_keeps_all_lets_nothing_go(database: Database):
    with closing(database.connect()) as connection, connection.cursor() as cursor:
        position = end(cursor)
    database.execute("FLUSH BINARY LOGS")
    found = asked(database, position)
    assert (found.left_s, found.kept_s) == (None, None)


def test_a_file_that_is_not_there_is_gone(database: Database, kept: None):
    assert asked(database, BinlogPosition("binlog.999999", 4)).left_s == 0
