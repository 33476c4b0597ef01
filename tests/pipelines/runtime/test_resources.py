"""What a run needs of a machine: memory that does not grow with the data."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.conftest import Database

pytestmark = pytest.mark.long

SCRIPT = """
CREATE TABLE user_info (user_id BIGINT PRIMARY KEY NOT ENFORCED, gender STRING) WITH (
    'connector' = 'datagen', 'number-of-rows' = '{build}', 'rows-at-start' = '{build}',
    'fields.user_id.kind' = 'sequence', 'fields.user_id.start' = '1', 'fields.user_id.end' = '{build}',
    'fields.gender.length' = '20');
CREATE TABLE click_event (user_id BIGINT, item_id BIGINT, proctime AS PROCTIME()) WITH (
    'connector' = 'datagen', 'number-of-rows' = '{probe}', 'rows-at-start' = '{probe}',
    'fields.user_id.min' = '1', 'fields.user_id.max' = '{build}');
CREATE TABLE enriched (user_id BIGINT, item_id BIGINT, gender STRING) WITH ('connector' = 'delta');
INSERT INTO enriched SELECT c.user_id, item_id, gender FROM click_event AS c
LEFT JOIN user_info FOR SYSTEM_TIME AS OF c.proctime ON c.user_id = user_info.user_id
"""

MYSQL = """
CREATE TABLE user_info (user_id INT PRIMARY KEY NOT ENFORCED, gender STRING, note STRING) WITH ({options});
CREATE TABLE click_event (user_id INT, proctime AS PROCTIME()) WITH ('connector' = 'datagen', 'number-of-rows' = '1');
CREATE TABLE enriched (user_id INT, gender STRING, note STRING) WITH ('connector' = 'delta');
INSERT INTO enriched SELECT c.user_id, gender, note FROM click_event AS c
LEFT JOIN user_info FOR SYSTEM_TIME AS OF c.proctime ON c.user_id = user_info.user_id
"""
WATCH = """
import sys, threading, time
import psutil
from pathlib import Path
from pipelines.lake import Lake
from pipelines.runtime.runner import Runner
from pipelines.runtime.session import start_session
from pipelines.sql import compile_script

peak = workers = 0

def watch():
    global peak, workers
    while True:
        total = python = 0
        for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
            try:
                # A JVM under a JVM is a fork that is about to be another program; until then it shows the same pages.
                jvm = process.name() == "java"
                if not jvm or process.parent().name() != "java":
                    total += process.memory_info().rss
                if not jvm and process.pid != psutil.Process().pid:
                    python += process.memory_info().rss
            except psutil.NoSuchProcess:
                pass
        peak, workers = max(peak, total), max(workers, python)
        time.sleep(0.05)

# The heap has one size and is touched at the start: the data must fit into it, and what grows beside it is seen.
HEAP = "-XX:+UseSerialGC -Xms1g -XX:+AlwaysPreTouch"
script, lake = compile_script(Path(sys.argv[1]).read_text()), Lake(sys.argv[2])
spark = start_session(master="local[2]", config={"spark.driver.extraJavaOptions": HEAP})
threading.Thread(target=watch, daemon=True).start()
"""
RUN = """
with Runner(script, lake, spark=lambda: spark) as runner:
    report = runner.run()
published = sum(done.rows for release in report.releases for done in release.published)
print("published", published, "peak", peak, flush=True)
"""
LAND = """
for _ in range(2):
    with Runner(script, lake, spark=lambda: spark) as runner:
        print("landed", runner.advance("user_info").rows, flush=True)
    sys.stdin.readline()
