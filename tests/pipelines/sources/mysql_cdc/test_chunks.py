"""Chunks divide all keys: every row is in one chunk, none is too long, whatever the key is made of."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pymysql.cursors import Cursor

from tests.conftest import Database
from tests.pipelines.sources.mysql_cdc.binlog.recording import server_of
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.progress import SilentProgress
from tidegate.pipelines.sources.cdc.chunks import Chunk, after, at_or_after, before, plan_bounds
from tidegate.pipelines.sources.mysql_cdc.catalog import KeyColumn, SourceTable, read_table
from tidegate.pipelines.sources.mysql_cdc.connection import Session


@contextmanager
def reading(database: Database) -> Iterator[Cursor]:
    """A cursor of the connector's own session, as the connector's user."""
    session = Session(server_of(database), "test")
    with session.cursor() as cursor:
        cursor.execute(f"USE `{database.name}`")
        yield cursor
    session.close()


@dataclass(frozen=True)
class Planned:
    table: SourceTable
    chunks: list[Chunk]
    counts: list[int]


def plan(database: Database, chunk_rows: int, table: str = "t") -> Planned:
    """Plan the chunks of `table` and count each one's rows by its predicate."""
    database.execute(f"ANALYZE TABLE {table}")
    with reading(database) as cursor:
        found = read_table(cursor, database.name, table)
        assert found is not None
        key = found.snapshot_key
        bounds = list(plan_bounds(cursor, f"`{table}`", key, found.rows, chunk_rows, SilentProgress()))
        edges = [None, *bounds, None]
        chunks = [Chunk(i, low, high) for i, (low, high) in enumerate(itertools.pairwise(edges))]
        counts = []
        for chunk in chunks:
            where = chunk.predicate(key)
            cursor.execute(f"SELECT COUNT(*) FROM `{table}`{key.hint}" + (f" WHERE {where}" if where else ""))
            counts.append((cursor.fetchone() or (0,))[0])
        cursor.execute(f"SELECT COUNT(*) FROM `{table}`")
        assert sum(counts) == (cursor.fetchone() or (0,))[0], "a row is in no chunk, or in two"
    return Planned(found, chunks, counts)


NUMBERS = "INSERT INTO t SELECT {} FROM seq_1_to_1000"

KEYS = {
    "dense": ("k INT PRIMARY KEY", NUMBERS.format("seq")),
    "negative": ("k INT PRIMARY KEY", NUMBERS.format("CAST(seq AS SIGNED) - 600")),
    "gaps": ("k BIGINT PRIMARY KEY", NUMBERS.format("seq * seq * seq")),
    "skewed": ("k BIGINT PRIMARY KEY", NUMBERS.format("IF(seq < 900, seq, seq * 1000000000)")),
    "unsigned": ("k BIGINT UNSIGNED PRIMARY KEY", NUMBERS.format("18446744073709551615 - seq * 3")),
    "unsigned dense": ("k BIGINT UNSIGNED PRIMARY KEY", NUMBERS.format("18446744073709551615 - seq")),
    "zerofill": ("k INT(8) ZEROFILL PRIMARY KEY", NUMBERS.format("seq * 7")),
    "decimal": ("k DECIMAL(65,30) PRIMARY KEY", NUMBERS.format("(CAST(seq AS SIGNED) - 500) / 7")),
    "text": ("k VARCHAR(40) PRIMARY KEY", NUMBERS.format("CONCAT('user ', MD5(seq))")),
    "char": ("k CHAR(40) CHARACTER SET latin1 PRIMARY KEY", NUMBERS.format("MD5(seq)")),
    "utf16": ("k VARCHAR(40) CHARACTER SET utf16 PRIMARY KEY", NUMBERS.format("CONCAT('ü', MD5(seq))")),
    "bytes": ("k VARBINARY(20) PRIMARY KEY", NUMBERS.format("UNHEX(MD5(seq))")),
    "fixed bytes": ("k BINARY(20) PRIMARY KEY", NUMBERS.format("UNHEX(MD5(seq))")),
    "quotes": ("k VARCHAR(40) PRIMARY KEY", NUMBERS.format(r"""CONCAT('''"\\%?{}`;-- ', seq)""")),
    "date": ("k DATE PRIMARY KEY", NUMBERS.format("'1970-01-01' + INTERVAL seq DAY")),
    "datetime": ("k DATETIME(6) PRIMARY KEY", NUMBERS.format("'2024-01-01' + INTERVAL seq * 777777 MICROSECOND")),
    "timestamp": ("k TIMESTAMP(3) PRIMARY KEY", NUMBERS.format("'2024-10-27' + INTERVAL seq MINUTE")),
    "time": ("k TIME(3) PRIMARY KEY", NUMBERS.format("SEC_TO_TIME((CAST(seq AS SIGNED) - 500) * 1000.5)")),
    "uuid": ("k UUID PRIMARY KEY", NUMBERS.format("UUID()")),
    "inet6": ("k INET6 PRIMARY KEY", NUMBERS.format("CONCAT('fe80::', HEX(seq))")),
    "descending": ("k INT, PRIMARY KEY (k DESC)", NUMBERS.format("seq * 100")),
    "composite": (
        "k VARCHAR(10), l INT, m DATE, PRIMARY KEY (k, l, m)",
        NUMBERS.format("CONCAT('k', seq % 3), CAST(seq % 7 AS SIGNED) - 3, '2024-01-01' + INTERVAL seq DAY"),
    ),
    "long tail": ("k INT, l INT, PRIMARY KEY (k, l)", NUMBERS.format("IF(seq < 950, 7, seq), seq")),
    "unique only": ("k INT NOT NULL, UNIQUE KEY uk (k)", NUMBERS.format("seq * 50")),
}


