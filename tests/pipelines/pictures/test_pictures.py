"""Pictures of epochs and splits: whose bar has which colour and length, and that one stands by itself in Markdown."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import asdict, replace
from xml.etree import ElementTree

import pytest

from tests.pipelines.runtime.plans import release, taken
from tidegate.pipelines.lake import SplitWatermark, StagedRow, WatermarkRow
from tidegate.pipelines.pictures import bar_of, outcomes, watermarks
from tidegate.pipelines.pictures.svg import (
    Bar,
    Line,
    Picture,
    Span,
    length,
    lying,
    moment,
    round_times,
    stacked,
    step_chart,
    timeline,
)
from tidegate.pipelines.runtime.epochs.history import ReleasedEpoch
from tidegate.pipelines.watermarks import MAX_TIMESTAMP

PLAN = release("e", 7, taken("clicks", 0, 1))


def released(counts: Mapping[str, int], **state: bool) -> ReleasedEpoch:
    staged = StagedRow("insert e", 1, 7, PLAN.digest, 0, "folder", [], dict(counts), {})
    return ReleasedEpoch(PLAN, staged, None, **{"published": True, "superseded": False, **state})


@pytest.mark.parametrize(
    ("epoch", "parts", "said"),
    [
        (
            released(
                {
                    "to:publish": 5,
                    "to:quarantine": 2,
                    "to:drop": 4,
                    "matched": 3,
                    "unmatched:deleted@u": 2,
                    "dropped:key-absent@u": 1,
                    "dropped:where": 3,
                    "violated:small": 2,
                }
            ),
            [("good", 3), ("warn", 3), ("mute", 5), ("wait", 0)],
            "5 to publish, 2 to quarantine, 4 to drop; 3 of them unmatched",
        ),
        (
            released({"to:publish": 5, "to:quarantine": 2}),
            [("good", 5), ("warn", 0), ("mute", 2), ("wait", 0)],
            "5 to publish",
        ),
        (
            released({"to:publish": 5}, published=False, superseded=True),
            [("bad", 5), ("wait", 0)],
            "superseded: 5 to publish",
        ),
        (released({"to:publish": 5}, superseded=True, replaced=True), [("mute", 5), ("wait", 0)], "5 to publish"),
        (replace(released({}), staged=None), [("good", 0), ("warn", 0), ("mute", 0), ("wait", 0)], "no rows"),
    ],
    ids=["published", "of a process", "held and taken further", "replaced by a backfill", "not staged yet"],
)
def test_a_bar_is_an_epoch(epoch: ReleasedEpoch, parts: list[tuple[str, int]], said: str) -> None:
    bar = bar_of(epoch)
    assert bar.parts == parts
    assert said in bar.title
    assert bar.label == "7"


def test_what_each_epoch_left_waiting_is_on_its_bar_and_what_waits_now_behind_all() -> None:
    drawn = "".join(outcomes([released({"to:publish": 3})] * 3, [7, 0, None], waiting=12).parts)
    title = "epoch 7, published: 3 to publish"
    assert re.findall("<title>(.*?)</title>", drawn) == [f"{title}; 7 left waiting", title, title, "12 rows wait"]
    assert [bar.count('class="wait"') for bar in drawn.split("</g>")] == [1, 0, 0, 1, 0]
    scale = float(re.findall('height="([0-9.]+)" class="good"', drawn)[0]) / 3
    assert float(re.findall('height="([0-9.]+)" class="wait"', drawn)[0]) == pytest.approx(7 * scale, abs=0.2)


def split(name: str, timestamp: int, **more: bool) -> SplitWatermark:
    return SplitWatermark(name, timestamp, False, **more)  # type: ignore[arg-type]


def log_row(*splits: SplitWatermark) -> WatermarkRow:
    return WatermarkRow("t", 1, 1, 0, 5, 100, False, splits=[asdict(each) for each in splits])


def test_each_split_has_a_bar_up_to_its_watermark_the_furthest_behind_first() -> None:
    drawn = watermarks(log_row(split("b", 9_000), split("a", 5_000), split("c", 7_000, idle=True)), blocked=["b"])
    assert drawn is not None
    drawn = "".join(drawn.parts)
    names = re.findall('class="name"[^>]*>(.*?)<', drawn)
    assert names == ["a", "c", "b"]
    assert re.findall('class="(good|mute|bad)"', drawn) == ["good", "mute", "bad"]


def test_splits_that_are_too_many_to_draw_are_counted_on_a_last_line() -> None:
    for splits, last in ((30, "s29"), (31, "and 1 further on"), (64, "and 34 further on")):
        drawn = watermarks(log_row(*(split(f"s{number}", 1_000 + number) for number in reversed(range(splits)))))
        assert drawn is not None
        drawn = "".join(drawn.parts)
        names = re.findall('class="name"[^>]*>(.*?)<', drawn)
        assert names[:30] == [f"s{number}" for number in range(30)]
        assert names[-1] == last
        assert drawn.count('class="good"') == 30


def test_splits_that_emitted_no_time_make_no_picture() -> None:
    assert watermarks(log_row(split("a", MAX_TIMESTAMP), SplitWatermark("b", 5, True))) is not None
    assert watermarks(log_row(split("a", MAX_TIMESTAMP))) is None
    assert watermarks(log_row()) is None


def test_a_picture_in_markdown_needs_nothing_beside_it() -> None:
    key = [("good", "published"), ("wait", "waiting")]
    text = replace(outcomes([released({"to:publish": 3})], [1], 1), label="rows", key=key).markdown()
    found = re.fullmatch(r"!\[rows\]\(data:image/svg\+xml;base64,([^)]+)\)", text)
    alone = b64decode(found.group(1)).decode()
    root = ElementTree.fromstring(alone)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert (root.get("width"), root.get("height")) == ("820", "220")
    assert "rect.good" in alone
    assert [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")][-2:] == ["published", "waiting"]
    assert "http" not in alone.replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize(
    ("low", "high", "first"), [(0, 10_000, 0), (500, 7_000, 1_000), (5, 5, 5), (0, 400 * 86_400_000, 0)]
)
def test_marks_stand_at_round_times(low: float, high: float, first: float) -> None:
    marks = round_times(low, high)
    assert marks[0] == first
    assert 1 <= len(marks) <= 8
    assert all(low <= mark <= high for mark in marks)


@pytest.mark.parametrize(
    ("value", "expected"), [(0, "0 ms"), (999, "999 ms"), (1500, "1.5 s"), (600_000, "10 min"), (9_000_000, "2.5 h")]
)
def test_lengths_of_time(value: float, expected: str) -> None:
    assert length(value) == expected


def test_pictures_of_a_single_point_are_whole() -> None:
    for drawn in (
        step_chart([Line("a", "c0", [(5, 5)])], "one", 5),
        timeline([("a", [Span("good", 5, 5, "now")])], "one"),
        stacked([Bar("1", [("good", 0)], "none")], "one"),
        lying([("a", 1, "warn")], "one"),
    ):
        ElementTree.fromstring(drawn.svg)
        assert "nan" not in drawn.svg.lower()
    assert moment(0, 1) == "00:00:00"


def test_a_key_that_is_wider_than_the_picture_goes_on_below() -> None:
    names = [(f"c{number}", f"source {number} " + "x" * 60) for number in range(3)]
    root = ElementTree.fromstring(Picture(100, "none", (), names).svg)
    places = [(float(each.get("x", 0)), float(each.get("y", 0))) for each in root.iter("text")]
    assert [x for x, _ in places] == [167, 167, 167]
    assert [y for _, y in places] == [118, 148, 178]
    assert root.get("viewBox") == "0 0 1040 190"
