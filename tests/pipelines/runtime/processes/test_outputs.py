"""What the tasks of an epoch report, and what of it is believed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tidegate.pipelines.process import (
    EventTimeExtension,
    OneInputStreamProcessFunction,
    ProcessError,
    WatermarkDeclarations,
)
from tidegate.pipelines.process.spec import ProcessInput, ProcessSpec
from tidegate.pipelines.runtime.processes.outputs import FACT, OutputsTime, same_on_every_task
from tidegate.pipelines.watermarks import MIN_TIMESTAMP


def report(task: int, broadcast: str = "x", closing: str = "") -> dict[str, Any]:
    return {"task": task, "broadcast": broadcast, "closing": closing}


def test_the_same_everywhere() -> None:
    same_on_every_task("timed", [report(0), report(1), report(2)], 3)
    same_on_every_task("timed", [report(0)], 1)


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        ([report(0), report(2)], "of 3 tasks of timed, 2 have reported what they did"),
        ([report(0), report(1), report(1)], "of 3 tasks of timed, 3 have reported what they did"),
        ([], "of 3 tasks of timed, 0 have reported what they did"),
        ([report(0), report(1), report(2, "y")], "the tasks of timed have come to different broadcast states"),
        (
            [report(0), report(1), report(2, closing="y")],
            "the tasks of timed have collected different records in close",
        ),
    ],
)
def test_what_is_refused(reports: list[dict[str, Any]], expected: str) -> None:
    with pytest.raises(ProcessError, match=expected):
        same_on_every_task("timed", reports, 3)


# --- what they say of time, epoch after epoch -------------------------------------------------------------------------


TIME = EventTimeExtension.EVENT_TIME_WATERMARK_DECLARATION
IDLE = EventTimeExtension.IDLE_STATUS_WATERMARK_DECLARATION
MOST = WatermarkDeclarations.new_builder("most").type_long().combine_function_max().build()
DONE = WatermarkDeclarations.new_builder("done").type_bool().build()
NOW = OutputsTime(MIN_TIMESTAMP, True)


class Emits(OneInputStreamProcessFunction):
    def __init__(self, *declarations: Any) -> None:
        self.declarations = declarations

    def watermark_declarations(self):
        return self.declarations


def spec(*own: Any, brought: tuple = ()) -> ProcessSpec:
    return ProcessSpec(Emits(*own), (ProcessInput("t", ("k",)),), ("o",), declarations=brought)


@pytest.mark.parametrize(
    ("function", "before", "processing_time", "emitted", "after"),
    [
        (spec(), OutputsTime(), False, [{TIME.identifier: 9}, {TIME.identifier: 7}, {}], OutputsTime(7)),
        (spec(), OutputsTime(8), False, [{TIME.identifier: 7}], OutputsTime(8)),
        (spec(), OutputsTime(8), False, [], OutputsTime(8)),
        (spec(), OutputsTime(8), True, [{}], NOW),
        (spec(TIME), OutputsTime(), True, [{}], OutputsTime(MIN_TIMESTAMP)),
        (spec(TIME), OutputsTime(), True, [{TIME.identifier: 5}, {}], OutputsTime(5)),
        (spec(TIME), OutputsTime(5), True, [{}], OutputsTime(5)),
        (spec(), OutputsTime(8), False, [{IDLE.identifier: True}] * 2, OutputsTime(8, idle=True)),
        (spec(IDLE), OutputsTime(8), False, [{IDLE.identifier: True}, {IDLE.identifier: False}], OutputsTime(8)),
        (spec(), OutputsTime(8, idle=True), False, [{}], OutputsTime(8, idle=True)),
        (spec(), OutputsTime(8, idle=True), False, [{IDLE.identifier: False}], OutputsTime(8)),
        (spec(MOST), OutputsTime(), False, [{"most": 3}, {"most": 9}, {}], OutputsTime(declared={"most": 9})),
        (spec(MOST), OutputsTime(declared={"most": 9}), False, [{"most": 4}], OutputsTime(declared={"most": 4})),
        (
            spec(brought=(DONE, MOST)),
            OutputsTime(declared={"most": 9}),
            True,
            [{"done": True}, {"done": False}],
            OutputsTime(MIN_TIMESTAMP, True, declared={"most": 9, "done": False}),
        ),
    ],
)
def test_what_stands_after_an_epoch(
    function: ProcessSpec, before: OutputsTime, processing_time: bool, emitted: list, after: OutputsTime
) -> None:
    found = before.after(function, processing_time, emitted)
    assert found == after
    row: Any = SimpleNamespace(facts={FACT: found.fact()})
    assert OutputsTime.of(row) == found


def test_rows_of_before_there_was_more_are_read() -> None:
    row: Any = SimpleNamespace(facts={FACT: [5, False]})
    assert OutputsTime.of(row) == OutputsTime(5)


def test_a_process_sends_on_what_it_is_brought() -> None:
    assert spec(TIME, MOST, brought=(DONE,)).sends == (DONE, MOST)
