"""SIGKILL while a process is staged, and between its commits: the next runner goes on, and nothing is done twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.oracle.pins import rows_of
from tests.pipelines.runtime.processes import functions as fn
from tests.pipelines.runtime.processes.test_processes import (
    EPOCHS,
    PUBLISHED,
    SCRIPT,
    event,
    play,
    shown,
    timed,
    wrapped,
)
from tidegate.pipelines.lake.delta_log import committed
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.testing import Harness
from tidegate.pipelines.watermarks import MAX_TIMESTAMP

DRIVE = """
import sys
from tidegate.pipelines.testing import Harness, spark_session
from tests.pipelines.runtime.processes.test_processes import timed
Harness(timed(), spark_session(), sys.argv[1]).advance()
"""

PUBLISH = """
import sys
from pathlib import Path
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.runtime.runner import Runner
from tests.pipelines.runtime.processes.test_processes import timed
Runner(timed(), Lake(Path(sys.argv[1]))).publish("timed")
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
    state, owner = harness.lake.state_path(harness.pipeline.insert("timed")), "insert timed"
    for epoch in EPOCHS[:2]:
        play(harness, epoch)
    kill(DRIVE, tmp_path, "insert.written")
    assert harness.lake.staged.rows(owner) == []
    published = sorted(PUBLISHED[1], key=str)
    assert shown(harness.advance()) == published
    points = {"insert.quarantined": (0, 0), "process.state": (1, 0), "insert.published": (1, 1)}
    for number, (point, (ahead, out)) in enumerate(points.items(), start=2):
        play(harness, EPOCHS[number])
        before = harness.lake.staged.rows(owner)[-1].epoch
        harness.runner.advance("events")
        harness.runner.stage("timed")
        harness.runner.judge("timed")
        if number == 2:
            harness.runner.maintenance(timedelta(0)).run()  # spares what the staged epoch has written
        harness.runner.close()
        kill(PUBLISH, Path(harness.lake.root), point)
        more = sorted([*published, *PUBLISHED[number]], key=str)
        assert committed(state, harness.lake.application(owner, "state", 1)) == before + ahead, point
        assert shown(harness.published("timed")) == (more if out else published), point
        assert [row.epoch for row in harness.lake.watermarks.rows("timed")][-1] == before, point
        harness.restart()
        harness.advance()
        published = more
        assert shown(harness.published("timed")) == published, point
        assert [row.epoch for row in harness.lake.watermarks.rows("timed")][-1] == before + 1, point


def tallied() -> Pipeline:
    """A function with two outputs, and one with a broadcast input beside it."""
    columns = "k STRING, number BIGINT, total BIGINT, CONSTRAINT known EXPECT (k <> 'b') ON VIOLATION QUARANTINE"
    pipeline = compile_script(SCRIPT).process(
        ["evens", "odds"], "events", "k", wrapped(fn.Tallied()), [columns, columns], buckets=2
    )
    return pipeline.process(
        "ruled", ["events", "rules"], "k", wrapped(fn.Dies()), "k STRING, number BIGINT, rule BIGINT", buckets=2
    )


STAGE = """
import os, sys
from pathlib import Path
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.testing import spark_session
from tests.pipelines.runtime.processes.test_kill import tallied
os.environ["TIDEGATE_KILL_GROUP"] = str(os.getpgid(0))
runner = Runner(tallied(), Lake(Path(sys.argv[1])), spark=spark_session)
runner.stage("evens")
runner.stage("ruled")
"""
"""Killed by the second one's function, in its task, when the first one is staged."""

STEPS = """
import os, sys
from pathlib import Path
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.runtime.runner import Runner
from tests.pipelines.runtime.processes.test_kill import tallied
pipeline = tallied()
for word in sys.argv[2:]:
    step, insert, point = word.split(":")
    if (child := os.fork()) == 0:
        os.setsid()
        os.environ["TIDEGATE_KILL_AT"] = point
        getattr(Runner(pipeline, Lake(Path(sys.argv[1]))), step)(insert)
        os._exit(0)
    if os.waitpid(child, 0)[1] != 9:
        sys.exit(f"{step} of {insert} has not come to {point}")
"""
"""One after the other, a process each, killed at its point. No session: only staging needs one."""


def ended(program: str, root: Path, *words: str) -> int:
    """How a program ends."""
    command = [sys.executable, "-c", program, str(root), *words]
    return subprocess.run(command, stdout=subprocess.DEVNULL, start_new_session=True).returncode


Rows = list[tuple[str, int, int | None]]


def rows(path: Path, *names: str) -> Rows:
    found = rows_of(str(path)) if (path / "_delta_log").exists() else []
    return sorted((tuple(row[name] for name in names) for row in found), key=str)  # type: ignore[misc]


class Both:
    """What the two processes have published and quarantined."""

    def __init__(self, harness: Harness) -> None:
        self.lake, self.pipeline = harness.lake, harness.pipeline

    def tally(self, output: str) -> tuple[Rows, Rows]:
        table, names = self.pipeline.table(output), ("k", "number", "total")
        quarantined = self.lake.quarantine_path(table, self.pipeline.insert("evens"))
        return rows(Path(self.lake.target_path(table)), *names), rows(Path(quarantined), *names)

    @property
    def ruled(self) -> Rows:
        return rows(Path(self.lake.target_path(self.pipeline.table("ruled"))), "k", "number", "rule")


