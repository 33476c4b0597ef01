"""The example on executors in processes of their own: chunks, binlog and spool reach them, rows are the server's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest

from tests.conftest import SECRET, Database
from tests.oracle.pins import rows_of
from tests.secret_traces import traces

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("jvm")]

EXAMPLE = Path(__file__).parents[3] / "examples" / "clicks" / "pipeline.sql"
# A second table of the same server, so that one of them reads the binlog from what the other one has left.
SECOND = """
CREATE TABLE user_city (user_id INTEGER PRIMARY KEY NOT ENFORCED, city STRING) WITH (
    'connector' = 'mysql-cdc', 'hostname' = '${MYSQL_HOST}', 'port' = '${MYSQL_PORT}', 'username' = '${MYSQL_USER}',
    'password' = '${MYSQL_PASSWORD}', 'database-name' = 'example_database', 'table-name' = 'user_city');
CREATE TABLE placed_click (user_id INTEGER, item_id INTEGER, city STRING) WITH ('connector' = 'delta');
INSERT INTO placed_click SELECT click_event.user_id, item_id, city FROM click_event
LEFT JOIN user_city FOR SYSTEM_TIME AS OF click_event.proctime ON click_event.user_id = user_city.user_id;
"""
RUN = """
import sys
from pathlib import Path
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.runtime.scripts import load_script
from tidegate.pipelines.runtime.session import start_session

spark = start_session(master="local-cluster[2,1,2048]")
context = spark.sparkContext
print(context.applicationId, flush=True)
with Runner(load_script(Path(sys.argv[1])), Lake(sys.argv[2]), spark=lambda: spark) as runner:
    for _ in sys.stdin:
        report = runner.run()
        print(sum(epoch.rows for advance in report.advances for epoch in advance.epochs), flush=True)
print(context._jsc.sc().getExecutorMemoryStatus().size() - 1, flush=True)
"""


def tables(example_database: Database) -> dict[str, dict[Any, Any]]:
    """What the server holds."""
    return {
        name: dict(example_database.execute(f"SELECT user_id, {column} FROM {name}"))  # type: ignore[arg-type]
        for name, column in (("user_info", "gender"), ("user_city", "city"))
    }


def latest(lake: Path, table: str, column: str) -> dict[Any, Any]:
    """The table as its changelog says."""
    rows = sorted(rows_of(str(lake / "tables" / table)), key=lambda row: tuple(row["_seq"].values()))
    newest = {row["user_id"]: row for row in rows}
    return {key: row[column] for key, row in newest.items() if row["_op"] != "d"}


def released(lake: Path, target: str, column: str, epoch: int) -> tuple[list[tuple[Any, Any]], list[Any]]:
    """What an epoch published, (user, value), and the users of the clicks that it quarantined."""
    path = lake / "targets" / target
    published, quarantined = rows_of(str(path)), rows_of(str(path / "_quarantine" / target))
    return (
        [(row["user_id"], row[column]) for row in published if row["_epoch"] == epoch],
        [row["user_id"] for row in quarantined if row["_epoch"] == epoch],
    )


def sent(example_database: Database) -> int:
    return int(example_database.execute("SHOW GLOBAL STATUS LIKE 'Bytes_sent'")[0][1])


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_the_example_on_executors_in_processes_of_their_own(example_database: Database, tmp_path: Path) -> None:
    example_database.execute(
        "CREATE TABLE user_info (user_id INT PRIMARY KEY, gender VARCHAR(8) NOT NULL, note TEXT)",
        "CREATE TABLE user_city (user_id INT PRIMARY KEY, city VARCHAR(40))",
        "INSERT INTO user_info SELECT seq, ELT(1 + seq % 3, 'f', 'm', 'x'), NULL FROM seq_1_to_20000",
        "INSERT INTO user_city SELECT seq, CONCAT('city ', seq % 100) FROM seq_1_to_5000",
        "ANALYZE TABLE user_info, user_city",
    )
    script, lake = tmp_path / "clicks.sql", tmp_path / "lake"
    chunks = "'table-name' = 'user_info', 'scan.incremental.snapshot.chunk.size' = '4000'"
    example = EXAMPLE.read_text()
    assert "'table-name' = 'user_info'" in example
    script.write_text(example.replace("'table-name' = 'user_info'", chunks) + SECOND)
    environment = example_database.environment(CLICKS_AT_START=3000, GREATEST_USER_ID=20_500)
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", RUN, str(script), str(lake)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, **environment},
        )
    assert process.stdin is not None
    assert process.stdout is not None

    def run() -> int:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        rows = process.stdout.readline()
        assert rows, (tmp_path / "log").read_text()[-3000:]
        return int(rows)

    application = process.stdout.readline().strip()
    work = Path(pyspark.__path__[0]) / "work" / application
    try:
        before = tables(example_database)
        assert run() >= 20_000 + 5_000 + 3_000
        example_database.execute(
            "UPDATE user_info SET gender = 'd', note = REPEAT('n', 5000) WHERE user_id <= 900",
            "FLUSH BINARY LOGS",
            "DELETE FROM user_info WHERE user_id BETWEEN 1000 AND 1999",
            "UPDATE user_info SET user_id = user_id + 100000 WHERE user_id BETWEEN 3000 AND 3999",
            "INSERT INTO user_info SELECT seq, 'new', NULL FROM seq_20001_to_20300",
            "UPDATE user_city SET city = 'elsewhere' WHERE user_id % 2",
            "FLUSH BINARY LOGS",
            "DELETE FROM user_city WHERE user_id > 4000",
        )
        after = tables(example_database)
        start = sent(example_database)
        assert run() > 0
        read = sent(example_database) - start
        process.stdin.close()
        executors = process.stdout.read().split()
        assert process.wait() == 0, (tmp_path / "log").read_text()[-3000:]
        assert executors == ["2"]
        # Nor did the executors write it down, nor get it on their command lines.
        logs = [file for executor in work.iterdir() for file in executor.glob("std*")]
        assert logs
        assert traces(SECRET, lake, script, tmp_path / "log", *logs) == []
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(work, ignore_errors=True)

    assert latest(lake, "user_info", "gender") == after["user_info"]
    assert latest(lake, "user_city", "city") == after["user_city"]
    clicks = rows_of(str(lake / "tables" / "click_event"))
    for target, table, column in (
        ("enriched_click", "user_info", "gender"),
        ("placed_click", "user_city", "city"),
    ):
        for epoch, server in ((1, before[table]), (2, after[table])):
            published, quarantined = released(lake, target, column, epoch)
            assert published
            assert published == [(user, server[user]) for user, _ in published]
            assert quarantined
            assert not any(user in server for user in quarantined)
            asked = [row["user_id"] for row in clicks if row["_epoch"] == epoch]
            assert sorted([*(user for user, _ in published), *quarantined], key=str) == sorted(asked, key=str)
    assert len({row["_split"] for row in rows_of(str(lake / "tables" / "user_info")) if row["_op"] == "r"}) == 5
    log = 900 * 5000
    assert log < read < 1.5 * log, "the log is sent once, though both tables read it"
