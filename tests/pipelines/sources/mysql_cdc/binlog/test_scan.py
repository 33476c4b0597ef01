"""Transaction borders, found by headers and compared with what the server says it wrote.

And which transactions change a table, found without reading a row, and where a piece for that table ends.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from tests.conftest import Database
from tests.pipelines.sources.mysql_cdc.binlog.made import FILE, START, Log, whole
from tests.pipelines.sources.mysql_cdc.binlog.recording import gtid_events, position, server_of
from tests.pipelines.sources.mysql_cdc.binlog.rows.test_table_map import RECORDED
from tidegate.pipelines.sources.mysql_cdc.binlog.events import Chunk, Event
from tidegate.pipelines.sources.mysql_cdc.binlog.model import BinlogPosition
from tidegate.pipelines.sources.mysql_cdc.binlog.scan import (
    PieceEnd,
    Running,
    TableName,
    borders_of,
    commit_time,
    end_of_piece,
    gtid_of,
    scan_borders,
    scan_gtids,
    touching,
)
from tidegate.pipelines.sources.mysql_cdc.binlog.stream import Events, EventStream
from tidegate.pipelines.sources.mysql_cdc.errors import UnknownEvent


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


@pytest.mark.parametrize("kind", [Event.XA_PREPARE, Event.PARTIAL_UPDATE_ROWS, Event.INCIDENT])
def test_a_scan_passes_over_what_only_a_decoder_must_understand(kind: Event) -> None:
    log = Log()
    log.transaction(1)
    log.gtid(2)
    log.add(kind, bytes(40))
    log.transaction(2)
    found = [borders_of(events) for events in EventStream(START, verify=False).feed(whole(log.data))]
    assert sum(map(len, found)) == 3
    log.add(99, bytes(40))
    with pytest.raises(UnknownEvent):
        list(EventStream(START, verify=False).feed(whole(log.data)))


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


def test_tagged_gtids_of_mysql() -> None:
    """As MySQL 9.7 wrote them, and calls them in SHOW BINLOG EVENTS."""
    bodies = {
        "fbb1e27d-eb97-11f1-9c1f-02fc00000001:tg:1": (
            "027000000002ed03c5028903faad035d0222c50371023e04f1030000000204040604"
            "746708740a7c0c7f01b9c1b46061061075041283120b"
        ),
        "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee:tg:5000000000": (
            "028800000002a902a902a902a902ed02ed023103310375037503b903b903b903b903b903b903"
            "040f807c814a0604746708740a8c0c7fb9c7c1b460610610a5041283120b"
        ),
    }
    log = Log(b"9.7.0")
    for body in bodies.values():
        log.add(Event.GTID_TAGGED, bytes.fromhex(body))
    events = scanned(log)
    assert [gtid_of(events, index) for index in range(2)] == [*bodies]


def test_a_gtid_at_the_very_end_of_a_chunk() -> None:
    log = Log(checksums=False)
    log.xid()
    log.add(Event.MARIADB_GTID, struct.pack("<QI", 7, 3))
    assert np.array_equal(borders_of(scanned(log)).positions, [log.position - 31])


T = TableName("d", "t")
FAR = BinlogPosition("binlog.000009")


def transaction(log: Log, name: bytes, table_id: int, events: int = 1) -> int:
    """A transaction with so many row events of table d.`name`; where it begins."""
    begins = log.position
    log.gtid()
    log.table_map(table_id, name)
    for _ in range(events):
        log.rows(1, table_id=table_id)
    log.xid()
    return begins


def found(chunks: list[Chunk], name: TableName = T, end: BinlogPosition = FAR) -> list[tuple[int, int]]:
    """(where it begins, row events) of what `chunks` have of the table, one entry a transaction and chunk."""
    stream, running = EventStream(START, verify=False), Running(name, end)
    touched = [running.of(events) for chunk in chunks for events in stream.feed(chunk)]
    return [
        (int(position), int(events))
        for item in touched
        if item is not None
        for position, events in zip(item.borders.positions, item.events, strict=True)
    ]


def test_transactions_of_other_tables_are_passed_over() -> None:
    log = Log()
    own = [transaction(log, b"t", 5), 0, transaction(log, b"t", 5, events=3)]
    own[1] = transaction(log, b"u", 6)
    transaction(log, b"tt", 7)
    last = transaction(log, b"T", 8)
    assert found([log.chunk()]) == [(own[0], 1), (own[2], 3), (last, 1)]
    assert found([log.chunk()], TableName("D", "U")) == [(own[1], 1)]
    assert found([log.chunk()], TableName("e", "t")) == []
    assert found([log.chunk()], end=BinlogPosition(FILE, last)) == [(own[0], 1), (own[2], 3)]


def test_a_transaction_that_several_tables_share_counts_the_events_of_its_own() -> None:
    log = Log()
    begins = log.position
    log.gtid()
    log.table_map(5, b"u")
    log.table_map(6, b"t")
    log.rows(1, table_id=5)
    log.rows(2, table_id=6)
    log.xid()
    assert found([log.chunk()]) == [(begins, 1)]


@pytest.mark.parametrize("every", [1, 2, 3])
def test_a_transaction_may_reach_over_chunks(every: int) -> None:
    log = Log()
    begins = [transaction(log, name, number) for number, name in enumerate((b"u", b"t", b"u", b"t"), 1)]
    cuts = [*log.chunk().starts[::every], len(log.data)]
    chunks = []
    for first, last in pairwise(cuts):
        chunks.append(whole(log.data[first:last]))
    sums: dict[int, int] = {}
    for place, events in found(chunks):
        sums[place] = sums.get(place, 0) + events
    assert sums == {begins[1]: 1, begins[3]: 1}
    end = BinlogPosition(FILE, begins[3])
    assert {place for place, _ in found(chunks, end=end)} == {begins[1]}, "what begins at the end is not in it"


def test_a_compressed_transaction_may_be_the_table_s() -> None:
    log = Log(b"8.0.36", checksums=False)
    begins = log.position
    log.add(Event.ANONYMOUS_GTID, bytes(42))
    log.add(Event.TRANSACTION_PAYLOAD, b"\0" * 8)
    assert found([log.chunk()]) == [(begins, 1)]


def test_an_id_means_another_table_once_a_file_begins() -> None:
    log = Log()
    transaction(log, b"t", 5)
    log.add(Event.FORMAT_DESCRIPTION, log.data[19 : 19 + 57 + 160 + 1], always_checksum=True)
    before = len(found([log.chunk()]))
    log.gtid()
    log.rows(1, table_id=5)
    log.xid()
    assert len(found([log.chunk()])) == before


def test_a_piece_ends_before_what_is_too_late_or_too_much_but_has_one_transaction(database: Database) -> None:
    for name in ("t", "u"):
        database.execute(f"CREATE TABLE {name} (id INT)")
    start, server = position(database), server_of(database)
    for second in range(4):
        for name in ("u", "t", "u"):
            with database.connect(autocommit=False) as connection, connection.cursor() as cursor:
                cursor.execute(f"SET timestamp = {1_700_000_000 + second}")
                cursor.execute(f"INSERT INTO {name} VALUES ({second})")
                connection.commit()
        if second == 1:
            database.execute("FLUSH BINARY LOGS")
    end, name = position(database), TableName(database.name, "t")
    # By the server's own word. The end of the log may not be where the next one begins: a checkpoint comes between.
    begins = [place for place, _ in gtid_events(database, start)][1::3]
    assert len(begins) == 4

    def ends(**more: int) -> BinlogPosition | None:
        found = end_of_piece(server, start, end, name, **more)
        return None if found is None else found.place

    at = 1_700_000_000_000_000
    assert [ends(instant=at + second * 1_000_000) for second in (-9, 0, 1, 2, 3)] == [
        begins[1], begins[1], begins[2], begins[3], None,
    ]  # fmt: skip
    strictly = [ends(instant=at + second * 1_000_000, least=False) for second in (-9, 0, 1, 3)]
    assert strictly == [begins[0], begins[1], begins[2], None]
    assert ends(instant=at + 9_000_000, most=1, least=False) == begins[1]
    assert [ends(most=most) for most in (1, 2, 3, 4)] == [*begins[1:], None]
    assert end_of_piece(server, start, begins[2], name, most=2) is None, "what is at the end is not in the piece"
    assert end_of_piece(server, begins[3], end, name, instant=at) is None
    assert ends(instant=at + 2_000_000, most=2) == begins[2]
    late = [end_of_piece(server, start, end, name, instant=at + 1_000_000, most=most) for most in (1, 2)]
    assert late == [PieceEnd(begins[1], None), PieceEnd(begins[2], at + 2_000_000)]
    changed = list(touching(server, start, end, replace(name, table="U")))
    assert sum(len(item.borders) for item in changed) == 8
