from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pipelines.watermarks.channel_words import WORDS, Channels, say
from tests.pipelines.watermarks.tables import Recorder, cases, steps, watermark
from tidegate.pipelines.watermarks import (
    BEGINNING,
    PROCESSING_TIME,
    CombinedWatermarkStatus,
    InvalidWatermark,
    ProcessingTimeBehind,
    StatusWatermarkValve,
    Watermark,
    WatermarkToDataOutput,
)


@pytest.mark.parametrize("case", cases("valve"))
def test_valve(case):
    recorder = Recorder()
    valve = StatusWatermarkValve(case["channels"], recorder, watermark(case.get("last", "-")))
    for channel, word, expected, step in steps(case):
        say(valve, int(channel), word)
        assert recorder.take() == expected, step


def test_the_valve_knows_its_last_output():
    valve = StatusWatermarkValve(2, Recorder())
    assert (valve.watermark, valve.idle) == (BEGINNING, False)
    valve.input_watermark(0, Watermark(5))
    valve.input_idle(1)
    assert (valve.watermark, valve.idle) == (Watermark(5), False)
    valve.input_idle(0)
    assert (valve.watermark, valve.idle) == (Watermark(5), True)


def test_channels_may_have_names():
    recorder = Recorder()
    valve = StatusWatermarkValve(["binlog", "snapshot"], recorder)
    valve.input_watermark("binlog", PROCESSING_TIME)
    valve.input_watermark("snapshot", PROCESSING_TIME)
    assert recorder.take() == ["now"]


@pytest.mark.parametrize("channels", [0, -1, True, [], ["a", "a"]])
def test_channels_that_make_no_sense_are_refused(channels):
    with pytest.raises(InvalidWatermark):
        StatusWatermarkValve(channels, Recorder())


def test_several_channels_at_the_same_moment():
    recorder = Recorder()
    valve = StatusWatermarkValve(2, recorder)
    valve.input_all({0: (Watermark(7), False), 1: (Watermark(5), False)})
    valve.input_all({0: (Watermark(9), True), 1: (Watermark(5), True)})
    valve.input_all({0: (Watermark(9), False), 1: (PROCESSING_TIME, False)})
    assert recorder.take() == ["5", "idle", "active", "9"]
    with pytest.raises(InvalidWatermark, match="no channel 2"):
        valve.input_all({0: (PROCESSING_TIME, False), 2: (PROCESSING_TIME, False)})
    assert valve.watermark == Watermark(9)


@pytest.mark.parametrize("again", ["now", "7"])
def test_a_clock_that_jumped_back_loses_no_signal(again):
    clock = [100]
    recorder = Recorder()
    valve = StatusWatermarkValve(1, WatermarkToDataOutput(recorder, lambda: clock[0]))
    say(valve, 0, "100")
    clock[0] = 50
    with pytest.raises(ProcessingTimeBehind):
        say(valve, 0, "now")
    assert valve.watermark == Watermark(100)
    clock[0] = 200
    say(valve, 0, again)
    assert recorder.take() == ["100", "now"]
    assert valve.watermark == PROCESSING_TIME


@pytest.mark.parametrize("say_it", ["5", "idle", "active"])
def test_an_unknown_channel_is_refused(say_it):
    with pytest.raises(InvalidWatermark, match="no channel 2; there are 0, 1"):
        say(StatusWatermarkValve(2, Recorder()), 2, say_it)


@given(st.integers(1, 4), st.lists(st.tuples(st.integers(0, 3), WORDS), max_size=60))
def test_whatever_is_said(channels, said):
    """The watermark never goes back, never passes an aligned channel, and only all channels together open the gate."""
    recorder = Recorder()
    valve = StatusWatermarkValve(channels, recorder)
    known = Channels(channels)
    for number, word in said:
        channel = number % channels
        before = valve.watermark
        say(valve, channel, word)
        known.say(channel, word)
        after = valve.watermark

        assert valve.idle == known.all_idle()
        if before.use_processing_time:
            assert after == before
        elif after.use_processing_time:
            assert known.all_in_processing_time()
        else:
            assert after.timestamp >= before.timestamp
            assert not known.all_in_processing_time()
            waited_for = [time for time in known.active_in_event_time() if time >= before.timestamp]
            if after != before or waited_for:
                assert after.timestamp == min(waited_for)
        if word == "idle":
            assert after.use_processing_time == before.use_processing_time, "idleness opened the gate"
    emitted = [int(word) for word in recorder.words if word not in ("idle", "active", "now")]
    assert emitted == sorted(set(emitted))
    assert recorder.words.count("now") <= 1


