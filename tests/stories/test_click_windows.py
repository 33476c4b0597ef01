"""examples/click_windows: windows with a second output for what is late, over epochs, against plain Python."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.stories.story import put, read
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.testing import Harness

SIZE, GAP, DISORDER = 300_000, 600_000, 10_000

Click = tuple[str, str, int]


def windows(clicks: Sequence[Click], watermark: int) -> list[tuple]:
    """5-minute windows that have ended at `watermark`."""
    counts = Counter((user, time - time % SIZE) for user, _, time in clicks)
    return sorted((user, low, low + SIZE, count) for (user, low), count in counts.items() if low + SIZE <= watermark)


def items(clicks: Sequence[Click], watermark: int) -> list[tuple]:
    """The same of items, as SQL shows the start of a window."""
    found = windows([(item, user, time) for user, item, time in clicks], watermark)
    return [(item, datetime(1970, 1, 1) + timedelta(milliseconds=low), count) for item, low, _, count in found]


def visits(clicks: Sequence[Click], watermark: int) -> list[tuple]:
    """Sessions that have ended at `watermark`."""
    found = []
    for user in sorted({user for user, _, _ in clicks}):
        own = sorted((time, item) for other, item, time in clicks if other == user)
        parts: list[list[tuple[int, str]]] = []
        for time, item in own:
            if parts and time <= parts[-1][-1][0] + GAP:
                parts[-1].append((time, item))
            else:
                parts.append([(time, item)])
        for part in parts:
            items = tuple(sorted(Counter(item for _, item in part).items()))
            found.append((user, part[0][0], part[-1][0] + GAP, items))
    return sorted(item for item in found if item[2] <= watermark)


def shown(rows: Sequence[dict[str, Any]], target: str) -> list[tuple]:
    own = [row for row in rows if row["_target"] == target]
    if target == "items_5min":
        return sorted((row["item"], row["window_start"], row["clicks"]) for row in own)
    if target == "visits":
        return sorted((row["user_id"], row["start"], row["end"], tuple(sorted(row["items"].items()))) for row in own)
    return sorted((row["user_id"], row["start"], row["end"], row["clicks"]) for row in own)


def late(harness: Harness, table: str) -> list[Click]:
    rows = lake_rows.read(harness.spark, harness.lake.target_path(harness.pipeline.table(table))).collect()
    return sorted((row["user_id"], row["item"], row["time"]) for row in rows)


@pytest.mark.thorough
def test_windows_go_on_from_epoch_to_epoch(start: Callable[[str], Harness], capsys: pytest.CaptureFixture[str]) -> None:
    harness, chosen = start("click_windows"), random.Random(3)
    released = harness.advance()
    clicks = [(row["user_id"], row["item"], row["time"]) for row in read("clicks")]
    last = max(time for _, _, time in clicks)
    assert shown(released, "clicks_5min") == windows(clicks, last - DISORDER)
    assert shown(released, "items_5min") == items(clicks, last - DISORDER)
    assert len(shown(released, "visits")) == 2
    more = [(chosen.choice(["ann", "bob"]), chosen.choice(["tea", "pot"]), last + chosen.randrange(8_000_000))
            for _ in range(150)]  # fmt: skip
    more.sort(key=lambda click: click[2] + chosen.randrange(DISORDER))
    too_late = ("ann", "cup", last - 2 * GAP)  # both of its windows were emitted
    for number, part in enumerate([[*more[:70], too_late], more[70:]]):
        rows = [dict(zip(("user_id", "item", "time"), click, strict=True)) for click in part]
        put(f"clicks/2{number}.json", rows)
        released += harness.advance()
    assert capsys.readouterr().out.count(f"late> +I[ann, cup, {too_late[2]}]") == 2
    come_to = max(time for _, _, time in more) - DISORDER
    assert shown(released, "clicks_5min") == windows([*clicks, *more], come_to)
    assert shown(released, "items_5min") == items([*clicks, *more], come_to)
    assert shown(released, "visits") == visits([*clicks, *more], come_to)
    assert late(harness, "late_clicks") == late(harness, "late_visits") == [too_late]
    for insert in ("clicks_5min", "visits", "items_5min"):
        assert [row.late for row in harness.lake.staged.rows(f"insert {insert}")] == [0, 1, 0]
