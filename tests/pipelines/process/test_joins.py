"""Joins by timers and state, against every pair of the same records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import searched
from tests.pipelines.process.counting import Counted
from tidegate.pipelines.process import Arrived, EventTimeExtension, InvalidDeclaration, LocalRun
from tidegate.pipelines.process.errors import ProcessError
from tidegate.pipelines.process.joins import IntervalJoin, Side, WindowJoin
from tidegate.pipelines.process.windows import Windows, cumulate, hop, session, tumble
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.watermarks import MAX_TIMESTAMP, MIN_TIMESTAMP, Watermark


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


class Row(NamedTuple):
    key: str | None
    id: int
    time: int | None


class Order(NamedTuple):
    order_id: int
    item: str
    at: int


class Payment(NamedTuple):
    order_id: int
    paid: int
    at: int


SIDE = Side("key STRING, id BIGINT, `time` BIGINT", time=lambda row: row.time)

Step = tuple[int, list[Row], int]
"""An input, what came of it, and its watermark after that."""


def pair(left: Any, right: Any) -> tuple:
    return left.id, right and right.id


def local(function: Any) -> LocalRun:
    return LocalRun(EventTimeExtension.wrap_process_function(function), lambda row: row.key)


def emitted_by(function: Any, steps: Sequence[Step], cut: int) -> list[list[tuple]]:
    """What is emitted in every epoch of `cut` steps, and at the end of the input; nothing is left of its state."""
    run = local(function)
    arrived = [Arrived(rows, Watermark(watermark), place) for place, rows, watermark in steps]
    emitted = [list(run.epoch(arrived[start : start + cut])[0]) for start in range(0, len(arrived), cut)]
    end = Watermark(MAX_TIMESTAMP)
    emitted.append(list(run.epoch([Arrived((), end), Arrived((), end, 1)])[0]))
    assert run.state == {}
    return emitted


def test_what_is_kept_of_a_record_is_found_by_its_names() -> None:
    """The columns of a side may be declared in another order than the input has them."""
    turned = Side("`time` BIGINT, id BIGINT, key STRING", time=lambda row: row.time)
    for function in (
        IntervalJoin(ms(5), ms(5), turned, turned, pair),
        WindowJoin(tumble(ms(10)), turned, turned, pair),
    ):
        emitted = emitted_by(function, [(0, [Row("a", 1, 5)], 0), (1, [Row("a", 2, 7)], 0)], 1)
        assert [one for epoch in emitted for one in epoch] == [(1, 2)]
    short = Side("id BIGINT", time=lambda row: row.time)
    with pytest.raises(ProcessError, match="and not key, time"):
        emitted_by(IntervalJoin(ms(5), ms(5), short, short, pair), [(0, [Row("a", 1, 5)], 0)], 1)


row = st.builds(Row, st.sampled_from(["a", "b", None]), st.just(0), st.none() | st.integers(0, 30))


@st.composite
def steps(draw: st.DrawFn) -> list[Step]:
    """Steps of both inputs, whose watermarks do not step back, and rows that may be late; every row has its own id."""
    found, low, number = [], [0, 0], 0
    for _ in range(draw(st.integers(1, 8))):
        place, rows = draw(st.integers(0, 1)), []
        for one in draw(st.lists(row, max_size=4)):
            number += 1
            rows.append(one._replace(id=number))
        low[place] = draw(st.integers(low[place], max(low[place], 32)))
        found.append((place, rows, low[place]))
    return found


def arrivals(found: Sequence[Step]) -> list[tuple[int, Row, int]]:
    """(input, row, the combined watermark when it came), in order."""
    came, marks = [], [MIN_TIMESTAMP, MIN_TIMESTAMP]
    for place, rows, watermark in found:
        came += [(place, one, min(marks)) for one in rows]
        marks[place] = watermark
    return came


def expected(found: Sequence[Step], meets: Callable[[Row, Row, int], bool], outer: bool) -> list[tuple]:
    """Every pair, and left records that meet none. `meets` is asked with the watermark when the later one came."""
    came, pairs, met = arrivals(found), [], set()
    for place, (input, left, at) in enumerate(came):
        if input == 1:
            continue
        for other, (input_there, right, at_there) in enumerate(came):
            if input_there == 1 and left.key == right.key is not None and None not in (left.time, right.time):
                later = at_there if other > place else at
                if meets(left, right, later):
                    pairs.append((left.id, right.id))
                    met.add(left.id)
    alone = [(one.id, None) for input, one, _ in came if input == 0 and one.id not in met]
    return sorted(pairs + (alone if outer else []), key=str)


@searched(200)
@given(steps(), st.integers(1, 4), st.sampled_from([(3, 5), (0, 0), (-2, 6), (4, -1)]), st.booleans())
def test_an_interval_join_emits_every_pair(found: list[Step], cut: int, interval: tuple[int, int], outer: bool) -> None:
    before, after = interval

    def meets(left: Row, right: Row, later: int) -> bool:
        """The one that came first is kept until the time is past the last that it may meet."""
        assert left.time is not None
        assert right.time is not None
        kept = later <= (left.time + before if left.id < right.id else right.time + after)
        return kept and right.time - before <= left.time <= right.time + after

    emitted = emitted_by(IntervalJoin(ms(before), ms(after), SIDE, SIDE, pair, outer), found, cut)
    assert sorted(chain.from_iterable(emitted), key=str) == expected(found, meets, outer)


WINDOWS = {
    "tumble": tumble(ms(10)),
    "hop": hop(ms(5), ms(10)),
    "cumulate": cumulate(ms(5), ms(15)),
}


@searched(200)
@given(steps(), st.integers(1, 4), st.sampled_from(sorted(WINDOWS)), st.booleans())
def test_a_window_join_emits_every_pair_of_a_window(found: list[Step], cut: int, name: str, outer: bool) -> None:
    windows = WINDOWS[name]
    emitted = emitted_by(WindowJoin(windows, SIDE, SIDE, pair, outer), found, cut)
    assert sorted(chain.from_iterable(emitted), key=str) == of_windows(found, windows, outer)


def of_windows(found: Sequence[Step], windows: Windows, outer: bool) -> list[tuple]:
    """Window by window: those of each side that came in time, all with all."""
    came, expected_pairs = arrivals(found), []

    def ends(one: Row, at: int) -> set[int]:
        return {window.end for window in windows.of(one.time) if window.end > at} if one.time is not None else set()

    for input, left, at in came:
        if input == 1:
            continue
        if left.key is None or left.time is None:
            expected_pairs.append((left.id, None))
            continue
        for window in windows.of(left.time):
            mates = [
                right.id
                for other, right, came_at in came
                if other == 1 and right.key == left.key and window.end in ends(right, came_at) & ends(left, at)
            ]
            expected_pairs += [(left.id, mate) for mate in mates] or [(left.id, None)]
    return sorted((one for one in expected_pairs if outer or one[1] is not None), key=str)


def test_a_left_record_is_emitted_alone_once_the_watermark_has_proved_it() -> None:
    run, left = local(IntervalJoin(ms(3), ms(0), SIDE, SIDE, pair, outer=True)), Row("a", 1, 10)

    def epoch(watermark: int, rows: Sequence[Row] = (), place: int = 0) -> list[tuple]:
        mark = Watermark(watermark)
        other = Arrived((), mark, 1 - place)
        return run.epoch([Arrived(rows, mark, place), other])[0]

    assert epoch(9, [left]) == []
    assert epoch(13) == []  # one at 13 may still come
    assert epoch(14) == [(1, None)]
    assert epoch(14, [Row("a", 2, 10)], 1) == []
    assert epoch(20, [Row("a", 3, 5)]) == [(3, None)]  # too late to wait for anything


def test_the_same_join_by_processing_time() -> None:
    side = Side("key STRING, id BIGINT, `time` BIGINT")
    run = local(IntervalJoin(ms(0), ms(10), side, side, pair, outer=True))
    now = Watermark(MIN_TIMESTAMP, True)
    run.epoch([Arrived((), now, 0, at=100), Arrived((), now, 1, at=100)], now=100)
    one, two, other = Row("a", 1, None), Row("a", 2, None), Row("a", 7, None)
    assert run.epoch([Arrived([other], None, 1, at=101), Arrived([one], None, 0, at=111)], now=111)[0] == [(1, 7)]
    assert run.epoch([Arrived([two], None, 0, at=112)], now=112)[0] == []
    assert run.epoch([Arrived((), None, 0, at=113)], now=113)[0] == [(2, None)]
    assert run.state == {}


@pytest.mark.parametrize(
    ("windows", "wanted"),
    [
        (tumble(ms(10)), [(110, (1, 7)), (120, (2, None))]),
        (hop(ms(5), ms(10)), [(105, (1, 7)), (110, (1, 7)), (115, (2, None)), (120, (2, None))]),
        (cumulate(ms(5), ms(10)), [(105, (1, 7)), (110, (1, 7)), (115, (2, None)), (120, (2, None))]),
    ],
    ids=lambda value: value.name if type(value) is Windows else "",
)
def test_a_join_of_windows_by_processing_time(windows: Windows, wanted: list[tuple[int, tuple]]) -> None:
    side = Side("key STRING, id BIGINT, `time` BIGINT")
    run = local(WindowJoin(windows, side, side, pair, outer=True))
    now = Watermark(MIN_TIMESTAMP, True)
    run.epoch([Arrived((), now, 0, at=100), Arrived((), now, 1, at=100)], now=100)
    one, two, other = Row("a", 1, None), Row("a", 2, None), Row("a", 7, None)
    assert run.epoch([Arrived([one], None, 0, at=101), Arrived([other], None, 1, at=104)], now=104)[0] == []
    assert run.epoch([Arrived([two], None, 0, at=112)], now=112)[0] == [row for end, row in wanted if end <= 112]
    emitted = [(end, row) for end in (114, 115, 119, 120) for row in run.epoch([], now=end)[0]]
    assert emitted == [item for item in wanted if item[0] > 112]
    assert run.state == {}


def test_a_record_is_not_compared_with_all_that_wait() -> None:
    """Every right one meets one left one."""

    def compared(waiting: int) -> float:
        run, before = local(IntervalJoin(ms(0), ms(0), SIDE, SIDE, pair)), Counted.comparisons
        sides = [[Row("a", number, Counted(number)) for number in range(waiting)] for _ in range(2)]
        assert len(run.epoch([Arrived(sides[0]), Arrived(sides[1], None, 1)])[0]) == waiting
        return (Counted.comparisons - before) / waiting

    assert compared(500) < compared(50) + 20  # each of them once more would be 450


def test_before_any_time_has_passed_records_meet_by_the_moments_at_which_they_landed() -> None:
    side = Side("key STRING, id BIGINT, `time` BIGINT")
    run = local(IntervalJoin(ms(0), ms(10), side, side, pair))
    other, near, far = Row("a", 7, None), Row("a", 1, None), Row("a", 2, None)
    assert run.epoch([Arrived([other], None, 1, at=101)])[0] == []
    assert run.epoch([Arrived([near], None, 0, at=111), Arrived([far], None, 0, at=112)])[0] == [(1, 7)]


def test_the_join_of_the_docs() -> None:
    docs = Path(__file__).parents[3] / "docs" / "process-functions.md"
    snippet = docs.read_text(encoding="utf-8").partition("## Joins")[2].partition("```python")[2].partition("```")[0]
    script = """
    CREATE TABLE orders (order_id BIGINT, item STRING, at BIGINT) WITH ('connector' = 'scripted');
    CREATE TABLE payments (order_id BIGINT, paid BIGINT, at BIGINT) WITH ('connector' = 'scripted');
    """
    names: dict[str, Any] = {"pipeline": compile_script(script), "Side": Side, "IntervalJoin": IntervalJoin}
    names |= {"timedelta": timedelta, "EventTimeExtension": EventTimeExtension}
    exec(snippet, names)
    (insert,) = names["pipeline"].processes
    assert (insert.id, insert.inputs, insert.beside) == ("paid_orders", *[("orders", "payments")] * 2)
    run = LocalRun(insert.process.function, lambda row: row.order_id)
    assert run.epoch([Arrived([Order(1, "tea", 0), Order(2, "cup", 0)]), Arrived([Payment(1, 9, 900_000)], None, 1)])[
        0
    ] == [(1, "tea", 9)]
    late = Watermark(900_001)
    assert run.epoch([Arrived([Payment(2, 9, 900_001)], late, 1), Arrived((), late)])[0] == [(2, "cup", None)]


def test_joins_that_cannot_be() -> None:
    with pytest.raises(InvalidDeclaration, match="no time is between"):
        IntervalJoin(ms(1), ms(-2), SIDE, SIDE, pair)
    with pytest.raises(InvalidDeclaration, match="a join has no sessions"):
        WindowJoin(session(ms(5)), SIDE, SIDE, pair)
