"""Whole pipelines with a hybrid table: files or a Delta table first, then what is live."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from tests.cases import at_length
from tests.conftest import Database
from tests.pipelines.runtime.crashing import dying
from tests.pipelines.sources.filesystem.folders import LONG_AGO, Files
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.runtime import faults
from tidegate.pipelines.testing import Harness

SCRIPT = """
CREATE TABLE history (id INT, name STRING) WITH {history};
CREATE TABLE live (id INT, name STRING) WITH {live};
CREATE TABLE users (id INT PRIMARY KEY NOT ENFORCED, name STRING) WITH (
    'connector' = 'hybrid', 'hybrid.sources' = 'history, live');
CREATE TABLE clicks (id INT, p AS PROCTIME()) WITH ('connector' = 'scripted');
CREATE TABLE shown (id INT, name STRING) WITH ('connector' = 'scripted', 'gate.on-unmatched' = 'publish');
INSERT INTO shown SELECT c.id, u.name FROM clicks AS c LEFT JOIN users FOR SYSTEM_TIME AS OF c.p AS u ON c.id = u.id
"""


def folder(path: Path) -> str:
    return f"('connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv')"


def names(harness: Harness) -> dict[int, str | None]:
    return {row["id"]: row["name"] for row in harness.advance()}


@pytest.mark.parametrize("point", at_length([point for point in faults.POINTS if point.startswith("source.")]))
@pytest.mark.thorough
def test_files_then_what_is_pushed(spark: SparkSession, files_root: Path, point: str) -> None:
    files = Files(files_root / "history")
    files.write("1.csv", "1,one\n2,two\n")
    live = "('connector' = 'scripted')"
    harness = Harness(SCRIPT.format(history=folder(files.path), live=live), spark, files_root)
    harness.push("clicks", [{"id": 1}, {"id": 2}, {"id": 3}])
    # A later part wins, whatever its place in its own order.
    harness.push("live", [{"id": 2, "name": "new"}, {"id": 3, "name": "three"}], "+U")
    with dying(point, passes=2):  # in the step of the live part
        harness.run()
    harness.restart()
    assert names(harness) == {1: "one", 2: "new", 3: "three"}
    log = harness.lake.watermarks.last("users")
    assert log is not None
    assert (log.flip_epoch, log.position.split(":")[0]) == (1, "live")
    files.write("2.csv", "1,never read\n")
    harness.push("live", [{"id": 2, "name": "gone"}], "-D")
    harness.push("clicks", [{"id": 1}, {"id": 2}])
    assert names(harness) == {1: "one", 2: None}


@pytest.mark.thorough
def test_a_delta_table_then_files(spark: SparkSession, files_root: Path) -> None:
    rows = pa.table({"id": pa.array([1, 2], pa.int32()), "name": ["one", "two"]})
    write_deltalake(files_root / "delta", rows)
    files = Files(files_root / "live")
    files.write("1.csv", "2,from a file\n")
    history = f"('connector' = 'delta', 'path' = '{files_root / 'delta'}')"
    harness = Harness(SCRIPT.format(history=history, live=folder(files.path)), spark, files_root / "lake")
    harness.push("clicks", [{"id": 1}, {"id": 2}])
    assert names(harness) == {1: "one", 2: "from a file"}
    write_deltalake(files_root / "delta", rows, mode="append")  # after the switch
    files.write("2.csv", "1,changed\n")
    harness.push("clicks", [{"id": 1}, {"id": 2}])
    harness.restart()
    assert names(harness) == {1: "changed", 2: "from a file"}
    again = harness.runner.advance("users", resnapshot=True)
    assert (again.generation, [epoch.flipped for epoch in again.epochs]) == (2, [True, False])


def test_files_then_a_database(spark: SparkSession, files_root: Path, database: Database) -> None:
    files = Files(files_root / "history")
    files.write("1.csv", "1,one\n2,two\n")
    named = "CREATE TABLE users (`_id` INT PRIMARY KEY, `the name` VARCHAR(20))"
    database.execute(named, "INSERT INTO users VALUES (2, 'new')")
    options = f"{database.clause('users')}, 'fields.id.name' = '_id', 'fields.name.name' = 'the name'"
    script = SCRIPT.replace(
        "CREATE TABLE live (id INT, name", "CREATE TABLE live (id INT PRIMARY KEY NOT ENFORCED, name"
    )
    # Metadata of either kind is cast as each part's declaration says.
    for part, more in (
        ("history (id INT", "seen STRING METADATA FROM 'file.modification-time'"),
        ("live (id INT PRIMARY KEY NOT ENFORCED", "seen STRING METADATA FROM 'op_ts'"),
        ("users (id INT PRIMARY KEY NOT ENFORCED", "seen STRING"),
    ):
        script = script.replace(f"{part}, name STRING", f"{part}, name STRING, {more}")
    harness = Harness(script.format(history=folder(files.path), live=f"({options})"), spark, files_root)
    harness.push("clicks", [{"id": 1}, {"id": 2}, {"id": 3}])
    assert names(harness) == {1: "one", 2: "new", 3: None}
    database.execute("INSERT INTO users VALUES (3, 'three')")
    harness.restart()
    harness.push("clicks", [{"id": 3}])
    assert names(harness) == {3: "three"}
    landed = lake_rows.read(spark, harness.lake.table_path("users")).orderBy("_epoch", "id").collect()
    seen = [row["seen"] for row in landed]
    assert seen[:3] == ["2023-11-14 22:13:21.000"] * 2 + [None], "the snapshot knows no commit of a row"
    assert re.fullmatch(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\.000000", seen[3])


TIMED = """
CREATE TABLE history (id INT, name STRING) WITH {history};
CREATE TABLE live (id INT PRIMARY KEY NOT ENFORCED, name STRING) WITH {live};
CREATE TABLE users (id INT PRIMARY KEY NOT ENFORCED, name STRING, at AS SYSTEM_ROWTIME(),
    WATERMARK FOR at AS SYSTEM_WATERMARK() - INTERVAL '5' SECOND) WITH (
    'connector' = 'hybrid', 'hybrid.sources' = 'history, live');
