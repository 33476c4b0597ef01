import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pipelines.watermarks.channel_words import WORDS, Channels, say
from tests.pipelines.watermarks.tables import cases, steps, watermark
from tidegate.pipelines.watermarks import BEGINNING, CombinedWatermarkStatus, InvalidWatermark, Watermark


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
def test_whatever_is_said(inputs, said):
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
