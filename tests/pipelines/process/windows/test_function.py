"""Windows by timers and state, against a plain count of the same records."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import searched
from tests.pipelines.process.counting import Counted
from tidegate.pipelines.process import Arrived, EventTimeExtension, InvalidDeclaration, LocalRun
from tidegate.pipelines.process.state.stores import MapState
from tidegate.pipelines.process.windows import (
    Aggregate,
    Window,
    WindowFunction,
    Windows,
    cumulate,
    hop,
    session,
    tumble,
)
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.watermarks import MAX_TIMESTAMP, MIN_TIMESTAMP, Watermark


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


class Row(NamedTuple):
    key: str
    time: int


class Timeless(NamedTuple):
    key: str
    time: None = None


class Click(NamedTuple):
    item: str
    timestamp: int


COUNT = Aggregate(
    "BIGINT",
    create=lambda: 0,
    add=lambda kept, record: kept + 1,
    result=lambda key, window, kept: (key, *window, kept),
    merge=lambda one, other: one + other,
)


def local(windows: Windows, by_time: bool = True) -> LocalRun:
    function = WindowFunction(windows, COUNT, (lambda row: row.time) if by_time else None)
    return LocalRun(EventTimeExtension.wrap_process_function(function), lambda row: row.key)


@pytest.mark.parametrize(
    ("windows", "time", "found"),
    [
        (tumble(ms(10)), 25, [(20, 30)]),
        (tumble(ms(10)), -1, [(-10, 0)]),
        (tumble(ms(10), ms(3)), 25, [(23, 33)]),
        (tumble(ms(10)), 30, [(30, 40)]),
        (hop(ms(5), ms(10)), 27, [(25, 35), (20, 30)]),
        (hop(ms(10), ms(10)), 25, [(20, 30)]),
        (cumulate(ms(5), ms(20)), 7, [(0, 10), (0, 15), (0, 20)]),
        (cumulate(ms(5), ms(20)), 19, [(0, 20)]),
        (cumulate(ms(5), ms(20)), 20, [(20, 25), (20, 30), (20, 35), (20, 40)]),
        (session(ms(5)), 7, [(7, 12)]),
    ],
)
def test_the_windows_of_a_time(windows: Windows, time: int, found: list[tuple[int, int]]) -> None:
    assert [tuple(window) for window in windows.of(time)] == found


rows = st.lists(st.builds(Row, st.sampled_from("ab"), st.integers(0, 60)), max_size=25)


@searched(200)
@given(rows, st.sampled_from([tumble(ms(10)), hop(ms(5), ms(15)), cumulate(ms(5), ms(15)), session(ms(6))]))
def test_every_row_is_counted_in_its_windows(found: list[Row], windows: Windows) -> None:
    run, (emitted, late) = local(windows), ([], [])
    for start in range(0, len(found), 5):
        one, other = run.epoch([Arrived(found[start : start + 5])])
        emitted, late = emitted + one, late + other
    one, other = run.epoch([Arrived((), Watermark(MAX_TIMESTAMP))])
    assert late + other == []
    assert sorted(emitted + one) == expected(found, windows)
    assert run.state == {}


def expected(found: list[Row], windows: Windows) -> list[tuple]:
    if windows.merging:
        return sessions(found, windows.of(0)[0].end)
    counts: dict[tuple, int] = defaultdict(int)
    for row in found:
        for window in windows.of(row.time):
            counts[row.key, *window] += 1
    return sorted((*key, count) for key, count in counts.items())


def sessions(found: list[Row], gap: int) -> list[tuple]:
    expected_rows = []
    for key in sorted({row.key for row in found}):
        open_window, count = None, 0
        for time in sorted(row.time for row in found if row.key == key):
            if open_window is not None and time <= open_window.end:
                open_window, count = Window(open_window.start, time + gap), count + 1
                continue
            if open_window is not None:
                expected_rows.append((key, *open_window, count))
            open_window, count = Window(time, time + gap), 1
        if open_window is not None:
            expected_rows.append((key, *open_window, count))
    return sorted(expected_rows)


def test_a_session_is_compared_with_its_neighbours_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = []
    get = MapState.get
    monkeypatch.setattr(MapState, "get", lambda *asked: decoded.append(1) or get(*asked))
    monkeypatch.setattr(MapState, "items", lambda state: pytest.fail("all sessions were looked at"))

    def compared(waiting: int) -> float:
        run, before = local(session(ms(5))), Counted.comparisons
        run.epoch([Arrived([Row("a", Counted(number * 100)) for number in range(waiting)])])
        assert len(run.state["a"]["windows"]) == waiting
        return (Counted.comparisons - before) / waiting

    assert compared(500) < compared(50) + 20  # each of them once more would be 450
    decoded.clear()
    run = local(session(ms(5)))
    run.epoch([Arrived([Row("a", 100 * number) for number in reversed(range(50))])])
    assert len(decoded) == 49, "the next one is looked at"


def test_sessions_between_two_become_one_with_both() -> None:
    run = local(session(ms(5)))
    run.epoch([Arrived([Row("a", time) for time in (0, 8, 30, 50)])])
    assert run.epoch([Arrived([Row("a", 4), Row("a", 13)], Watermark(40))])[0] == [("a", 0, 18, 4), ("a", 30, 35, 1)]


def test_a_window_is_emitted_at_its_end_and_what_comes_later_goes_elsewhere() -> None:
    run = local(tumble(ms(10)))
    assert run.epoch([Arrived([Row("a", 5)], Watermark(9))]) == ([], [])
    assert run.epoch([Arrived([Row("a", 3)], Watermark(10))]) == ([("a", 0, 10, 2)], [])
    assert run.epoch([Arrived([Row("a", 9), Row("a", 10)], Watermark(20))]) == ([("a", 10, 20, 1)], [Row("a", 9)])


KINDS = [tumble(ms(10)), hop(ms(5), ms(10)), cumulate(ms(5), ms(10)), session(ms(5))]


@pytest.mark.parametrize("windows", KINDS, ids=lambda windows: windows.name)
def test_a_record_without_a_time_is_in_no_window(windows: Windows) -> None:
    run, timeless = local(windows), Timeless("a")
    assert run.epoch([Arrived([timeless, Row("a", 5), timeless])]) == ([], [timeless, timeless])
    emitted, late = run.epoch([Arrived([timeless], Watermark(MAX_TIMESTAMP))])
    assert (sorted(emitted), late) == (expected([Row("a", 5)], windows), [timeless])
    assert run.state == {}


BY_PROCESSING_TIME = {
    "TUMBLE": [("a", 100, 110, 2), ("a", 110, 120, 1)],
    "HOP": [("a", 95, 105, 2), ("a", 100, 110, 2), ("a", 105, 115, 1), ("a", 110, 120, 1)],
    "CUMULATE": [("a", 100, 105, 2), ("a", 100, 110, 2), ("a", 110, 115, 1), ("a", 110, 120, 1)],
    "SESSION": [("a", 101, 109, 2), ("a", 112, 117, 1)],
}


@pytest.mark.parametrize("windows", KINDS, ids=lambda windows: windows.name)
def test_the_same_windows_by_processing_time(windows: Windows) -> None:
    run, now, record = local(windows, by_time=False), Watermark(MIN_TIMESTAMP, True), Row("a", 0)
    run.epoch([Arrived((), now, at=100)], now=100)
    assert run.epoch([Arrived([record], at=101), Arrived([record], at=104)], now=104) == ([], [])
    emitted, late = run.epoch([Arrived([record], at=112)], now=121)
    assert (sorted(emitted, key=lambda row: row[2]), late) == (BY_PROCESSING_TIME[windows.name], [])
    assert run.state == {}


@pytest.mark.parametrize("apart", [False, True])
def test_before_any_time_has_passed_a_record_is_of_the_moment_at_which_it_landed(apart: bool) -> None:
    run = local(tumble(ms(10)), by_time=False)
    flipped = Arrived([Row("a", 0)], Watermark(MIN_TIMESTAMP, True), at=112)
    arrived = [Arrived([Row("a", 0)], at=101), Arrived([Row("a", 0)], at=109), flipped]
    epochs = [[item] for item in arrived] if apart else [arrived]
    emitted = [row for epoch in epochs for row in run.epoch(epoch, now=epoch[-1].at)[0]]
    assert emitted == [("a", 100, 110, 2)]
    assert run.epoch([], now=120) == ([("a", 110, 120, 1)], [])


def test_the_windows_of_the_docs() -> None:
    docs = Path(__file__).parents[4] / "docs" / "process-functions.md"
    snippet = docs.read_text(encoding="utf-8").partition("## Windows")[2].partition("```python")[2].partition("```")[0]
    script = "CREATE TABLE clicks (item STRING, `timestamp` BIGINT) WITH ('connector' = 'scripted')"
    names: dict[str, Any] = {"pipeline": compile_script(script), "Aggregate": Aggregate, "tumble": tumble}
    names |= {"WindowFunction": WindowFunction, "timedelta": timedelta, "EventTimeExtension": EventTimeExtension}
    exec(snippet, names)
    spec = names["pipeline"].insert("clicks_5min").process
    assert spec.outputs == ("clicks_5min", "late_clicks")
    run = LocalRun(spec.function, lambda click: click.item)
    clicks = [Click("tea", 1), Click("tea", 299_999), Click("cup", 300_000)]
    assert run.epoch([Arrived(clicks, Watermark(300_000)), Arrived([Click("tea", 2)])]) == (
        [("tea", 0, 300_000, 2)],
        [Click("tea", 2)],
    )


def test_windows_that_cannot_be() -> None:
    with pytest.raises(InvalidDeclaration, match="multiple of their slide"):
        hop(ms(4), ms(10))
    with pytest.raises(InvalidDeclaration, match="multiple of their step"):
        cumulate(ms(4), ms(10))
    with pytest.raises(InvalidDeclaration, match="need an aggregate with `merge`"):
        WindowFunction(session(ms(1)), Aggregate("BIGINT", int, lambda kept, row: kept, lambda *parts: parts))