@given(st.integers(1, 4), st.lists(st.tuples(st.integers(0, 3), WORDS), max_size=40))
def test_without_idleness_the_order_of_the_channels_does_not_matter(channels, said):
    said = [(number % channels, word) for number, word in said if word not in ("idle", "active")]
    forwards, grouped = StatusWatermarkValve(channels, Recorder()), StatusWatermarkValve(channels, Recorder())
    for channel, word in said:
        say(forwards, channel, word)
    for channel, word in sorted(said, key=lambda pair: pair[0]):
        say(grouped, channel, word)
    assert forwards.watermark == grouped.watermark


@given(st.integers(1, 3), st.lists(st.tuples(st.integers(0, 2), WORDS), max_size=40), st.integers(0, 40))
def test_a_valve_that_goes_on_from_a_last_output_says_the_same(channels, said, cut):
    """After a restart: the last word of each channel, on top of the last output, is all that a valve needs."""
    said = [(number % channels, word) for number, word in said]
    whole, known = StatusWatermarkValve(channels, Recorder()), Channels(channels)
    for channel, word in said[:cut]:
        say(whole, channel, word)
        known.say(channel, word)
    recorder = Recorder()
    again = StatusWatermarkValve(channels, recorder, whole.watermark)
    again.input_all({channel: (known.last_word(channel), known.idle[channel]) for channel in range(channels)})
    assert recorder.take() == (["idle"] if whole.idle else [])
    for channel, word in said[cut:]:
        say(whole, channel, word)
        say(again, channel, word)
    assert again.watermark == whole.watermark


@pytest.mark.parametrize("case", cases("combined"))
def test_combined(case):
    status = CombinedWatermarkStatus(case["inputs"], watermark(case.get("last", "-")))
    for number, word, expected, step in steps(case):
        say(status, int(number), word)
        assert (status.watermark, status.idle) == (watermark(expected[0]), "idle" in expected), step


def test_it_starts_at_the_beginning_of_time():
    assert CombinedWatermarkStatus(2).watermark == BEGINNING
    assert not CombinedWatermarkStatus(2).idle


def test_it_says_whether_the_watermark_moved():
    status = CombinedWatermarkStatus(["probe", "build"])
    assert not status.input_watermark("probe", Watermark(5))
    assert status.input_watermark("build", Watermark(4))
    assert status.input_idle("build")
    assert not status.input_active("build")


def test_several_inputs_at_the_same_moment():
    status = CombinedWatermarkStatus(2, Watermark(3))
    assert not status.input_all({0: (Watermark(5), False), 1: (Watermark(2), False)})
    assert status.input_all({0: (Watermark(7), False), 1: (Watermark(2), True)})
    assert status.watermark == Watermark(7)


def test_inputs_must_be_there():
    with pytest.raises(InvalidWatermark):
        CombinedWatermarkStatus(0)
    with pytest.raises(InvalidWatermark, match="no channel 2"):
        CombinedWatermarkStatus(2).input_idle(2)


@given(st.integers(1, 4), st.lists(st.tuples(st.integers(0, 3), WORDS), max_size=60))
def test_whatever_inputs_emit(inputs, said):
    """The watermark never goes back, is the minimum over the active inputs, and only all of them open the gate."""
    status, known = CombinedWatermarkStatus(inputs), Channels(inputs)
    for number, word in said:
        before = status.watermark
        say(status, number % inputs, word)
        known.say(number % inputs, word)
        after = status.watermark

        assert status.idle == known.all_idle()
        if before.use_processing_time:
            assert after == before
        elif after.use_processing_time:
            assert known.all_in_processing_time()
            assert word == "now"
        else:
            assert not known.all_in_processing_time()
            active = known.active_in_event_time()
            assert after.timestamp == max(before.timestamp, min(active, default=before.timestamp))
