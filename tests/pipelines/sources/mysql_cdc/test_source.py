"""A table from its first chunk past its flip: phases, modes, crashes, and that the end equals the server's table."""

from __future__ import annotations

import logging
import re
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.cases import at_length
from tests.conftest import Database
from tests.pipelines.sources.mysql_cdc.binlog.recording import position
from tests.pipelines.sources.mysql_cdc.driver import CHUNK, Crash, Driver, context_of, declare, on_server, small
from tests.pipelines.sources.mysql_cdc.replay import Replay, number
from tests.pipelines.sources.mysql_cdc.writers import Writers
from tidegate.pipelines.connectors.protocol import (
    KnowsItsEnd,
    PlanRequest,
    SourcePosition,
    StoredStep,
    Unread,
)
from tidegate.pipelines.connectors.table import SOURCE_TIME, Column, Table, WatermarkSpec
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.progress import LoggedProgress
from tidegate.pipelines.runtime.failures import Failed
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.sources.cdc import snapshot
from tidegate.pipelines.sources.cdc.errors import ValueTooGreat, explain
from tidegate.pipelines.sources.mysql_cdc import CONNECTOR, connection, plan
from tidegate.pipelines.sources.mysql_cdc.connection import EXACT
from tidegate.pipelines.sources.mysql_cdc.errors import LOCK_WAIT_S, TableLocked
from tidegate.pipelines.sources.mysql_cdc.snapshot import reading
from tidegate.pipelines.sources.mysql_cdc.source import MysqlCdcSource
from tidegate.pipelines.sql import compile_script


def summaries(driver: Driver) -> list[tuple[str, str, bool]]:
    return [(stored.step.phase, stored.step.summary.split()[0], stored.step.flips) for stored in driver.steps]


