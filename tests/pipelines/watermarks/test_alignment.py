from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pipelines.watermarks.tables import cases, steps, watermark
from tidegate.pipelines.watermarks import AlignmentCoordinator, InvalidWatermark, Watermark


@pytest.mark.parametrize("case", cases("alignment"))
def test_alignment(case):
    coordinator = AlignmentCoordinator("group", timedelta(milliseconds=case["drift_ms"]))
    for who, word, expected, step in steps(case):
        source, split = who.split("/")
        if word == "gone":
            coordinator.withdraw(source, split)
        else:
            coordinator.report(source, split, watermark(word))
        assert coordinator.blocked() == {tuple(pair.split("/")) for pair in expected}, step


def test_a_number_is_a_watermark_in_event_time():
    coordinator = AlignmentCoordinator("group", timedelta(seconds=1))
    coordinator.report("s", 0, 0)
    coordinator.report("s", 1, 1001)
    assert coordinator.blocked() == {("s", 1)}


def test_nobody_is_held_by_what_it_has_emitted_itself():
    coordinator = AlignmentCoordinator("group", timedelta(milliseconds=10))
    assert coordinator.reach("a", 0) is None
    coordinator.report("a", 0, 5)
    assert coordinator.reach("a", 0) is None
    coordinator.report("b", 0, 100)
    coordinator.report("a", 1, 50)
    assert [coordinator.reach(*pair) for pair in (("a", 0), ("a", 1), ("b", 0), ("c", 0))] == [60, 15, 15, 15]
    coordinator.withdraw("a", 0)
    assert [coordinator.reach(*pair) for pair in (("a", 1), ("b", 0))] == [110, 60]


def test_what_makes_no_sense_is_refused():
    with pytest.raises(InvalidWatermark, match="needs a name"):
        AlignmentCoordinator("", timedelta(0))
    with pytest.raises(InvalidWatermark, match="drift"):
        AlignmentCoordinator("group", timedelta(seconds=-1))


@given(st.integers(0, 50), st.lists(st.tuples(st.integers(0, 4), st.integers(-100, 100)), min_size=1))
def test_the_slowest_split_is_never_blocked(drift, reports):
    coordinator = AlignmentCoordinator("group", timedelta(milliseconds=drift))
    last = {}
    for split, timestamp in reports:
        coordinator.report("s", split, Watermark(timestamp))
        last[split] = timestamp
    slowest = min(last, key=lambda split: last[split])
    assert ("s", slowest) not in coordinator.blocked()
    assert {split for _, split in coordinator.blocked()} == {
        split for split, timestamp in last.items() if timestamp > last[slowest] + drift
    }
