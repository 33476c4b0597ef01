"""Where a pipeline runs, and how far a step is, in its log."""

from __future__ import annotations

import logging
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tidegate.assets.resources import TidegateResource, shown_by, step_progress
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.progress import LoggedProgress, SilentProgress
from tidegate.pipelines.sql import compile_script

SCRIPT = """
CREATE TABLE clicks (id INT) WITH ('connector' = 'scripted');
CREATE TABLE kept (id INT) WITH ('connector' = 'scripted');
INSERT INTO kept SELECT id FROM clicks
"""


def test_the_lake_is_absolute_wherever_steps_run():
    assert TidegateResource.at("some/lake").lake == str(Path("some/lake").absolute())


def test_what_spark_prints_goes_beside_the_lake_and_not_to_the_run_s_stderr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    given: dict[str, Any] = {}
    monkeypatch.setattr("tidegate.pipelines.runtime.session.start_session", lambda **named: given.update(named))
    TidegateResource.at(tmp_path / "lake", master="local[1]").session()
    assert (given["master"], given["log"]) == ("local[1]", tmp_path / "lake" / "_scratch" / "spark.log")


def test_a_secret_setting_is_refused_for_dagster_shows_settings():
    with pytest.raises(PlanningError, match="secret") as caught:
        TidegateResource.at("lake", spark_config={"spark.hadoop.fs.s3a.secret.key": "hunter2"})
    assert "hunter2" not in str(caught.value)
    assert "spark-defaults.conf" in caught.value.next_command


@pytest.mark.parametrize(
    ("given", "variable", "interval"),
    [
        ("", "", None),
        ("0", "", timedelta(0)),
        ("", "0", timedelta(0)),
        ("5 s", "0", timedelta(seconds=5)),
    ],
)
def test_the_interval_is_the_resource_s_else_the_environment_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, variable: str, interval: timedelta | None
):
    monkeypatch.setenv("TIDEGATE_AUTO_WATERMARK_INTERVAL", variable)
    resource = TidegateResource(lake=str(tmp_path), auto_watermark_interval=given)
    with resource.runner(compile_script(SCRIPT)) as runner:
        assert runner.auto_watermark_interval == interval


class Log(logging.Logger):
    def __init__(self):
        super().__init__("test")
        self.lines: list[str] = []

    def info(self, msg, *args, **kwargs):
        self.lines.append(str(msg))


class Clock:
    def __init__(self):
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_a_bar_is_reported_at_intervals_and_once_when_it_is_full():
    log, clock = Log(), Clock()
    task = LoggedProgress(log, every=5.0, now=clock).task("snapshot of user_info", 4, "rows")
    task.advance(1)
    assert log.lines == []
    clock.seconds += 5
    task.advance(1, "chunk 2")
    clock.seconds += 1
    task.advance(1)
    task.advance(1)
    task.advance(1)
    assert log.lines == [
        "snapshot of user_info: 2 of 4 rows in 5.0 s, 0.4 rows/s (chunk 2)",
        "snapshot of user_info: 4 of 4 rows in 6.0 s, 0.7 rows/s (chunk 2)",
    ]


def test_a_single_step_shows_only_how_long_it_took():
    log, clock = Log(), Clock()
    task = LoggedProgress(log, every=5.0, now=clock).task("start Spark", 1)
    clock.seconds += 7
    task.advance(1)
    assert log.lines == ["start Spark: 7.0 s"]


def test_a_bar_without_an_end_shows_what_is_done_and_its_note():
    log, clock = Log(), Clock()
    task = LoggedProgress(log, every=5.0, now=clock).task("binlog")
    clock.seconds += 6
    task.note("lag 20 ms")
    assert log.lines == ["binlog: 0 in 6.0 s (lag 20 ms)"]


def test_a_command_can_draw_the_bars_itself():
    log, bars = Log(), SilentProgress()
    with shown_by(bars):
        assert step_progress(log) is bars
    assert isinstance(step_progress(log), LoggedProgress)
