import pytest

from tests.pipelines.watermarks.tables import Recorder, cases, steps, watermark
from tidegate.pipelines.watermarks import (
    PROCESSING_TIME,
    InvalidWatermark,
    ProcessingTimeBehind,
    Watermark,
    WatermarkOutputMultiplexer,
    WatermarkToDataOutput,
)


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
