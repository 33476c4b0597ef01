"""Which transactions change a table, found without reading a row, and where a piece for that table ends."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from tests.conftest import Database
from tests.pipelines.sources.mysql_cdc.binlog.made import FILE, START, Log, whole
from tests.pipelines.sources.mysql_cdc.binlog.recording import gtid_events, position, server_of
from tidegate.pipelines.sources.mysql_cdc.binlog.events import Chunk, Event
from tidegate.pipelines.sources.mysql_cdc.binlog.model import BinlogPosition
from tidegate.pipelines.sources.mysql_cdc.binlog.scan import PieceEnd, Running, TableName, end_of_piece, touching
from tidegate.pipelines.sources.mysql_cdc.binlog.stream import EventStream

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
