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


def start(lake: Lake, point: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", DRIVE, str(lake.root)]
    environment = {**os.environ, "TIDEGATE_KILL_AT": f"{point}@clicks"}
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True)


def told(lake: Lake) -> list[dict[str, Any]]:
    return [vars(row) for row in lake.watermarks.rows("clicks")]


def test_a_kill_before_the_watermark_is_written_changes_nothing_of_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tape.install(monkeypatch)
    whole, appended, landed = (Lake(tmp_path / name) for name in ("whole", "appended", "landed"))
    for lake in (whole, appended, landed):
        tape.write(lake, "clicks", CLICKS)
    advance(spark, landed)
    with start(appended, "source.appended") as one, start(landed, "source.landed") as other:
        for process in (one, other):
            _, shown = process.communicate()
            assert process.returncode == -signal.SIGKILL, shown
    assert [len(told(lake)) for lake in (appended, landed)] == [0, 1]
    assert [len(lake.epochs.rows("clicks")) for lake in (appended, landed)] == [1, 2]
    for lake, epochs in ((whole, 3), (appended, 3), (landed, 2)):
        for _ in range(epochs):
            advance(spark, lake)
    assert told(appended) == told(whole)
    assert told(landed) == told(whole)
    assert [row["splits"][0]["state"]["since"] for row in told(whole)] == [1, 0, 1]
