"""Bars in a terminal, and lines in a file."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from tidegate.orchestration.console.bars import Bars
from tidegate.pipelines.progress import step


def shown(terminal: bool) -> tuple[Bars, io.StringIO]:
    file = io.StringIO()
    return Bars(Console(file=file, force_terminal=terminal, width=120, color_system=None)), file


@pytest.mark.parametrize("terminal", [True, False])
def test_what_is_done_stays_as_a_line(terminal: bool) -> None:
    bars, file = shown(terminal)
    with bars:
        with step(bars, "start Spark"):
            pass
        task = bars.task("snapshot [of] user_info", unit="chunks")
        task.total(2)
        task.advance(1)
        task.advance(1, "4,000 rows/s")
    text = file.getvalue()
    assert "start Spark" in text
    assert "snapshot [of] user_info" in text
    assert "2" in text.partition("snapshot [of] user_info")[2]
    assert "4,000 rows/s" in text


def test_a_bar_that_was_finished_takes_no_more() -> None:
    bars, file = shown(True)
    with bars:
        task = bars.task("join", 1)
        task.advance(1)
        before = file.getvalue().count("join")
        task.advance(1)
        task.note("late")
        assert file.getvalue().count("join") == before


def test_bars_that_nobody_will_fill_are_taken_away() -> None:
    bars, _ = shown(True)
    with bars:
        task = bars.task("binlog", 10, "bytes")
        bars.clear()
        task.advance(1)
        task.advance(9)


def test_a_line_without_a_measure_is_reported_now_and_then() -> None:
    bars, file = shown(False)
    line = bars.line("clicks waiting")
    line.note("1")
    assert file.getvalue() == ""
    vars(line)["every"] = 0.0
    line.note("1")
    line.note("1")
    line.note("2")
    assert file.getvalue().splitlines() == ["clicks waiting: 1", "clicks waiting: 2"]
