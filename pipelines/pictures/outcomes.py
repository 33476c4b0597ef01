"""What the rows of each epoch of an INSERT found, and how many wait: stacked bars, the newest at the right."""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.pictures.svg import Bar, stacked
from pipelines.runtime.history import ReleasedEpoch

KEY = (("good", "matched"), ("warn", "unmatched"), ("mute", "kept out otherwise, or replaced"), ("bad", "held"))
"""What the colours mean. Rows without a match are unmatched wherever they went: published, quarantined, or dropped by
INNER. What a process gives has matched where it is published."""

WAITING = ("wait", "waiting")

_LAST = 30


def outcomes(epochs: Sequence[ReleasedEpoch], waiting: int) -> str:
    """The last epochs, and behind them the rows that wait now; an SVG element."""
    bars = [bar_of(epoch) for epoch in epochs[-_LAST:]]
    bars.append(Bar("now", [("wait", float(waiting))], f"{waiting:,} rows wait"))
    return stacked(bars, "Rows of each epoch, by what they found")


def bar_of(epoch: ReleasedEpoch) -> Bar:
    """One epoch's rows: matched, unmatched, kept out otherwise; all of them in one colour where it is held or
    replaced."""
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
    told = ", ".join(f"{count:,} to {name}" for name, count in going.items() if count) or "no rows"
    missed = f"; {unmatched:,} of them unmatched" if unmatched else ""
    return Bar(number, parts, f"epoch {number}, {epoch.state}: {told}{missed}")


def _is_unmatched(outcome: str) -> bool:
    """Whether rows with this outcome found no version; INNER drops them where they are published otherwise."""
    return outcome.startswith("unmatched:") or (outcome.startswith("dropped:") and outcome != "dropped:where")
