"""Where a run of an INSERT ends: with what had landed when it began, whatever lands meanwhile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.assets.clicks import pipeline
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.runtime.epochs import (
    EventTimePlan,
    InputSpan,
    ProcessPlan,
    ProcessSpan,
    ReleasePlan,
    StreamPlan,
    TimeSpan,
)
from tidegate.pipelines.runtime.epochs.position import End
from tidegate.pipelines.runtime.releasing.insert_runner import Published
from tidegate.pipelines.runtime.runner import Runner

PLAN = StreamPlan("enriched_click", 1, 1, "release", 0, "click_event", 1, 0, 3, (), "quarantine", "")
IN_TIME = PLAN.as_kind(EventTimePlan, time=TimeSpan(0, 100, 0, 0, 0))
SPANS = (InputSpan("a", 1, 0, 3, 0), InputSpan("b", 1, 0, 5, 0))
PROCESS = PLAN.as_kind(ProcessPlan, process=ProcessSpan(SPANS, 0, 0, (0, False), (0, False), 0))


@pytest.mark.parametrize(
    ("plan", "end", "reached"),
    [
        (PLAN, End({"click_event": (1, 3)}), True),
        (PLAN, End({"click_event": (1, 4)}), False),
        (PLAN, End({"click_event": (2, 1)}), False),
        (PLAN, End({}), True),
        (replace(PLAN, kind="discard"), End({"click_event": (1, 3)}), True),
        (IN_TIME, End({"click_event": (1, 3)}, 100), True),
        (IN_TIME, End({"click_event": (1, 3)}, 101), False),
        (PROCESS, End({"a": (1, 3), "b": (1, 5)}), True),
        (PROCESS, End({"a": (1, 3), "b": (1, 6)}), False),
    ],
)
def test_which_epoch_is_the_last_one_of_a_run(plan: ReleasePlan, end: End, reached: bool) -> None:
    assert end.reached(plan) is reached


def test_a_run_ends_though_more_lands_all_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each epoch takes one more epoch of the probe, of which another runner always lands the next."""
    planned = iter(replace(PLAN, epoch=number, upto=number) for number in range(1, 100))

    def stage(*_: object) -> tuple[ReleasePlan, None]:
        return next(planned), None

    def publish(runner: Runner, insert: str) -> Published:
        verdicts.append(insert)
        plan = replace(PLAN, epoch=len(verdicts), upto=len(verdicts))
        return Published(insert, 1, plan.epoch, 1, 0, plan, None)  # type: ignore[arg-type]

    verdicts: list[str] = []
    monkeypatch.setattr(Runner, "stage", stage)
    monkeypatch.setattr(Runner, "judge", lambda *_: SimpleNamespace())
    monkeypatch.setattr(Runner, "publish", publish)
    with Runner(pipeline(), Lake(tmp_path)) as runner:
        epochs = runner.epochs("enriched_click", End({"click_event": (1, 3)}))
        assert [epoch.epoch for epoch in epochs] == [1, 2, 3]
