"""SYSTEM_ROWTIME() and SYSTEM_WATERMARK() of real sources: the time of the commit, and how far it has come."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.cases import at_length
from tests.conftest import Database
from tests.oracle.event_time import Build, Join, Probe
from tidegate.pipelines.clock import system_clock
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.testing import Harness


def script(clause: str) -> str:
    """An event-time join to a build side with the source's own time."""
    return f"""
    CREATE TABLE users (id INT, name STRING, at AS SYSTEM_ROWTIME(), PRIMARY KEY (id) NOT ENFORCED,
        WATERMARK FOR at AS SYSTEM_WATERMARK()) WITH ({clause});
    CREATE TABLE clicks (id INT, at AS SYSTEM_ROWTIME(), WATERMARK FOR at AS SOURCE_WATERMARK()) WITH (
        'connector' = 'datagen');
    CREATE TABLE sink (id INT, name STRING) WITH ('connector' = 'scripted');
    INSERT INTO sink
    SELECT c.id, u.name FROM clicks AS c LEFT JOIN users FOR SYSTEM_TIME AS OF c.at AS u ON c.id = u.id;
    """


USERS = ("CREATE TABLE users (id INT PRIMARY KEY, name VARCHAR(20))", "INSERT INTO users VALUES (1, 'a')")


def times(harness: Harness) -> list[tuple[str, int | None]]:
    """Of every landed row its op and its time in ms, in the source's order."""
    rows = lake_rows.read(harness.spark, harness.lake.table_path("users")).orderBy("_seq", "_offset")
    return [(row[0], row[1]) for row in rows.selectExpr("_op", "unix_millis(at)").collect()]


def last(harness: Harness) -> Any:
    row = harness.lake.watermarks.last("users", 1)
    assert row is not None
    return row


