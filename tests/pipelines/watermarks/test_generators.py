from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.pipelines.watermarks.tables import Recorder, cases, steps, watermark
from tests.pipelines.watermarks.tables import word as word_of
from tidegate.pipelines.watermarks import (
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    BoundedOutOfOrderness,
    InvalidWatermark,
    NoWatermarks,
    SourceWatermarks,
    StatefulGenerator,
    Watermark,
    WatermarkGenerator,
    WatermarkStrategy,
    WithIdleness,
)

TIMES = st.integers(MIN_TIMESTAMP, MAX_TIMESTAMP) | st.sampled_from([MIN_TIMESTAMP, MAX_TIMESTAMP])


def strategy_of(case: dict) -> WatermarkStrategy:
    strategy = {
        "bounded": lambda: WatermarkStrategy.for_bounded_out_of_orderness(timedelta(milliseconds=case["delay_ms"])),
        "monotonous": WatermarkStrategy.for_monotonous_timestamps,
        "none": WatermarkStrategy.no_watermarks,
    }[case["strategy"]]()
    return strategy.with_idleness(timedelta(milliseconds=case["idle_ms"])) if "idle_ms" in case else strategy


def feed(generator: WatermarkGenerator, word: str, recorder: Recorder) -> None:
    if word == "emit":
        generator.on_periodic_emit(recorder)
    else:
        generator.on_event(object(), int(word.removeprefix("row ")), recorder)


@pytest.mark.parametrize("case", cases("generators"))
def test_generator(case):
    now = 0
    recorder = Recorder()
    generator = strategy_of(case).create_generator(lambda: now)
    for time, word, expected, step in steps(case):
        now = int(time)
        feed(generator, word, recorder)
        assert recorder.take() == expected, step


@pytest.mark.parametrize("case", cases("generators"))
def test_a_generator_made_anew_at_every_step_from_its_state_says_the_same(case):
    now = 0

    def clock() -> int:
        return now

    recorder = Recorder()
    generator = strategy_of(case).create_generator(clock)
    for time, word, expected, step in steps(case):
        now = int(time)
        assert isinstance(generator, StatefulGenerator)
        state = generator.state()
        generator = strategy_of(case).create_generator(clock)
        assert isinstance(generator, StatefulGenerator)
        generator.restore(state)
        feed(generator, word, recorder)
        assert recorder.take() == expected, step


def test_a_delay_is_not_negative():
    with pytest.raises(InvalidWatermark, match="delay"):
        BoundedOutOfOrderness(timedelta(milliseconds=-1))


@pytest.mark.parametrize("case", cases("delay"))
def test_the_source_s_own_watermark_is_delayed(case):
    names = {"MIN": str(MIN_TIMESTAMP), "MAX": str(MAX_TIMESTAMP)}
    generator = SourceWatermarks(delay=timedelta(milliseconds=case["delay_ms"]))
    for step in case["steps"]:
        emitted, _, expected = (names.get(part, part) for part in step.split(" "))
        assert word_of(generator.delayed(watermark(emitted))) == expected, step


@example(0, 0, timedelta.max)
@given(TIMES, TIMES, st.timedeltas(min_value=timedelta(0)))
def test_a_delayed_watermark_never_goes_back_nor_ahead_of_the_source(one, other, delay):
    generator = SourceWatermarks(delay=delay)
    low, high = sorted((one, other))
    first, last = (generator.delayed(Watermark(at)).timestamp for at in (low, high))
    assert (first <= last, first <= low, last <= high) == (True, True, True)


def test_the_source_s_own_watermark_is_not_emitted_before_the_source():
    for make in (SourceWatermarks, WatermarkStrategy.from_source):
        with pytest.raises(InvalidWatermark, match="the delay must not be negative"):
            make(delay=timedelta(milliseconds=-1))


@given(st.integers(0, 50), st.lists(st.integers(-1000, 1000), min_size=1))
def test_no_row_within_the_delay_is_late(delay, rowtimes):
    recorder = Recorder()
    generator = BoundedOutOfOrderness(timedelta(milliseconds=delay))
    for rowtime in rowtimes:
        generator.on_event(None, rowtime, recorder)
    generator.on_periodic_emit(recorder)
    emitted = int(recorder.take()[0])
    assert emitted < max(rowtimes) - delay <= emitted + 1


class OnEveryRow:
    """A punctuated generator, which keeps no state."""

    def on_event(self, event, event_timestamp, output):
        output.emit_watermark(Watermark(event_timestamp))

    def on_periodic_emit(self, output):
        """Emits on rows only."""


def test_a_timeout_is_positive():
    with pytest.raises(InvalidWatermark, match="idle timeout"):
        WithIdleness(NoWatermarks(), timedelta(0), lambda: 0)


def test_a_row_ends_idleness_before_its_own_watermark():
    now = 0
    recorder = Recorder()
    generator = WithIdleness(OnEveryRow(), timedelta(milliseconds=5), lambda: now)
    now = 5
    generator.on_periodic_emit(recorder)
    generator.on_event(None, 7, recorder)
    assert recorder.take() == ["idle", "active", "7"]


def test_a_generator_of_ones_own_needs_no_state():
    now = 0
    generator = WithIdleness(OnEveryRow(), timedelta(milliseconds=5), lambda: now)
    state = generator.state()
    again = WithIdleness(OnEveryRow(), timedelta(milliseconds=5), lambda: 4)
    again.restore(state)
    now = 5
    recorder = Recorder()
    again.on_periodic_emit(recorder)
    assert recorder.take() == []
