"""SIGKILL between the state's commit and the target's: the next runner goes on, and nothing is done twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
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


def test_kill_9_after_the_state_was_committed(spark: SparkSession, tmp_path: Path) -> None:
    harness = Harness(timed(), spark, tmp_path)
    play(harness, EPOCHS[0])
    play(harness, EPOCHS[1])
    killed = subprocess.run(
        [sys.executable, "-c", DRIVE, str(tmp_path)],
        env={**os.environ, "TIDEGATE_KILL_AT": "process.state"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert killed.returncode == -signal.SIGKILL
    state = harness.lake.state_path(harness.pipeline.insert("told"))
    assert committed(state, harness.lake.application("insert told", "state", 1)) == 1
    assert harness.published("told") == []
    assert told(harness.advance()) == sorted(PUBLISHED[1], key=str)
    play(harness, EPOCHS[2])
    assert told(harness.advance()) == sorted(PUBLISHED[2], key=str)
