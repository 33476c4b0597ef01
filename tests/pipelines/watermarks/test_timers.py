from collections.abc import Hashable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.pipelines.watermarks import (
    MIN_TIMESTAMP,
    PROCESSING_TIME,
    ProcessingTimeBehind,
    ProcessingTimeRevoked,
    TickScheduler,
    Timers,
    Watermark,
)


class Story:
    """Timers with a clock and ticks by hand."""

    def __init__(self) -> None:
        self.now = 0
        self.fired: list[tuple[Hashable, int]] = []
        self.scheduler = TickScheduler()
        self.timers = Timers(lambda key, time: self.fired.append((key, time)), lambda: self.now, self.scheduler)

    def take(self) -> list[tuple[Hashable, int]]:
        fired, self.fired = self.fired, []
        return fired


def test_a_watermark_fires_what_it_has_reached_in_order() -> None:
    story = Story()
    for key, time in (("b", 20), ("a", 10), ("c", 20), ("d", 21)):
        story.timers.register(key, time)
    story.now = 10**9
    story.scheduler.tick()  # the clock means nothing in event time
    assert story.take() == []
    story.timers.advance(Watermark(9))
    assert story.take() == []
    story.timers.advance(Watermark(20))
    assert story.take() == [("a", 10), ("b", 20), ("c", 20)]
    assert story.timers.now == 20
    story.timers.advance(Watermark(15))
    assert (story.take(), story.timers.now) == ([], 20)


def test_processing_time_starts_the_clock() -> None:
    story = Story()
    story.timers.register("a", 10)
    story.timers.register("b", 30)
    story.now = 12
    story.timers.advance(PROCESSING_TIME)
    assert story.take() == [("a", 10)]
    story.now = 29
    story.scheduler.tick()
    assert story.take() == []
    story.now = 30
    story.scheduler.tick()
    assert story.take() == [("b", 30)]
    story.timers.advance(PROCESSING_TIME)  # emitted again, started once
    story.timers.register("late", 5)
    story.scheduler.tick()
    assert story.take() == [("late", 5)]


def test_a_timer_is_set_once_and_can_be_taken_back() -> None:
    story = Story()
    story.timers.register("a", 10)
    story.timers.register("a", 10)
    story.timers.register("b", 10)
    story.timers.delete("b", 10)
    story.timers.delete("nobody", 10)
    story.timers.advance(Watermark(10))
    assert story.take() == [("a", 10)]
    story.timers.register("a", 10)
    story.timers.delete("a", 10)
    story.timers.register("a", 10)
    story.timers.advance(Watermark(11))
    assert story.take() == [("a", 10)]


def test_a_timer_may_set_another() -> None:
    fired: list[int] = []

    def chain(key: Hashable, time: int) -> None:
        fired.append(time)
        timers.register(key, time + 10)

    timers = Timers(chain, lambda: 0, TickScheduler())
    timers.register("a", 10)
    timers.advance(Watermark(35))
    assert fired == [10, 20, 30]


def test_a_clock_that_jumps_back_is_an_error_and_fires_nothing() -> None:
    story = Story()
    story.timers.advance(Watermark(100))
    story.timers.register("a", 50)
    story.now = 99
    with pytest.raises(ProcessingTimeBehind):
        story.timers.advance(PROCESSING_TIME)
    story.now = 100
    story.timers.advance(PROCESSING_TIME)
    assert story.take() == [("a", 50)]
    story.now = 40
    with pytest.raises(ProcessingTimeBehind):
        story.scheduler.tick()
    with pytest.raises(ProcessingTimeRevoked):
        story.timers.advance(Watermark(200))
    assert story.take() == []


@given(st.lists(st.tuples(st.booleans(), st.integers(-50, 50))))
def test_every_timer_fires_once_and_not_before_its_time(steps) -> None:
    story = Story()
    waiting: set[int] = set()
    reached = MIN_TIMESTAMP
    for register, time in steps:
        if register:
            story.timers.register("k", time)
            waiting.add(time)
        else:
            moved = time > reached
            reached = max(reached, time)
            story.timers.advance(Watermark(time))
            due = sorted(at for at in waiting if at <= reached) if moved else []
            assert [at for _, at in story.take()] == due
            waiting -= set(due)
