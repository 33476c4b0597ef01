"""What a run needs of a machine, and of a cluster: memory that does not grow with the data, executors in processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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

RUN = """
import sys, threading, time
import psutil
from pipelines.lake import Lake
from pipelines.runtime.runner import Runner
from pipelines.runtime.session import start_session
from pipelines.sql import compile_script

peak = 0

def watch():
    global peak
    while True:
        total = 0
        for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
            try:
                # A JVM under a JVM is a fork that is about to be another program; until then it shows the same pages.
                if process.name() != "java" or process.parent().name() != "java":
                    total += process.memory_info().rss
            except psutil.NoSuchProcess:
                pass
        peak = max(peak, total)
        time.sleep(0.05)

# The heap has one size and is touched at the start: the data must fit into it, and what grows beside it is seen.
HEAP = "-XX:+UseSerialGC -Xms1g -XX:+AlwaysPreTouch"
script, lake, master = open(sys.argv[1]).read(), sys.argv[2], sys.argv[3]
spark = start_session(master=master, config={"spark.driver.extraJavaOptions": HEAP})
threading.Thread(target=watch, daemon=True).start()
with Runner(compile_script(script), Lake(lake), spark=lambda: spark) as runner:
    report = runner.run()
published = sum(done.rows for release in report.releases for done in release.published)
print("published", published, "peak", peak, flush=True)
"""


def run(directory: Path, name: str, build: int, probe: int, master: str) -> dict[str, int]:
    """A run in a process of its own: how many rows it published, and the peak RSS of driver and workers, in bytes."""
    script = directory / f"{name}.sql"
    script.write_text(SCRIPT.format(build=build, probe=probe))
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(script), str(directory / name), master],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TIDEGATE_DRIVER_MEMORY": "1g"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    words = done.stdout.split()
    return {words[at]: int(words[at + 1]) for at in range(len(words)) if words[at] in ("published", "peak")}


@pytest.mark.timeout(1200)
def test_ten_times_the_data_takes_no_more_memory(tmp_path: Path) -> None:
    small = run(tmp_path, "small", 200_000, 200_000, "local[2]")
    large = run(tmp_path, "large", 2_000_000, 2_000_000, "local[2]")
    print(f"peak RSS {small['peak'] / 2**20:,.0f} MiB, at ten times the data {large['peak'] / 2**20:,.0f} MiB")
    assert (small["published"], large["published"]) == (200_000, 2_000_000)
    assert large["peak"] <= 1.2 * small["peak"]


@pytest.mark.timeout(1200)
def test_executors_in_processes_of_their_own_publish_the_same(tmp_path: Path) -> None:
    assert run(tmp_path, "cluster", 20_000, 5_000, "local-cluster[2,1,2048]")["published"] == 5_000
