"""Pictures of an INSERT's epochs and of a source's splits: SVG, for Dagster's metadata and for `tidegate report`.

`outcomes`: stacked bars, what the rows of each epoch of an INSERT found, and how many it left waiting; the newest at
the right, and behind it those that wait now. `watermarks`: how far each split of a source has come.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.pipelines.lake import WatermarkRow
from tidegate.pipelines.pictures.svg import STYLE, Bar, Picture, Span, stacked, timeline
from tidegate.pipelines.runtime.epochs.history import ReleasedEpoch
from tidegate.pipelines.runtime.splits import stored_splits
from tidegate.pipelines.text import counted
from tidegate.pipelines.watermarks import MAX_TIMESTAMP, MIN_TIMESTAMP
from tidegate.pipelines.watermarks.watermark import instant

OUTCOMES_KEY = (
    ("good", "matched"),
    ("warn", "unmatched"),
    ("mute", "quarantined or dropped otherwise, or replaced"),
    ("bad", "held"),
    ("wait", "waiting"),
)
"""What the colours mean. Rows without a match are 'unmatched' wherever they went: published, quarantined, or dropped by
INNER. Rows that a process publishes count as matched. 'Waiting' are rows that had landed before an epoch was planned,
and that it left for a later one."""

LAST_OUTCOMES = 30
"""Epochs that are drawn."""


def outcomes(epochs: Sequence[ReleasedEpoch], left: Sequence[int | None], waiting: int) -> Picture:
    """The epochs as bars, with the rows that each has `left` waiting (None: not known, not drawn), and after them the
    rows that wait now."""
    bars = [bar_of(epoch, rows) for epoch, rows in zip(epochs, left, strict=True)]
    now = f"{counted(waiting, 'row')} {'waits' if waiting == 1 else 'wait'}"
    bars.append(Bar("now", [("wait", float(waiting))], now))
    return stacked(bars, "Rows of each epoch, by what they found, and those that it left waiting", OUTCOMES_KEY)


def bar_of(epoch: ReleasedEpoch, left: int | None = None) -> Bar:
    """One epoch's rows: matched, unmatched, quarantined or dropped for another reason; in one colour if the epoch is
    held or was replaced. On top of them the rows that it `left` waiting."""
    counts = epoch.staged.counts if epoch.staged else {}
    going = {name: counts.get(f"to:{name}", 0) for name in ("publish", "quarantine", "drop")}
    rows = sum(going.values())
    matched = counts.get("matched", going["publish"])
    unmatched = sum(count for name, count in counts.items() if _is_unmatched(name))
    if epoch.replaced:
        parts = [("mute", float(rows))]
    elif epoch.state in ("held", "superseded"):
        parts = [("bad", float(rows))]
    else:
        parts = [("good", float(matched)), ("warn", float(unmatched)), ("mute", float(rows - matched - unmatched))]
    number = str(epoch.plan.epoch)
    text = ", ".join(f"{count:,} to {name}" for name, count in going.items() if count) or "no rows"
    missed = f"; {unmatched:,} of them unmatched" if unmatched else ""
    waits = f"; {left:,} left waiting" if left else ""
    return Bar(number, [*parts, ("wait", float(left or 0))], f"epoch {number}, {epoch.state}: {text}{missed}{waits}")


def _is_unmatched(outcome: str) -> bool:
    """Whether rows with this outcome found no version (INNER drops them if the policy is `publish`)."""
    return outcome.startswith("unmatched:") or (outcome.startswith("dropped:") and outcome != "dropped:where")


SPLITS_KEY = (("good", "active"), ("mute", "idle or ended"), ("bad", "held back by its alignment group"))

_MOST_SPLITS = 30
"""Splits that are drawn: those furthest behind. A last line counts the others."""


def watermarks(last: WatermarkRow, blocked: Sequence[str] = ()) -> Picture | None:
    """The splits that have emitted a time, the furthest behind first; None where none has."""
    timed = [split for split in stored_splits(last) if MIN_TIMESTAMP < split.timestamp < MAX_TIMESTAMP]
    if not timed:
        return None
    shown = sorted(timed, key=lambda split: split.timestamp)[:_MOST_SPLITS]
    low, high = shown[0].timestamp, max(split.timestamp for split in timed)
    begin = low - max((high - low) // 10, 1000)
    rows = []
    for split in shown:
        css = "bad" if split.split in blocked else "mute" if split.idle or split.ended else "good"
        rows.append((split.split, [Span(css, float(begin), float(split.timestamp), instant(split.timestamp))]))
    if len(timed) > len(shown):
        rows.append((f"and {len(timed) - len(shown)} further on", []))
    return timeline(rows, "The watermark of each split", SPLITS_KEY)


__all__ = ["LAST_OUTCOMES", "OUTCOMES_KEY", "STYLE", "Picture", "bar_of", "outcomes", "watermarks"]
