"""Drawing: marks at round times, lengths that a person reads, and nothing that a single point can break."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from tidegate.pipelines.pictures.svg import (
    Bar,
    Line,
    Span,
    length,
    lying,
    moment,
    round_times,
    stacked,
    step_chart,
    timeline,
)


@pytest.mark.parametrize(
    ("low", "high", "first"), [(0, 10_000, 0), (500, 7_000, 1_000), (5, 5, 5), (0, 400 * 86_400_000, 0)]
)
def test_marks_stand_at_round_times(low: float, high: float, first: float) -> None:
    marks = round_times(low, high)
    assert marks[0] == first
    assert 1 <= len(marks) <= 8
    assert all(low <= mark <= high for mark in marks)


@pytest.mark.parametrize(
    ("value", "told"), [(0, "0 ms"), (999, "999 ms"), (1500, "1.5 s"), (600_000, "10 min"), (9_000_000, "2.5 h")]
)
def test_lengths_of_time(value: float, told: str) -> None:
    assert length(value) == told


def test_pictures_of_a_single_point_are_whole() -> None:
    for drawn in (
        step_chart([Line("a", "c0", [(5, 5)])], "one", 5),
        timeline([("a", [Span("good", 5, 5, "now")])], "one"),
        stacked([Bar("1", [("good", 0)], "none")], "one"),
        lying([("a", 1, "warn")], "one"),
    ):
        ElementTree.fromstring(f"<all>{drawn}</all>")
        assert "nan" not in drawn.lower()
    assert moment(0, 1) == "00:00:00"