def test_a_row_of_a_binlog_has_the_time_of_its_commit_and_one_of_the_snapshot_that_of_its_read_view(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    database.execute(*USERS)
    harness = Harness(script(database.clause("users")), spark, tmp_path)
    began = system_clock() // 1000 * 1000
    harness.runner.advance("users")
    ((op, read),) = times(harness)
    assert op == "r"
    assert read is not None
    assert began <= read <= system_clock()
    database.execute("UPDATE users SET name = 'b' WHERE id = 1", "INSERT INTO users VALUES (2, 'c')")
    harness.runner.advance("users")
    (_, same), (update, first), (create, second) = times(harness)
    assert (same, update, create) == (read, "u", "c")
    assert first is not None
    assert second is not None
    assert read <= first <= second
    assert max(split["timestamp"] for split in last(harness).splits) == second - 1


@pytest.mark.parametrize(("delay", "delay_ms"), at_length([(" - INTERVAL '5' SECOND", 5_000), ("", 0)]))
def test_a_quiet_table_s_watermark_goes_on_with_the_log(
    spark: SparkSession, database: Database, tmp_path: Path, delay: str, delay_ms: int
) -> None:
    database.execute(*USERS)
    database.execute("CREATE TABLE other (id INT)")
    text = script(database.clause("users")).replace("SYSTEM_WATERMARK()", f"SYSTEM_WATERMARK(){delay}")
    harness = Harness(text, spark, tmp_path)
    harness.runner.advance("users")
    for second, before in ((2_000_000_000, ()), (2_000_000_007, ("FLUSH BINARY LOGS",))):
        database.execute(f"SET timestamp = {second}", "INSERT INTO other VALUES (1)", *before)
        harness.runner.advance("users")
        assert (last(harness).rows, last(harness).timestamp) == (0, second * 1000 - 1 - delay_ms)
    # The last one is of a statement that began three seconds before others had ended.
    for second, late in ((2_000_000_007, 0), (2_000_000_004, 0 if delay else 1)):
        database.execute(f"SET timestamp = {second}", f"UPDATE users SET name = '{second}'")
        harness.runner.advance("users")
        assert (last(harness).rows, last(harness).late) == (1, late), second


def test_a_truncate_is_known_after_the_table_has_fallen_idle(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    """A step that reads nothing forgets nothing: what was there before the truncate must not match again."""
    database.execute(*USERS)
    now = [system_clock()]
    text = script(f"{database.clause('users')}, 'scan.watermark.idle-timeout' = '1 min'")
    harness = Harness(text, spark, tmp_path, clock=lambda: now[0])
    harness.runner.advance("users")
    database.execute("TRUNCATE TABLE users")
    harness.runner.advance("users")
    assert (last(harness).truncated, last(harness).idle) == (True, False)
    now[0] += 3_600_000
    harness.runner.advance("users")
    assert (last(harness).truncated, last(harness).idle) == (True, True)


def test_a_watermark_over_a_column_that_says_the_commit_time_is_that_of_the_table_s_own_rows(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE users (id INT PRIMARY KEY, name VARCHAR(20))", "CREATE TABLE other (id INT)")
    own = script(database.clause("users")).replace(
        "at AS SYSTEM_ROWTIME(), PRIMARY KEY (id) NOT ENFORCED,\n        WATERMARK FOR at AS SYSTEM_WATERMARK()",
        "at TIMESTAMP_LTZ(3) METADATA FROM 'op_ts', PRIMARY KEY (id) NOT ENFORCED,\n        WATERMARK FOR at AS at",
    )
    harness = Harness(own, spark, tmp_path)
    harness.runner.advance("users")
    database.execute("SET timestamp = 2000000000", "INSERT INTO users VALUES (1, 'a')")
    database.execute("SET timestamp = 2100000000", "INSERT INTO other VALUES (1)")
    harness.runner.advance("users")
    assert last(harness).timestamp == 2_000_000_000_000


def test_a_row_of_a_delta_table_has_the_time_of_its_version(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "users"
    for name in ("a", "b"):
        spark.sql(f"SELECT 1 AS id, '{name}' AS name").write.format("delta").mode("append").save(str(path))
    committed = (path / "_delta_log" / f"{1:020}.json").stat().st_mtime_ns // 1_000_000
    harness = Harness(script(f"'connector' = 'delta', 'path' = '{path}'"), spark, tmp_path)
    harness.runner.advance("users")
    assert [time for _, time in times(harness)] == [committed, committed]
    assert last(harness).timestamp == committed - 1


def test_a_deleted_row_ends_at_its_delete_and_not_at_the_time_that_it_carries(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    database.execute(
        "CREATE TABLE users (id INT PRIMARY KEY, name VARCHAR(20), changed DATETIME(3))",
        "INSERT INTO users VALUES (1, 'a', '2020-01-01 00:00:00')",
    )
    text = script(database.clause("users")).replace(
        "at AS SYSTEM_ROWTIME(), PRIMARY KEY (id) NOT ENFORCED,\n        WATERMARK FOR at AS SYSTEM_WATERMARK()",
        "changed TIMESTAMP(3), PRIMARY KEY (id) NOT ENFORCED, WATERMARK FOR changed AS changed",
    )
    harness = Harness(text, spark, tmp_path)
    harness.runner.advance("users")
    began = system_clock() // 1000
    database.execute("DELETE FROM users WHERE id = 1")
    harness.runner.advance("users")
    rows = lake_rows.read(spark, harness.lake.table_path("users")).orderBy("_seq")
    (_, inserted), (op, deleted) = [tuple(row) for row in rows.selectExpr("_op", "unix_seconds(_rowtime)").collect()]
    assert op == "d"
    assert inserted == 1_577_836_800
    assert deleted >= began


COMMITS = """
CREATE TABLE users (id INT, name STRING, at AS SYSTEM_ROWTIME(), PRIMARY KEY (id) NOT ENFORCED,
    WATERMARK FOR at AS SYSTEM_WATERMARK()) WITH ({});
CREATE TABLE clicks (item INT, id INT, at TIMESTAMP(3), WATERMARK FOR at AS at) WITH ('connector' = 'scripted');
CREATE TABLE joined (item INT, name STRING) WITH ('connector' = 'scripted', 'gate.on-unmatched' = 'publish');
INSERT INTO joined SELECT c.item, u.name FROM clicks AS c
LEFT JOIN users FOR SYSTEM_TIME AS OF c.at AS u ON c.id = u.id;
"""
BASE = 2_000_000_000_000


class Commits:
    """A table of the server and clicks on it, and the oracle that hears of both. Times are ms after BASE."""

    def __init__(self, spark: SparkSession, database: Database, directory: Path) -> None:
        self.database, self.items = database, 0
        self.probe, self.build = Probe(["0"], 0), Build(["0"], 1)
        self.join = Join(self.probe, {"users": self.build})
        self.harness = Harness(COMMITS.format(database.clause("users")), spark, directory)

    def commit(self, at: int, statement: str, becomes: dict[int, str | None]) -> None:
        """One transaction, and what each id is from then on."""
        self.database.execute(f"SET timestamp = {(BASE + at) // 1000}", statement)
        for id, name in becomes.items():
            self.build.change("0", id, BASE + at, name)

    def click(self, id: int, *times: int) -> None:
        for at in times:
            self.items += 1
            rowtime = datetime(1970, 1, 1) + timedelta(milliseconds=BASE + at)
            self.harness.push("clicks", [{"item": self.items, "id": id, "at": rowtime}])
            self.probe.add("0", self.items, BASE + at, users=id)

    def check(self) -> list[tuple[Any, ...]]:
        """What is released now is what the oracle releases."""
        self.harness.watermark("clicks", max(at for _, at, _ in self.probe.pending))
        found = sorted((row["item"], row["name"]) for row in self.harness.advance())
        assert found == self.join.release()
        log = self.harness.lake.watermarks.rows("users")
        assert (log[-1].timestamp, sum(row.late or 0 for row in log)) == (self.build.watermark, self.build.late)
        return found


def test_rows_meet_the_versions_of_the_commits_over_epochs_and_a_restart(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    """Every kind of change, a server whose clock went back, and late clicks."""
    database.execute(
        "CREATE TABLE users (id INT PRIMARY KEY, name VARCHAR(20))", "INSERT INTO users VALUES (1, 'a'), (2, 'b')"
    )
    play = Commits(spark, database, tmp_path)
    assert play.harness.advance() == []
    read = next(at for _, at in times(play.harness) if at is not None)
    for id, name in ((1, "a"), (2, "b")):
        play.build.change("0", id, read, name)

    play.commit(10_000, "UPDATE users SET name = 'a1' WHERE id = 1", {1: "a1"})
    play.commit(20_000, "INSERT INTO users VALUES (3, 'c')", {3: "c"})
    play.click(1, read - BASE - 1, read - BASE, 9_999, 10_000, 19_999, 20_000)
    play.click(3, 19_999, 20_000)
    assert play.check() == [(1, None), (2, "a"), (3, "a"), (4, "a1"), (5, "a1"), (7, None)], "20 s may still have more"
    play.commit(30_000, "DELETE FROM users WHERE id = 2", {2: None})
    play.commit(40_000, "UPDATE users SET name = 'c1' WHERE id = 3", {3: "c1"})
    play.click(2, 29_999, 30_000, 39_000)
    play.click(3, 15_000, 39_999, 40_000)  # the first of them is late
    assert len(play.check()) == 7
    play.harness.restart()

    play.commit(25_000, "UPDATE users SET name = 'a2' WHERE id = 1", {1: "a2"})  # the server's clock went back
    play.click(1, 24_000, 26_000, 38_000, 45_000)
    assert [name for _, name in play.check()] == ["a1", "a2", "a2"]
    play.commit(50_000, "UPDATE users SET id = 7 WHERE id = 1", {1: None, 7: "a2"})
    play.commit(60_000, "INSERT INTO users VALUES (2, 'b2')", {2: "b2"})
    play.click(1, 49_999, 50_000)
    play.click(7, 49_999, 50_000)
    play.click(2, 59_999, 60_000)
    play.commit(70_000, "TRUNCATE TABLE users", dict.fromkeys((2, 3, 7)))
    play.commit(80_000, "INSERT INTO users VALUES (3, 'z')", {3: "z"})
    play.click(3, 69_999, 70_000, 79_999, 80_000)
    play.click(7, 69_999, 70_000)
    play.commit(90_000, "INSERT INTO users VALUES (9, 'end')", {9: "end"})
    play.click(9, 95_000)
    assert [name for _, name in play.check()] == [
        "c1", "a2", "a2", None, None, "a2", None, "b2", "c1", None, None, "z", "a2", None
    ]  # fmt: skip
