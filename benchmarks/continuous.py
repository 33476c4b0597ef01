"""`tidegate run --continuous` in a process of its own, beside 1,000 rows and 1,000 changes a second.

`freshness` (ten minutes): from the commit in MariaDB, and from the instant at which a probe can be read in its source,
to the published row. `hour`: what lies on the disk, and what the process holds, after ten minutes and at the end.
$TIDEGATE_SECONDS shortens both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake
from deltalake.transaction import AddAction

from benchmarks.measure import Figure
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.lake.adopt import there
from tidegate.pipelines.lake.commits import commit
from tidegate.pipelines.sources.mysql_cdc.server import EmbeddedMariaDb
from tidegate.pipelines.sql import compile_script

KEYS, RATE, PAUSE = 1_000, 1_000, 0.25
"""Rows of the dimension; probes, and changes, a second; s between commits of each."""

SCRIPT = """
CREATE TABLE users (id BIGINT PRIMARY KEY NOT ENFORCED, changed BIGINT) WITH (
    'connector' = 'mysql-cdc', 'hostname' = '127.0.0.1', 'port' = '{port}', 'username' = 'bench',
    'password' = '${{TIDEGATE_BENCH_PASSWORD}}', 'database-name' = 'bench', 'table-name' = 'users');
CREATE TABLE clicks (id BIGINT, clicked BIGINT, proctime AS PROCTIME()) WITH (
    'connector' = 'delta', 'path' = '{clicks}');
CREATE TABLE enriched (id BIGINT, clicked BIGINT, changed BIGINT) WITH ('connector' = 'delta');
INSERT INTO enriched SELECT c.id, c.clicked, u.changed FROM clicks AS c
LEFT JOIN users FOR SYSTEM_TIME AS OF c.proctime AS u ON c.id = u.id
"""
PASSWORD = "bench"


@dataclass(frozen=True)
class Sample:
    """What lies on the disk and what the process and its children hold, at a second of the run."""

    second: float
    files: int
    disk: float
    memory: float
    handles: int


def freshness() -> list[Figure]:
    """Half of all rows, and 99 of 100, in seconds; the first minute, with Spark's start, does not count."""
    with tempfile.TemporaryDirectory() as folder:
        target, _ = _run(Path(folder), _seconds(600), "--every", "0.2")
        probes, commits = _delays(target, skipped=min(60.0, _seconds(600) / 3))
    figures = []
    for name, delays in (("a probe can be read", probes), ("the commit in MariaDB", commits)):
        for percent, aim in ((50, "0.8 s"), (99, "1.5 s")):
            value = float(np.percentile(delays, percent))
            figures.append(Figure(f"from where {name} to the published row, p{percent}", value, aim=aim))
    return figures


def hour() -> list[Figure]:
    """At one tick a second; tables, targets and quarantines keep dead files for five minutes."""
    with tempfile.TemporaryDirectory() as folder:
        _, samples = _run(Path(folder), _seconds(3600), "--every", "1", "--keep", "5 min")
    early = next((each for each in samples if each.second >= _seconds(3600) / 6), samples[-1])
    late, beside = samples[-1], f"at {early.second / 60:.0f} min"
    return [
        Figure(f"files of the lake at {late.second / 60:.0f} min", late.files, "", early.files, beside, "1"),
        Figure("the lake on the disk", late.disk, "MB", early.disk, beside, "1"),
        Figure("memory of the process and its children", late.memory, "MB", early.memory, beside, "1"),
        Figure("open files of them", late.handles, "", early.handles, beside, "1"),
    ]


def _seconds(most: float) -> float:
    return float(os.environ.get("TIDEGATE_SECONDS") or most)


def _run(folder: Path, seconds: float, *options: str) -> tuple[Path, list[Sample]]:
    """The published target, and what was seen every ten seconds."""
    clicks, lake = folder / "clicks", folder / "lake"
    with EmbeddedMariaDb(folder / "mariadb") as server:
        server.execute("CREATE DATABASE bench")
        server.execute(
            "CREATE TABLE bench.users (id BIGINT PRIMARY KEY, changed BIGINT)",
            f"INSERT INTO bench.users SELECT seq, 0 FROM seq_0_to_{KEYS - 1}",
            database="bench",
        )
        server.create_user("bench", PASSWORD)
        write_deltalake(clicks, _clicks(0))
        script = folder / "pipeline.sql"
        script.write_text(SCRIPT.format(port=server.port, clicks=clicks))
        with _fed(server, clicks), _continuous(script, lake, options, folder / "log") as process:
            samples = _watched(process, lake, seconds, folder / "log")
    pipeline = compile_script(script.read_text())
    return Path(Lake(lake).target_path(pipeline.table("enriched"))), samples


