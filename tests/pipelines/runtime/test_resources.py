"""What a run needs of a machine: memory that does not grow with the data.

A process works on a table, and then on one several times as large. What grows in the heap of its JVM ends it, for the
heap is smaller than the data; what grows beside it is seen as RSS, of the driver with its JVM and of the largest Python
worker; what stays behind is counted in the heap at the end of each. Files that are mapped, as the index of versions is,
are not counted: they are as large as the data, each worker shows them, and the kernel takes their pages back when it
must.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pyarrow.parquet as pq
import pytest

from tests.conftest import Database
from tidegate.pipelines.parquet import GROUP_BYTES

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("jvm")]

SCRIPT = """
CREATE TABLE user_info (user_id BIGINT PRIMARY KEY NOT ENFORCED, gender STRING) WITH (
    'connector' = 'datagen', 'number-of-rows' = '{build}', 'rows-at-start' = '{build}',
    'fields.user_id.kind' = 'sequence', 'fields.user_id.start' = '1', 'fields.user_id.end' = '{build}',
    'fields.gender.length' = '{length}');
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
import gc, sys, threading, time
import psutil
from pathlib import Path
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.runtime.session import start_session
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.versions import runs

driver = worker = 0

def watch():
    global driver, worker
    while True:
        total = 0
        for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
            try:
                name, found = process.name(), process.memory_info()
                own = found.rss - found.shared
                # A JVM's fork that is about to be another program shows the same pages, by the name of a thread.
                if process.pid == psutil.Process().pid or (name == "java" and process.parent().name() != "java"):
                    total += own
                elif name.startswith("python"):
                    worker = max(worker, own)
            except psutil.NoSuchProcess:
                pass
        driver = max(driver, total)
        time.sleep(0.05)

def live():
    gc.collect()
    return min(collected() for _ in range(5))  # some of what one finds unused is let go by Spark until the next

def collected():
    spark._jvm.System.gc()
    runtime = spark._jvm.Runtime.getRuntime()
    return runtime.totalMemory() - runtime.freeMemory()

def runner(name):
    script = compile_script((folder / f"{name}.sql").read_text())
    return Runner(script, Lake(folder / name), spark=lambda: spark)

# The heap has one size and is touched at the start, so that what grows beside it is seen.
HEAP = "-XX:+UseSerialGC -Xms512m -XX:+AlwaysPreTouch"
# A task holds a row group, and little data has to be several of them too: they are 8 MB here rather than 128 MB.
GROUPS = {"spark.hadoop.parquet.block.size": str(8 << 20)}
# So does a task that makes a shard of the index: 16 MB rather than 128 MB.
runs.SHARD_BYTES = 16 << 20
folder = Path(sys.argv[1])
spark = start_session(master="local[2]", config={"spark.driver.extraJavaOptions": HEAP, **GROUPS})
threading.Thread(target=watch, daemon=True).start()
"""
RUN = """
for name in ("small", "large"):
    with runner(name) as active:
        report = active.run()
    published = sum(done.rows for release in report.releases for done in release.published)
    print("published", published, "driver", driver, "worker", worker, "live", live(), flush=True)
"""
LAND = """
for name in ("small", "large"):
    for what in ("read", "changed"):
        with runner(name) as active:
            print(what, active.advance("user_info").rows, flush=True)
        sys.stdin.readline()
    print("driver", driver, "worker", worker, "live", live(), flush=True)
