"""examples/news_clicks: FLIP-499's example as its README tells it, against plain Python."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.stories.story import put, read
from tidegate.pipelines.testing import Harness

EXAMPLE = Path(__file__).parents[2] / "examples" / "news_clicks"
AFTER = (60_000, 300_000, 600_000, 1_800_000, 3_600_000)
DISORDER = 10_000

Event = tuple[str, int, int]
"""(type, news, ms)"""


def counted(events: Sequence[Event], watermark: int) -> list[tuple[int, int, int]]:
    """What has to be emitted once time has come to `watermark` (ms)."""
    return sorted(
        (news, after, sum(kind == "CLICK" and other == news and at <= time + after for kind, other, at in events))
        for release, news, time in events
        if release == "RELEASE"
        for after in AFTER
        if time + after <= watermark
    )


def random_events(seed: int, news: int, clicks: int) -> list[Event]:
    """In an order that is wrong by less than DISORDER; the last one is a release that makes all others' timers due."""
    chosen, start = random.Random(seed), 1_767_225_600_000
    releases = {number: start + chosen.randrange(1_800_000) for number in range(news)}
    found: list[Event] = [("RELEASE", number, time) for number, time in releases.items()]
    for _ in range(clicks):
        number = chosen.randrange(news)
        found.append(("CLICK", number, releases[number] + chosen.randrange(4_000_000)))
    found.sort(key=lambda event: event[2] + chosen.randrange(DISORDER))
    return [*found, ("RELEASE", news, start + 10_000_000)]


def put_events(name: str, events: Sequence[Event]) -> None:
    put(f"news/{name}.json", [{"type": kind, "news_id": news, "timestamp": time} for kind, news, time in events])


def shown(rows: list[dict]) -> list[tuple[int, int, int]]:
    return sorted((row["news_id"], row["time_after_release"], row["click_number"]) for row in rows)


@pytest.mark.thorough  # test_examples.py runs it as it is shipped
def test_the_files_are_counted(start: Callable[[str], Harness], spark: SparkSession) -> None:
    harness = start("news_clicks")
    events = [(row["type"], row["news_id"], row["timestamp"]) for row in read("news")]
    released = shown(harness.advance())
    assert len(released) == 15
    assert released == counted(events, max(time for _, _, time in events) - DISORDER)

    more = [
        ("CLICK", 104, events[-1][2] + 5),
        ("CLICK", 101, events[-1][2] - DISORDER - 1),
        ("RELEASE", 105, events[-1][2] + 300_000 + DISORDER),
    ]
    put_events("more", more)
    harness.restart()
    assert shown(harness.advance()) == [(104, 60_000, 1), (104, 300_000, 1)]
    late = [row.late for row in harness.lake.staged.rows("insert click_numbers")]
    assert (late[0], late[-1], sum(late)) == (0, 1, 1)  # by the extractor's time

    events, watermark = [*events, *more], more[-1][2] - DISORDER
    docs = (EXAMPLE.parents[1] / "docs" / "process-functions.md").read_text(encoding="utf-8")
    (statement,) = re.findall(r"^    (SELECT _key_news_id, .*)$", docs, re.MULTILINE)
    state = harness.lake.state_path(harness.pipeline.insert("click_numbers"))
    rows = spark.sql(
        statement.replace("SELECT ", "SELECT _epoch, ").replace(".tidegate/lake/state/click_numbers", str(state))
    )
    kept = {row[1]: row for row in sorted(rows.collect())}  # of a key the newest row counts
    clicked = [news for kind, news, _ in events if kind == "CLICK"]
    released = {news: time for kind, news, time in events if kind == "RELEASE"}
    assert {news: (row.release_time, row[3]) for news, row in kept.items()} == {
        news: (time, clicked.count(news) or None) for news, time in released.items()
    }
    assert {news: row[4] or [] for news, row in kept.items()} == {
        news: [time + after for after in AFTER if time + after > watermark] for news, time in released.items()
    }


@pytest.mark.thorough
def test_random_news_in_several_runs(start: Callable[[str], Harness]) -> None:
    events, released = random_events(7, news=30, clicks=3_000), []
    harness = start("news_clicks")
    for file in Path("news").glob("*.json"):
        file.unlink()
    for number in range(3):
        put_events(str(number), events[number * 1_200 : (number + 1) * 1_200])
        released += shown(harness.advance())
    assert sorted(released) == counted(events, events[-1][2] - DISORDER)
    assert len(released) == 150
