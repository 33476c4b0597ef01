"""From events to changelog rows: events made by hand, and bytes that MySQL 8 recorded."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zlib import crc32

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pipelines.sources.mysql_cdc.binlog.made import COLLATIONS, FILE, START, TABLE, Log, whole
from tests.pipelines.sources.mysql_cdc.binlog.rows.test_table_map import FIXTURES, RECORDED
from tidegate.pipelines.sources.mysql_cdc.binlog.decoder import Decoder
from tidegate.pipelines.sources.mysql_cdc.binlog.events import ARTIFICIAL, PASSED_OVER, REFUSED, Chunk, Event
from tidegate.pipelines.sources.mysql_cdc.binlog.model import NO_CASCADES, BinlogPosition, Cascades, WantedTable
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.table_reader import schema_of
from tidegate.pipelines.sources.mysql_cdc.errors import (
    BinlogEnded,
    BinlogError,
    ChecksumMismatch,
    MalformedEvent,
    SchemaChanged,
    StatementEvent,
    UnknownEvent,
    UnsupportedEvent,
)
from tidegate.pipelines.sources.mysql_cdc.types import SourceColumn


def decode(
    *chunks: Chunk, table: WantedTable = TABLE, start: BinlogPosition = START, end: BinlogPosition | None = None
) -> list[dict[str, Any]]:
    decoder = Decoder(table, COLLATIONS, start=start, end=end)
    batches = [batch for chunk in chunks for batch in decoder.feed(chunk)]
    return pa.Table.from_batches(batches, schema_of(table)).to_pylist()


def pieces(log: Log, size: int) -> Iterator[Chunk]:
    """The log in chunks of `size` events."""
    chunk = log.chunk()
    for at in range(0, len(chunk.starts), size):
        yield Chunk(chunk.data, chunk.starts[at : at + size])


def test_a_row_says_where_and_when_it_came_from() -> None:
    log = Log()
    log.gtid(time=1_700_000_123)
    log.table_map()
    before = log.position
    log.rows(41, 42)
    log.xid()
    first, second = decode(log.chunk())
    assert (first["_op"], first["id"], second["id"]) == ("c", 41, 42)
    assert first["_seq"] == {"phase": 1, "log": 0, "file": 7, "position": before, "row": 0}
    assert second["_seq"] == {**first["_seq"], "row": 1}
    assert first["_rowtime"].timestamp() == 1_700_000_123
    assert first["_split"] == "binlog"
    assert second["_offset"] == first["_offset"] + 1


def test_every_event_that_is_passed_over_or_refused_is_named() -> None:
    assert not set(PASSED_OVER) & set(REFUSED)
    assert all(PASSED_OVER.values())
    assert all(fix for _, fix in REFUSED.values())


@pytest.mark.parametrize("kind", sorted(PASSED_OVER))
def test_events_without_rows_are_passed_over(kind: Event) -> None:
    log = Log()
    log.transaction(1)
    in_no_file = kind in (Event.HEARTBEAT, Event.HEARTBEAT_V2)
    position = log.position
    log.add(kind, b"\0" * 12)
    if in_no_file:
        log.position = position
    log.transaction(2)
    assert [row["id"] for row in decode(log.chunk())] == [1, 2]


@pytest.mark.parametrize("kind", sorted(REFUSED))
def test_events_that_lack_rows_are_refused(kind: Event) -> None:
    log = Log()
    log.transaction(1)
    place = log.position
    log.add(kind, b"\0" * 12)
    with pytest.raises(UnsupportedEvent) as caught:
        decode(log.chunk())
    assert caught.value.where == f"{FILE}:{place}"
    assert REFUSED[kind][1] in caught.value.what


def distributed(log: Log, name: bytes) -> None:
    """An XA transaction that changes table `name` and is prepared."""
    log.gtid()
    log.query("XA START X'01',X'',1")
    log.table_map(table_id=6, name=name)
    log.rows(8, table_id=6)
    log.query("XA END X'01',X'',1")
    log.add(Event.XA_PREPARE, b"\0" * 12)


def test_a_distributed_transaction_stops_only_its_own_tables() -> None:
    log = Log()
    log.transaction(1)
    distributed(log, b"other")
    log.transaction(2)
    log.gtid()
    log.query("XA COMMIT X'01',X'',1")
    log.transaction(3)
    assert [row["id"] for row in decode(log.chunk())] == [1, 2, 3]
    place = BinlogPosition(FILE, log.position)
    log.gtid()
    log.query("XA COMMIT X'01',X'',1")  # of one that was prepared before what was read, with whatever rows
    grant = "GRANT XA_RECOVER_ADMIN ON *.* TO 'me'@'%'"
    for known_from in (None, replace(place, position=place.position + 1000)):
        with pytest.raises(UnsupportedEvent, match=r"XA.* before d\.t was read, and may be its own") as caught:
            decode(log.chunk(), table=replace(TABLE, all_seen_from=known_from, xa_grant=grant))
        assert caught.value.next_command.startswith(f"{grant}, then: tidegate run SCRIPT --resnapshot")
    assert [row["id"] for row in decode(log.chunk(), table=replace(TABLE, all_seen_from=place))] == [1, 2, 3]
    log = Log()
    distributed(log, b"t")
    with pytest.raises(UnsupportedEvent, match=r"XA.* has changed d\.t"):
        decode(log.chunk(), table=replace(TABLE, all_seen_from=START))


def test_a_temporary_table_is_known_by_its_connection_and_by_the_server_of_that() -> None:
    log = Log()
    log.transaction(1)
    log.query("CREATE TEMPORARY TABLE t (id INT)", thread=7, marked=True)
    log.query("TRUNCATE TABLE t", thread=7, marked=True)
    assert [row["_op"] for row in decode(log.chunk())] == ["c"]
    other = Log()
    other.data, other.position = log.data, log.position
    other.query("ALTER TABLE t DROP id", thread=7, server=2, marked=True)  # of the replica, not its source
    with pytest.raises(SchemaChanged, match="does not show which"):
        decode(other.chunk())
    rotate(log, b"binlog.000008")
    second = Log()  # of a server that was started anew, maybe: its connections are others
    second.query("TRUNCATE TABLE t", thread=7, marked=True)
    for chunks in ([log.chunk(), second.chunk()], [second.chunk()]):  # and a step that begins in the middle
        with pytest.raises(SchemaChanged, match="does not show which"):
            decode(*chunks)


def test_a_partial_update_stops_only_its_own_table() -> None:
    log = Log()
    for name in (b"other", b"t"):
        log.transaction(1)
        log.gtid()
        log.table_map(table_id=6, name=name)
        place = log.position
        log.rows(8, table_id=6, kind=Event.PARTIAL_UPDATE_ROWS)
        log.xid()
        if name == b"other":
            assert [row["id"] for row in decode(log.chunk())] == [1]
    with pytest.raises(UnsupportedEvent, match=r"d\.t .*binlog_row_value_options") as caught:
        decode(log.chunk())
    assert caught.value.where == f"{FILE}:{place}"


@pytest.mark.parametrize("kind", [0, 1, 20, 35 + 100, 172, 255])
def test_an_unknown_event_is_never_skipped(kind: int) -> None:
    log = Log()
    place = log.position
    log.add(kind, b"what?")
    log.transaction(1)
    with pytest.raises(UnknownEvent, match=f"type {kind}") as caught:
        decode(log.chunk())
    assert caught.value.where == f"{FILE}:{place}"


@settings(deadline=None)
@given(at=st.integers(0), bit=st.integers(0, 7))
def test_a_flipped_bit_is_found_and_its_place_is_named(at: int, bit: int) -> None:
    log = Log()
    log.transaction(1, 2, 3)
    starts = log.chunk().starts.tolist()
    event = at % (len(starts) - 1) + 1
    start, end = starts[event], [*starts, len(log.data)][event + 1]
    # Not in the length, without which there is no event.
    places = [place for place in range(start, end) if not start + 9 <= place < start + 13]
    broken = bytearray(log.data)
    broken[places[at % len(places)]] ^= 1 << bit
    with pytest.raises(BinlogError) as caught:
        decode(Chunk(bytes(broken), log.chunk().starts))
    assert isinstance(caught.value, (ChecksumMismatch, UnknownEvent, UnsupportedEvent, MalformedEvent))
    assert caught.value.where.startswith(f"{FILE}:")


def test_a_broken_body_is_a_checksum_error() -> None:
    log = Log()
    log.transaction(1)
    place = log.position
    log.gtid()
    broken = bytearray(log.data)
    broken[-6] ^= 1
    with pytest.raises(ChecksumMismatch) as caught:
        decode(Chunk(bytes(broken), log.chunk().starts))
    assert caught.value.where == f"{FILE}:{place}"


def test_a_file_without_checksums_is_read() -> None:
    log = Log(checksums=False)
    log.transaction(5)
    assert [row["id"] for row in decode(log.chunk())] == [5]


def test_the_first_event_of_an_open_file_is_verified_without_its_flag() -> None:
    log = Log()
    log.transaction(5)
    opened = bytearray(log.data)
    opened[17] |= 1  # in use
    assert [row["id"] for row in decode(Chunk(bytes(opened), log.chunk().starts))] == [5]
    opened[30] ^= 1
    with pytest.raises(ChecksumMismatch):
        decode(Chunk(bytes(opened), log.chunk().starts))


@settings(deadline=None)
@given(st.integers(1, 40))
def test_rows_do_not_depend_on_how_events_are_cut_into_chunks(size: int) -> None:
    log = Log()
    for number in range(8):
        log.transaction(*range(number))
    log.query("TRUNCATE TABLE t")
    log.transaction(9)
    assert decode(*pieces(log, size)) == decode(log.chunk())


def test_a_change_of_the_key_is_a_delete_and_a_create() -> None:
    log = Log()
    log.gtid()
    log.table_map()
    log.rows(1, 1, 2, 5, 3, 3, kind=Event.UPDATE_ROWS_V1, columns=b"\x01\xff\xff")
    log.rows(4, kind=Event.DELETE_ROWS_V1)
    log.xid()
    rows = decode(log.chunk())
    assert [(row["_op"], row["id"], row["_seq"]["row"]) for row in rows] == [
        ("u", 1, 1),
        ("d", 2, 2),
        ("c", 5, 3),
        ("u", 3, 5),
        ("d", 4, 0),
    ]


def test_without_a_key_an_update_stays_one() -> None:
    log = Log()
    log.gtid()
    log.table_map()
    log.rows(2, 5, kind=Event.UPDATE_ROWS_V1, columns=b"\x01\xff\xff")
    log.xid()
    assert [(row["_op"], row["id"]) for row in decode(log.chunk(), table=replace(TABLE, primary_key=()))] == [("u", 5)]


def test_a_truncate_is_a_row_in_its_place() -> None:
    log = Log()
    log.transaction(1)
    log.gtid(time=1_700_000_050)
    place = log.position
    log.query("TRUNCATE TABLE t")
    log.transaction(2)
    rows = decode(log.chunk())
    assert [(row["_op"], row["id"]) for row in rows] == [("c", 1), ("t", None), ("c", 2)]
    assert rows[1]["_seq"] == {"phase": 1, "log": 0, "file": 7, "position": place, "row": 0}
    assert rows[1]["_rowtime"].timestamp() == 1_700_000_050
    assert [row["_offset"] for row in rows] == sorted(row["_offset"] for row in rows)


def test_other_tables_are_not_looked_at() -> None:
    log = Log()
    log.gtid()
    log.table_map(table_id=6, name=b"other", metadata=b"")  # no names, no matter
    log.rows(7, table_id=6, columns=b"\x01\x00")  # nor that the image lacks its column
    log.xid()
    log.transaction(1)
    assert [row["id"] for row in decode(log.chunk())] == [1]


def test_a_table_id_may_be_described_anew() -> None:
    log = Log()
    log.gtid()
    log.table_map()
    log.rows(1)
    log.table_map(metadata=b"\x01\x01\x00\x04\x06\x05other")
    log.rows(2)
    log.table_map()
    log.rows(3)
    log.xid()
    table = replace(TABLE, primary_key=())
    assert [row["id"] for row in decode(log.chunk(), table=table)] == [1, None, 3]


def test_a_key_column_that_is_gone_is_an_error() -> None:
    log = Log()
    log.gtid()
    log.table_map(metadata=b"\x01\x01\x00\x04\x06\x05other")
    log.rows(2)
    with pytest.raises(SchemaChanged, match="no column id any more"):
        decode(log.chunk())


@pytest.mark.parametrize(
    ("spoil", "kind", "message"),
    [
        (lambda log: log.rows(1, table_id=9), BinlogEnded, "begins inside a transaction"),
        (lambda log: log.rows(1, columns=b"\x01\x00"), UnsupportedEvent, "binlog_row_image = 'FULL'"),
        (lambda log: log.rows(1, columns=b"\x02\xff"), MalformedEvent, "has not the 1 columns"),
        (lambda log: log.rows(1, 2, 3, kind=Event.UPDATE_ROWS_V1, columns=b"\x01\xff\xff"), MalformedEvent, "without"),
        (lambda log: log.add(Event.WRITE_ROWS_V1, _cut_row()), MalformedEvent, "over the end"),
        (lambda log: log.query("DELETE FROM t WHERE id = 1"), StatementEvent, "binlog_format"),
        (lambda log: (log.rows(1), log.query("ROLLBACK")), UnsupportedEvent, "rolled back"),
        (lambda log: (log.rows(1), log.query("ALTER TABLE t MODIFY id BIGINT")), SchemaChanged, "MODIFY"),
    ],
)
def test_what_cannot_be_read_says_why_and_where(spoil: Any, kind: type[BinlogError], message: str) -> None:
    log = Log()
    log.gtid()
    log.table_map()
    spoil(log)
    with pytest.raises(kind, match=message) as caught:
        decode(log.chunk())
    assert caught.value.where.startswith(f"{FILE}:")
    assert caught.value.state
    assert caught.value.next_command


def _cut_row() -> bytes:
    return (5).to_bytes(6, "little") + b"\x01\x00" + b"\x01\xff" + b"\xfe\x01\x00"


def test_a_rollback_of_nothing_that_is_wanted_is_harmless() -> None:
    log = Log()
    log.transaction(1)
    log.gtid()
    log.query("ROLLBACK")
    assert [row["id"] for row in decode(log.chunk())] == [1]


def test_without_names_the_fix_is_named() -> None:
    log = Log()
    log.gtid()
    log.table_map(metadata=b"")
    log.rows(1)
    with pytest.raises(UnsupportedEvent, match="binlog_row_metadata = 'FULL'"):
        decode(log.chunk())


def test_a_value_is_of_the_type_that_is_followed_or_an_error() -> None:
    log = Log()
    log.transaction(300)

    def followed_as(kind: str) -> list[dict[str, Any]]:
        return decode(log.chunk(), table=replace(TABLE, columns=(SourceColumn("id", kind.split()[0], kind),)))

    assert [row["id"] for row in followed_as("bigint")] == [300]
    assert [row["id"] for row in followed_as("smallint unsigned")] == [300]
    for kind in ("tinyint", "float", "varchar", "date"):
        with pytest.raises(SchemaChanged, match=rf"id of d\.t is followed as {kind}; here the binlog has it as LONG"):
            followed_as(kind)


# --- files and ranges ------------------------------------------------------------------------------------------------


def rotate(log: Log, file: bytes, **more: Any) -> None:
    log.add(Event.ROTATE, struct.pack("<Q", 4) + file, **more)


def test_files_are_followed() -> None:
    first, second = Log(), Log()
    first.transaction(1)
    rotate(first, b"binlog.000008")
    second.transaction(2)
    rows = decode(first.chunk(), second.chunk())
    assert [(row["id"], row["_seq"]["file"]) for row in rows] == [(1, 7), (2, 8)]
    assert rows[0]["_seq"]["position"] == rows[1]["_seq"]["position"]
    assert rows[0]["_offset"] < rows[1]["_offset"]


@pytest.mark.parametrize("with_checksum", [True, False])
def test_a_dump_begins_with_two_events_that_are_in_no_file(with_checksum: bool) -> None:
    log = Log()
    log.transaction(1)
    begun = log.position
    log.transaction(2)
    position, data = log.position, log.data
    log.data = b""
    body = struct.pack("<Q", begun) + b"binlog.000012"
    log.checksums = with_checksum
    log.add(Event.ROTATE, body, flags=ARTIFICIAL, written=False)
    artificial, log.position = log.data, position
    again = bytearray(data[: int.from_bytes(data[9:13], "little")])
    again[13:17] = bytes(4)
    again[-4:] = struct.pack("<I", crc32(again[:-4]))
    wire = artificial + bytes(again) + data[begun - 4 :]
    rows = decode(whole(wire), start=BinlogPosition("binlog.000012", begun))
    assert [row["id"] for row in rows] == [2]
    assert rows[0]["_seq"]["file"] == 12
    assert begun < rows[0]["_seq"]["position"] < position


def test_a_range_ends_at_a_border() -> None:
    log = Log()
    log.transaction(1)
    border = BinlogPosition(FILE, log.position)
    log.transaction(2)
    decoder = Decoder(TABLE, COLLATIONS, start=START, end=border)
    rows = [row for batch in decoder.feed(log.chunk()) for row in batch.to_pylist()]
    assert [row["id"] for row in rows] == [1]
    assert decoder.done
    assert decoder.place == border


def test_a_range_ends_where_the_next_file_begins() -> None:
    first = Log()
    first.transaction(1)
    rotate(first, b"binlog.000008")
    decoder = Decoder(TABLE, COLLATIONS, start=START, end=BinlogPosition("binlog.000008"))
    assert sum(batch.num_rows for batch in decoder.feed(first.chunk())) == 1
    assert decoder.done


@pytest.mark.parametrize("event", [1, 2, 3])
def test_a_range_must_not_end_inside_a_transaction(event: int) -> None:
    log = Log()
    log.transaction(1)
    log.transaction(2)
    end = BinlogPosition(FILE, int(log.chunk().starts[5 + event]) + 4)
    with pytest.raises(BinlogEnded, match="inside a transaction"):
        decode(log.chunk(), end=end)


def test_a_range_must_not_end_inside_an_event() -> None:
    log = Log()
    log.transaction(1)
    with pytest.raises(BinlogEnded, match="inside an event"):
        decode(log.chunk(), end=BinlogPosition(FILE, log.position - 3))


def test_a_file_that_a_crash_left_unfinished_is_an_error() -> None:
    log = Log()
    log.gtid()
    log.table_map()
    log.rows(1)
    rotate(log, b"binlog.000008", flags=ARTIFICIAL, written=False)
    with pytest.raises(BinlogEnded, match="ends inside a transaction"):
        decode(log.chunk())


def test_an_event_that_goes_back_is_an_error() -> None:
    log = Log()
    log.transaction(1)
    log.position -= 100
    log.gtid()
    with pytest.raises(MalformedEvent, match="stands before"):
        decode(log.chunk())


def test_events_that_the_server_left_out_do_not_move_the_others() -> None:
    log = Log()
    log.transaction(1)
    log.position += 1000
    log.gtid()
    log.table_map()
    place = log.position
    log.rows(2)
    log.xid()
    assert decode(log.chunk())[-1]["_seq"]["position"] == place


def test_positions_beyond_4_gb() -> None:
    log = Log()
    log.transaction(1)
    log.position += 2**32 - 2000
    place = log.position
    begun = len(log.data)
    for number in range(30):
        log.transaction(number)
    rows = decode(whole(log.data[begun:]), start=BinlogPosition(FILE, place))
    positions = [row["_seq"]["position"] for row in rows]
    assert positions == sorted(positions)
    assert positions[-1] > 2**32
    assert positions[0] > place


# --- MySQL 8 ---------------------------------------------------------------------------------------------------------


def mysql(*recorded: tuple[int, str]) -> Chunk:
    """A file of MySQL 8 that holds the recorded events."""
    log = Log(b"8.0.32")
    log.add(Event.ANONYMOUS_GTID, RECORDED["gtid_mysql_8_0"])
    for kind, name in recorded:
        log.add(kind, RECORDED[name] if name in RECORDED else bytes.fromhex(name))
    log.xid()
    return log.chunk()


def named(chunk_of: str, *names: str) -> str:
    """A recorded TABLE_MAP with the names that binlog_row_metadata=FULL would have added."""
    field = b"".join(bytes([len(name)]) + name.encode() for name in names)
    return (RECORDED[chunk_of] + b"\x04" + bytes([len(field)]) + field).hex()


def test_mysql_8_rows_with_partition_ids() -> None:
    table = WantedTable("test", "test", (SourceColumn("id", "int", "int"),), ())
    chunk = mysql(
        (Event.TABLE_MAP, named("partitioned_8_0_16_table_map", "id")),
        (Event.WRITE_ROWS, "partitioned_8_0_16_insert"),
        (Event.UPDATE_ROWS, "partitioned_8_0_16_update"),
    )
    rows = decode(chunk, table=table)
    assert [(row["_op"], row["id"]) for row in rows] == [("c", 3), ("u", 1)]
    # microseconds, from the GTID event of MySQL 8.0.19
    assert int(rows[0]["_rowtime"].timestamp() * 1e6) == 1583813191872618


TAGGED = (
    "026e000000022c29024e7503ad03550222c503f9024c04f1030000000204040604746708080a0c0c7f557cce4d6061061049041283120b"
)
REPLICATED = (
    "02bc000000022c29024e7503ad03550222c503f9024c04f1030000000204040640615f766572795f6c6f6e675f7461675f6f665f7468697274"
    "795f74776f5f636808080a180c7feb83ce4d6061060e7f40222018240a0610e5041283120b"
)
"""What MySQL 9.7 wrote after GTID_NEXT = 'AUTOMATIC:tag', and where original_commit_timestamp was set, too."""


@pytest.mark.parametrize(("body", "time"), [(TAGGED, 1795916110396501), (REPLICATED, 1700000000123456)])
def test_a_tagged_transaction_has_its_microseconds(body: str, time: int) -> None:
    log = Log(b"9.7.0")
    log.add(Event.GTID_TAGGED, bytes.fromhex(body), time=1795916110)
    log.table_map()
    log.rows(1)
    log.xid()
    (row,) = decode(log.chunk())
    assert (row["_rowtime"] - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) == time


@pytest.mark.parametrize("body", [TAGGED[:90], "04" + TAGGED[2:], ""])
def test_a_tagged_transaction_without_a_time_is_an_error(body: str) -> None:
    log = Log(b"9.7.0")
    log.add(Event.GTID_TAGGED, bytes.fromhex(body))
    with pytest.raises(MalformedEvent, match="id and commit time") as caught:
        decode(log.chunk())
    assert str(caught.value.where).startswith(FILE)


def test_a_table_is_known_by_its_name_as_the_server_lowers_it() -> None:
    log = Log()
    for name in ("straße2", "STRASSE2", "strasse2"):
        log.gtid()
        log.table_map(name=name.encode())
        log.rows(len(log.data))
        log.xid()
    lower = str.maketrans("STRAE", "strae")
    for name, count in (("straße2", 1), ("Strasse2", 2)):
        decoder = Decoder(replace(TABLE, name=name), COLLATIONS, start=START, lower=lower)
        assert sum(batch.num_rows for batch in decoder.feed(log.chunk())) == count


@pytest.mark.parametrize(
    ("kind", "flags", "stops"),
    [
        *((Event.DELETE_ROWS_V1, 0x01, True), (Event.UPDATE_ROWS_V1, 0x01, True), (Event.WRITE_ROWS_V1, 0x01, False)),
        *((Event.PARTIAL_UPDATE_ROWS, 0x01, True), (Event.PARTIAL_UPDATE_ROWS, 0x11, False)),
        *(
            (Event.DELETE_ROWS_V1, 0x11, False),
            (Event.UPDATE_ROWS_V1, 0x11, False),
            (Event.DELETE_ROWS_V1, 0x03, False),
        ),
    ],
)
def test_a_change_whose_cascades_are_not_logged_stops_a_table_that_has_some(
    kind: Event, flags: int, stops: bool
) -> None:
    """Flags as MySQL 9.7 writes them: a replica leaves out 0x10 where its source does."""
    log = Log(b"9.7.0")
    log.gtid()
    log.table_map(table_id=6, name=b"parent")
    place = log.position
    log.rows(
        1, 2, table_id=6, kind=kind, flags=flags, columns=b"\x01\xff\xff" if "UPDATE" in kind.name else b"\x01\xff"
    )
    log.xid()
    of_parents = Cascades(("c", "to `p"), frozenset({("d", "grandparent"), ("d", "PARENT")}))
    lower = str.maketrans("PARENT", "parent")
    elsewhere = Cascades(("c",), frozenset({("d", "other"), ("e", "parent")}))
    for cascades in (NO_CASCADES, elsewhere):
        assert decode(log.chunk(), table=replace(TABLE, cascades=cascades)) == []
    for cascades in (of_parents, Cascades(("c", "to `p"), None), elsewhere | of_parents):
        decoder = Decoder(replace(TABLE, cascades=cascades), COLLATIONS, start=START, lower=lower)
        if not stops:
            assert list(decoder.feed(log.chunk())) == []
            continue
        with pytest.raises(UnsupportedEvent, match=r"rows of d\.parent .* does not log the cascades") as caught:
            list(decoder.feed(log.chunk()))
        assert f"{place}" in str(caught.value.where)
        dropped = "ALTER TABLE `d`.`t` DROP FOREIGN KEY `c`, DROP FOREIGN KEY `to ``p`   (on the server"
        assert caught.value.next_command.startswith(dropped)
        assert "--resnapshot" in caught.value.next_command


def test_mysql_8_rows_with_ndb_data() -> None:
    columns = (SourceColumn("p", "int", "int"), SourceColumn("c", "int", "int"))
    chunk = mysql((Event.TABLE_MAP, named("ndb_8_0_32_table_map", "p", "c")), (Event.WRITE_ROWS, "ndb_8_0_32_rows"))
    rows = decode(chunk, table=WantedTable("bdteste", "t", columns, ("p",)))
    assert sorted((row["p"], row["c"]) for row in rows) == [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5)]


def test_mysql_json_is_text() -> None:
    columns = (
        SourceColumn("c1", "json", "json"),
        SourceColumn("c2", "decimal", "decimal(10,0)", precision=10, scale=0),
    )
    chunk = mysql((Event.TABLE_MAP, named("json_table_map", "c1", "c2")), (Event.WRITE_ROWS, "json_insert"))
    (row,) = decode(chunk, table=WantedTable("test", "t10", columns, ()))
    assert (row["c1"], row["c2"]) == ('{"key1": "value1", "key2": "value2"}', 1)


def test_a_compressed_transaction_of_mysql_8() -> None:
    """The whole file, as MySQL 8.0.28 wrote it. Its TABLE_MAP has no names, which were off: the reader says so."""
    chunk = whole((FIXTURES / "mysql-8.0.28-compressed-transaction.bin").read_bytes()[4:])
    assert decode(chunk) == []  # another table's
    movies = WantedTable("demo", "movies", (SourceColumn("id", "int", "int"),), ())
    with pytest.raises(UnsupportedEvent, match="binlog_row_metadata = 'FULL'") as caught:
        decode(chunk, table=movies)
    assert caught.value.where.startswith(f"{FILE}:236")
