"""Which epochs a backfill takes the place of, and which landed rows are theirs.

A published epoch is replaced as a whole: its rows in the target are known by their epoch, and so is its part of every
count. So a span that a user asks for may take a few rows more, those that were published together with some of its own;
they meet the same versions again.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.pipelines.lake.areas import Area, Part, joined, just_before, micros
from tidegate.pipelines.lake.releasable import released
from tidegate.pipelines.runtime.epochs import BackfillPlan, Lot, ReleasePlan, RequeuePlan
from tidegate.pipelines.runtime.history import ReleasedEpoch
from tidegate.pipelines.runtime.quarantine.quarantined import kept_out, lots_of


def fresh_areas(low: int, high: int, upto: int, landed: int, watermark: int) -> tuple[Area, ...]:
    """What the releases have not taken of a span: of the probe epochs that they have seen (`upto`) what lies beyond the
    watermark, of those that have landed since all of it.

    Args:
        low: ms, UTC.
        high: us, UTC: the greatest rowtime of the span that may leave now.
        watermark: ms, UTC: where the releases stand.
    """
    begin = just_before(low)
    seen = Area(0, upto, max(begin, micros(watermark)), high)
    return tuple(area for area in (seen, Area(upto, landed, begin, high)) if not area.empty)


def touches(epoch: ReleasedEpoch, low: int, high: int) -> bool:
    """Whether a published epoch has a row with low <= rowtime < high (ms). Rows out of quarantine are those of the
    epochs that had them first (`with_what_they_became`)."""
    if isinstance(epoch.plan, RequeuePlan):
        return False
    least, greatest = epoch.extent
    return least <= greatest and least <= just_before(high) and greatest > just_before(low)


def spans_of(epochs: Sequence[ReleasedEpoch]) -> tuple[tuple[int, int], ...]:
    """The numbers of epochs as rows of neighbours: first and last."""
    found: list[tuple[int, int]] = []
    for number in sorted(epoch.plan.epoch for epoch in epochs):
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return tuple(found)


def again(replaced: Sequence[ReleasedEpoch], epochs: Sequence[ReleasedEpoch]) -> tuple[Part, ...]:
    """The landed rows of replaced epochs. Releases that came one after another are one part, however many they were."""
    chosen = {epoch.plan.epoch for epoch in replaced}
    found: list[Part] = []
    line: list[ReleasePlan] = []
    for epoch in epochs:
        if not (epoch.published or epoch.replaced) or not epoch.plan.follows:
            continue
        if epoch.plan.epoch in chosen:
            line.append(epoch.plan)
        elif line:
            found.append(_line(line))
            line = []
    if line:
        found.append(_line(line))
    fills = [epoch.plan for epoch in replaced if isinstance(epoch.plan, BackfillPlan)]
    return joined([*found, *(part for fill in fills for part in fill.parts)])


def with_what_they_became(replaced: Sequence[ReleasedEpoch], epochs: Sequence[ReleasedEpoch]) -> list[ReleasedEpoch]:
    """`replaced`, and all published epochs that have joined rows of their quarantine again: those hold rows of theirs,
    so their place is taken, too. What a person has discarded was in no other epoch."""
    found = list(replaced)
    numbers = {epoch.plan.epoch for epoch in found}
    # An epoch takes rows of earlier ones only, so that one look in their order finds all.
    for epoch in epochs:
        taken = any(lot.first <= number <= lot.last for lot in epoch.plan.lots for number in numbers)
        if epoch.published and taken and epoch.plan.epoch not in numbers:
            found.append(epoch)
            numbers.add(epoch.plan.epoch)
    return sorted(found, key=lambda epoch: epoch.plan.epoch)


def lots_again(replaced: Sequence[ReleasedEpoch], epochs: Sequence[ReleasedEpoch]) -> tuple[Lot, ...]:
    """What replaced epochs had taken out of the quarantine of epochs that stay."""
    numbers, kept = {epoch.plan.epoch for epoch in replaced}, kept_out(epochs)
    wanted = [
        item
        for item in kept
        if item.epoch not in numbers and item.taken is not None and item.taken.epoch in numbers and item.taken.lots
    ]
    return lots_of(wanted, kept)


def _line(plans: Sequence[ReleasePlan]) -> Part:
    """What releases took that came one after another; what backfills took before the last is in none of them."""
    first, last = plans[0], plans[-1]
    without = tuple(dict.fromkeys(area for plan in plans for area in plan.ahead))
    return released(first.after, last.upto, first.before, last.watermark, first.since, without)
