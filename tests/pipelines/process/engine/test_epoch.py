"""The engine over one task's keys: timers, order, and the same outputs however the input is cut into epochs."""

from __future__ import annotations

import random
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import searched
from tests.pipelines.process.scripted import Asking, Order, Plain, Scripted
from tidegate.pipelines.process import Arrived, EventTimeExtension, LocalRun
from tidegate.pipelines.process.engine.epoch import TaskRun
from tidegate.pipelines.process.engine.steps import LandedStep, Steps, steps_of
from tidegate.pipelines.process.errors import NoEventTime
from tidegate.pipelines.process.watermarks.declarations import IDLE_STATUS_WATERMARK_DECLARATION
from tidegate.pipelines.watermarks import MAX_TIMESTAMP, MIN_TIMESTAMP, Watermark

CASES = tomllib.loads((Path(__file__).parents[3] / "fixtures" / "process" / "timers.toml").read_text())["case"]
ENDS = {"MIN": MIN_TIMESTAMP, "MAX": MAX_TIMESTAMP}


def local(function: Any = None) -> LocalRun:
    wrapped = EventTimeExtension.wrap_process_function(function or Scripted())
    return LocalRun(wrapped, key=lambda order: order.key)


def number(text: str) -> int:
    return ENDS.get(text, 0) or int(text)


def parsed(step: str, count: int) -> Order | Watermark:
    words = step.split()
    if words[0] == "wm":
        return Watermark(number(words[1]))
    arguments: dict[str, Any] = {words[place]: number(words[place + 1]) for place in range(0, len(words), 2)}
    return Order("k", count, **arguments)


def shown(item: tuple) -> str:
    names = {MIN_TIMESTAMP: "-", MAX_TIMESTAMP: "MAX"}
    at = names.get(item[3], str(item[3]))
    ends = {MIN_TIMESTAMP: "MIN", MAX_TIMESTAMP: "MAX"}
    return f"r@{at}" if item[1] == "record" else f"t{ends.get(item[2], item[2])}@{at}"


@pytest.mark.parametrize("apart", [False, True], ids=["one epoch", "an epoch each"])
@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_timers(case: dict[str, Any], apart: bool) -> None:
    run, arrived = local(), []
    for count, step in enumerate(case["steps"]):
        word = parsed(step, count)
        arrived.append(Arrived((), word) if isinstance(word, Watermark) else Arrived((word,)))
    epochs = [[item] for item in arrived] if apart else [arrived]
    emitted = [shown(item) for epoch in epochs for item in run.epoch(epoch)[0]]
    assert emitted == case["emitted"]


orders = st.builds(
    Order,
    key=st.sampled_from("ab"),
    number=st.integers(0, 9),
    set=st.none() | st.integers(0, 30),
    delete=st.none() | st.integers(0, 30),
    again=st.none() | st.integers(0, 30),
    cancel=st.none() | st.integers(0, 30),
    clear=st.booleans(),
)
arrivals = st.lists(
    st.builds(Arrived, st.lists(orders, max_size=3), st.none() | st.integers(0, 30).map(Watermark), idle=st.booleans()),
    max_size=8,
)


@searched(200)
@given(arrivals, st.randoms(use_true_random=False))
def test_any_cut_into_epochs_emits_what_plain_python_emits(arrived: list[Arrived], choice: random.Random) -> None:
    oracle = Plain()
    for item in arrived:
        for order in item.records:
            oracle.record(order)
        if item.watermark is not None:
            oracle.watermark(item.watermark.timestamp)
    run, by_key = local(Asking()), defaultdict(list)
    rest = list(arrived)
    while rest:
        size = choice.randint(1, len(rest))
        for item in run.epoch(rest[:size])[0]:
            by_key[item[0]].append(item)
        rest = rest[size:]
    assert dict(by_key) == {key: out for key, out in oracle.out.items() if out}
    kept = {key: state.get("timers", []) for key, state in run.state.items() if state.get("timers")}
    wanted = defaultdict(list)
    for time, key in sorted(oracle.timers):
        wanted[key].append(time)
    assert kept == dict(wanted)


def test_the_order_of_arrival_is_kept_within_a_key() -> None:
    run = local()
    (emitted,) = run.epoch([Arrived([Order("a", n) for n in (3, 1, 2)]), Arrived([Order("b", 9), Order("a", 7)])])
    assert [item[2] for item in emitted if item[0] == "a"] == [3, 1, 2, 7]


