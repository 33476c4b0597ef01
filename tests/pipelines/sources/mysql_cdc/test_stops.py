"""When reading stops, the error names the table, the position, the state and the next command; the next run goes on."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.cases import at_length
from tests.conftest import Database, own_server
from tests.pipelines.sources.mysql_cdc.driver import Crash, Driver, declare, on_server, small
from tidegate.pipelines.connectors.protocol import ExplainsFailures
from tidegate.pipelines.connectors.table import Options
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.cdc import snapshot
from tidegate.pipelines.sources.cdc.database import SnapshotStep
from tidegate.pipelines.sources.cdc.errors import AGAIN
from tidegate.pipelines.sources.mysql_cdc import CONNECTOR
from tidegate.pipelines.sources.mysql_cdc.errors import ViewTooOld
from tidegate.pipelines.sources.mysql_cdc.plan import step_of
from tidegate.pipelines.sources.mysql_cdc.snapshot import reading
from tidegate.pipelines.sources.mysql_cdc.snapshot.results import select
from tidegate.pipelines.sources.mysql_cdc.source import MysqlCdcSource


def explained(driver: Driver, error: BaseException) -> SourceError:
    """What the runtime would raise."""
    if isinstance(error, SourceError):
        return error
    source = CONNECTOR.source(driver.context())
    assert isinstance(source, ExplainsFailures)
    found = source.explain(error, driver.steps[-1])
    assert found is not None
    return found


def stopped(driver: Driver) -> SourceError:
    """Run until it stops, and check that nothing was committed in half."""
    before = len(driver.landed)
    with pytest.raises((SourceError, PySparkException, Py4JError)) as failed:
        driver.run()
    assert len(driver.landed) == before
    assert not list(driver.directory.glob(f"epoch={before + 1}"))
    error = explained(driver, failed.value)
    assert "user_info" in error.what
    assert "on 127.0.0.1:" in error.where
    assert error.state
    assert driver.table.options.resolve({})["password"] not in str(error)
    return error


def purge(database: Database) -> None:
    """Until only the newest file is left: the server keeps a file as long as its crash recovery may need it."""
    newest = database.execute("SHOW MASTER STATUS")[0][0]
    for _ in range(300):
        database.execute(f"PURGE BINARY LOGS TO '{newest}'")
        if len(database.execute("SHOW BINARY LOGS")) == 1:
            return
        time.sleep(0.1)
    raise AssertionError("the server does not purge its binlog")


def test_a_purged_binlog(spark: SparkSession, lone: Database, tmp_path: Path) -> None:
    driver = Driver(spark, tmp_path, small(lone))
    driver.run()
    position = driver.steps[-1].step.ranges["span"]["end"]
    lone.execute("UPDATE t SET v = 1", "FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
    purge(lone)
    error = stopped(driver)
    assert f"the binlog {position['file']} has been purged" in error.what
    assert f"position {position['file']}:{position['position']}" in error.where
    assert "--resnapshot user_info" in error.next_command
    again = Driver(spark, tmp_path / "again", driver.table)
    again.run()
    assert again.state() == on_server(lone)


def test_the_file_of_a_cut_may_be_purged_after_the_flip(spark: SparkSession, lone: Database, tmp_path: Path) -> None:
    driver = Driver(spark, tmp_path, small(lone))
    driver.run(max_steps=1)
    lone.execute("FLUSH BINARY LOGS", "UPDATE t SET v = 1")
    driver.run()
    assert driver.steps[-1].step.flips
    purge(lone)
    lone.execute("UPDATE t SET v = 2")
    driver.run()
    assert driver.state() == on_server(lone)


def test_a_log_that_began_anew(spark: SparkSession, lone: Database, tmp_path: Path) -> None:
    """With the file that was read last, and without it: a server whose port was taken begins with its second file."""
    lone.execute("FLUSH BINARY LOGS")
    driver = Driver(spark, tmp_path, small(lone))
    driver.run()
    file = driver.steps[-1].step.ranges["span"]["end"]["file"]
    number = int(file.rpartition(".")[2])
    with lone.connect() as connection, connection.cursor() as cursor:
        cursor.execute("DO SLEEP(1.1)")  # a file's birth is stored by the second
    for reset, what in (
        (f"RESET MASTER TO {number}", f"{file} is not the file that was read before: the server's binlog began anew"),
        ("RESET MASTER", f"the server has no binlog {file}: it is another server, or its binlog began anew"),
    ):
        lone.execute(reset, *["UPDATE t SET v = v + 1"] * 30)
        error = stopped(driver)
        assert what in error.what
        assert "--resnapshot user_info" in error.next_command


class Backup:
    """A copy of the server's files as it is now, to which it can be set back; it has gone on since."""

    def __init__(self, database: Database, folder: Path) -> None:
        self.server, self.data, self.copy = database.server, folder / "server" / "data", folder / "backup"
        self.server.stop()
        shutil.copytree(self.data, self.copy)
        self.server.start()

    def restore(self) -> None:
        self.server.stop()
        shutil.rmtree(self.data)
        self.copy.rename(self.data)
        time.sleep(1.1)  # a file's birth is stored by the second
        self.server.start()


