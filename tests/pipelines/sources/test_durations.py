from datetime import timedelta

import pytest

from pipelines.sources.durations import parse_duration


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("0", timedelta(0)),
        ("250", timedelta(milliseconds=250)),
        ("30 s", timedelta(seconds=30)),
        ("30S", timedelta(seconds=30)),
        (" 5min ", timedelta(minutes=5)),
        ("5 m", timedelta(minutes=5)),
        ("2 hours", timedelta(hours=2)),
        ("1 d", timedelta(days=1)),
        ("7 µs", timedelta(microseconds=7)),
    ],
)
def test_a_duration(text, duration):
    assert parse_duration(text) == duration


@pytest.mark.parametrize("text", ["", "s", "-1 s", "1.5 s", "1 fortnight", "1 s 2", "9999999999 d"])
def test_no_duration(text):
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)