def test_beside_writers_the_flip_is_exact_and_the_end_is_the_servers_table(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE t (k INT PRIMARY KEY, v INT, s VARCHAR(20))")
    replay = Replay(database, "t", "k")
    database.execute("INSERT INTO t SELECT seq, seq, '' FROM seq_0_to_1999", "ANALYZE TABLE t")
    table = declare(database.options("t") | {CHUNK: "90"}, {"k": "INT", "v": "INT", "s": "STRING"}, ["k"])
    driver = Driver(spark, tmp_path, table)
    with Writers(database, 2200, seed=7) as writers, writers.busy():
        driver.run()
    flip = driver.flip_epoch
    assert flip == len(driver.steps)
    assert driver.emitted == [flip]
    end = driver.steps[-1].step.ranges["span"]["end"]
    cuts = [(number(split["cut"]["file"]), split["cut"]["position"]) for split in driver.splits.rows()]
    place = (number(end["file"]), end["position"])
    assert place >= max(cuts)
    wanted = {(key,): (key, row["v"], row["s"]) for key, row in replay.to(place).items()}
    assert driver.state(flip) == wanted
    driver.run()
    assert driver.state() == {(row[0],): row for row in database.execute("SELECT k, v, s FROM t")}
    assert driver.emitted == [flip]
    # The epochs before the flip are not a state that any moment had: that is why nothing may be released before it.
    assert not any(stored.step.flips for stored in driver.steps[:-2])


def test_a_quiet_table_flips_by_a_step_without_rows(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    driver = Driver(spark, tmp_path, small(database, 100))
    driver.run()
    assert summaries(driver) == [("bounded", "chunks", False), ("unbounded", "binlog", True)]
    assert driver.rows().where("_op <> 'r'").isEmpty()
    assert driver.state() == on_server(database)
    assert driver.landed[-1].lag_ms == 0
    assert driver.run() == [], "nothing is left to do"
    database.execute("UPDATE t SET v = 5 WHERE k = 3", "DELETE FROM t WHERE k = 4", "UPDATE t SET k = 500 WHERE k = 5")
    (step,) = driver.run()
    assert not step.step.flips
    assert driver.state() == on_server(database)


def test_a_step_that_does_not_reach_the_servers_end_reports_how_far_it_has_got(
    spark: SparkSession, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "STEP_BYTES", 1)
    now, ahead = time.time(), 0
    driver = Driver(spark, tmp_path, small(database, 100), clock=lambda: round(1000 * time.time()) + ahead)
    driver.run()
    for value in (1, 2):
        database.execute(f"UPDATE t SET v = {value} WHERE k = 3", "FLUSH BINARY LOGS")
    ahead = 2 * 86_400_000
    # Each file is a step; what it has of the log goes up to the moment at which the next file began.
    for _ in range(2):
        driver.run(max_steps=1)
        lag_ms = driver.landed[-1].lag_ms
        assert lag_ms is not None
        assert ahead - 1000 <= lag_ms <= ahead + 1000 * (time.time() - now + 1)
    driver.run()
    assert driver.landed[-1].lag_ms == 0
    assert driver.state() == on_server(database)


def test_a_step_that_ends_amid_a_file_has_got_as_far_as_its_newest_change(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    now = first = 2_000_000_000
    plain = small(database, rows=3)
    timed = replace(plain, name="timed", watermark=WatermarkSpec("v", "v", "BIGINT"))
    drivers = [Driver(spark, tmp_path / table.name, table, clock=lambda: 1000 * now) for table in (plain, timed)]
    for driver in drivers:
        driver.run()
    for second in (1, 2, 3):
        database.execute(f"SET timestamp = {first + second}", f"UPDATE t SET v = {second} WHERE k = 1")
    now = first + 60
    for driver in drivers:
        driver.max_rows = 1
        driver.run(max_steps=2)
    assert [landed.lag_ms for landed in drivers[0].landed[-2:]] == [59_000, 58_000]
    lags = [landed.lag_ms for landed in drivers[1].landed[-2:]]
    assert lags == [60_000, 60_000], "its rowtime is not when it was committed: the run before got as far as the end"
    for driver in drivers:
        driver.run()
        assert driver.landed[-1].lag_ms == 0


def test_what_is_unread_is_counted_without_reading_it(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    table = small(database, rows=3)
    drivers = [Driver(spark, tmp_path / mode, with_options(table, {"scan.startup.mode": mode}))
               for mode in ("initial", "snapshot")]  # fmt: skip

    def unread(driver: Driver) -> Unread | None:
        source = CONNECTOR.source(driver.context())
        assert isinstance(source, KnowsItsEnd)
        try:
            return source.unread(driver.position)
        finally:
            source.close()

    assert unread(drivers[0]) is None, "nothing is planned yet"
    for driver in drivers:
        driver.run()
    assert unread(drivers[0]) == Unread()
    database.execute("FLUSH BINARY LOGS", "CREATE TABLE other (v LONGTEXT)")
    database.execute("INSERT INTO other VALUES (REPEAT('x', 5000000))")
    before = _sent(database)
    explained = unread(drivers[0])
    assert _sent(database) - before < 100_000
    assert explained is not None
    assert int(explained.rest.partition(" ")[0].replace(",", "")) > 5_000_000
    assert unread(drivers[1]) == Unread(), "a table that is a snapshot alone is read no further"


def test_an_empty_table_flips_too(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    driver = Driver(spark, tmp_path, _empty(database))
    driver.run()
    assert driver.flip_epoch == 2
    assert driver.emitted == [2]
    assert driver.state() == {}
    assert driver.splits.rows()[0]["cut"] is not None


def _empty(database: Database) -> Table:
    database.execute("CREATE TABLE t (k INT PRIMARY KEY, v INT)")
    return declare(database.options("t"), {"k": "INT", "v": "INT"}, ["k"])


def test_a_table_without_a_key_is_read_as_one_chunk(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (k INT, v INT)", "INSERT INTO t SELECT seq DIV 2, seq FROM seq_1_to_50")
    driver = Driver(spark, tmp_path, declare(database.options("t") | {CHUNK: "10"}, {"k": "INT", "v": "INT"}))
    driver.run()
    assert summaries(driver) == [("bounded", "chunks", False), ("unbounded", "binlog", True)]
    assert sorted((row["k"], row["v"]) for row in driver.rows().collect()) == [(n // 2, n) for n in range(1, 51)]


def test_the_log_is_read_in_bounded_pieces_and_only_the_last_one_flips(
    spark: SparkSession, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "STEP_BYTES", 1)
    driver = Driver(spark, tmp_path, small(database, rows=30))

    def change(point: str, step: StoredStep) -> bool:
        if point == "planned" and step.step.phase == "bounded":
            # After the log's start was noted and before the chunks are read: all of it lies below the cuts.
            for value in (1, 2):
                database.execute(f"UPDATE t SET v = {value} WHERE k <= 5", "FLUSH BINARY LOGS")
            database.execute("DELETE FROM t WHERE k = 6")
        return False

    driver.run(crash=change)
    assert [flips for _, _, flips in summaries(driver)] == [False, False, False, True]
    assert driver.emitted == [4]
    assert driver.state() == on_server(database)


@pytest.mark.parametrize("point", ["planned", "appended", "landed"])
@pytest.mark.parametrize("epoch", at_length([2, 1, 3]))
def test_after_a_crash_the_stored_step_is_run_again(
    spark: SparkSession, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, epoch: int
) -> None:
    monkeypatch.setattr(snapshot, "STEP_CHUNKS", 2)
    driver = Driver(spark, tmp_path, small(database, rows=40))
    with pytest.raises(Crash):
        driver.run(crash=lambda at, step: (at, step.epoch) == (point, epoch))
    planned = list(driver.steps)
    if point == "landed":
        driver.landed.pop()  # the runtime has not yet written that it landed
    database.execute("UPDATE t SET v = v + 1", "DELETE FROM t WHERE k = 7", "INSERT INTO t VALUES (99, 99)")
    driver.run()
    assert driver.steps[: len(planned)] == planned
    assert driver.flip_epoch == 3
    assert set(driver.emitted) == {3}
    assert driver.state() == on_server(database)


def test_snapshot_mode_ends_at_its_flip(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    driver = Driver(spark, tmp_path, small(database, 100, **{"scan.startup.mode": "snapshot"}))

    def change(point: str, step: StoredStep) -> bool:
        if point == "planned" and step.epoch == 1:
            database.execute("UPDATE t SET v = 1 WHERE k <= 50")
        if point == "landed" and step.epoch == 1:
            database.execute("UPDATE t SET v = 2 WHERE k <= 50")
        return False

    driver.run(crash=change)
    assert driver.flip_epoch == 2
    assert {row[1] for row in driver.state().values()} == {0, 1}
    assert driver.run() == []


def test_latest_offset_flips_at_once_and_reads_what_comes(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    driver = Driver(spark, tmp_path, small(database, 100, **{"scan.startup.mode": "latest-offset"}))
    driver.run()
    assert summaries(driver) == [("unbounded", "binlog", True)]
    database.execute("UPDATE t SET v = 9 WHERE k = 1")
    driver.run()
    assert driver.state() == {(1,): (1, 9)}
    assert driver.emitted == [1]


def test_specific_offset(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    table = small(database, 100)
    start = position(database)
    inside = replace(start, position=start.position + 1)
    database.execute("UPDATE t SET v = 1 WHERE k = 1", "FLUSH BINARY LOGS", "UPDATE t SET v = 1 WHERE k = 2")
    mode = {
        "scan.startup.mode": "specific-offset",
        "scan.startup.specific-offset.file": start.file,
        "scan.startup.specific-offset.pos": str(start.position),
    }
    driver = Driver(spark, tmp_path, with_options(table, mode))
    driver.run()
    assert summaries(driver) == [("unbounded", "binlog", True)]
    assert driver.state() == {(1,): (1, 1), (2,): (2, 1)}
    for wrong, says in (
        ({"scan.startup.specific-offset.file": "binlog.999999"}, "the server has no binlog binlog.999999"),
        ({"scan.startup.specific-offset.pos": str(inside.position)}, f"no transaction begins at {inside}"),
        ({"scan.startup.specific-offset.pos": str(2**31)}, "is after its end"),
    ):
        with pytest.raises(SourceError) as refused:
            Driver(spark, tmp_path / "wrong", with_options(table, mode | wrong)).run()
        assert says in refused.value.what


def with_options(table: Table, more: dict[str, str]) -> Table:
    return replace(table, options=type(table.options)({**table.options, **more}))


def test_timestamp(spark: SparkSession, lone: Database, tmp_path: Path) -> None:
    database = lone
    table = small(database, 100)
    database.execute("UPDATE t SET v = 1 WHERE k = 1", "FLUSH BINARY LOGS")
    # The server's log knows whole seconds only.
    while (second := int(time.time())) <= database.execute("SELECT UNIX_TIMESTAMP()")[0][0] - 1:
        time.sleep(0.05)
    border = second + 1
    while time.time() < border:
        time.sleep(0.05)
    database.execute("UPDATE t SET v = 2 WHERE k = 2")
    mode = {"scan.startup.mode": "timestamp", "scan.startup.timestamp-millis": str(border * 1000)}
    # Files that began, by what their sessions say, long before.
    for value in (3, 4, 5):
        database.execute(f"UPDATE t SET v = {value} WHERE k = 3", "SET timestamp = 1000000000", "FLUSH BINARY LOGS")
    driver = Driver(spark, tmp_path / "first", with_options(table, mode))
    driver.run()
    assert driver.state() == {(2,): (2, 2), (3,): (3, 5)}
    future = {"scan.startup.mode": "timestamp", "scan.startup.timestamp-millis": str((border + 3600) * 1000)}
    late = Driver(spark, tmp_path / "late", with_options(table, future))
    late.run()
    assert (late.state(), late.flip_epoch) == ({}, 1)


def test_rows_of_both_phases_have_one_shape(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    database.execute(
        "CREATE TABLE t (`_k` INT PRIMARY KEY, `a.b c` CHAR(5), b BIGINT UNSIGNED, d DECIMAL(40,3), at TIMESTAMP(3),"
        " f FLOAT, day DATE, tiny TINYINT(1), e ENUM('a','b'), y YEAR)",
        "INSERT INTO t VALUES (1, ' x ', 18446744073709551615, -1.5, '2024-03-31 01:30:00.125', 1.1, '0000-00-00', 7,"
        " 'b', 1999)",
    )
    columns = {
        "k": "INT", "c": "STRING", "b": "DECIMAL(20,0)", "d": "STRING", "at": "TIMESTAMP(3)", "f": "FLOAT",
        "day": "DATE", "tiny": "TINYINT", "e": "STRING", "y": "INT",
    }  # fmt: skip
    table = declare(database.options("t", server_time_zone="Europe/Berlin"), columns, ["k"])
    named = {"k": "_K", "c": "a.b c"}  # the servers' names of columns have no case
    found = tuple(replace(column, field_name=named.get(column.name)) for column in table.columns)
    driver = Driver(spark, tmp_path, replace(table, columns=found))
    driver.run()
    database.execute("INSERT INTO t SELECT 2, `a.b c`, b, d, at, f, day, tiny, e, y FROM t")
    driver.run()
    one, two = (driver.state()[(k,)] for k in (1, 2))
    assert one[1:] == two[1:]
    assert one[1] == " x"
    assert str(one[4]) == "2024-03-31 03:30:00.125000"


def test_unsigned_numbers_are_read_as_bigint_while_they_fit(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE t (k BIGINT UNSIGNED PRIMARY KEY)", f"INSERT INTO t VALUES ({2**63 - 1}), (1)")
    driver = Driver(spark, tmp_path, declare(database.options("t"), {"k": "BIGINT"}, ["k"]))
    driver.run()
    assert sorted(driver.state()) == [(1,), (2**63 - 1,)]
    database.execute(f"INSERT INTO t VALUES ({2**63})")
    with pytest.raises(PySparkException) as raised:
        driver.run()
    error = explain(raised.value, "build", driver.steps[-1].step.summary, "the server")
    assert isinstance(error, ValueTooGreat)
    assert error.what == f"build: column k: {2**63} is a value of a BIGINT UNSIGNED that BIGINT cannot hold"
    assert error.next_command.startswith("declare k as DECIMAL(20, 0), and run the script in another lake (--lake DIR)")
    assert "UPDATE such rows on the server; then tidegate run SCRIPT --resnapshot build" in error.next_command


def test_alters_that_change_no_value_are_followed(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    database.execute(
        "CREATE TABLE t (k INT PRIMARY KEY, v INT, w INT NOT NULL, s VARCHAR(2))",
        "INSERT INTO t VALUES (1, 10, 100, 'a'), (3, 30, 0, 'c')",
    )
    table = declare(database.options("t"), {"k": "BIGINT", "v": "INT", "w": "BIGINT", "s": "STRING"}, ["k"])
    driver = Driver(spark, tmp_path, table)
    driver.run()
    assert "dropped" not in driver.landed[-1].position
    database.execute(
        "ALTER TABLE t MODIFY k BIGINT AUTO_INCREMENT, MODIFY w BIGINT NOT NULL, MODIFY s VARCHAR(3)",
        "INSERT INTO t (k, v, w, s) VALUES (5000000000, 50, 6000000000, 'bcd')",
        "ALTER TABLE t DROP COLUMN v, ADD COLUMN x INT, MODIFY s TEXT COMMENT 'x'",
        "INSERT INTO t (k, w, s, x) VALUES (2, 200, 'xyzw', 7)",
    )
    driver.run()
    (one, three) = ((1, 10, 100, "a"), (3, 30, 0, "c"))
    followed = [one, (2, None, 200, "xyzw"), three, (5_000_000_000, 50, 6_000_000_000, "bcd")]
    assert sorted(driver.state().values()) == followed
    assert driver.landed[-1].position.endswith("; dropped on the server, NULL since then: v")
    database.execute("UPDATE t SET w = 101 WHERE k = 1")
    driver.run()  # a run later, when the table is known without the column
    assert driver.state()[1,] == (1, None, 101, "a")
    fresh = Driver(spark, tmp_path / "fresh", table)
    with pytest.raises(SourceError, match="the table has no column v"):
        fresh.run()
    database.execute("ALTER TABLE t MODIFY k BIGINT, MODIFY w BIGINT NOT NULL AUTO_INCREMENT, ADD UNIQUE (w)")
    database.execute("UPDATE t SET s = 'z' WHERE k = 1")
    with pytest.raises(Exception, match="cannot be followed further: ALTER TABLE … MODIFY w BIGINT"):
        driver.run()  # the 0 of an earlier row got another number


@pytest.mark.parametrize(
    "own", at_length([{"expression": SOURCE_TIME}, {"metadata": "op_ts"}]), ids=["SYSTEM_ROWTIME()", "op_ts"]
)
def test_under_alignment_a_piece_ends_at_the_commit_time_that_the_group_allows(
    spark: SparkSession, database: Database, tmp_path: Path, own: dict[str, str]
) -> None:
    plain = replace(small(database, rows=3), watermark=WatermarkSpec("v", "v", "BIGINT"))
    timed = replace(
        plain,
        name="timed",
        columns=(*plain.columns, Column("at", "TIMESTAMP_LTZ(6)", "TIMESTAMP", **own)),
        watermark=WatermarkSpec("at", "at - INTERVAL '00.001' SECOND", "TIMESTAMP_LTZ(6)", source="expression" in own),
    )
    drivers = [Driver(spark, tmp_path / table.name, table) for table in (timed, plain)]
    for driver in drivers:
        driver.run()
    first = 2_000_000_000
    database.execute("CREATE TABLE other (v INT)")
    for second in range(4):
        with database.connect(autocommit=False) as connection, connection.cursor() as cursor:
            cursor.execute(f"SET timestamp = {first + second}")
            for statement in (f"UPDATE t SET v = {second + 1}", "INSERT INTO other VALUES (1)"):
                cursor.execute(statement)
                connection.commit()
    # One transaction of the table at least, and those of others are no matter: the group may wait for this one.
    for allowed, seen in [(first - 9, 1), (first + 1, 2), (first - 9, 3)]:
        drivers[0].limit = 1000 * allowed
        drivers[0].run(max_steps=1)
        assert {row[1] for row in drivers[0].state().values()} == {seen}
    # Not that one either where others are behind: only what the log has of other tables is passed.
    drivers[0].ahead = frozenset({"binlog"})
    drivers[0].run()
    assert ({row[1] for row in drivers[0].state().values()}, drivers[0].held) == (
        {3},
        {"binlog": 1000 * (first + 3)},
    )
    drivers[0].limit, drivers[0].held = 1000 * (first + 9), {}
    drivers[0].run()
    assert ({row[1] for row in drivers[0].state().values()}, drivers[0].held) == ({4}, {})
    assert drivers[0].run() == []
    drivers[1].limit = 1000 * first
    drivers[1].run()
    assert {row[1] for row in drivers[1].state().values()} == {4}, "the commit time is not this table's rowtime"


def test_a_piece_has_about_as_many_rows_as_an_epoch_may_have(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    driver = Driver(spark, tmp_path, small(database, rows=5))
    driver.run()
    database.execute("CREATE TABLE other (v INT)")
    for value in (1, 2, 3, 4, 5):
        database.execute(f"UPDATE t SET v = {value} WHERE k = {value}", "INSERT INTO other VALUES (1)")
    driver.max_rows, snapshot = 2, len(driver.steps)
    driver.run()
    assert [driver.rows(step.epoch).count() for step in driver.steps[snapshot:]] == [7, 9, 10]
    assert driver.state() == on_server(database)


def test_tables_of_one_server_read_its_log_once(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    tables = []
    for name in ("t", "u"):
        database.execute(f"CREATE TABLE {name} (k INT PRIMARY KEY, v INT, s LONGTEXT)")
        database.execute(f"INSERT INTO {name} SELECT seq, 0, '' FROM seq_1_to_20", "FLUSH BINARY LOGS")
        columns = {"k": "INT", "v": "INT", "s": "STRING"}
        tables.append(declare(database.options(name), columns, ["k"], name=name))
    drivers = [Driver(spark, tmp_path / table.name, table, peers=tables) for table in tables]

    def change(size: int) -> None:
        for table in tables:
            database.execute(f"UPDATE {table.name} SET v = v + 1, s = REPEAT('x', {size})")

    for _ in range(2):  # the tables' snapshots were taken at different times: now they meet
        for driver in drivers:
            driver.run()
            change(10)
    change(100_000)
    before = _sent(database)
    for driver in drivers:
        driver.run()
        assert driver.state() == {(row[0],): row for row in database.execute(f"SELECT * FROM {driver.table.name}")}
    log = 2 * 20 * 100_000
    read = _sent(database) - before - 2 * log // 2  # the two SELECTs above sent as much as the tables hold
    assert log <= read < 1.5 * log
    drivers[0].run()
    assert not list((tmp_path / "scratch" / "_binlog").glob("*/*")), "what all have read is gone"


def _sent(database: Database) -> int:
    return int(database.execute("SHOW GLOBAL STATUS LIKE 'Bytes_sent'")[0][1])


SCRIPT = """
CREATE TABLE {name} (k INT, v INT, at AS SYSTEM_ROWTIME(), PRIMARY KEY (k) NOT ENFORCED,
    WATERMARK FOR at AS SYSTEM_WATERMARK()) WITH ({options},
    'scan.watermark.alignment.group' = 'g', 'scan.watermark.alignment.max-drift' = '5 s');
CREATE TABLE probe_{name} (k INT, at TIMESTAMP(3), WATERMARK FOR at AS at) WITH ('connector' = 'scripted');
CREATE TABLE kept_{name} (k INT, v INT) WITH ('connector' = 'delta');
INSERT INTO kept_{name} SELECT p.k, b.v FROM probe_{name} AS p
    LEFT JOIN {name} FOR SYSTEM_TIME AS OF p.at AS b ON p.k = b.k;
"""
FIRST = 2_000_000_000


def script(database: Database, *names: str) -> str:
    return "".join(SCRIPT.format(name=name, options=database.clause(name)) for name in names)


def change(database: Database, name: str, seconds: range) -> None:
    """One transaction a second, by the server's clock."""
    with database.connect(autocommit=False) as connection, connection.cursor() as cursor:
        for second in seconds:
            cursor.execute(f"SET timestamp = {FIRST + second}")
            cursor.execute(f"UPDATE {name} SET v = v + 1")
            connection.commit()


def test_a_quiet_table_beside_a_busy_one_comes_to_its_ends(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    for name in ("quiet", "busy"):
        database.execute(f"CREATE TABLE {name} (k INT PRIMARY KEY, v INT)", f"INSERT INTO {name} VALUES (1, 0)")
    lake = Lake(tmp_path)
    pipeline = compile_script(script(database, "quiet", "busy"))
    with Runner(pipeline, lake, spark=lambda: spark, environment={}) as active:
        active.advance_all(["quiet", "busy"])
        change(database, "quiet", range(1))
        change(database, "busy", range(40))
        change(database, "quiet", range(100, 101))
        change(database, "busy", range(102, 103))
        before = {name: len(lake.watermarks.rows(name)) for name in ("quiet", "busy")}
        quiet, busy = active.advance_all(["quiet", "busy"])
        assert (quiet.rows, busy.rows) == (2, 41)
        assert (quiet.blocked, busy.blocked) == ((), ())
        # A transaction of the busy table is no step of the quiet one's, and the busy one was held in between.
        epochs = {name: len(lake.watermarks.rows(name)) - before[name] for name in before}
        assert epochs["quiet"] <= 3
        assert [row.rows for row in lake.watermarks.rows("busy")][-2:] == [6, 35]


def test_a_locked_table_stops_after_its_wait_while_others_go_on(
    spark: SparkSession, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sum(connection._LOCK_WAITS) == LOCK_WAIT_S
    monkeypatch.setattr(connection, "_LOCK_WAITS", (0, 0))
    for name in ("held", "free"):
        database.execute(f"CREATE TABLE {name} (k INT PRIMARY KEY, v INT)", f"INSERT INTO {name} VALUES (1, 0)")
    lake, failed = Lake(tmp_path), Failed()
    lines: list[str] = []
    log = logging.Logger("said")
    log.info = lines.append  # type: ignore[method-assign]
    said = LoggedProgress(log, every=0)
    pipeline = compile_script(re.sub(r",\s+'scan.watermark.*'", "", script(database, "held", "free")))
    with closing(MysqlCdcSource(context_of(pipeline.table("held")))) as source:
        planned = source.plan(PlanRequest(ends=source.ends(SourcePosition()), instant=0))
        chunks = source.step_reader(source.step_of(planned.step.ranges if planned.step else {}))  # type: ignore[arg-type]
    monkeypatch.setattr(reading, "EXACT", EXACT.replace(f"lock_wait_timeout = {LOCK_WAIT_S}", "lock_wait_timeout = 0"))
    with Runner(pipeline, lake, spark=lambda: spark, environment={}, progress=said) as active:
        with database.connect() as holder, holder.cursor() as cursor:
            cursor.execute("LOCK TABLES held WRITE")
            assert [each.rows for each in active.advance_all(["held", "free"], failed=failed)] == [1]
            with pytest.raises(TableLocked, match=f"longer than is waited \\({LOCK_WAIT_S} s\\)"):
                list(chunks.read(0))
            cursor.execute("UNLOCK TABLES")  # a closed connection ends its locks some time later
        error = failed["held"]
        assert isinstance(error, TableLocked)
        assert f"{database.name}.held" in error.where
        assert "SHOW FULL PROCESSLIST" in error.next_command
        assert any(
            "waiting for a lock on held" in line and "another session holds it; 0 s left" in line for line in lines
        )
        assert [each.rows for each in active.advance_all(["held", "free"])] == [1, 0]