"""
HEAP_MB = 512
ROW_BYTES = 1000
CHUNK_ROWS = 35_000
"""Rows of 2 KB in a chunk: more than the writer of its file holds (`parquet.GROUP_BYTES`)."""


def numbers(line: str) -> dict[str, int]:
    """ "name 1 other 2" as a dictionary."""
    words = line.split()
    return {name: int(value) for name, value in zip(words[::2], words[1::2], strict=True)}


@contextmanager
def watched(code: str, directory: Path) -> Iterator[tuple[Iterator[dict[str, int]], IO[str]]]:
    """A process that runs `code` after WATCH: the numbers that it tells, a line at a time, and its input."""
    with (directory / "stderr").open("w+") as log:
        with subprocess.Popen(
            [sys.executable, "-c", WATCH + code, str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, "TIDEGATE_DRIVER_MEMORY": f"{HEAP_MB}m"},
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            yield map(numbers, process.stdout), process.stdin
        log.seek(0)
        assert process.returncode == 0, log.read()[-3000:]


def next_line(lines: Iterator[dict[str, int]], directory: Path) -> dict[str, int]:
    """The next line. A process that has ended says why."""
    found = next(lines, None)
    assert found is not None, (directory / "stderr").read_text()[-3000:]
    return found


def make(database: Database, table: str, rows: int) -> str:
    """A table of `rows` rows of 2 KB, and the script that reads it."""
    database.execute(
        f"CREATE TABLE {table} (user_id INT PRIMARY KEY, gender CHAR(1), note VARCHAR(2000) CHARACTER SET ascii)",
        "SET sql_log_bin = 0",
        f"INSERT INTO {table} SELECT seq, 'f', REPEAT(MD5(seq), 62) FROM seq_1_to_{rows}",
        f"ANALYZE TABLE {table}",
    )
    return MYSQL.format(options=database.clause(table, CHUNK_ROWS))


def row_groups(directory: Path, table: str) -> list[int]:
    """How many row groups each file of a snapshot has."""
    return [pq.read_metadata(file).num_row_groups for file in (directory / table).rglob("chunk-*.parquet")]


def no_more(small: dict[str, int], large: dict[str, int], *whats: str) -> None:
    for what in whats:
        print(f"{what}: {small[what] / 2**20:,.0f} MiB, of the large one {large[what] / 2**20:,.0f} MiB")
    assert {what: large[what] for what in whats if large[what] > 1.2 * small[what]} == {}


@pytest.mark.thorough
@pytest.mark.timeout(1200)
def test_three_times_the_data_takes_no_more_memory(tmp_path: Path) -> None:
    clicks = {"small": 150_000, "large": 450_000}
    # The small one fills the heap, and a row group of each file that is written, too.
    assert 4 * clicks["small"] * ROW_BYTES > HEAP_MB << 20
    for name, count in clicks.items():
        (tmp_path / f"{name}.sql").write_text(SCRIPT.format(build=4 * count, probe=count, length=ROW_BYTES))
    with watched(RUN, tmp_path) as (lines, _):
        small, large = next_line(lines, tmp_path), next_line(lines, tmp_path)
    assert (small["published"], large["published"]) == (clicks["small"], clicks["large"])
    no_more(small, large, "driver", "live")
    # Who deals the table to shards holds a few row groups; with more data it has longer for the worst moment.
    assert max(small["worker"], large["worker"]) <= 8 * GROUP_BYTES


@pytest.mark.thorough
@pytest.mark.timeout(1200)
def test_ten_times_the_table_and_the_transaction_take_no_more_memory(database: Database, tmp_path: Path) -> None:
    # 28 MB of binlog: several chunks of the reader's. And a chunk of the snapshot for each of the two tasks at a time.
    rows = {"small": 2 * CHUNK_ROWS, "large": 20 * CHUNK_ROWS}
    for table, count in rows.items():
        (tmp_path / f"{table}.sql").write_text(make(database, table, count))
    found: dict[str, dict[str, int]] = {}
    with watched(LAND, tmp_path) as (lines, go_on):
        for table in rows:
            read = next_line(lines, tmp_path)
            database.execute(
                f"UPDATE {table} SET gender = 'm', note = REPEAT(MD5(user_id + 1), 62) WHERE user_id % 10 = 0"
            )
            print(file=go_on, flush=True)
            changed = next_line(lines, tmp_path)
            print(file=go_on, flush=True)
            found[table] = {**read, **changed, **next_line(lines, tmp_path)}
    small, large = found["small"], found["large"]
    assert (small["read"], small["changed"]) == (70_000, 7_000)
    assert (large["read"], large["changed"]) == (700_000, 70_000)
    # Tasks hold as much as they ever do. The server's estimate of the rows makes chunks longer, and the last one short.
    assert len(row_groups(tmp_path, "small")) == 2
    assert max(row_groups(tmp_path, "small")) > 1
    assert sum(groups > 1 for groups in row_groups(tmp_path, "large")) > 10
    no_more(small, large, "driver", "worker", "live")
