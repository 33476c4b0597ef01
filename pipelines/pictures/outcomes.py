"""Where the rows of each epoch of an INSERT went, and how many wait: stacked bars, the newest at the right."""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.pictures.svg import Bar, stacked
from pipelines.runtime.history import ReleasedEpoch

KEY = (("good", "published"), ("warn", "quarantined"), ("mute", "dropped or replaced"), ("bad", "held"))
"""What the colours mean."""

WAITING = ("wait", "waiting")

_LAST = 30


def outcomes(epochs: Sequence[ReleasedEpoch], waiting: int) -> str:
    """The last epochs, and behind them the rows that wait now; an SVG element."""
    bars = [bar_of(epoch) for epoch in epochs[-_LAST:]]
    bars.append(Bar("now", [("wait", float(waiting))], f"{waiting:,} rows wait"))
    return stacked(bars, "Rows of each epoch, by where they went")


def bar_of(epoch: ReleasedEpoch) -> Bar:
    """One epoch's rows: published, quarantined, dropped; all of them in one colour where it is held or replaced."""
    counts = epoch.staged.counts if epoch.staged else {}
    going = {name: counts.get(f"to:{name}", 0) for name in ("publish", "quarantine", "drop")}
    if epoch.replaced:
        parts = [("mute", float(sum(going.values())))]
    elif epoch.state in ("held", "superseded"):
        parts = [("bad", float(sum(going.values())))]
    else:
        colours = {"publish": "good", "quarantine": "warn", "drop": "mute"}
        parts = [(colours[name], float(count)) for name, count in going.items()]
    number = str(epoch.plan.epoch)
    told = ", ".join(f"{count:,} to {name}" for name, count in going.items() if count) or "no rows"
    return Bar(number, parts, f"epoch {number}, {epoch.state}: {told}")