def test_what_fails_between_two_records_is_not_reported_of_the_first() -> None:
    """Records are decoded as they are asked for: what goes wrong there is no matter of the record before."""

    def records() -> Iterator[tuple[int, Order]]:
        yield 0, Order("a", 1)
        raise NoEventTime(Order("a", 2), "it is 'soon'")

    run = TaskRun(EventTimeExtension.wrap_process_function(Scripted()), Steps(0, (0,), 0, (0,)))
    with pytest.raises(NoEventTime, match=r"event time of Order.*number=2.* cannot be found: it is 'soon'"):
        run.key("a", None, records())


def test_nothing_is_kept_of_a_key_without_state_and_timers() -> None:
    run = local()
    run.epoch([Arrived([Order("a", 1, set=5), Order("b", 2, set=50)])])
    assert set(run.state) == {"a", "b"}
    run.epoch([Arrived([Order("a", 1, clear=True)], Watermark(9))])
    assert run.state == {"b": {"seen": [2], "total": 2, "last": 2, "timers": [50]}}


def test_in_processing_time_the_clock_drives_the_timers() -> None:
    now = Watermark(MIN_TIMESTAMP, True)
    run = local()
    (emitted,) = run.epoch([Arrived([Order("a", 1, set=120)], now, at=100), Arrived([Order("a", 2)], at=110)], now=115)
    assert [shown(item) for item in emitted] == ["r@100", "r@110"]
    (emitted,) = run.epoch([Arrived([Order("a", 3)], at=130)], now=131)
    assert [shown(item) for item in emitted] == ["t120@130", "r@130"]
    (emitted,) = run.epoch([Arrived([Order("a", 4, set=140)], at=132)], now=150)
    assert [shown(item) for item in emitted] == ["r@132", "t140@150"]


@pytest.mark.parametrize("apart", [False, True])
def test_the_last_word_before_idleness_counts(apart: bool) -> None:
    landed = [
        LandedStep("x", Watermark(5)),
        LandedStep("y", Watermark(9)),
        LandedStep("x", Watermark(7), idle=True),  # the time comes to 7, and is then y's alone
        LandedStep("y", Watermark(9), idle=True),
    ]
    if not apart:
        steps, watermark = steps_of(["x", "y"], landed)
        assert (steps.at, steps.end, watermark) == ((MIN_TIMESTAMP, MIN_TIMESTAMP, 5, 9), 9, Watermark(9))
        assert steps.handed_on == ((), (), (), (), (IDLE_STATUS_WATERMARK_DECLARATION.new_watermark(True),))
        return
    steps, watermark = steps_of(["x", "y"], landed[:2])
    steps, watermark = steps_of(["x", "y"], landed[2:3], before=landed[:2], last=watermark, time=steps.end)
    assert (steps.at, steps.end, watermark) == ((5,), 9, Watermark(9))
    alone, _ = steps_of(["x"], [LandedStep("x", Watermark(7), idle=True)])
    assert alone.end == 7


def test_with_two_inputs_the_clock_counts_once_both_are_in_processing_time() -> None:
    now = Watermark(MIN_TIMESTAMP, True)
    landed = [
        LandedStep("x", now, landed_at=100),
        LandedStep("y", now, landed_at=110),
        LandedStep("x", now, False, 120),
    ]
    whole, watermark = steps_of(["x", "y"], landed, now=125)
    assert (whole.at, whole.end, watermark) == ((MIN_TIMESTAMP, 110, 120), 125, now)
    loaded = [LandedStep("x", Watermark(7), landed_at=90), LandedStep("x", now, landed_at=100)]
    assert steps_of(["x"], loaded, now=105)[0].at == (MIN_TIMESTAMP, 100)


def test_a_turn_to_processing_time_passes_over_no_watermark() -> None:
    now = Watermark(MIN_TIMESTAMP, True)
    arrived = [
        Arrived([Order("a", 1, set=10)], Watermark(31), at=100),
        Arrived([], now, at=120),
        Arrived([Order("a", 2)], at=130),
    ]
    apart, whole = local(), local()
    cut = [shown(item) for part in arrived for item in apart.epoch([part], now=part.at)[0]]
    assert cut == [shown(item) for item in whole.epoch(arrived, now=130)[0]]
    assert "t10@31" in cut
    landed = [LandedStep("x", Watermark(31), landed_at=100), LandedStep("x", now, landed_at=120)]
    assert steps_of(["x"], landed, now=125)[0].moves == (31, 120, 125)
