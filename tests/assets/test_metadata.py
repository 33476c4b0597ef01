"""What a source asset tells of its time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.pipelines.runtime.handmade import store
from tests.pipelines.sources.sources_help import table
from tidegate.assets.metadata import of_advance
from tidegate.pipelines.lake import Lake, WatermarkRow
from tidegate.pipelines.runtime.landing.advances import Advance, LandedEpoch
from tidegate.pipelines.runtime.landing.alignment import Blocked, GroupPosition

TABLE = table({"at": "TIMESTAMP(3)"}, "scripted", rowtime="at")


def told(tmp_path: Path, late: int | None, aligned: GroupPosition | None) -> dict[str, Any]:
    row = WatermarkRow("t", 1, 1, 0, 5, 100, False, flip_epoch=1, late=late)
    lake, landed = Lake(tmp_path), (LandedEpoch(1, 1, 5, "unbounded", "rows 1-5", True),)
    store(lake, row)
    found = of_advance(lake, TABLE, Advance("t", 1, landed, row, aligned))
    assert next(iter(found)) == "summary"
    assert len(found) <= 1 + 5 + 2, "a sentence, five facts, a picture, and the rest folded"
    details: dict[str, Any] = found.pop("details").value
    return found | details


def test_late_rows_are_reported_where_they_were_counted(tmp_path: Path) -> None:
    assert told(tmp_path, 3, None)["late rows"] == 3
    assert "late rows" not in told(tmp_path, None, None)


def test_what_is_plotted_is_a_number(tmp_path: Path) -> None:
    metadata = told(tmp_path, None, None)
    assert (metadata["watermark (ms)"], metadata["flipped"]) == (100, 1)
    assert metadata["flipped"] is not True


def test_which_splits_are_blocked_by_whom_and_since_when(tmp_path: Path) -> None:
    metadata = told(tmp_path, 0, GroupPosition("g", 10, 90, 100, ("u", "7"), (Blocked("0", 1000, 60, ("u", "7")),)))
    assert (metadata["alignment group"], metadata["blocked splits"]) == ("g", 1)
    assert metadata["group watermark"] == "1970-01-01T00:00:00.090Z"
    assert metadata["blocked"] == [
        {"split": "0", "since": "1970-01-01T00:00:01.000Z", "ahead (ms)": 60, "waits for": "u / 7", "next row": ""}
    ]
    assert metadata["summary"].endswith("next: 1 split once u / 7 has caught up (alignment)")


def test_a_group_that_waits_for_nobody(tmp_path: Path) -> None:
    metadata = told(tmp_path, 0, GroupPosition("g", 10, None, None, None))
    assert (metadata["group watermark"], metadata["blocked splits"]) == ("none", 0)
    assert "alignment group" not in told(tmp_path, 0, None)
