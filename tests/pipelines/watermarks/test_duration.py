from datetime import timedelta

import pytest

from tidegate.pipelines.watermarks import InvalidWatermark
from tidegate.pipelines.watermarks.watermark import milliseconds


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
