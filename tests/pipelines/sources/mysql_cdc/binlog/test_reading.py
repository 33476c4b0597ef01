"""Ranges of a real server's binlog: what was written comes out, in order, once."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, zip_longest
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from tests.conftest import Database
from tests.pipelines.sources.mysql_cdc.binlog import neighbours
from tests.pipelines.sources.mysql_cdc.binlog.all_types import COLUMNS
from tests.pipelines.sources.mysql_cdc.binlog.recording import changes, columns_of, position, read, server_of, wanted
from tidegate.pipelines.sources.mysql_cdc.binlog.model import BinlogPosition, BinlogRange, WantedTable, split_by_file
from tidegate.pipelines.sources.mysql_cdc.binlog.reading import read_range
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.table_reader import schema_of
from tidegate.pipelines.sources.mysql_cdc.binlog.scan import shares
from tidegate.pipelines.sources.mysql_cdc.errors import (
    BinlogEnded,
    BinlogError,
    SchemaChanged,
    StatementEvent,
    UnsupportedEvent,
)
from tidegate.pipelines.sources.mysql_cdc.server import EmbeddedMariaDb
from tidegate.pipelines.sources.mysql_cdc.types import SourceColumn, snapshot_expression
from tidegate.pipelines.sources.mysql_cdc.widening import followed
from tidegate.pipelines.syntax.types import quoted

EPOCH = datetime.datetime(1970, 1, 1)


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedMariaDb]:
    """A server whose settings a test may change."""
    with EmbeddedMariaDb(tmp_path_factory.mktemp("own")) as server:
        server.create_user("reader", "reader-secret")
        yield server


@pytest.fixture
def own(own_server: EmbeddedMariaDb) -> Iterator[Database]:
    own_server.execute("CREATE DATABASE own")
    yield Database(own_server, "own", "reader", "reader-secret")
    own_server.execute("DROP DATABASE own")


def people(database: Database) -> tuple[WantedTable, BinlogPosition]:
    """A new table, and the end of the log that its changes follow."""
    database.execute("CREATE TABLE people (id INT PRIMARY KEY, name VARCHAR(50), score DOUBLE)")
    return wanted(database, "people"), position(database)


# --- right rows ------------------------------------------------------------------------------------------------------


def test_changes_come_in_order(database: Database) -> None:
    table, start = people(database)
    database.execute(
        "INSERT INTO people VALUES (1, 'a', 1), (2, 'b', NULL)",
        "UPDATE people SET name = 'c' WHERE id = 1",
        "UPDATE people SET id = 3 WHERE id = 2",
        "DELETE FROM people WHERE id = 1",
        "TRUNCATE TABLE people",
        "INSERT INTO people VALUES (4, '😀', 0.1)",
    )
    rows = read(database, table, start)
    assert changes(rows, "id", "name", "score") == [
        ("c", 1, "a", 1.0),
        ("c", 2, "b", None),
        ("u", 1, "c", 1.0),
        ("d", 2, "b", None),
        ("c", 3, "b", None),
        ("d", 1, "c", 1.0),
        ("t", None, None, None),
        ("c", 4, "😀", 0.1),
    ]
    offsets = rows["_offset"].to_pylist()
    assert offsets == sorted(set(offsets))
    keys = [tuple(seq.values()) for seq in rows["_seq"].to_pylist()]
    assert keys == sorted(set(keys))


def test_positions_are_those_of_the_file(database: Database) -> None:
    """ANNOTATE_ROWS events are in the file, so they must count, though they are passed over."""
    table, start = people(database)
    with database.connect(autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO people VALUES (1, 'a', 1)")
        cursor.execute("INSERT INTO people VALUES (2, 'b', 2)")
        connection.commit()
    events = database.execute(f"SHOW BINLOG EVENTS IN '{start.file}' FROM {start.position}")
    expected = [int(at) for _, at, kind, *_ in events if kind.startswith("Write_rows")]
    assert [seq["position"] for seq in read(database, table, start)["_seq"].to_pylist()] == expected
    assert len(expected) == 2


def test_rows_carry_the_time_of_their_commit(database: Database) -> None:
    table, start = people(database)
    with database.connect(autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute("SET timestamp = 1700000000")
        cursor.execute("INSERT INTO people VALUES (1, 'a', 1)")
        cursor.execute("SET timestamp = 1700000060")
        connection.commit()
    (time,) = read(database, table, start)["_rowtime"].to_pylist()
    assert time.timestamp() == 1_700_000_060


@pytest.mark.parametrize("chunk_bytes", [1, 700, 1 << 20])
def test_rows_do_not_depend_on_the_size_of_chunks(database: Database, chunk_bytes: int) -> None:
    table, start = people(database)
    values = ", ".join(f"({number}, 'name {number}', {number})" for number in range(2_000))
    database.execute(f"INSERT INTO people VALUES {values}", "UPDATE people SET score = score + 1 WHERE id % 3 = 0")
    rows = read(database, table, start, chunk_bytes=chunk_bytes)
    assert rows.num_rows == 2_000 + 667
    assert rows.equals(read(database, table, start))


def test_a_long_transaction_comes_in_small_batches(database: Database) -> None:
    table, start = people(database)
    database.execute("INSERT INTO people SELECT seq, REPEAT('x', 50), seq FROM seq_1_to_100000")
    span = BinlogRange(start, position(database))
    sizes = [batch.num_rows for batch in read_range(server_of(database), span, table, chunk_bytes=1 << 16)]
    assert sum(sizes) == 100_000
    assert max(sizes) < 10_000


def test_rotation_inside_a_range(database: Database) -> None:
    table, start = people(database)
    for number in range(4):
        database.execute(f"INSERT INTO people VALUES ({number}, 'x', 0)", "FLUSH BINARY LOGS")
    database.execute("INSERT INTO people VALUES (4, 'y', 0)")
    span = BinlogRange(start, position(database))
    rows = read(database, table, start)
    assert [row["id"] for row in rows.to_pylist()] == [0, 1, 2, 3, 4]
    assert len({seq["file"] for seq in rows["_seq"].to_pylist()}) == 5
    files = [name for name, *_ in database.execute("SHOW BINARY LOGS")]
    pieces = split_by_file(span, files)
    assert len(pieces) == 5
    batches = [batch for piece in pieces for batch in read_range(server_of(database), piece, table)]
    assert pa.Table.from_batches(batches, schema_of(table)).equals(rows)


def test_ranges_that_follow_each_other_give_each_row_once(database: Database) -> None:
    table, start = people(database)
    borders = [start]
    for number in range(10):
        database.execute(f"INSERT INTO people VALUES ({number}, 'x', 0), ({number + 100}, 'y', 0)")
        borders.append(position(database))
    parts = [read(database, table, start, end) for start, end in pairwise(borders)]
    assert pa.concat_tables(parts).equals(read(database, table, start))
    assert read(database, table, start, start).num_rows == 0


def test_shares_of_a_range_give_each_row_once(database: Database) -> None:
    (table, start), server = people(database), server_of(database)
    for number in range(40):
        database.execute(f"INSERT INTO people SELECT seq + {number * 1000}, 'x', 0 FROM seq_1_to_{10 + number}")
    span = BinlogRange(start, position(database))
    whole = read(database, table, start)
    for parts in (1, 2, 3, 7, 1_000):
        ranges = shares(server, span, parts)
        assert len(ranges) == min(parts, 40)
        assert (ranges[0].start, ranges[-1].end) == (span.start, span.end)
        assert all(one.end == next_one.start for one, next_one in pairwise(ranges))
        batches = [batch for each in ranges for batch in read_range(server, each, table)]
        assert pa.Table.from_batches(batches, schema_of(table)).equals(whole), parts
    two = [each.end.position - each.start.position for each in shares(server, span, 2)]
    assert max(two) < 1.2 * min(two)


def test_a_transaction_longer_than_a_share_is_not_cut(database: Database) -> None:
    (table, start), server = people(database), server_of(database)
    database.execute("INSERT INTO people SELECT seq, 'y', 0 FROM seq_1_to_500", "INSERT INTO people VALUES (0, 'x', 0)")
    ranges = shares(server, BinlogRange(start, position(database)), 4)
    assert [sum(batch.num_rows for batch in read_range(server, each, table)) for each in ranges] == [500, 1]


def test_a_row_of_20_mb(database: Database) -> None:
    database.execute("CREATE TABLE big (id INT PRIMARY KEY, body LONGBLOB)")
    table = wanted(database, "big")
    start = position(database)
    database.execute(
        "INSERT INTO big VALUES (1, 'before')",
        "INSERT INTO big VALUES (2, REPEAT('0123456789abcdef', 1310720))",
        "INSERT INTO big VALUES (3, 'after')",
    )
    rows = read(database, table, start)
    assert rows["id"].to_pylist() == [1, 2, 3]
    assert rows["body"][1].as_py() == b"0123456789abcdef" * 1_310_720


def test_wide_tables_count_their_columns_in_three_bytes(database: Database) -> None:
    names = [f"c{number}" for number in range(300)]
    database.execute(f"CREATE TABLE wide (id INT PRIMARY KEY, {', '.join(f'{name} TINYINT' for name in names)})")
    table = wanted(database, "wide")
    start = position(database)
    database.execute("INSERT INTO wide (id, c0, c299) VALUES (1, 5, 7)", "UPDATE wide SET c150 = 9")
    assert changes(read(database, table, start), "id", "c0", "c150", "c299") == [
        ("c", 1, 5, None, 7),
        ("u", 1, 5, 9, 7),
    ]


def test_generated_and_invisible_columns(database: Database) -> None:
    database.execute(
        "CREATE TABLE g (id INT PRIMARY KEY, twice INT AS (id * 2) VIRTUAL, thrice INT AS (id * 3) STORED,"
        " hidden INT INVISIBLE DEFAULT 8, last TEXT)"
    )
    table = wanted(database, "g")
    start = position(database)
    database.execute("INSERT INTO g (id, last) VALUES (5, 'x')")
    assert changes(read(database, table, start), "id", "twice", "thrice", "hidden", "last") == [
        ("c", 5, 10, 15, 8, "x")
    ]


def test_only_the_declared_columns_are_read(database: Database) -> None:
    table, start = people(database)
    database.execute("INSERT INTO people VALUES (1, 'a', 2.5)")
    some = WantedTable(table.database, table.name, (table.columns[2], table.columns[0]), ("id",))
    assert read(database, some, start).column_names[:2] == ["score", "id"]


# --- against other readers -------------------------------------------------------------------------------------------


def test_against_mysql_replication(database: Database) -> None:
    table, start = people(database)
    rng = np.random.default_rng(7)
    statements = [f"INSERT INTO people VALUES ({number}, 'n{number}', {number} / 7)" for number in range(60)]
    for _ in range(200):
        key, other = rng.integers(0, 80, 2)
        statements.append(
            [
                f"INSERT IGNORE INTO people VALUES ({key}, 'again', {other})",
                f"UPDATE people SET score = score + {other}, name = REPEAT('é', {other % 9}) WHERE id <= {key}",
                f"UPDATE IGNORE people SET id = {other} WHERE id = {key}",
                f"DELETE FROM people WHERE id = {key}",
            ][rng.integers(0, 4)]
        )
    database.execute(*statements)
    assert changes(read(database, table, start), "id", "name", "score") == list(_by_mysql_replication(database, start))


def _by_mysql_replication(database: Database, start: BinlogPosition) -> Iterator[tuple[Any, ...]]:
    stream = BinLogStreamReader(
        connection_settings={
            "host": database.server.host,
            "port": database.server.port,
            "user": database.user,
            "passwd": database.password,
        },
        server_id=4711,
        log_file=start.file,
        log_pos=start.position,
        resume_stream=True,
        only_schemas=[database.name],
        only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
    )
    try:
        for event in stream:
            for row in event.rows:
                if isinstance(event, WriteRowsEvent):
                    yield ("c", *row["values"].values())
                elif isinstance(event, DeleteRowsEvent):
                    yield ("d", *row["values"].values())
                elif row["before_values"]["id"] != row["after_values"]["id"]:
                    yield ("d", *row["before_values"].values())
                    yield ("c", *row["after_values"].values())
                else:
                    yield ("u", *row["after_values"].values())
    finally:
        stream.close()


KINDS = [kind for kind in COLUMNS if kind.strip() == kind]
HISTORY = st.lists(st.tuples(st.sampled_from("iiuudk"), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12)
HISTORIES = 10
"""Of a table, each on ten keys of its own."""


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=14),
    histories=st.lists(HISTORY, min_size=HISTORIES, max_size=HISTORIES),
)
def test_random_tables_and_histories_end_where_the_server_does(
    database: Database, kinds: list[str], histories: list[list[tuple[str, int, int]]]
) -> None:
    columns = ", ".join(f"c{number} {kind} NULL" for number, kind in enumerate(kinds))
    database.execute(f"CREATE OR REPLACE TABLE random (id INT PRIMARY KEY, {columns}) CHARACTER SET utf8mb4")
    table = wanted(database, "random")
    start = position(database)
    database.execute("SET SESSION sql_mode = '', time_zone = '+00:00'", *_statements(kinds, histories))
    state: dict[int, tuple[Any, ...]] = {}
    rows = read(database, table, start)
    for op, *values in zip(*(rows[name].to_pylist() for name in ["_op", *schema_names(table)]), strict=True):
        if op == "d":
            del state[values[0]]
        else:
            assert op == ("u" if values[0] in state else "c")
            state[values[0]] = tuple(values)
    assert sorted(state.values()) == sorted(_selected(database, table))


def schema_names(table: WantedTable) -> list[str]:
    return [column.name for column in table.columns]


def _statements(kinds: Sequence[str], histories: Sequence[Sequence[tuple[str, int, int]]]) -> Iterator[str]:
    """The histories side by side: the first operation of each, then the second of each."""

    def value(kind: str, choice: int) -> str:
        return (*COLUMNS[kind], "NULL")[choice % 4]

    for turn in zip_longest(*histories):
        for history, step in enumerate(turn):
            if step is not None:
                operation, first, second = step
                key, other = history * 10 + first, history * 10 + second
                values = [value(kind, second + number) for number, kind in enumerate(kinds)]
                assignments = ", ".join(f"c{number} = {text}" for number, text in enumerate(values))
                row = ", ".join(values)
                yield {
                    "i": f"INSERT IGNORE INTO random VALUES ({key}, {row}), ({other}, {row})",
                    "u": f"UPDATE random SET {assignments} WHERE id BETWEEN {key} AND {history * 10 + 9}",
                    "d": f"DELETE FROM random WHERE id IN ({key}, {other})",
                    "k": f"UPDATE IGNORE random SET id = {other} WHERE id = {key}",
                }[operation]


def _selected(database: Database, table: WantedTable) -> Iterator[tuple[Any, ...]]:
    """What the server itself says is in the table, in canonical values."""
    # Rows come as text here, in which a FLOAT has six digits.
    expressions = ", ".join(
        f"{quoted(column.name)} * 1e0" if column.data_type in ("float", "double") else snapshot_expression(column)
        for column in table.columns
    )
    for row in database.execute(f"SELECT {expressions} FROM {quoted(table.name)}"):
        yield tuple(_canonical(column, value) for column, value in zip(table.columns, row, strict=True))


def _canonical(column: SourceColumn, value: Any) -> Any:
    kind = column.canonical.spark
    if value is None or (column.data_type == "timestamp" and value == 0):
        return None
    if kind == "DATE":
        return (EPOCH + datetime.timedelta(days=value)).date()
    if kind in ("TIMESTAMP", "TIMESTAMP_NTZ"):
        if value < -62_135_596_800_000_000:
            return None  # of the year 0
        local = EPOCH + datetime.timedelta(microseconds=value)
        return local.replace(tzinfo=datetime.UTC) if kind == "TIMESTAMP" else local
    return bool(value) if kind == "BOOLEAN" else value


# --- other settings of the server ------------------------------------------------------------------------------------


def test_compressed_events(own: Database) -> None:
    with own.settings(log_bin_compress=1, log_bin_compress_min_len=10):
        table, start = people(own)
        own.execute(
            "INSERT INTO people SELECT seq, REPEAT('z', 50), seq FROM seq_1_to_1000",
            "INSERT INTO people VALUES (0, '', NULL)",
            "UPDATE people SET name = 'short', id = IF(id = 1, -1, id) WHERE id <= 2",
            "DELETE FROM people WHERE id > 500",
            "ALTER TABLE people ADD COLUMN note TEXT COMMENT 'a comment that makes the statement long enough'",
            "TRUNCATE TABLE people /* a comment that makes the statement long enough for compression by the server */",
        )
        rows = read(own, table, start)
    kinds = {kind for *_, kind, _, _, _ in own.execute(f"SHOW BINLOG EVENTS IN '{start.file}' FROM {start.position}")}
    assert {"Write_rows_compressed_v1", "Query_compressed"} <= kinds
    ops = rows["_op"].to_pylist()
    assert {op: ops.count(op) for op in "cudt"} == {"c": 1_002, "u": 2, "d": 501, "t": 1}
    assert changes(rows, "id", "name")[1_000:1_005] == [
        ("c", 0, ""),
        ("u", 0, "short"),
        ("d", 1, "z" * 50),
        ("c", -1, "short"),
        ("u", 2, "short"),
    ]


def test_files_without_checksums_beside_files_with_them(own: Database) -> None:
    table, start = people(own)
    own.execute("INSERT INTO people VALUES (1, 'a', 1)")
    with own.settings(binlog_checksum="NONE"):
        middle = position(own)
        own.execute("INSERT INTO people VALUES (2, 'b', 2)")
        assert read(own, table, middle)["id"].to_pylist() == [2]
    own.execute("INSERT INTO people VALUES (3, 'c', 3)")
    assert read(own, table, start)["id"].to_pylist() == [1, 2, 3]


def test_without_column_names_the_fix_is_named(own: Database) -> None:
    with own.settings(binlog_row_metadata="MINIMAL"):
        table, start = people(own)
        own.execute("INSERT INTO people VALUES (1, 'a', 1)")
        with pytest.raises(UnsupportedEvent, match="SET GLOBAL binlog_row_metadata = 'FULL'"):
            read(own, table, start)


def test_a_type_of_any_kind_leaves_its_neighbours_their_character_sets(database: Database) -> None:
    assert neighbours.fault(database, neighbours.MARIADB) == []


def test_a_column_is_found_by_its_name_as_the_server_compares_it(database: Database) -> None:
    """`ß` is no `ss` there."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, `straße` INT, strasse INT, `Ä` INT)")
    table, start = wanted(database, "t"), position(database)
    kept = replace(table, columns=tuple(column for column in table.columns if column.name != "strasse"))
    database.execute(
        "INSERT INTO t VALUES (1, 10, 20, 30)",
        "ALTER TABLE t CHANGE `Ä` `ä` INT, DROP COLUMN strasse",
        "INSERT INTO t VALUES (2, 40, 50)",
    )
    names = ("id", "straße", "Ä")
    assert changes(read(database, kept, start), *names) == [("c", 1, 10, 30), ("c", 2, 40, 50)]


