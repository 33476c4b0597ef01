"""SIGKILL between an epoch's rows and its watermark: the log is that of a run without."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.lake import Lake
from pipelines.runtime.runner import Runner
from tests.pipelines.runtime import event_tape, tape

PACE = ", 'rows-per-epoch' = 'a=3,b=2'"
ON_EVENT = ", 'scan.watermark.emit.strategy' = 'on-event', 'scan.watermark.emit.on-event.gap' = '2'"
CLICKS = {
    split: [{"id": start + n, "k": n % 3, "n": start % 7 + 9 * n - n % 4} for n in range(7)]
    for split, start in (("a", 100), ("b", 200))
}
DRIVE = """
import sys
from pathlib import Path
import pytest
from pipelines.lake import Lake
from pipelines.testing import spark_session
from tests.pipelines.runtime import tape
from tests.pipelines.runtime.test_kills_in_event_time import advance
tape.install(pytest.MonkeyPatch())
advance(spark_session(), Lake(Path(sys.argv[1])))
"""


def advance(spark: SparkSession, lake: Lake) -> None:
    """An epoch of the table."""
    with Runner(
        event_tape.compiled(clicks=PACE + ON_EVENT), lake, spark=lambda: spark, clock=lambda: 1000, environment={}
    ) as runner:
        runner.advance("clicks", max_epochs=1)


def killed(lake: Lake, point: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DRIVE, str(lake.root)],
        env={**os.environ, "TIDEGATE_KILL_AT": f"{point}@clicks"},
        capture_output=True,
        text=True,
        start_new_session=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


def told(lake: Lake) -> list[dict[str, Any]]:
    return [vars(row) for row in lake.watermarks.rows("clicks")]


def test_a_kill_before_the_watermark_is_written_changes_nothing_of_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tape.install(monkeypatch)
    whole, broken = Lake(tmp_path / "whole"), Lake(tmp_path / "broken")
    for lake in (whole, broken):
        tape.write(lake, "clicks", CLICKS)
    for _ in range(3):
        advance(spark, whole)
    killed(broken, "source.appended")
    assert told(broken) == []
    advance(spark, broken)
    killed(broken, "source.landed")
    assert len(told(broken)) == 1
    for _ in range(2):
        advance(spark, broken)
    assert told(broken) == told(whole)
    assert [row["splits"][0]["state"]["since"] for row in told(whole)] == [1, 0, 1]