def _clicks(first: int) -> pa.Table:
    numbers = np.arange(first, first + int(RATE * PAUSE))
    now = np.full(len(numbers), time.time_ns() // 1_000_000)
    return pa.table({"id": numbers * 7919 % KEYS, "clicked": now})


@contextmanager
def _fed(server: EmbeddedMariaDb, clicks: Path) -> Iterator[None]:
    """Probes and changes until the end of the block, in a thread each, at a steady pace."""
    over, many = threading.Event(), int(RATE * PAUSE)
    failed: list[BaseException] = []

    def paced(step) -> None:
        begun = time.monotonic()
        try:
            for number in range(1, 10**9):
                if over.wait(max(0.0, begun + number * PAUSE - time.monotonic())):
                    return
                step(number)
        except Exception as error:
            failed.append(error)
            raise

    def change(number: int) -> None:
        first = number * many % KEYS
        now = time.time_ns() // 1_000_000
        cursor.execute(f"UPDATE bench.users SET changed = {now} WHERE id BETWEEN {first} AND {first + many - 1}")

    def click(number: int) -> None:  # delta-rs takes longer with each version: it would use what is measured
        file = clicks / f"part-{number}.parquet"
        pq.write_table(_clicks(number * many), file)
        facts = json.dumps({"numRecords": many})
        commit(there(clicks), [AddAction(file.name, file.stat().st_size, {}, 0, True, facts)])

    with server.connect(database="bench") as connection, connection.cursor() as cursor:
        threads = [threading.Thread(target=paced, args=(step,)) for step in (change, click)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join()
    assert not failed, failed


@contextmanager
def _continuous(script: Path, lake: Path, options: tuple[str, ...], log: Path) -> Iterator[psutil.Popen]:
    command = [sys.executable, "-m", "tidegate.orchestration.cli", "run", str(script), "--lake", str(lake)]
    environment = {**os.environ, "TIDEGATE_BENCH_PASSWORD": PASSWORD}
    with log.open("w") as out:
        process = psutil.Popen(
            [*command, "--continuous", *options], env=environment, stdout=out, stderr=subprocess.STDOUT
        )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(120)


def _watched(process: psutil.Popen, lake: Path, seconds: float, log: Path) -> list[Sample]:
    begun, samples = time.monotonic(), []
    while (now := time.monotonic() - begun) < seconds:
        assert process.poll() is None, log.read_text()[-4000:]
        files = [os.path.join(where, name) for where, _, names in os.walk(lake) for name in names]
        tree = [process, *process.children(recursive=True)]
        samples.append(
            Sample(now, len(files), sum(map(_size, files)) / 1e6, _sum(tree, _resident), int(_sum(tree, _handles)))
        )
        time.sleep(10)
    return samples


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:  # it was removed meanwhile
        return 0


def _resident(process: psutil.Process) -> float:
    return process.memory_full_info().pss / 1e6


def _handles(process: psutil.Process) -> float:
    return process.num_fds()


def _sum(tree: list[psutil.Process], figure) -> float:
    total = 0.0
    for process in tree:
        try:
            total += figure(process)
        except psutil.NoSuchProcess:  # it has ended meanwhile
            continue
    return total


def _delays(target: Path, skipped: float) -> tuple[np.ndarray, np.ndarray]:
    """Seconds from each probe, and from each commit of a change, to the version of the target that shows it first."""
    instants, clicked, changed = [], [], []
    for version in sorted((target / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in version.read_text().splitlines()]
        adds = [each["add"] for each in actions if each.get("add", {}).get("dataChange")]
        if not adds:
            continue
        rows = [pq.read_table(target / unquote(each["path"]), columns=["clicked", "changed"]) for each in adds]
        instants.append(version.stat().st_mtime)
        clicked.append(np.concatenate([each["clicked"].to_numpy() for each in rows]))
        changed.append(max(each["changed"].to_numpy().max(initial=0) for each in rows))
    start = instants[0] + skipped
    probes = np.concatenate([at - each / 1000 for at, each in zip(instants, clicked, strict=True) if at >= start])
    return probes, np.array(_commits(instants, changed, start))


def _commits(instants: list[float], changed: list[float], start: float) -> list[float]:
    """A commit is shown by the first version that shows it or a later one: the binlog has an order."""
    delays, before = [], 0.0
    for at, newest in zip(instants, changed, strict=True):
        if newest > before:
            if at >= start:
                steps = np.arange(max(before + PAUSE * 1000, newest - 600_000), newest + 1, PAUSE * 1000)
                delays += [at - each / 1000 for each in steps]
            before = newest
    return delays
