"""A pipeline on a real server when reading goes wrong: the error names table and place, the lake stays as it was (but
for the plan), and the next run goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.conftest import Database
from tests.oracle.pins import rows_of
from tests.pipelines.runtime.crashing import meanwhile
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.sources.mysql_cdc.errors import ConnectionLost, SchemaChanged
from tidegate.pipelines.sources.mysql_cdc.snapshot import reading
from tidegate.pipelines.sql import compile_script

# Two tables of one server, so that what one has read of the binlog waits for the other one.
SCRIPT = """
CREATE TABLE user_info (user_id INT PRIMARY KEY NOT ENFORCED, gender STRING) WITH ({user_info});
CREATE TABLE user_city (user_id INT PRIMARY KEY NOT ENFORCED, city STRING) WITH ({user_city});
CREATE TABLE click_event (user_id INT, item_id BIGINT, proctime AS PROCTIME()) WITH (
    'connector' = 'datagen', 'rows-at-start' = '50', 'rows-per-second' = '20',
    'fields.user_id.min' = '1', 'fields.user_id.max' = '40');
CREATE TABLE enriched (user_id INT, gender STRING, city STRING) WITH ('connector' = 'delta');
INSERT INTO enriched SELECT c.user_id, gender, city FROM click_event AS c
LEFT JOIN user_info FOR SYSTEM_TIME AS OF c.proctime ON c.user_id = user_info.user_id
LEFT JOIN user_city FOR SYSTEM_TIME AS OF c.proctime ON c.user_id = user_city.user_id;
"""
NOT_OF_A_STEP = ("_control/", "completeness")
"""Where a step that fails may have written: that it was planned, and by whom; and how far all is."""


def script(database: Database) -> str:
    return SCRIPT.format(**{table: database.clause(table, 10) for table in ("user_info", "user_city")})


class Run:
    """Runs the pipeline, each time with nothing left of the time before but the lake."""

    def __init__(self, database: Database, spark: SparkSession, directory: Path) -> None:
        self.database, self.spark = database, spark
        self.lake = Lake(directory / "lake")

    @contextmanager
    def runner(self) -> Iterator[Runner]:
        with Runner(compile_script(script(self.database)), self.lake, spark=lambda: self.spark) as runner:
            yield runner

    def versions(self) -> dict[str, int]:
        """The version of every table of the lake, and how many epochs have landed."""
        logs = Path(self.lake.root).rglob("_delta_log")
        found = {str(log.parent.relative_to(self.lake.root)): DeltaTable(str(log.parent)).version() for log in logs}
        lake = Lake(self.lake.root)
        landed = {f"epochs of {owner}": len(lake.watermarks.rows(owner)) for owner in lake.watermarks.owners()}
        return {name: version for name, version in found.items() if not name.startswith(NOT_OF_A_STEP)} | landed

    def tried(self, table: str) -> SourceError | None:
        """Advance a table; what it says where it stops."""
        with self.runner() as runner:
            try:
                runner.advance(table)
            except SourceError as error:
                return error
        return None

    def stopped(self, table: str, **how: Any) -> SourceError:
        """Advance a table until it stops: nothing of the step is there, and the error says what it has to."""
        before = self.versions()
        with self.runner() as runner, pytest.raises(SourceError) as failed:
            runner.advance(table, **how)
        assert self.versions() == before
        error = failed.value
        assert error.what.startswith(f"{table}: ")
        assert f"{self.database.name}.{table}" in error.where
        assert error.state
        assert self.database.password not in str(error)
        return error

    def goes_on(self) -> None:
        """A whole run: both tables are the server's, and the new clicks are published, each as the server has it."""
        with self.runner() as runner:
            report = runner.run()
        server = {
            table: dict(self.database.execute(f"SELECT user_id, {column} FROM {table}"))  # type: ignore[arg-type]
            for table, column in (("user_info", "gender"), ("user_city", "city"))
        }
        generation = {advance.table: advance.generation for advance in report.advances}
        assert self.latest("user_info", "gender", generation["user_info"]) == server["user_info"]
        assert self.latest("user_city", "city", generation["user_city"]) == server["user_city"]
        (release,) = report.releases
        assert release.published
        epochs = {done.epoch for done in release.published}
        rows = [row for row in rows_of(str(self.lake.root / "targets" / "enriched")) if row["_epoch"] in epochs]
        assert len(rows) == sum(done.rows for done in release.published) > 0
        for row in rows:
            key = row["user_id"]
            assert (row["gender"], row["city"]) == (server["user_info"][key], server["user_city"][key])

    def latest(self, table: str, column: str, generation: int) -> dict[Any, Any]:
        rows = rows_of(str(self.lake.table_path(table)))
        own = [row for row in rows if row["_generation"] == generation]
        newest = {row["user_id"]: row for row in sorted(own, key=lambda row: tuple(row["_seq"].values()))}
        return {key: row[column] for key, row in newest.items() if row["_op"] != "d"}


