"""No setting of a server's sessions changes what is read: rows, cuts, what `reconcile` compares, what is refused.

Each setting that a session may have is given to the reader's sessions by `init_connect`, one after another.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pymysql
import pytest
from pymysql.cursors import Cursor

from tests.conftest import Database
from tests.pipelines.sources.mysql_cdc.driver import CHUNK, context_of, declare
from tests.pipelines.sources.mysql_cdc.mysql_server import running
from tidegate.pipelines.connectors.protocol import PlanRequest, SourcePosition
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.cdc.chunks import WHOLE
from tidegate.pipelines.sources.cdc.database import ChunkReader
from tidegate.pipelines.sources.mysql_cdc.binlog.model import BinlogPosition
from tidegate.pipelines.sources.mysql_cdc.snapshot import reading
from tidegate.pipelines.sources.mysql_cdc.snapshot.results import select
from tidegate.pipelines.sources.mysql_cdc.source import MysqlCdcSource

ROWS = 2_500
Execute = Callable[..., tuple[tuple[object, ...], ...]]

TABLE = (
    "CREATE TABLE t (k VARCHAR(20) COLLATE utf8mb4_bin PRIMARY KEY, at TIMESTAMP(6) NULL, day DATE, n DECIMAL(20,6), "
    "f DOUBLE, b BIT(3), e ENUM('a','b'), j JSON, y YEAR, txt TEXT)"
)
COLUMNS = {
    "k": "STRING", "at": "TIMESTAMP_LTZ(6)", "day": "DATE", "n": "DECIMAL(20,6)", "f": "DOUBLE", "b": "BYTES",
    "e": "STRING", "j": "STRING", "y": "INT", "txt": "STRING",
}  # fmt: skip
FILL = (
    "INSERT INTO t WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 50) "
    "SELECT CONCAT('key ', a.n, '/', b.n), '2026-01-02 03:04:05.678901', '2026-01-02', a.n / 7, b.n / 7, 5, 'b', "
    "'{\"a\": 1.50}', 2001, REPEAT('ß', a.n) FROM s a, s b"
)
CASCADE = (
    "CREATE TABLE parent (id INT PRIMARY KEY)",
    "CREATE TABLE child (k INT PRIMARY KEY, p INT, CONSTRAINT c FOREIGN KEY (p) REFERENCES parent(id) "
    "ON DELETE CASCADE)",
)

VALUES = (
    *(0, 1, 2, 0.001, 1000, "ON", "OFF", "DEMAND", "RELEASE", "CHAIN", "latin1", "binary", "utf8mb4_bin"),
    *("'de_DE'", "'+05:00'", "'NONE'", "'ANSI'", "''", "'READ-UNCOMMITTED'", "'2001-01-01 00:00:00'", "'NO_ZERO_DATE'"),
)
"""Every variable is given the first two of these that it takes, beside its own."""
UNASKED = re.compile(
    # What stops or slows the server or its test, or speaks of the session's own statements alone.
    r"gtid_|debug|max_allowed_packet|rand_seed|pseudo_|insert_id|last_insert_id|identity|timestamp|skip_replication|"
    r"max_session_mem_used|connection_memory_limit|sort_buffer_size|tmp_|max_heap|proxy|default_master|server_id|external_user"
)


WRITE = "UPDATE t SET n = n + 1 WHERE k LIKE '%/7'"
"""Changes rows of each chunk."""


class Big:
    """A table that is written to while it is read: after each read view was opened, before its rows are asked for."""

    def __init__(self, table: Table, writer: Cursor, status: str = "SHOW MASTER STATUS") -> None:
        self.table, self.writer, self.status = table, writer, status
        with self._opened() as (_, work):
            batches = [batch for number in range(len(work.chunks)) for batch in work.read(number)]
        rows = [row for batch in batches for row in batch.select([*COLUMNS]).to_pylist()]
        self.now = {row["k"]: row for row in rows}
        """The table's rows as they are now."""
        assert len(rows) == len(self.now) == ROWS

    @contextmanager
    def _opened(self) -> Iterator[tuple[MysqlCdcSource, ChunkReader]]:
        with closing(MysqlCdcSource(context_of(self.table))) as source:
            source.preflight(SourcePosition())
            planned = source.plan(PlanRequest(ends=source.ends(SourcePosition()), instant=0))
            step = source.step_of(planned.step.ranges if planned.step else {})
            yield source, source.step_reader(step)  # type: ignore[arg-type] one of the snapshot

    def wrong(self) -> list[str]:
        """What a snapshot, its cuts and the readings of `reconcile` have otherwise than the table had it."""
        wrong: list[str] = []
        with self._opened() as (source, work):
            exact = source.cut_rule().exact
            keys = [key for number in range(len(work.chunks)) for key in self._compared(work, number, exact, wrong)]
            reconciled = source.comparison(SourcePosition())
            low = reconciled.low()
            named = [{"k": "key 7/7"}, {"k": "key 1/2"}]
            every = self._compared(reconciled.reader([WHOLE], "TRUE"), 0, exact, wrong)
            some = self._compared(reconciled.reader([WHOLE], reconciled.condition(named)), 0, exact, wrong)
            high = reconciled.high()
        wrong += [] if sorted(keys) == sorted(every) == sorted(self.now) else ["keys"]
        wrong += [] if sorted(some) == ["key 1/2", "key 7/7"] else ["keys that were named"]
        wrong += [] if (low.file, low.position) < (high.file, high.position) == self._end() else ["ends"]
        return wrong

    def _compared(self, work: ChunkReader, number: int, exact: bool, wrong: list[str]) -> list[str]:
        """The keys of what is read, compared with the table as of the view, and its cut with the log's end then."""
        ends: list[tuple[int, int]] = []

        def select_late(*given: Any) -> Any:
            ends.append(self._end())
            self.writer.execute(WRITE)
            return select(*given)

        with patch.object(reading, "select", select_late):
            batches = list(work.read(number))
        rows = [row for batch in batches for row in batch.select([*COLUMNS]).to_pylist()]
        cuts = {(row["file"], row["position"]) for batch in batches for row in batch["_seq"].to_pylist()}
        wrong += [f"row {row['k']}" for row in rows if row != self.now[row["k"]]]
        for row in self.now.values():
            if row["k"].endswith("/7"):
                row["n"] += 1
        wrong += [] if cuts <= {*ends} or (not exact and max(cuts) <= ends[0]) else [f"cuts {cuts} at {ends}"]
        return [row["k"] for row in rows]

    def _end(self) -> tuple[int, int]:
        self.writer.execute(self.status)
        ((file, position, *_),) = self.writer.fetchall()
        return BinlogPosition(file, int(position)).order


