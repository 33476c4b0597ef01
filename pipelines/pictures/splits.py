"""How far each split of a source has come: a bar a split, from the furthest behind to its own watermark."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.pipelines.lake import WatermarkRow
from tidegate.pipelines.pictures.svg import Span, timeline
from tidegate.pipelines.runtime.splits import stored_splits
from tidegate.pipelines.watermarks import MAX_TIMESTAMP, MIN_TIMESTAMP
from tidegate.pipelines.watermarks.watermark import instant

KEY = (("good", "active"), ("mute", "idle or ended"), ("bad", "held back by its alignment group"))

_MOST = 30
"""Splits that are drawn: those furthest behind. A last line counts the others."""


def watermarks(last: WatermarkRow, blocked: Sequence[str] = ()) -> str | None:
    """The splits that have told a time, the furthest behind first; an SVG element, None where none has."""
    timed = [split for split in stored_splits(last) if MIN_TIMESTAMP < split.timestamp < MAX_TIMESTAMP]
    if not timed:
        return None
    shown = sorted(timed, key=lambda split: split.timestamp)[:_MOST]
    low, high = shown[0].timestamp, max(split.timestamp for split in timed)
    begin = low - max((high - low) // 10, 1000)
    rows = []
    for split in shown:
        css = "bad" if split.split in blocked else "mute" if split.idle or split.ended else "good"
        rows.append((split.split, [Span(css, float(begin), float(split.timestamp), instant(split.timestamp))]))
    if len(timed) > len(shown):
        rows.append((f"and {len(timed) - len(shown)} further on", []))
    return timeline(rows, "The watermark of each split")