print("peak", peak, "workers", workers, flush=True)
"""
HEAP = {"TIDEGATE_DRIVER_MEMORY": "1g"}
CHUNK_ROWS = 35_000
"""Rows of 2 KB in a chunk: more than the writer of its file holds (`parquet.GROUP_BYTES`)."""


def numbers(words: list[str]) -> dict[str, int]:
    """ "name 1 other 2" as a dictionary."""
    return {name: int(value) for name, value in zip(words[::2], words[1::2], strict=True)}


def run(directory: Path, name: str, build: int, probe: int) -> dict[str, int]:
    """A run in a process of its own: how many rows it published, and the peak RSS of driver and workers, in bytes."""
    script = directory / f"{name}.sql"
    script.write_text(SCRIPT.format(build=build, probe=probe))
    done = subprocess.run(
        [sys.executable, "-c", WATCH + RUN, str(script), str(directory / name)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **HEAP},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return numbers(done.stdout.split())


def land(database: Database, directory: Path, table: str, rows: int) -> dict[str, int]:
    """Lands a table of `rows` rows of 2 KB, then one transaction that changes a tenth of them: rows landed, files of
    the snapshot, how many of these have several row groups, and peak RSS."""
    database.execute(
        f"CREATE TABLE {table} (user_id INT PRIMARY KEY, gender CHAR(1), note VARCHAR(2000) CHARACTER SET ascii)",
        "SET sql_log_bin = 0",
        f"INSERT INTO {table} SELECT seq, 'f', REPEAT(MD5(seq), 62) FROM seq_1_to_{rows}",
        f"ANALYZE TABLE {table}",
    )
    found = database.options(table, **{"scan.incremental.snapshot.chunk.size": str(CHUNK_ROWS)})
    options = ", ".join(f"'{name}' = '{value}'" for name, value in found.items())
    script = directory / f"{table}.sql"
    script.write_text(MYSQL.format(options=options))
    with (directory / f"{table}.log").open("w+") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", WATCH + LAND, str(script), str(directory / table)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, **HEAP},
        )
        assert process.stdin is not None
        assert process.stdout is not None
        landed = numbers(process.stdout.readline().split())
        database.execute(f"UPDATE {table} SET gender = 'm', note = REPEAT(MD5(user_id + 1), 62) WHERE user_id % 10 = 0")
        rest, _ = process.communicate("\n\n")
        log.seek(0)
        assert process.returncode == 0, log.read()[-3000:]
    changed, peaks = map(str.split, rest.splitlines())
    groups = [pq.read_metadata(file).num_row_groups for file in (directory / table).rglob("chunk-*.parquet")]
    of_files = {"files": len(groups), "long": sum(count > 1 for count in groups)}
    return {"read": landed["landed"], "changed": numbers(changed)["landed"], **of_files, **numbers(peaks)}


@pytest.mark.timeout(1200)
def test_ten_times_the_data_takes_no_more_memory(tmp_path: Path) -> None:
    small = run(tmp_path, "small", 200_000, 200_000)
    large = run(tmp_path, "large", 2_000_000, 2_000_000)
    print(f"peak RSS {small['peak'] / 2**20:,.0f} MiB, at ten times the data {large['peak'] / 2**20:,.0f} MiB")
    assert (small["published"], large["published"]) == (200_000, 2_000_000)
    assert large["peak"] <= 1.2 * small["peak"]


@pytest.mark.timeout(1200)
def test_ten_times_the_table_and_the_transaction_take_no_more_memory(database: Database, tmp_path: Path) -> None:
    # 28 MB of binlog: several chunks of the reader's. And a chunk of the snapshot for each of the two tasks at a time.
    small = land(database, tmp_path, "small", 2 * CHUNK_ROWS)
    large = land(database, tmp_path, "large", 20 * CHUNK_ROWS)
    for what in ("peak", "workers"):
        print(f"{what}: {small[what] / 2**20:,.0f} MiB, at ten times the data {large[what] / 2**20:,.0f} MiB")
    assert (small["read"], small["changed"]) == (70_000, 7_000)
    assert (large["read"], large["changed"]) == (700_000, 70_000)
    # Tasks hold as much as they ever do. The server's estimate of the rows makes chunks longer, and the last one short.
    assert (small["files"], small["long"] > 0) == (2, True)
    assert large["long"] > 10
    assert large["peak"] <= 1.2 * small["peak"]
    assert large["workers"] <= 1.2 * small["workers"]
