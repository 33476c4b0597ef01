from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pipelines.watermarks.tables import Recorder, cases, steps, watermark
from tidegate.pipelines.watermarks import (
    PROCESSING_TIME,
    InvalidWatermark,
    ProcessingTimeBehind,
    ProcessingTimeRevoked,
    Watermark,
    WatermarkOutputMultiplexer,
    WatermarkToDataOutput,
)


class Clock:
    now = 0

    def __call__(self) -> int:
        return self.now


@pytest.mark.parametrize("case", cases("output"))
def test_output(case):
    recorder, clock = Recorder(), Clock()
    output = WatermarkToDataOutput(recorder, clock)
    for time, word, expected, step in steps(case):
        clock.now = int(time)
        if word == "idle":
            output.mark_idle()
        elif word == "active":
            output.mark_active()
        elif expected == ["behind"]:
            with pytest.raises(ProcessingTimeBehind):
                output.emit_watermark(watermark(word))
            expected = []
        elif expected == ["revoked"]:
            with pytest.raises(ProcessingTimeRevoked):
                output.emit_watermark(watermark(word))
            expected = []
        else:
            output.emit_watermark(watermark(word))
        assert recorder.take() == expected, step


def test_the_errors_carry_their_values_and_say_what_holds():
    output = WatermarkToDataOutput(Recorder(), lambda: 100)
    output.emit_watermark(Watermark(101))
    with pytest.raises(ProcessingTimeBehind, match="the last watermark holds") as behind:
        output.emit_watermark(PROCESSING_TIME)
    assert (behind.value.now, behind.value.timestamp) == (100, 101)

    output = WatermarkToDataOutput(Recorder(), lambda: 100)
    output.emit_watermark(PROCESSING_TIME)
    with pytest.raises(ProcessingTimeRevoked, match="the last watermark holds") as revoked:
        output.emit_watermark(Watermark(7))
    assert revoked.value.timestamp == 7


class Effective(Recorder):
    """Follows the effective time: a timestamp, or the clock from the first (t, true) on."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.times: list[int] = []
        self.processing_time = False

    def emit_watermark(self, watermark: Watermark) -> None:
        assert not (self.processing_time and not watermark.use_processing_time)
        self.processing_time = watermark.use_processing_time
        self.times.append(self.clock.now if watermark.use_processing_time else watermark.timestamp)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(-5, 60), st.booleans())))
def test_the_effective_watermark_never_decreases_whatever_is_emitted(emitted):
    clock = Clock()
    effective = Effective(clock)
    output = WatermarkToDataOutput(effective, clock)
    for passed, timestamp, use_processing_time in emitted:
        clock.now += passed
        try:
            output.emit_watermark(Watermark(timestamp, use_processing_time))
        except (ProcessingTimeBehind, ProcessingTimeRevoked):
            continue
    assert effective.times == sorted(effective.times)


def test_what_is_refused_downstream_was_not_sent():
    recorder, late = Recorder(), [50]
    output = WatermarkToDataOutput(WatermarkToDataOutput(recorder, lambda: late[0]), lambda: 200)
    output.emit_watermark(Watermark(100))
    with pytest.raises(ProcessingTimeBehind):
        output.emit_watermark(PROCESSING_TIME)
    output.emit_watermark(Watermark(110))
    late[0] = 200
    output.emit_watermark(PROCESSING_TIME)
    assert recorder.take() == ["100", "110", "now"]


@pytest.mark.parametrize("case", cases("multiplexer"))
def test_multiplexer(case):
    recorder = Recorder()
    multiplexer = WatermarkOutputMultiplexer(recorder)
    for split, word, expected, step in steps(case):
        if word == "emit":
            multiplexer.on_periodic_emit()
        elif word == "+":
            multiplexer.register(split)
        elif word == "x":
            assert multiplexer.unregister(split)
        else:
            immediate = word.startswith("!")
            output = multiplexer.immediate_output(split) if immediate else multiplexer.deferred_output(split)
            word = word.removeprefix("!")
            if word == "idle":
                output.mark_idle()
            elif word == "active":
                output.mark_active()
            else:
                output.emit_watermark(watermark(word))
        assert recorder.take() == expected, step


def test_a_split_is_registered_once_and_before_it_is_used():
    multiplexer = WatermarkOutputMultiplexer(Recorder())
    multiplexer.register("a")
    with pytest.raises(InvalidWatermark, match="'a' is registered already"):
        multiplexer.register("a")
    with pytest.raises(InvalidWatermark, match="no channel 'b'"):
        multiplexer.immediate_output("b")
    with pytest.raises(InvalidWatermark, match="no channel 'b'"):
        multiplexer.deferred_output("b")
    assert not multiplexer.unregister("b")


def test_both_outputs_of_a_split_speak_for_the_same_split():
    recorder = Recorder()
    multiplexer = WatermarkOutputMultiplexer(recorder)
    multiplexer.register("a")
    deferred, immediate = multiplexer.deferred_output("a"), multiplexer.immediate_output("a")
    deferred.emit_watermark(Watermark(9))
    immediate.emit_watermark(Watermark(5))
    assert recorder.take() == ["9"]


def test_the_output_of_a_split_that_left_moves_nothing():
    recorder = Recorder()
    multiplexer = WatermarkOutputMultiplexer(recorder)
    multiplexer.register("a")
    multiplexer.register("b")
    left = multiplexer.immediate_output("a")
    multiplexer.unregister("a")
    left.emit_watermark(Watermark(9))
    assert recorder.take() == []


@pytest.mark.parametrize("again", ["the same word", "a periodic emit"])
def test_a_clock_that_jumped_back_loses_no_signal(again):
    clock = [100]
    recorder = Recorder()
    multiplexer = WatermarkOutputMultiplexer(WatermarkToDataOutput(recorder, lambda: clock[0]))
    multiplexer.register("a")
    output = multiplexer.immediate_output("a")
    output.emit_watermark(Watermark(100))
    clock[0] = 50
    with pytest.raises(ProcessingTimeBehind):
        output.emit_watermark(PROCESSING_TIME)
    with pytest.raises(ProcessingTimeBehind):
        multiplexer.on_periodic_emit()
    clock[0] = 200
    if again == "the same word":
        output.emit_watermark(PROCESSING_TIME)
    else:
        multiplexer.on_periodic_emit()
    assert recorder.take() == ["100", "now"]
    multiplexer.on_periodic_emit()
    assert recorder.take() == []