@pytest.mark.parametrize("batches", at_length([2, 4]), ids=["amid the snapshot", "before the log is read"])
def test_a_server_that_is_restored_before_the_flip(
    spark: SparkSession, lone: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: int
) -> None:
    """The snapshot began in a file that the copy has, too, and went on in one that it has not."""
    monkeypatch.setattr(snapshot, "STEP_CHUNKS", 1)
    driver = Driver(spark, tmp_path, small(lone))
    driver.run(max_steps=1)
    backup = Backup(lone, tmp_path)
    lone.execute("UPDATE t SET v = 99 WHERE k > 10", "DELETE FROM t WHERE k = 18")
    driver.run(max_steps=batches - 1)
    cuts = [row["cut"] for row in driver.splits.rows()]
    assert cuts[batches - 1]["file"] > cuts[0]["file"]
    backup.restore()
    lone.execute(*["UPDATE t SET v = v + 1"] * 30)  # its log is as long as the one that was read
    error = stopped(driver)
    assert f"{cuts[batches - 1]['file']} is not the file that was read before" in error.what
    assert "--resnapshot user_info" in error.next_command
    again = Driver(spark, tmp_path / "again", driver.table)
    again.run()
    assert again.state() == on_server(lone)


def test_what_another_table_has_read_of_a_server_that_is_restored(
    spark: SparkSession, lone: Database, tmp_path: Path
) -> None:
    """Two tables of one server hand each other what they have read; of the log that is gone nothing is handed on."""
    lone.execute("CREATE TABLE other (k INT PRIMARY KEY, v INT)")
    read = small(lone)
    other = declare(lone.options("other"), {"k": "INT", "v": "INT"}, ["k"], name="other")
    first, second = (Driver(spark, tmp_path / each.name, each, peers=[read, other]) for each in (other, read))
    first.run()
    second.run()
    backup = Backup(lone, tmp_path)
    lone.execute("UPDATE t SET v = 99 WHERE k <= 10")
    first.run()
    backup.restore()
    lone.execute("UPDATE t SET v = 11 WHERE k > 30", *["UPDATE t SET v = v + 1 WHERE k > 20"] * 30)
    with pytest.raises(SourceError, match="is not the file that was read before"):
        first.run()
    second.run()
    assert second.state() == on_server(lone)


def test_another_server_under_the_same_name(spark: SparkSession, lone: Database, tmp_path: Path) -> None:
    driver = Driver(spark, tmp_path, small(lone))
    driver.run()
    # And one that has crashed in the middle: what it left half done is not finished on another server either.
    crashed = Driver(spark, tmp_path / "crashed", driver.table)
    half = Driver(spark, tmp_path / "half", driver.table)
    with pytest.raises(Crash):
        crashed.run(crash=lambda point, step: point == "planned")
    with pytest.raises(Crash):
        half.run(crash=lambda point, step: point == "appended")
    with own_server(tmp_path / "other", server_id=2) as other:
        options = {**small(other, 500).options, "port": str(other.server.port)}
        other.execute(*["UPDATE t SET v = v + 1"] * 5)
        for runner in (driver, crashed):
            runner.table = replace(runner.table, options=Options(options))
            error = stopped(runner)
            assert "written by server_id 1, it is now by 2" in error.what
        half.table = driver.table
        with pytest.raises(SourceError, match="written by server_id 1"):
            half.run()
    assert all(split["cut"] is None for split in half.splits.rows())


def test_a_table_that_is_dropped_between_two_batches(
    spark: SparkSession, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "STEP_CHUNKS", 2)
    driver = Driver(spark, tmp_path, small(database))
    with pytest.raises(Crash):
        driver.run(crash=lambda point, step: (point, step.epoch) == ("planned", 2))
    database.execute("RENAME TABLE t TO gone")
    error = stopped(driver)
    assert "not what it was when this snapshot began" in error.what
    assert "chunks 3-4 of 4" in error.where
    assert "--resnapshot user_info" in error.next_command
    # Renamed back, the log still says that it was another table for a while: only a new generation is sure.
    database.execute("RENAME TABLE gone TO t")
    again = Driver(spark, tmp_path / "again", driver.table)
    again.run()
    assert again.state() == on_server(database)


