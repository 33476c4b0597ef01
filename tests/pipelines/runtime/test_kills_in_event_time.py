"""SIGKILL between an epoch's rows and its watermark: the log, and what is released, are those of a run without."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.pipelines.runtime import tape
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.runtime.runner import Runner

PACE = ", 'rows-per-epoch' = 'a=3,b=2', 'bounded' = '2'"
ON_EVENT = ", 'scan.watermark.emit.strategy' = 'on-event', 'scan.watermark.emit.on-event.gap' = '2'"
CLICKS = {
    split: [{"id": start + n, "k": n % 3, "n": start % 7 + 9 * n - n % 4} for n in range(7)]
    for split, start in (("a", 100), ("b", 200))
}
RATES = [{"k": k, "v": 100 * k + n, "n": n} for n in range(0, 200, 7) for k in (0, 1)]
DRIVE = """
import sys
from pathlib import Path
import pytest
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.testing import spark_session
from tests.pipelines.runtime import tape
from tests.pipelines.runtime.test_kills_in_event_time import advance
tape.install(pytest.MonkeyPatch())
advance(spark_session(), Lake(Path(sys.argv[1])))
"""


def running(spark: SparkSession, lake: Lake) -> Runner:
    pipeline = tape.compiled(clicks=PACE + ON_EVENT)
    return Runner(pipeline, lake, spark=lambda: spark, clock=lambda: 1000, environment={})


def advance(spark: SparkSession, lake: Lake) -> None:
    """An epoch of the table."""
    with running(spark, lake) as runner:
        runner.advance("clicks", max_epochs=1)


def released(spark: SparkSession, lake: Lake) -> list[tuple[int, int | None]]:
    """What has been published once all that can be is."""
    with running(spark, lake) as runner:
        runner.advance("rates")
        runner.release("joined")
        return tape.published(lake, runner.pipeline)


def start(lake: Lake, point: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", DRIVE, str(lake.root)]
    environment = {**os.environ, "TIDEGATE_KILL_AT": f"{point}@clicks"}
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True)


def log_of(lake: Lake) -> list[dict[str, Any]]:
    return [vars(row) for row in lake.watermarks.rows("clicks")]


@pytest.mark.thorough
def test_a_kill_before_the_watermark_is_written_changes_nothing_of_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tape.install(monkeypatch)
    whole, appended, landed = (Lake(tmp_path / name) for name in ("whole", "appended", "landed"))
    for lake in (whole, appended, landed):
        tape.write(lake, "clicks", CLICKS)
        tape.write(lake, "rates", {"0": RATES})
    advance(spark, landed)
    with start(appended, "source.appended") as one, start(landed, "source.landed") as other:
        for process in (one, other):
            _, shown = process.communicate()
            assert process.returncode == -signal.SIGKILL, shown
    assert [len(log_of(lake)) for lake in (appended, landed)] == [0, 1]
    assert [len(lake.epochs.rows("clicks")) for lake in (appended, landed)] == [1, 2]
    first = released(spark, landed)  # what the killed epoch has committed is not read before its watermark is there
    assert released(spark, appended) == []
    for lake, epochs in ((whole, 3), (appended, 3), (landed, 2)):
        for _ in range(epochs):
            advance(spark, lake)
    assert log_of(appended) == log_of(whole)
    assert log_of(landed) == log_of(whole)
    assert [row["splits"][0]["state"]["since"] for row in log_of(whole)] == [0, 1, 1]
    watermark = whole.watermarks.last("clicks").timestamp  # type: ignore[union-attr]
    due = [row for rows in CLICKS.values() for row in rows if row["n"] <= watermark]
    expected = sorted((row["id"], met(row)) for row in due)
    assert [released(spark, lake) for lake in (whole, appended, landed)] == [expected] * 3
    assert 0 < len(first) < len(expected) < 14
    assert set(first) < set(expected)


def met(click: dict[str, int]) -> int | None:
    """The rate that holds at a click's time."""
    return max((rate["v"] for rate in RATES if rate["k"] == click["k"] and rate["n"] <= click["n"]), default=None)