def whole(epochs: Sequence[Rows]) -> Rows:
    return sorted((row for epoch in epochs for row in epoch), key=str)


def by_key(epochs: Sequence[Rows]) -> tuple[Rows, Rows]:
    """What is published, and what is quarantined: the rows of b."""
    both = whole(epochs)
    return [row for row in both if row[0] == "a"], [row for row in both if row[0] == "b"]


LANDED = [
    ([("a", 10)], [("a", 4), ("b", 7), ("a", 10), ("a", 30)], 0),
    ([("a", 20), ("all", 1)], [("a", 5), ("a", 6), ("a", 6), ("a", 30, "delete"), ("b", 1)], 5),
    ([("b", 30)], [("a", 2)], MAX_TIMESTAMP),
]
"""Of each epoch: rules, events, the watermark. Timers that are equal, deleted, set again, and in the past."""
TIMERS: list[Rows] = [
    [],
    [("a", -4, 61), ("a", -5, 61), ("b", -1, 8)],
    [("a", -2, 63), ("a", -6, 63), ("a", -10, 63), ("a", -11, 63), ("b", -7, 8)],
]
EVENS: list[Rows] = [
    [("a", 4, 4), ("a", 10, 14), ("a", 30, 44)],
    [("a", 6, 55), ("a", 6, 61), *TIMERS[1]],
    [("a", 2, 63), *TIMERS[2]],
]
ODDS: list[Rows] = [[("b", 7, 7)], [("a", 5, 49), ("b", 1, 8), *TIMERS[1]], TIMERS[2]]
RULED: list[Rows] = [
    [("a", 4, 10), ("b", 7, None), ("a", 10, 10), ("a", 30, 10)],
    [("a", -3, 1), ("b", -1, 1), ("a", 5, 20), ("a", 6, 20), ("a", 6, 20), ("a", 30, 20), ("b", 1, None)],
    [("a", 2, 20)],
]


def land(harness: Harness, epoch: tuple[Sequence[tuple[str, int]], Sequence[tuple], int]) -> None:
    rules, events, watermark = epoch
    harness.push("rules", [{"k": k, "rule": rule} for k, rule in rules])
    harness.push("events", [event(*row) for row in events])
    harness.watermark("events", watermark)
    for table in ("rules", "events"):
        harness.runner.advance(table)


@pytest.mark.thorough
def test_kill_9_with_two_outputs_with_a_broadcast_input_and_with_state_written_anew(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An epoch that is killed again and again: each process comes one step further than the one before."""
    harness = Harness(tallied(), spark, tmp_path)
    both, root = Both(harness), harness.lake.root
    land(harness, LANDED[0])
    harness.advance()
    land(harness, LANDED[1])
    harness.runner.close()
    # Planned, then staged, and the other one in the middle of its task.
    assert ended(STEPS, Path(root), "stage:evens:insert.planned") == 0
    assert ended(STAGE, Path(root)) == -signal.SIGKILL
    assert [row.epoch for row in harness.lake.staged.rows("insert evens")] == [1, 2]
    assert [row.epoch for row in harness.lake.epochs.rows("insert ruled")] == [1, 2]
    assert [row.epoch for row in harness.lake.staged.rows("insert ruled")] == [1]
    # Judged, then between the commits of both outputs.
    points = ["insert.judged", "process.second-quarantined", "process.second"]
    steps = [f"{'publish' if point.startswith('process') else 'judge'}:evens:{point}" for point in points]
    assert ended(STEPS, Path(root), *steps) == 0
    assert both.tally("odds") == by_key(ODDS[:2])
    assert both.tally("evens") == by_key(EVENS[:1])
    assert ended(STEPS, Path(root), "publish:evens:insert.quarantined", "publish:evens:process.state") == 0
    assert both.tally("evens") == (by_key(EVENS[:1])[0], by_key(EVENS[:2])[1])
    harness.restart()
    harness.advance()
    # Once more where the epoch writes all state anew, whose commit takes the place of all before it.
    monkeypatch.setattr("tidegate.pipelines.runtime.processes.state.REWRITE_AFTER", 2)
    land(harness, LANDED[2])
    for insert in ("evens", "ruled"):
        harness.runner.stage(insert)
        harness.runner.judge(insert)
    harness.runner.close()
    assert ended(STEPS, Path(root), "publish:evens:process.state", "publish:ruled:process.state") == 0
    assert (both.tally("evens")[0], both.ruled) == (by_key(EVENS[:2])[0], whole(RULED[:2]))
    harness.restart()
    harness.advance()
    assert both.tally("odds") == by_key(ODDS)
    assert both.tally("evens") == by_key(EVENS)
    assert both.ruled == whole(RULED)
    for insert in ("evens", "ruled"):
        state = rows_of(str(harness.lake.state_path(harness.pipeline.insert(insert))))
        assert {row["_epoch"] for row in state} == {3}
        assert [row.epoch for row in harness.lake.watermarks.rows(insert)] == [1, 2, 3]
