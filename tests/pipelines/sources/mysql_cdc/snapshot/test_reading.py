"""The SQL of a chunk, the rules of its cut, and rows of some keys in one read view.

MariaDB's rule is tried on a server (test_exact_cut.py); MySQL's here, on made-up logs only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import Database
from tests.pipelines.sources.mysql_cdc.binlog.recording import position, server_of
from tests.pipelines.sources.mysql_cdc.driver import context_of, declare
from tidegate.pipelines.connectors.protocol import Comparable, SourcePosition
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.cdc.chunks import WHOLE, Chunk
from tidegate.pipelines.sources.cdc.snapshot import TableComparison
from tidegate.pipelines.sources.mysql_cdc.binlog.model import BinlogPosition
from tidegate.pipelines.sources.mysql_cdc.catalog import KeyColumn, MysqlKey, NoBound, Server
from tidegate.pipelines.sources.mysql_cdc.connection import ServerOptions, Session
from tidegate.pipelines.sources.mysql_cdc.snapshot.reading import GtidSet, MariaDbCut, MySqlCut, SnapshotQuery, cut_rule
from tidegate.pipelines.sources.mysql_cdc.source import MysqlCdcSource
from tidegate.pipelines.sources.mysql_cdc.types import SourceColumn

KEY = MysqlKey((KeyColumn("k", "number", integer=True),), "PRIMARY")
QUERY = SnapshotQuery(
    "rates", "shop", "we`ird", [SourceColumn("k", "int", "int"), SourceColumn("d", "date", "date")], KEY, ("1", "2")
)
VALUES = "SELECT `k` AS `k`, TO_DAYS(`d`) - 719528 AS `d` FROM `shop`.`we``ird`"


def test_a_chunk_is_read_by_the_index_that_it_was_cut_by() -> None:
    assert QUERY.rows(Chunk(0)) == f"{VALUES} FORCE INDEX (`PRIMARY`)"
    wanted = "(`k` >= 5 AND `k` < 9)"
    assert QUERY.rows(Chunk(1, ("5",), ("9",))) == f"{VALUES} FORCE INDEX (`PRIMARY`) WHERE {wanted}"


def test_a_condition_leaves_the_index_to_the_server() -> None:
    assert QUERY.rows(WHOLE, "`k` IN (1)") == f"{VALUES} WHERE (`k` IN (1))"


def test_a_date_of_the_key_is_null_unless_it_exists() -> None:
    found = replace(QUERY, exact=frozenset({"k", "d"})).rows(Chunk(0))
    assert "SELECT `k` AS `k`, IF(FROM_DAYS(TO_DAYS(`d`)) = DATE(`d`), TO_DAYS(`d`) - 719528, NULL) AS `d`" in found


def test_a_bound_that_is_none_names_the_table_that_is_to_be_read_anew() -> None:
    with pytest.raises(NoBound, match="'x' is no bound of the key column k") as refused:
        QUERY.rows(Chunk(1, ("x",), ("9",)))
    assert "--resnapshot rates" in refused.value.next_command


ONE = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
TWO = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
SERVER = Server("mysql", (8, 0), {"transaction_isolation": "REPEATABLE-READ"}, "'r'@'%'")
OPTIONS = ServerOptions("db")


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("", [], [f"{ONE}:1"]),
        (f"{ONE}:1-5:7", [f"{ONE}:1", f"{ONE}:5", f"{ONE}:7"], [f"{ONE}:6", f"{ONE}:8", f"{TWO}:1"]),
        (f"{ONE}:3,\n{TWO.upper()}:1-2", [f"{ONE}:3", f"{TWO}:2"], [f"{ONE}:2", f"{TWO}:3"]),
        (f"{ONE}:1:blue:1-3", [f"{ONE}:1", f"{ONE}:blue:3"], [f"{ONE}:2", f"{ONE}:blue:4", f"{ONE}:red:1"]),
    ],
)
def test_sets_of_transactions(text: str, inside: list[str], outside: list[str]) -> None:
    found = GtidSet.parse(text)
    assert all(transaction in found for transaction in inside)
    assert not any(transaction in found for transaction in outside)


def test_a_text_that_is_no_set() -> None:
    with pytest.raises(SourceError, match="is no set of transaction ids"):
        GtidSet.parse("0-1-42")


class Answers:
    """A cursor that knows two questions."""

    def __init__(self, executed: str, status: tuple[str, int]) -> None:
        self.executed = executed
        self.status = status
        self.asked: list[str] = []

    def execute(self, statement: str) -> None:
        self.asked.append(statement)

    def fetchone(self) -> tuple[Any, ...]:
        return (self.executed,) if "gtid_executed" in self.asked[-1] else self.status


Log = Sequence[tuple[str, int, str | None]]
"""Where a transaction begins (file, position), and its name."""


def rule(log: Log, scanned: list[BinlogPosition]) -> MySqlCut:
    def scan(
        _: ServerOptions, start: BinlogPosition, end: BinlogPosition
    ) -> Iterator[tuple[BinlogPosition, str | None]]:
        scanned.append(start)
        for file, at, gtid in log:
            place = BinlogPosition(file, at)
            if start.order <= place.order < end.order:
                yield place, gtid

    return MySqlCut(SERVER, OPTIONS, scan)


LOG: Log = [
    *(("b.000001", 150, f"{ONE}:1"), ("b.000001", 300, f"{ONE}:2")),
    *(("b.000002", 150, f"{ONE}:3"), ("b.000002", 300, f"{TWO}:1"), ("b.000002", 450, f"{ONE}:4")),
]


@pytest.mark.parametrize(
    ("executed", "place"),
    [
        (f"{ONE}:1-4,{TWO}:1", "b.000002:600"),
        (f"{ONE}:1-3,{TWO}:1", "b.000002:450"),
        # Written in another order than they became visible: all before the first that is not there is there.
        (f"{ONE}:1-4", "b.000002:300"),
        (f"{ONE}:1-2", "b.000002:150"),
    ],
)
def test_mysql_stands_before_the_first_transaction_that_is_not_visible(executed: str, place: str) -> None:
    scanned: list[BinlogPosition] = []
    answers: Any = Answers(executed, ("b.000002", 600))
    found = rule(LOG, scanned).start(answers)
    assert str(found) == place
    # Visible is asked for before the end is: what comes in between is in the log and not in the set.
    assert answers.asked == ["SELECT @@GLOBAL.gtid_executed", "SHOW MASTER STATUS"]
    assert scanned == [BinlogPosition("b.000002")]


def test_mysql_looks_on_from_the_start_of_the_snapshot() -> None:
    scanned: list[BinlogPosition] = []
    start = BinlogPosition("b.000001", 300)
    answers: Any = Answers(f"{ONE}:1-3", ("b.000002", 600))
    columns = rule(LOG, scanned).columns(answers, start)
    assert scanned == [start]
    assert columns == ("2", "300")


def test_mysql_takes_a_transaction_without_a_readable_id_as_not_visible() -> None:
    log = [("b.000001", 150, f"{ONE}:1"), ("b.000001", 300, None), ("b.000001", 450, f"{ONE}:2")]
    answers: Any = Answers(f"{ONE}:1-2", ("b.000001", 600))
    assert str(rule(log, []).start(answers)) == "b.000001:300"


def test_mysql_cuts_are_bounds() -> None:
    answers: Any = Answers("", ("b.000002", 600))
    mysql = rule(LOG, [])
    assert not mysql.exact
    assert str(mysql.after(answers)) == "b.000002:600"


@given(st.lists(st.booleans(), max_size=12))
def test_mysql_never_passes_an_invisible_transaction(visible: list[bool]) -> None:
    log = [("b.000001", 100 * n, f"{ONE}:{n}") for n in range(1, len(visible) + 1)]
    executed = ",".join(f"{ONE}:{n}" for n, seen in enumerate(visible, 1) if seen)
    found = rule(log, []).start(Answers(executed, ("b.000001", 9999)))  # type: ignore[arg-type]
    first = next((n for n, seen in enumerate(visible, 1) if not seen), None)
    assert found.position == (9999 if first is None else 100 * first)


def test_mysql_84_is_asked_in_its_own_words() -> None:
    assert Server("mysql", (8, 4), {}, "").status_command == "SHOW BINARY LOG STATUS"
    assert Server("mysql", (8, 0), {}, "").status_command == "SHOW MASTER STATUS"
    assert Server("mariadb", (11, 4), {}, "").status_command == "SHOW MASTER STATUS"


def test_mariadb_reports_the_place_of_a_view_whatever_the_sessions_own_isolation(database: Database) -> None:
    session = Session(server_of(database), "test")
    mariadb = cut_rule(Server("mariadb", (11, 4), {}, ""), session.server)
    assert isinstance(mariadb, MariaDbCut)
    with session.cursor() as cursor:
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        for number in range(3):
            database.execute(f"CREATE TABLE t{number} (k INT)")
            assert mariadb.start(cursor) == mariadb.after(cursor) == position(database)
    session.close()


# --- rows of some keys, as a comparison asks for them ----------------------------------------------------------------


KEYS_OF_ROWS = {
    "a number": ("id INT PRIMARY KEY, v INT", ("id",), "(1, 1), (2, 2)", {"id": 2}, "`id` IN (2)"),
    "a text": (
        "k VARCHAR(9) PRIMARY KEY, v INT",
        ("k",),
        "('ä', 1), ('Z''z', 2)",
        {"k": "Z'z"},
        "`k` IN (_utf8mb4 X'5a277a')",
    ),
    "bytes": ("k VARBINARY(8) PRIMARY KEY, v INT", ("k",), "(X'FF', 1), (X'00', 2)", {"k": b"\xff"}, "`k` IN (X'ff')"),
    "two columns": (
        "a INT, id INT, v INT, PRIMARY KEY (a, id)",
        ("a", "id"),
        "(1, 1, 1), (1, 2, 2), (2, 2, 3)",
        {"a": 1, "id": 2},
        "(`a` = 1 AND `id` = 2)",
    ),
}
TYPES = {"a": "INT", "id": "INT", "v": "INT"}


def opened(
    database: Database, key: Sequence[str], columns: Mapping[str, str], folder: Path, **more: str
) -> MysqlCdcSource:
    return MysqlCdcSource(context_of(declare(database.options("item", **more), columns, key), folder))


def rows_of(comparison: TableComparison[BinlogPosition], condition: str) -> pa.Table:
    """What a task of Spark would read."""
    return pa.Table.from_batches(comparison.reader([WHOLE], condition).read(0))


@pytest.mark.parametrize("name", KEYS_OF_ROWS)
def test_rows_of_some_keys_are_read_in_one_view_with_its_place(name: str, database: Database, tmp_path: Path):
    there, key, values, wanted, condition = KEYS_OF_ROWS[name]
    database.execute(f"CREATE TABLE item ({there})", f"INSERT INTO item VALUES {values}")
    kind = "BYTES" if isinstance(wanted.get("k"), bytes) else "STRING"
    columns = {column: TYPES.get(column, kind) for column in (*key, "v")}
    with closing(opened(database, key, columns, tmp_path)) as source:
        assert isinstance(source, Comparable)
        comparison = source.comparison(SourcePosition())
        assert comparison.exact
        assert comparison.columns == [*key, "v"]
        assert comparison.condition([wanted]) == condition
        low, found, high = comparison.low(), rows_of(comparison, condition), comparison.high()
        assert found.select(list(key)).to_pylist() == [wanted]
        # Rows carry the number of the log's file, places its name.
        assert low.text == high.text
        seq = found["_seq"][0].as_py()
        assert low.text.endswith(f".{seq['file']:06}:{seq['position']}")
        assert len(rows_of(comparison, "TRUE")) == len(values.split("), ("))


def test_keys_that_cannot_be_written_ask_for_all_rows(database: Database, tmp_path: Path):
    database.execute("CREATE TABLE item (at DATETIME PRIMARY KEY)")
    with closing(opened(database, ("at",), {"at": "TIMESTAMP(3)"}, tmp_path)) as source:
        assert source.comparison(SourcePosition()).condition([{"at": "2020-01-01"}]) == "TRUE"


def test_a_changelog_without_the_whole_table_is_refused(database: Database, tmp_path: Path):
    database.execute("CREATE TABLE item (id INT PRIMARY KEY)")
    more = {"scan.startup.mode": "latest-offset"}
    with closing(opened(database, ("id",), {"id": "INT"}, tmp_path, **more)) as source:  # noqa: SIM117
        with pytest.raises(SourceError, match="is no image of the table"):
            source.comparison(SourcePosition())
