"""No setting of a server's sessions changes what is read: rows, cuts, the catalog, what is refused.

Each setting that a session may have is given to the reader's sessions by `init_connect`, one after another.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pymysql
import pytest

from tests.conftest import Database
from tests.pipelines.sources.mysql_cdc.driver import CHUNK, context_of, declare
from tests.pipelines.sources.mysql_cdc.mysql_server import running
from tidegate.pipelines.connectors.protocol import PlanRequest, SourcePosition
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import SourceError
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


def seen(table: Table) -> tuple[list[tuple[object, ...]], int]:
    """The rows of a snapshot, and how many places its chunks' views have (one: nobody writes)."""
    with closing(MysqlCdcSource(context_of(table))) as source:
        source.preflight(SourcePosition())
        planned = source.plan(PlanRequest(ends=source.ends(SourcePosition()), instant=0))
        step = source.step_of(planned.step.ranges if planned.step else {})
        work = source.step_reader(step)  # type: ignore[arg-type] one of the snapshot
        batches = [batch for number in range(len(work.chunks)) for batch in work.read(number)]
    rows = [tuple(row[name] for name in COLUMNS) for batch in batches for row in batch.select([*COLUMNS]).to_pylist()]
    places = {str(row["_seq"]["file"]) + str(row["_seq"]["position"]) for b in batches for row in b.to_pylist()}
    return sorted(rows, key=repr), len(places)


def refused(table: Table) -> bool:
    with closing(MysqlCdcSource(context_of(table))) as source:
        try:
            source.preflight(SourcePosition())
        except SourceError as error:
            return "foreign key" in error.what or "CASCADE" in str(error)
    return False


def settings(execute: Execute) -> Iterator[str]:
    """Statements that give a session's variable another value, as far as the reader's user may."""
    for name, value in execute("SHOW SESSION VARIABLES"):
        if UNASKED.search(str(name)):
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


def check(execute: Execute, big: Table, child: Table, *, only: str = "") -> list[str]:
    """The settings under which something is not read as it is."""
    right = seen(big)
    assert (len(right[0]), right[1]) == (ROWS, 1)
    wrong, asked = [], 0
    for statement in [each for each in settings(execute) if re.search(only, each)]:
        asked += 1
        execute(f"SET GLOBAL init_connect = {statement!r}" if '"' not in statement else "SET GLOBAL init_connect = ''")
        try:
            if seen(big) != right or not refused(child):
                wrong.append(statement)
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
    big = declare(database.options("t", **{CHUNK: "600"}), COLUMNS, ["k"])
    child = declare(database.options("child"), {"k": "INT", "p": "INT"}, ["k"])
    assert check(database.execute, big, child, only=only) == []
    with database.settings(sql_select_limit=100, max_join_size=1):
        assert len(seen(big)[0]) == ROWS
        assert refused(child)


@pytest.mark.thorough
@pytest.mark.usefixtures("server")
def test_nor_on_mysql(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        server.execute("CREATE DATABASE shop CHARACTER SET utf8mb4", "CREATE USER reader@'%' IDENTIFIED BY 'pw'")
        server.execute("GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO reader@'%'")
        server.execute(TABLE, FILL, *CASCADE, "SET GLOBAL innodb_lock_wait_timeout = 50", database="shop")
        options = {"connector": "mysql-cdc", "hostname": server.host, "port": str(server.port), "username": "reader",
                   "password": "pw", "database-name": "shop"}  # fmt: skip
        big = declare({**options, "table-name": "t", "scan.incremental.snapshot.chunk.size": "600"}, COLUMNS, ["k"])
        child = declare({**options, "table-name": "child"}, {"k": "INT", "p": "INT"}, ["k"])
        assert check(server.execute, big, child) == []
