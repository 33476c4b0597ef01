"""Transaction borders, found by headers and compared with what the server says it wrote."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from tests.conftest import Database
from tests.pipelines.sources.mysql_cdc.binlog.made import FILE, START, Log
from tests.pipelines.sources.mysql_cdc.binlog.recording import gtid_events, position, server_of
from tests.pipelines.sources.mysql_cdc.binlog.rows.test_table_map import RECORDED
from tidegate.pipelines.sources.mysql_cdc.binlog.events import Event
from tidegate.pipelines.sources.mysql_cdc.binlog.model import BinlogPosition
from tidegate.pipelines.sources.mysql_cdc.binlog.scan import (
    borders_of,
    commit_time,
    gtid_of,
    scan_borders,
    scan_gtids,
)
from tidegate.pipelines.sources.mysql_cdc.binlog.stream import Events, EventStream


@pytest.fixture
def start(database: Database) -> BinlogPosition:
    """Before three transactions of one second each, the last of them in a file of its own."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    start = position(database)
    for number in range(3):
        if number == 2:
            database.execute("FLUSH BINARY LOGS")
        with database.connect(autocommit=False) as connection, connection.cursor() as cursor:
            cursor.execute(f"SET timestamp = {1_700_000_000 + number}")
            for row in range(number + 1):
                cursor.execute(f"INSERT INTO t VALUES ({10 * number + row})")
            connection.commit()
    return start


def test_borders_are_where_the_server_begins_transactions(database: Database, start: BinlogPosition) -> None:
    found = [
        borders.place(index) for borders in scan_borders(server_of(database), start) for index in range(len(borders))
    ]
    assert found == [place for place, _ in gtid_events(database, start)]
    assert len(found) == 3
    assert list(scan_gtids(server_of(database), start, found[2])) == [(place, None) for place in found[:2]]


def test_borders_before_an_end(database: Database, start: BinlogPosition) -> None:
    places = [place for place, _ in gtid_events(database, start)]
    for number, place in enumerate(places):
        assert sum(len(borders) for borders in scan_borders(server_of(database), start, place)) == number
        beyond = BinlogPosition(place.file, place.position + 1)
        assert sum(len(borders) for borders in scan_borders(server_of(database), start, beyond)) == number + 1


def test_commit_times(database: Database, start: BinlogPosition) -> None:
    first, second, third = (place for place, _ in gtid_events(database, start))
    server = server_of(database)
    assert commit_time(server, start, first) is None
    assert commit_time(server, start, second) == 1_700_000_000_000_000
    assert commit_time(server, start, third) == 1_700_000_001_000_000
    assert commit_time(server, start, position(database)) == 1_700_000_002_000_000


def scanned(log: Log) -> Events:
    (found,) = [events for events in EventStream(START).feed(log.chunk()) if len(events) > 1]
    return found


def test_gtids_of_mysql() -> None:
    log = Log(b"8.0.19")
    for kind, name in (
        (Event.GTID, "gtid_mysql_8_0"),
        (Event.ANONYMOUS_GTID, "gtid_mysql_8_0"),
        (Event.GTID, "gtid_mysql_8_0_replicated_from_5_7"),
        (Event.GTID, "gtid_mysql_5_7"),
    ):
        log.add(kind, RECORDED[name], time=1_600_000_000)
    events = scanned(log)
    borders = borders_of(events)
    assert [gtid_of(events, index) for index in range(4)] == [
        "5ccc1033-44a8-11ea-bd59-0242ac190003:119",
        None,
        "5aa72a7f-44a8-11ea-947f-0242ac190002:258",
        "5aa72a7f-44a8-11ea-947f-0242ac190002:259",
    ]
    # Of the third the first server's time is not known; the fourth has none at all but its header's.
    assert borders.times.tolist() == [
        1583813191872618,
        1583813191872618,
        1583812517644225,
        1_600_000_000_000_000,
    ]
    assert borders.place(0).file == FILE


def test_a_gtid_at_the_very_end_of_a_chunk() -> None:
    log = Log(checksums=False)
    log.xid()
    log.add(Event.MARIADB_GTID, struct.pack("<QI", 7, 3))
    assert np.array_equal(borders_of(scanned(log)).positions, [log.position - 31])
