from dataclasses import FrozenInstanceError
from datetime import timedelta

import pytest

from tidegate.pipelines.errors import TidegateError
from tidegate.pipelines.watermarks import (
    BEGINNING,
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    PROCESSING_TIME,
    InvalidWatermark,
    Watermark,
)
from tidegate.pipelines.watermarks.watermark import milliseconds


def test_the_bounds_of_time_are_those_of_java():
    assert (MIN_TIMESTAMP, MAX_TIMESTAMP) == (-9223372036854775808, 9223372036854775807)


def test_a_watermark_is_in_event_time_by_default():
    assert Watermark(5) == Watermark(5, use_processing_time=False)
    assert Watermark(5) != Watermark(5, True)
    assert Watermark(MIN_TIMESTAMP) == BEGINNING
    assert Watermark(MIN_TIMESTAMP, True) == PROCESSING_TIME


def test_a_watermark_is_frozen_and_hashable():
    with pytest.raises(FrozenInstanceError):
        Watermark(5).timestamp = 6  # type: ignore[misc]
    assert len({Watermark(5), Watermark(5), Watermark(5, True)}) == 2


@pytest.mark.parametrize("timestamp", [MIN_TIMESTAMP - 1, MAX_TIMESTAMP + 1, 1.0, True, None, "5"])
def test_a_timestamp_is_an_integer_of_64_bits(timestamp):
    with pytest.raises(InvalidWatermark) as error:
        Watermark(timestamp)
    assert isinstance(error.value, TidegateError)
    assert isinstance(error.value, ValueError)


@pytest.mark.parametrize("flag", [None, 1, "true"])
def test_use_processing_time_is_a_bool(flag):
    with pytest.raises(InvalidWatermark, match="use_processing_time"):
        Watermark(5, flag)


# --- durations --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("duration", "ms"),
    [
        (timedelta(seconds=1), 1000),
        (timedelta(microseconds=1), 1),
        (timedelta(milliseconds=1, microseconds=1), 2),
        (timedelta(days=365_000), 31_536_000_000_000),
    ],
)
def test_a_part_of_a_ms_counts_as_a_whole_one(duration, ms):
    assert milliseconds(duration, "it") == ms


def test_zero_only_where_it_makes_sense():
    assert milliseconds(timedelta(0), "it", zero=True) == 0
    with pytest.raises(InvalidWatermark, match="it must be positive"):
        milliseconds(timedelta(0), "it")


@pytest.mark.parametrize("duration", [timedelta(microseconds=-1), 5, None])
def test_what_is_no_duration_is_refused(duration):
    with pytest.raises(InvalidWatermark, match="it "):
        milliseconds(duration, "it", zero=True)
