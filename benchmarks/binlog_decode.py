"""Reading and decoding the binlog alone, one core, checksums verified, beside mysql-replication on the same server.

    python -m benchmarks.binlog_decode

Both are counted in changes per second of processor time, so that what else the machine does takes little part. What is
decoded is checked against the server: the changes of each kind, and the state that they lead to.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from benchmarks.measure import Figure, show
from tidegate.pipelines.sources.mysql_cdc.binlog.model import FIRST_POSITION, BinlogPosition, BinlogRange, WantedTable
from tidegate.pipelines.sources.mysql_cdc.binlog.reading import read_range
from tidegate.pipelines.sources.mysql_cdc.catalog import read_columns
from tidegate.pipelines.sources.mysql_cdc.connection import ServerOptions
from tidegate.pipelines.sources.mysql_cdc.log import with_number
from tidegate.pipelines.sources.mysql_cdc.server import EmbeddedMariaDb

INSERTS = 1_000_000
SINGLES = 100_000
BULK = 400_000
PEER_CHANGES = 40_000
RUNS = 5
USER, PASSWORD = "bench", "bench"

_TABLE = (
    "CREATE TABLE bench.orders (id BIGINT PRIMARY KEY, customer INT, amount DECIMAL(12, 2), status VARCHAR(20),"
    " note VARCHAR(80), created DATETIME(3), flags INT)"
)
_ROW = "concat('status ', {0} % 9), repeat('n', {0} % 40), now(3), {0} % 13"
_SINGLES = f"""
CREATE PROCEDURE bench.singles()
BEGIN
  DECLARE number INT DEFAULT 0;
  WHILE number < {SINGLES} DO
    CASE number % 4
      WHEN 0 THEN INSERT INTO bench.orders VALUES (-number - 1, number, number / 7, {_ROW.format("number")});
      WHEN 1 THEN UPDATE bench.orders SET flags = flags + 1, note = 'one' WHERE id = number;
      WHEN 2 THEN UPDATE bench.orders SET amount = amount + 1 WHERE id = number;
      ELSE DELETE FROM bench.orders WHERE id = number;
    END CASE;
    SET number = number + 1;
  END WHILE;
END
"""


def measure() -> list[Figure]:
    """Bulk inserts, and a mixture with many small transactions."""
    with tempfile.TemporaryDirectory() as folder, EmbeddedMariaDb(Path(folder) / "mariadb") as server:
        server.execute("CREATE DATABASE bench", _TABLE, _SINGLES)
        server.create_user(USER, PASSWORD)
        inserts = _recorded(
            server,
            *(
                f"INSERT INTO bench.orders SELECT seq, seq % 5000, seq / 7, {_ROW.format('seq')}"
                f" FROM seq_{first}_to_{first + 99_999}"
                for first in range(1, INSERTS + 1, 100_000)
            ),
        )
        loaded = _decoded(server, inserts)
        _check(server, loaded, {"c": INSERTS, "u": 0, "d": 0})
        mixed = _recorded(
            server,
            "CALL bench.singles()",
            f"UPDATE bench.orders SET flags = flags + 1 WHERE id BETWEEN 500001 AND {500_000 + BULK}",
        )
        changed = _decoded(server, mixed)
        small = SINGLES // 4
        _check(server, pa.concat_tables([loaded, changed]), {"c": INSERTS + small, "u": 2 * small + BULK, "d": small})
        del loaded
        figures = [
            _figure(server, "binlog decoded: bulk inserts", inserts, INSERTS, "3,000,000/s"),
            _figure(
                server, f"binlog decoded: {SINGLES:,} single-row transactions, bulk updates", mixed,
                changed.num_rows, "1,000,000/s",
            ),
        ]  # fmt: skip
    return figures


def _recorded(server: EmbeddedMariaDb, *statements: str) -> str:
    """A binlog file that holds `statements` alone."""
    server.execute("FLUSH BINARY LOGS")
    file = server.execute("SHOW MASTER STATUS")[0][0]
    server.execute(*statements, "FLUSH BINARY LOGS", database="bench")
    return file


def _table(server: EmbeddedMariaDb) -> WantedTable:
    with server.connect() as connection, connection.cursor() as cursor:
        columns = read_columns(cursor, "bench", "orders")
    return WantedTable("bench", "orders", columns, ("id",))


def _batches(server: EmbeddedMariaDb, file: str) -> Iterator[pa.RecordBatch]:
    options, start = ServerOptions(server.host, server.port, USER, PASSWORD), BinlogPosition(file)
    span = BinlogRange(start, with_number(start, start.number + 1, FIRST_POSITION))
    return read_range(options, span, _table(server))


def _decoded(server: EmbeddedMariaDb, file: str) -> pa.Table:
    return pa.Table.from_batches(_batches(server, file))


def _check(server: EmbeddedMariaDb, changes: pa.Table, expected: dict[str, int]) -> None:
    """The changes of each kind are those that were made, and the last of each key give the table as it is."""
    with duckdb.connect() as database:
        database.register("changes", changes)
        counts = dict(database.execute("SELECT _op, COUNT(*) FROM changes GROUP BY _op").fetchall())
        ours = database.execute(
            "SELECT SUM(id), SUM(customer), SUM(flags), SUM(amount), COUNT(*) FROM (SELECT * FROM changes"
            " QUALIFY ROW_NUMBER() OVER (PARTITION BY id ORDER BY _offset DESC) = 1) WHERE _op <> 'd'"
        ).fetchall()[0]
    theirs = server.execute("SELECT SUM(id), SUM(customer), SUM(flags), SUM(amount), COUNT(*) FROM bench.orders")[0]
    found = {op: counts.get(op, 0) for op in expected}
    if found != expected or ours != theirs:
        raise AssertionError(f"decoded {found} {ours}, the server has {expected} {theirs}")


def _figure(server: EmbeddedMariaDb, name: str, file: str, changes: int, aim: str) -> Figure:
    best = 0.0
    for _ in range(RUNS):
        start = time.process_time()
        decoded = sum(batch.num_rows for batch in _batches(server, file))
        best = max(best, decoded / (time.process_time() - start))
        if decoded != changes:
            raise AssertionError(f"{name}: decoded {decoded} changes of {changes}")
    return Figure(name, best, "changes/s", _mysql_replication(server, file), "mysql-replication", aim)


def _mysql_replication(server: EmbeddedMariaDb, file: str) -> float:
    """Changes a second of processor time, over the first PEER_CHANGES."""
    stream = BinLogStreamReader(
        connection_settings={"host": server.host, "port": server.port, "user": USER, "passwd": PASSWORD},
        server_id=4711,
        log_file=file,
        log_pos=4,
        resume_stream=True,
        only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
    )
    start, changes = time.process_time(), 0
    try:
        for event in stream:
            changes += len(event.rows)
            if changes >= PEER_CHANGES:
                break
    finally:
        stream.close()
    return changes / (time.process_time() - start)


if __name__ == "__main__":
    show(measure())
