import logging

from tidegate.assets.progress import shown_by, step_progress
from tidegate.pipelines.progress import LoggedProgress, SilentProgress


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


def test_a_bar_is_told_at_intervals_and_once_when_it_is_full():
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


def test_a_single_step_tells_only_how_long_it_took():
    log, clock = Log(), Clock()
    task = LoggedProgress(log, every=5.0, now=clock).task("start Spark", 1)
    clock.seconds += 7
    task.advance(1)
    assert log.lines == ["start Spark: 7.0 s"]


def test_a_bar_without_an_end_tells_what_is_done_and_its_note():
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