@contextmanager
def killing(database: Database, wanted: str, *, from_point: str) -> Iterator[threading.Event]:
    """Kill each connection that `wanted` (a condition on PROCESSLIST) holds for, once a run has passed a point."""
    armed, stop, seen = threading.Event(), threading.Event(), threading.Event()

    def watch() -> None:
        with database.connect() as connection, connection.cursor() as cursor:
            while not stop.is_set():
                if not armed.wait(0.01):
                    continue
                cursor.execute(
                    f"SELECT ID FROM information_schema.PROCESSLIST WHERE {wanted} AND ID <> CONNECTION_ID()"
                )
                for (number,) in cursor.fetchall():
                    cursor.execute(f"KILL {number}")
                    seen.set()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        with meanwhile(armed.set, from_point):
            yield seen
    finally:
        stop.set()
        watcher.join()


@pytest.mark.thorough
def test_whatever_goes_wrong_is_reported_and_the_next_run_goes_on(
    spark: SparkSession, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute(
        "CREATE TABLE user_info (user_id INT PRIMARY KEY, gender VARCHAR(8), note LONGTEXT)",
        "CREATE TABLE user_city (user_id INT PRIMARY KEY, city VARCHAR(20))",
        "INSERT INTO user_info SELECT seq, ELT(1 + seq % 3, 'f', 'm', 'x'), NULL FROM seq_1_to_40",
        "INSERT INTO user_city SELECT seq, CONCAT('city ', seq) FROM seq_1_to_40",
    )
    run = Run(database, spark, tmp_path)
    run.goes_on()

    # What one table has left of the binlog for the other one rots: no row of it gets in.
    database.execute("UPDATE user_city SET city = 'elsewhere' WHERE user_id % 2", "UPDATE user_info SET gender = 'x'")
    with run.runner() as runner:
        runner.advance("user_info")
    (events,) = Path(run.lake.root).glob("_scratch/_binlog/*/*/events")
    assert b"elsewhere" in events.read_bytes()
    events.write_bytes(events.read_bytes().replace(b"elsewhere", b"elsewhare"))
    before = run.versions()
    error = run.tried("user_city")
    assert error is not None
    assert run.versions() == before
    assert error.what.startswith("user_city: ")
    assert f"{database.name}.user_city" in error.where
    assert "binlog.0" in error.where
    assert not events.parent.exists(), "a damaged copy is removed, and the server is asked"
    run.goes_on()

    # The connection that sends the binlog is killed, in the middle of 40 MB.
    database.execute("UPDATE user_info SET gender = 'd', note = REPEAT(MD5(RAND()), 32000)")
    with killing(database, "COMMAND = 'Binlog Dump'", from_point="source.planned") as seen:
        error = run.stopped("user_info")
    assert seen.is_set()
    assert isinstance(error, ConnectionLost)
    assert "binlog.0" in error.where
    assert "goes on at this step" in error.next_command
    run.goes_on()

    # A column gets a type whose rows the binlog does not show: only a new snapshot is sure.
    database.execute("ALTER TABLE user_info MODIFY gender CHAR(3)", "UPDATE user_info SET gender = 'm'")
    for _ in range(2):
        error = run.stopped("user_info")
        assert isinstance(error, SchemaChanged)
        assert "binlog.0" in error.where
        assert "--resnapshot user_info" in error.next_command

    # The new snapshot's chunks lose their connections; what is published stays on the generation before.
    plain = reading.snapshot_expression
    with (
        monkeypatch.context() as slow,
        killing(database, "INFO LIKE 'SELECT%SLEEP(0.3)%'", from_point="source.planned") as seen,
    ):
        slow.setattr(reading, "snapshot_expression", lambda column: f"{plain(column)} + SLEEP(0.3)")
        error = run.stopped("user_info", resnapshot=True)
    assert seen.is_set()
    assert "connection to the server was lost" in error.what
    assert "chunks 1-4 of 4" in error.where
    assert "goes on at this step" in error.next_command
    run.goes_on()
    assert run.lake.watermarks.last("user_info").generation == 2  # type: ignore[union-attr]