def refused(table: Table) -> bool:
    with closing(MysqlCdcSource(context_of(table))) as source:
        try:
            source.preflight(SourcePosition())
        except SourceError as error:
            return "foreign key" in error.what or "CASCADE" in str(error)
    return False


def settings(execute: Execute, only: str = "") -> Iterator[str]:
    """Statements that give a session's variable another value, as far as the reader's user may. `only`: a pattern."""
    for name, value in execute("SHOW SESSION VARIABLES"):
        if UNASKED.search(str(name)) or not re.search(only, str(name)):
            continue
        taken = 0
        for other in VALUES:
            statement = f"SET SESSION {name} = {other}"
            try:
                execute(statement)
            except pymysql.err.MySQLError:
                continue
            if str(other).strip("'") != value:
                yield statement
                taken += 1
            if taken == 2:
                break


def check(execute: Execute, big: Big, child: Table, *, only: str = "") -> list[str]:
    """The settings under which something is not read as it is."""
    wrong, asked = [f"by default: {fault}" for fault in big.wrong()[:3]], 0
    for statement in [*settings(execute, only)]:
        asked += 1
        execute(f"SET GLOBAL init_connect = {statement!r}" if '"' not in statement else "SET GLOBAL init_connect = ''")
        try:
            if faults := [*big.wrong()[:3], *([] if refused(child) else ["a cascade"])]:
                wrong.append(f"{statement}: {faults}")
        except Exception as error:
            if "init_connect command failed" in str(error):
                continue  # a setting that the reader's user may not have
            wrong.append(f"{statement}: {type(error).__name__}: {str(error).splitlines()[0]}")
        finally:
            execute("SET GLOBAL init_connect = ''")
    assert asked > (5 if only else 60)
    return wrong


OFTEN = r"sql_(select|mode|quote)|max_(join|stat)|completion"


@pytest.mark.parametrize("only", [OFTEN, pytest.param("", marks=pytest.mark.thorough)])
def test_no_setting_of_a_session_changes_what_is_read(
    database: Database, caplog: pytest.LogCaptureFixture, only: str
) -> None:
    caplog.set_level(logging.ERROR)
    database.execute(TABLE, FILL, *CASCADE)
    child = declare(database.options("child"), {"k": "INT", "p": "INT"}, ["k"])
    with database.connect() as connection, connection.cursor() as writer:
        big = Big(declare(database.options("t", **{CHUNK: "600"}), COLUMNS, ["k"]), writer)
        assert check(database.execute, big, child, only=only) == []
        with database.settings(sql_select_limit=100, max_join_size=1):
            assert big.wrong() == []
            assert refused(child)


@pytest.mark.thorough
@pytest.mark.usefixtures("server")
def test_nor_on_mysql(tmp_path: Path) -> None:
    with running(tmp_path, "--innodb-native-foreign-keys=ON") as server:  # so that it refuses a cascade
        server.execute("CREATE DATABASE shop CHARACTER SET utf8mb4", "CREATE USER reader@'%' IDENTIFIED BY 'pw'")
        server.execute("GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO reader@'%'")
        server.execute(TABLE, FILL, *CASCADE, "SET GLOBAL innodb_lock_wait_timeout = 50", database="shop")
        options = {"connector": "mysql-cdc", "hostname": server.host, "port": str(server.port), "username": "reader",
                   "password": "pw", "database-name": "shop"}  # fmt: skip
        big_table = declare({**options, "table-name": "t", CHUNK: "600"}, COLUMNS, ["k"])
        child = declare({**options, "table-name": "child"}, {"k": "INT", "p": "INT"}, ["k"])
        with server.connect(database="shop") as connection, connection.cursor() as writer:
            big = Big(big_table, writer, "SHOW BINARY LOG STATUS")
            assert check(server.execute, big, child) == []
