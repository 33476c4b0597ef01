"""Plans made by hand: what they leave out is as in an ordinary release."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tidegate.pipelines.runtime.epochs import Asked, Bounds, ReleasePlan, StateSpan, Taken, all_of

STATE = StateSpan(0, 5, (0, False), (5, False), 0)


def taken(table: str, after: int, upto: int, rows: int = 0, earlier: int = 0, *, loaded: int = 0) -> Taken:
    """All `rows` that landed in after < epoch <= upto; the releases before took `earlier`."""
    return Taken(table, 1, after, upto, rows, earlier, all_of(after, upto), loaded=loaded)


def release(
    insert: str, epoch: int, *takes: Taken, bounds: Bounds | None = None, since: int = 0, **given: Any
) -> ReleasePlan:
    """An epoch that takes this, in event time where there are `bounds`: no row waited up to `since`."""
    if bounds is not None:
        takes = tuple(replace(item, since=since).between(bounds) for item in takes)
    ordinary: dict[str, Any] = {"kind": "release", "instant": 0, "pins": (), "computes": ""}
    ordinary["on_unmatched"] = "quarantine"
    return ReleasePlan(insert=insert, epoch=epoch, takes=takes, bounds=bounds, **{**ordinary, **given})


def asked_for(plan: ReleasePlan, asked: Asked, own: Taken | None = None, **changed: Any) -> ReleasePlan:
    """The same as a plan that a person has asked for: it takes `own` of the probe, or none that landed."""
    return replace(plan, takes=(own or plan.first.nothing(),), asked=asked, **changed)


def shifted(plan: ReleasePlan, after: int | None = None, upto: int | None = None, table: str = "") -> ReleasePlan:
    """The same over other epochs of its first input, or over another table."""
    own = plan.first
    after, upto = own.after if after is None else after, own.upto if upto is None else upto
    own = replace(own, table=table or own.table, after=after, upto=upto, fresh=all_of(after, upto))
    return replace(plan, takes=(own, *plan.takes[1:]))