CREATE TABLE clicks (id INT, at TIMESTAMP(3), WATERMARK FOR at AS at) WITH ('connector' = 'scripted');
CREATE TABLE shown (id INT, name STRING) WITH ('connector' = 'scripted', 'gate.on-unmatched' = 'publish');
INSERT INTO shown SELECT c.id, u.name FROM clicks AS c LEFT JOIN users FOR SYSTEM_TIME AS OF c.at AS u ON c.id = u.id
"""


def times(harness: Harness) -> list[tuple[int, int, int]]:
    """The part, the watermark and the late rows of every epoch."""
    log = harness.lake.watermarks.rows("users")
    return [(int(row.position.startswith("live")), row.timestamp, row.late or 0) for row in log]


def test_in_event_time_the_history_is_no_end_of_the_input_and_no_hold(spark: SparkSession, files_root: Path) -> None:
    history, live = Files(files_root / "history"), Files(files_root / "live", at=LONG_AGO + 100)
    history.write("1.csv", "1,one\n")
    history.write("2.csv", "2,two\n")
    harness = Harness(TIMED.format(history=folder(history.path), live=folder(live.path)), spark, files_root / "lake")
    harness.runner.advance("users")
    live.write("1.csv", "1,new\n")
    harness.runner.advance("users")
    switch, first, later = times(harness)
    assert switch == (0, (LONG_AGO + 2) * 1000 - 5_001, 0), "the greatest of the history, and not the end of time"
    assert first == (1, switch[1], 0), "no file of the last part is there yet"
    assert later == (1, (LONG_AGO + 101) * 1000 - 5_001, 0)


def test_in_event_time_the_last_part_s_own_watermarks_are_heard(
    spark: SparkSession, files_root: Path, database: Database
) -> None:
    """Nor is it held by the chunks of its snapshot."""
    history = Files(files_root / "history")
    history.write("1.csv", "1,one\n")
    database.execute(
        "CREATE TABLE users (id INT PRIMARY KEY, name VARCHAR(20))",
        "INSERT INTO users VALUES (2, 'new')",
        "CREATE TABLE other (id INT)",
    )
    live = database.clause("users")
    harness = Harness(TIMED.format(history=folder(history.path), live=f"({live})"), spark, files_root / "lake")
    harness.runner.advance("users")
    with database.connect() as connection, connection.cursor() as cursor:
        for statement in ("SET timestamp = 2000000000", "INSERT INTO other VALUES (1)"):
            cursor.execute(statement)
    harness.runner.advance("users")
    assert times(harness)[-1] == (1, 2_000_000_000_000 - 5_001, 0)
