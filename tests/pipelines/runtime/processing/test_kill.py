"""SIGKILL while a process is staged, and between its commits: the next runner goes on, and nothing is done twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from pipelines.lake.delta_log import committed
from pipelines.testing import Harness
from tests.pipelines.runtime.processing.test_processes import EPOCHS, PUBLISHED, play, timed, told

DRIVE = """
import sys
from pipelines.testing import Harness, spark_session
from tests.pipelines.runtime.processing.test_processes import timed
Harness(timed(), spark_session(), sys.argv[1]).advance()
"""

PUBLISH = """
import sys
from pathlib import Path
from pipelines.lake import Lake
from pipelines.runtime.runner import Runner
from tests.pipelines.runtime.processing.test_processes import timed
Runner(timed(), Lake(Path(sys.argv[1]))).publish("told")
"""
"""No session: publishing is made of commits alone."""


def kill(program: str, root: Path, point: str) -> None:
    """Run a program until it has come to `point`."""
    killed = subprocess.run(
        [sys.executable, "-c", program, str(root)],
        env={**os.environ, "TIDEGATE_KILL_AT": point},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert killed.returncode == -signal.SIGKILL


def test_kill_9_at_every_commit(spark: SparkSession, tmp_path: Path) -> None:
    harness = Harness(timed(), spark, tmp_path)
    state, owner = harness.lake.state_path(harness.pipeline.insert("told")), "insert told"
    for epoch in EPOCHS[:2]:
        play(harness, epoch)
    kill(DRIVE, tmp_path, "insert.written")
    assert harness.lake.staged.rows(owner) == []
    published = sorted(PUBLISHED[1], key=str)
    assert told(harness.advance()) == published
    points = {"insert.quarantined": (0, 0), "process.state": (1, 0), "insert.published": (1, 1)}
    for number, (point, (ahead, out)) in enumerate(points.items(), start=2):
        play(harness, EPOCHS[number])
        before = harness.lake.staged.rows(owner)[-1].epoch
        harness.runner.advance("events")
        harness.runner.stage("told")
        harness.runner.judge("told")
        if number == 2:
            harness.runner.maintenance(timedelta(0)).run()  # spares what the staged epoch has written
        harness.runner.close()
        kill(PUBLISH, harness.lake.root, point)
        more = sorted([*published, *PUBLISHED[number]], key=str)
        assert committed(state, harness.lake.application(owner, "state", 1)) == before + ahead, point
        assert told(harness.published("told")) == (more if out else published), point
        assert [row.epoch for row in harness.lake.watermarks.rows("told")][-1] == before, point
        harness.restart()
        harness.advance()
        published = more
        assert told(harness.published("told")) == published, point
        assert [row.epoch for row in harness.lake.watermarks.rows("told")][-1] == before + 1, point