def test_old_formats_of_time_are_refused_with_the_fix(own: Database) -> None:
    with own.settings(mysql56_temporal_format=0):
        own.execute("CREATE TABLE old (id INT PRIMARY KEY, at DATETIME(3))")
    table = wanted(own, "old")
    start = position(own)
    own.execute("INSERT INTO old VALUES (1, NOW())")
    with pytest.raises(UnsupportedEvent) as caught:
        read(own, table, start)
    assert "ALTER TABLE own.old FORCE" in caught.value.next_command
    own.execute("ALTER TABLE old FORCE")
    start = position(own)
    own.execute("UPDATE old SET at = '2024-01-02 03:04:05.678'")
    assert read(own, table, start)["at"].to_pylist() == [datetime.datetime(2024, 1, 2, 3, 4, 5, 678000)]


# --- what cannot be followed ----------------------------------------------------------------------------------------


def test_columns_that_come_and_go_are_followed_and_noted(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    table, start = people(database)
    database.execute(
        "INSERT INTO people VALUES (1, 'a', 1)",
        "ALTER TABLE people ADD COLUMN age INT NOT NULL DEFAULT 3 FIRST",
        "INSERT INTO people (id, name, score) VALUES (2, 'b', 2)",
        "ALTER TABLE people DROP COLUMN name",
        "INSERT INTO people (id, score) VALUES (3, 3)",
    )
    now = followed(table.columns, columns_of(database, "people"), ())
    rows = read(database, replace(table, columns=now), start)
    assert changes(rows, "id", "name", "score") == [("c", 1, "a", 1.0), ("c", 2, "b", 2.0), ("c", 3, None, 3.0)]
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == [
        "column age was added and is not declared: passed over",
        "column name was dropped: it reads NULL from here on",
    ]


@pytest.mark.parametrize(
    ("statements", "kind", "message"),
    [
        (["ALTER TABLE people MODIFY name VARCHAR(10)"], SchemaChanged, "MODIFY name"),
        (["RENAME TABLE people TO persons"], SchemaChanged, "renamed"),
        (["CREATE TABLE p2 LIKE people", "RENAME TABLE people TO p1, p2 TO people"], SchemaChanged, "renamed"),
        (["DROP TABLE people"], SchemaChanged, "dropped"),
        (
            ["SET SESSION binlog_format = STATEMENT", "INSERT INTO people VALUES (7, 'x', 1)"],
            StatementEvent,
            "binlog_format = 'ROW'",
        ),
        (
            ["SET SESSION binlog_row_image = MINIMAL", "UPDATE people SET score = 5"],
            UnsupportedEvent,
            "binlog_row_image = 'FULL'",
        ),
        (
            ["SET SESSION binlog_row_image = NOBLOB", "UPDATE people SET score = 5"],
            None,
            "a table without BLOBs has whole images all the same",
        ),
        (
            ["XA START 'x'", "INSERT INTO people VALUES (8, 'x', 1)", "XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'"],
            UnsupportedEvent,
            "XA",
        ),
    ],
)
def test_what_cannot_be_followed_stops_the_reader(
    database: Database, statements: list[str], kind: type[BinlogError] | None, message: str
) -> None:
    table, _ = people(database)
    database.execute("INSERT INTO people VALUES (1, 'a', 1)")
    start = position(database)
    database.execute(*statements)
    if kind is None:
        assert read(database, table, start).num_rows == 1, message
        return
    with pytest.raises(kind, match=message) as caught:
        read(database, table, start)
    assert caught.value.where.startswith(f"{start.file}:")
    assert str(table) in caught.value.where
    assert "--resnapshot" in caught.value.next_command


def test_a_range_beyond_the_end_of_the_log(database: Database) -> None:
    table, start = people(database)
    end = BinlogPosition(start.file, start.position + 10_000)
    with pytest.raises(BinlogEnded, match="before the end of the range"):
        read(database, table, start, end)