def test_a_column_that_is_added_while_the_snapshot_is_read(
    spark: SparkSession, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "STEP_CHUNKS", 2)
    driver = Driver(spark, tmp_path, small(database))
    driver.run(max_steps=1)
    database.execute("ALTER TABLE t ADD COLUMN w INT DEFAULT 7 FIRST", "UPDATE t SET v = k WHERE k IN (5, 35)")
    with pytest.raises(Crash):
        driver.run(crash=lambda point, step: point == "planned")
    step, source = step_of(driver.steps[-1].step.ranges), MysqlCdcSource(driver.context())
    assert isinstance(step, SnapshotStep)
    work = source.step_reader(step)
    source.close()

    def late(*given: Any) -> Any:
        database.execute("ALTER TABLE t ADD COLUMN x INT DEFAULT 8 FIRST, ALGORITHM = COPY")
        return select(*given)

    monkeypatch.setattr(reading, "select", late)
    with pytest.raises(ViewTooOld, match="chunk-0000002 of") as failed:
        list(work.read(0))
    error = source.explain(failed.value, driver.steps[-1])
    assert error.next_command == AGAIN
    driver.run()
    assert len(driver.steps) == 3
    assert driver.flip_epoch == 3
    assert driver.state() == on_server(database)


def test_a_table_that_is_dropped_after_the_flip(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    driver = Driver(spark, tmp_path, small(database))
    driver.run()
    database.execute("DROP TABLE t")
    with pytest.raises(SourceError, match="has no table t"):
        driver.run()
    with pytest.raises((SourceError, PySparkException, Py4JError)) as failed:
        driver.run(preflight=False)
    error = explained(driver, failed.value)
    assert "user_info" in error.what
    assert "--resnapshot user_info" in error.next_command


def test_a_distributed_transaction_of_another_table_may_lie_over_the_border_of_steps(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    driver = Driver(spark, tmp_path, small(database))
    driver.run()
    database.execute("CREATE TABLE u (a INT)")
    with database.connect() as connection, connection.cursor() as cursor:
        for statement in ("XA START 'x'", "INSERT INTO u VALUES (1)", "XA END 'x'", "XA PREPARE 'x'"):
            cursor.execute(statement)
        driver.run()
        cursor.execute("XA COMMIT 'x'")
    database.execute("UPDATE t SET v = 1 WHERE k = 1")
    driver.run()
    assert driver.state() == on_server(database)


@contextmanager
def meddling(database: Database, with_reader: str) -> Iterator[threading.Event]:
    """Do `with_reader` to each connection that reads a chunk, as soon as it is seen; {} is its id."""
    stop, seen = threading.Event(), threading.Event()

    def watch() -> None:
        with database.connect() as connection, connection.cursor() as cursor:
            while not stop.is_set():
                cursor.execute("SELECT ID FROM information_schema.PROCESSLIST WHERE INFO LIKE 'SELECT%SLEEP(0.3)%'"
                               " AND ID <> CONNECTION_ID()")  # fmt: skip
                for (number,) in cursor.fetchall():
                    seen.set()
                    if with_reader == "crash":
                        database.server.kill()
                        return
                    cursor.execute(with_reader.format(number))
                stop.wait(0.02)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield seen
    finally:
        stop.set()
        watcher.join()


@pytest.mark.parametrize("how", at_length(["KILL {}", "crash"]))
def test_a_connection_or_a_server_that_is_lost_mid_chunk(
    spark: SparkSession, lone: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    from tidegate.pipelines.sources.mysql_cdc.snapshot import reading

    driver = Driver(spark, tmp_path, small(lone))
    plain = reading.snapshot_expression
    with monkeypatch.context() as slow, meddling(lone, how) as seen:
        # Slow enough to be caught in the middle of its rows.
        slow.setattr(reading, "snapshot_expression", lambda column: f"{plain(column)} + SLEEP(0.3)")
        error = stopped(driver)
    assert seen.is_set()
    assert "connection to the server was lost" in error.what
    assert "chunks 1-4 of 4" in error.where
    assert "goes on at this step" in error.next_command
    if how == "crash":
        lone.server.start()
    driver.run()
    assert driver.flip_epoch == 2
    assert driver.state() == on_server(lone)


def test_a_server_that_is_not_there_for_the_log(spark: SparkSession, lone: Database, tmp_path: Path) -> None:
    driver = Driver(spark, tmp_path, small(lone))
    driver.run()
    lone.execute("UPDATE t SET v = 1")
    lone.server.stop()
    with pytest.raises(SourceError, match="cannot be reached"):
        driver.run()
    lone.server.start()
    driver.run()
    assert driver.state() == on_server(lone)