@pytest.mark.parametrize("name", KEYS)
def test_every_row_is_in_one_chunk_and_none_is_long(database: Database, name: str) -> None:
    definition, fill = KEYS[name]
    database.execute(f"CREATE TABLE t ({definition})", fill)
    planned = plan(database, 50)
    assert len(planned.chunks) >= 13
    assert max(planned.counts) <= 75
    assert_read_by_a_range(database, planned)


def assert_read_by_a_range(database: Database, planned: Planned) -> None:
    """The server finds a chunk by its key's index, and looks at little else."""
    key = planned.table.snapshot_key
    with reading(database) as cursor:
        middle = planned.chunks[len(planned.chunks) // 2]
        cursor.execute(f"EXPLAIN SELECT * FROM t{key.hint} WHERE {middle.predicate(key)}")
        names = [column[0] for column in cursor.description or ()]
        explained = dict(zip(names, cursor.fetchone() or (), strict=True))
    assert (explained["type"], explained["key"]) == ("range", key.index)
    assert int(explained["rows"]) < 500


TRICKY = [
    *("a", "A", "á", "Ä", "ae", "æ", "b", "B ", "ß", "ss", "SS", "z", "Z", "Ω", "ω", "я", "中", "é", "e"),
    *("😀", "😁", "a😀", "", "'", '"', "\\", "%", "_", "a b", "a-b", "10", "9", "ａ", "ﬁ", "fi", "İ", "ı", "I"),
]


@pytest.mark.parametrize(
    ("charset", "collation"),
    [
        ("utf8mb4", "utf8mb4_general_ci"),
        ("utf8mb4", "utf8mb4_unicode_ci"),
        ("utf8mb4", "utf8mb4_uca1400_ai_ci"),
        ("utf8mb4", "utf8mb4_nopad_bin"),
        ("utf8mb4", "utf8mb4_german2_ci"),
        ("latin1", "latin1_swedish_ci"),
        ("latin1", "latin1_german2_ci"),
    ],
)
def test_strings_are_cut_in_the_order_of_their_collation(database: Database, charset: str, collation: str) -> None:
    kind = f"VARCHAR(20) CHARACTER SET {charset} COLLATE {collation}"
    database.execute(f"CREATE TABLE t (k {kind} PRIMARY KEY)")
    connection = database.connect()
    with connection, connection.cursor() as cursor:
        # Equal ones under the collation are refused by the key: any of them will do.
        for text in TRICKY:
            for suffix in ("", "x", " y", "Z"):
                if charset == "utf8mb4" or (text + suffix).encode("latin1", "ignore").decode("latin1") == text + suffix:
                    cursor.execute("INSERT IGNORE INTO t VALUES (%s)", (text + suffix,))
    planned = plan(database, 3)
    assert max(planned.counts) <= 3
    assert len(planned.chunks) >= sum(planned.counts) // 3


BELOW_THE_BLANK = ("CHAR(10)", "VARCHAR(10)", "BINARY(4)", "CHAR(10), n", "n, CHAR(10)")
"""Keys whose texts may have characters below the blank."""


def in_chunks(database: Database, collation: str, key: str) -> tuple[int, int]:
    """How many rows the chunks of such a table have, and the table."""
    kind = next(part for part in key.split(", ") if part != "n")
    column = kind if kind.startswith("BINARY") else f"{kind} CHARACTER SET utf8mb4 COLLATE {collation}"
    keys = key.replace(kind, "k")
    database.execute("DROP TABLE IF EXISTS t", f"CREATE TABLE t (k {column}, n INT, PRIMARY KEY ({keys}))")
    texts = [
        f"{first}{below}{last}" for first in "abc" for below in ("", "\t", "\0", "!", " x") for last in ("", "\n", "z")
    ]
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.executemany("INSERT IGNORE INTO t VALUES (%s, %s)", [(text, n % 3) for n, text in enumerate(texts)])
    return sum(plan(database, 2).counts), database.execute("SELECT COUNT(*) FROM t")[0][0]


@pytest.mark.parametrize("collation", ["utf8mb4_nopad_bin", "utf8mb4_general_nopad_ci", "utf8mb4_bin"])
@pytest.mark.parametrize("key", BELOW_THE_BLANK)
def test_no_key_with_a_character_below_the_blank_is_in_no_chunk(database: Database, collation: str, key: str) -> None:
    found, there = in_chunks(database, collation, key)
    assert found == there


def test_trailing_spaces_do_not_part_what_the_server_holds_equal(database: Database) -> None:
    database.execute(
        "CREATE TABLE t (k VARCHAR(20) COLLATE utf8mb4_general_ci, n INT, PRIMARY KEY (k, n))",
        "INSERT INTO t SELECT CONCAT('a', SPACE(seq % 4)), seq FROM seq_1_to_200",
    )
    planned = plan(database, 20)
    assert max(planned.counts) <= 20
    assert planned.counts.count(0) == 0


def test_rows_of_one_value_stay_together_where_the_rest_of_the_key_cannot_be_compared(database: Database) -> None:
    database.execute(
        "CREATE TABLE t (k VARCHAR(9) COLLATE utf8mb4_general_ci, e ENUM('z','y','x','w'), PRIMARY KEY (k, e))",
        "INSERT INTO t SELECT IF(seq % 2, CONCAT('k', seq DIV 8), CONCAT('K', seq DIV 8)), 1 + (seq DIV 2) % 4"
        " FROM (SELECT seq FROM seq_8_to_407) s GROUP BY 1, 2",
    )
    planned = plan(database, 3)
    assert not planned.table.snapshot_key.unique
    assert [column.name for column in planned.table.snapshot_key.columns] == ["k"]
    assert max(planned.counts) <= 8


@pytest.mark.parametrize(
    "definition",
    ["k INT", "k ENUM('b', 'a') PRIMARY KEY", "k TEXT, PRIMARY KEY (k(9))", "k DOUBLE PRIMARY KEY", "k INT UNIQUE"],
)
def test_one_chunk_where_there_is_no_key_to_cut_by(database: Database, definition: str) -> None:
    database.execute(f"CREATE TABLE t ({definition})", "INSERT INTO t VALUES ('1'), ('2')" if "ENUM" in definition else
                     "INSERT INTO t VALUES (1), (2)")  # fmt: skip
    planned = plan(database, 1)
    assert (planned.chunks, planned.counts) == ([Chunk(0)], [2])


def test_an_empty_table_is_one_chunk(database: Database) -> None:
    database.execute("CREATE TABLE t (k INT PRIMARY KEY)", "CREATE TABLE s (k CHAR(3) PRIMARY KEY)")
    assert plan(database, 10).counts == [0]
    assert plan(database, 10, "s").counts == [0]


def test_odd_names_are_quoted(database: Database) -> None:
    database.execute(
        "CREATE TABLE t (`k``? x` INT, `o'n` VARCHAR(9), PRIMARY KEY (`k``? x`, `o'n`))",
        "INSERT INTO t SELECT seq DIV 10, seq FROM seq_1_to_100",
    )
    assert max(plan(database, 10).counts) <= 10


@pytest.mark.parametrize(
    ("column", "value"),
    [
        (KeyColumn("k", "number", True), "1; DROP TABLE t"),
        (KeyColumn("k", "text", charset="utf8mb4", collation="utf8mb4_bin"), "'"),
        (KeyColumn("k", "bytes"), "F"),
        (KeyColumn("k", "moment"), "2024' OR '1'='1"),
        (KeyColumn("k", "address"), "::'"),
    ],
)
def test_a_bound_that_is_none_is_refused(column: KeyColumn, value: str) -> None:
    with pytest.raises(SourceError, match="is no bound of the key column k"):
        column.literal(value)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3), st.integers(-3, 3)), min_size=2, max_size=2))
def test_comparisons_are_lexicographic(pair: list[tuple[int, int, int]]) -> None:
    key = [KeyColumn(name, "number", True) for name in "abc"]
    row, bound = pair
    values = [str(value) for value in bound]

    def says(sql: str) -> bool:
        text = sql.replace(" AND ", " and ").replace(" OR ", " or ").replace(" = ", " == ").replace("`", "")
        # The SQL of numbers is Python but for its words and quotes.
        return bool(eval(text, dict(zip("abc", row, strict=True))))

    assert says(at_or_after(key, values)) == (row >= bound)
    assert says(after(key, values)) == (row > bound)
    assert says(before(key, values)) == (row < bound)
