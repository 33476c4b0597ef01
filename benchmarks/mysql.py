"""mysql-cdc beside its peers, on one server: mariadb-dump for the snapshot, mysql-replication for the binlog."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from benchmarks.measure import Figure, seconds
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.runtime.session import start_session
from tidegate.pipelines.sources.mysql_cdc.server import EmbeddedMariaDb
from tidegate.pipelines.sql import compile_script

ROWS, CHANGES = 1_000_000, 2_400_000
TURNS = 7
"""Snapshots and dumps, one after the other: the medians are reported."""

SCRIPT = """
CREATE TABLE orders (id BIGINT PRIMARY KEY NOT ENFORCED, customer INT, amount DECIMAL(12, 2), status STRING,
    note STRING, created TIMESTAMP(3), flags INT) WITH (
    'connector' = 'mysql-cdc', 'hostname' = '127.0.0.1', 'port' = '{port}', 'username' = 'bench',
    'password' = '${{TIDEGATE_BENCH_PASSWORD}}', 'database-name' = 'bench', 'table-name' = 'orders');
CREATE TABLE clicks (id BIGINT, proctime AS PROCTIME()) WITH ('connector' = 'datagen', 'number-of-rows' = '1');
CREATE TABLE out (id BIGINT, status STRING) WITH ('connector' = 'delta');
INSERT INTO out SELECT c.id, status FROM clicks AS c
LEFT JOIN orders FOR SYSTEM_TIME AS OF c.proctime ON c.id = orders.id
"""
USER, PASSWORD = "bench", "bench"


def measure() -> list[Figure]:
    """Both phases, with a warm session."""
    spark = start_session()
    with tempfile.TemporaryDirectory() as folder, EmbeddedMariaDb(Path(folder) / "mariadb") as server:
        server.execute("CREATE DATABASE bench")
        server.execute(
            "CREATE TABLE bench.orders (id BIGINT PRIMARY KEY, customer INT, amount DECIMAL(12, 2), status VARCHAR(20),"
            " note VARCHAR(80), created DATETIME(3), flags INT)",
            "INSERT INTO bench.orders SELECT seq, seq % 5000, seq / 7, concat('status ', seq % 9),"
            f" repeat('n', seq % 40), now(3), seq % 13 FROM seq_1_to_{ROWS}",
            database="bench",
        )
        server.create_user(USER, PASSWORD)
        pipeline = compile_script(SCRIPT.format(port=server.port))
        environment = {"TIDEGATE_BENCH_PASSWORD": PASSWORD}

        def snapshot(lake: str) -> float:
            with Runner(pipeline, Lake(Path(folder) / lake), spark=lambda: spark, environment=environment) as runner:
                return seconds(lambda: runner.advance("orders"))

        for number in range(3):
            snapshot(f"warm {number}")
        turns = [(seconds(lambda: _dump(server)), snapshot(f"turn {number}")) for number in range(TURNS)]
        dump, took = (statistics.median(times) for times in zip(*turns, strict=True))
        snapshot("lake")
        binlog = min(_changed(server, lambda: snapshot("lake")) for _ in range(3))
        peer = _mysql_replication(server)
    rate = CHANGES / binlog
    return [
        Figure(
            f"snapshot of {ROWS:,} rows to committed Delta",
            took,
            peer=dump,
            peer_name="mariadb-dump to /dev/null",
            aim="2.0",
        ),
        Figure(
            "binlog to committed changelog", rate, "changes/s", peer, "mysql-replication, decoding alone", "300,000/s"
        ),
    ]


def _changed(server: EmbeddedMariaDb, advance: Callable[[], float]) -> float:
    """Seconds to land CHANGES updates."""
    for first in (number % ROWS + 1 for number in range(0, CHANGES, 100_000)):
        server.execute(f"UPDATE bench.orders SET flags = flags + 1 WHERE id BETWEEN {first} AND {first + 99_999}")
    return advance()


def _dump(server: EmbeddedMariaDb) -> None:
    beside = server.installation.base / "bin" / "mariadb-dump"
    tool = beside if beside.exists() else shutil.which("mariadb-dump")
    subprocess.run(
        [
            str(tool),
            "--no-defaults",
            "--skip-ssl",
            "--single-transaction",
            "-uroot",
            f"--socket={server.socket}",
            "bench",
            "orders",
        ],
        stdout=subprocess.DEVNULL,
        check=True,
    )


def _mysql_replication(server: EmbeddedMariaDb, limit: int = 60_000) -> float:
    """Changes a second that mysql-replication decodes, over the first `limit` of the same updates."""
    stream = BinLogStreamReader(
        connection_settings={"host": "127.0.0.1", "port": server.port, "user": USER, "passwd": PASSWORD},
        server_id=4711,
        only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
        only_tables=["orders"],
        resume_stream=False,
    )
    changes, start = 0, 0.0
    for event in stream:
        if isinstance(event, UpdateRowsEvent):
            start = start or time.perf_counter()
            changes += len(event.rows or ())
            if changes >= limit:
                break
    stream.close()
    return changes / (time.perf_counter() - start)
