"""Epochs that release a span of time again: which rows they take, which epochs they replace, and when they are refused.

A published epoch is replaced as a whole, since the target knows the epoch of a row, and counts are stored by epoch. So
a few rows outside of the requested span may be released again, those that were published together with some of it; they
meet the same versions again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.lake import delta_log
from tidegate.pipelines.lake.commits import appends_only, letting_rows_go
from tidegate.pipelines.lake.releasable import Area, Part, Releasable, joined, just_before, micros, released
from tidegate.pipelines.runtime.epochs import Asked, Lot, ReleasePlan, Span, Taken, union
from tidegate.pipelines.runtime.epochs.history import ReleasedEpoch
from tidegate.pipelines.runtime.epochs.position import Waiting
from tidegate.pipelines.runtime.landed_retention import refuse_removed_span
from tidegate.pipelines.runtime.quarantine import (
    first_landed,
    lots_of,
    quarantined_in,
    refuse_removed,
    removed,
    removed_upto,
)
from tidegate.pipelines.runtime.releasing.event_time import Again, EventTimePlanner, Seen
from tidegate.pipelines.sql.model import Insert
from tidegate.pipelines.watermarks import MAX_TIMESTAMP, MIN_TIMESTAMP
from tidegate.pipelines.watermarks.watermark import instant


@dataclass(frozen=True)
class BackfillPlanner(EventTimePlanner):
    """Plans backfills beside the releases of an event-time INSERT."""

    def backfill(
        self, last: ReleasePlan | None, epochs: Sequence[ReleasedEpoch], spans: Sequence[Span]
    ) -> ReleasePlan | Waiting:
        """The epoch after `last` that takes the rows of `spans`.

        It takes the place of every published epoch that has a row of them, and all of its rows; and it releases what
        the watermark has reached of them and nothing has released yet. P and W stay where they are.
        Raises PlanningError where versions that it would have to join are gone, and BeyondRetention where landed rows
        are.
        """
        insert, lake = self.on_lake.insert, self.on_lake.lake
        seen = self._seen(last)
        if isinstance(seen, Waiting):
            return seen
        drafted = self._drafted(last, seen)
        span, spans, reached = seen.span, union(spans), micros(seen.watermark)
        replaced = [epoch for epoch in epochs if epoch.published and any(touches(epoch, *one) for one in spans)]
        replaced = with_what_they_became(replaced, epochs)
        lots, takes = lots_again(replaced, epochs), list[Taken]()
        for number, (item, stream) in enumerate(zip(drafted.takes, self.on_lake.probes, strict=True)):
            own = replace(item, upto=item.after)
            new = tuple(
                area
                for begin, end in spans
                for area in fresh_areas(begin, min(just_before(end), reached), own.upto, item.upto, span.before)
            )
            without = tuple(area for area in own.ahead if any(area.meets(one) for one in new))
            fresh = tuple(Part((area,), without) for area in new)
            rows, _ = Releasable(own.generation, fresh).measured(stream.path, self.spark)
            own = replace(own, rows=rows, fresh=fresh if rows else ())
            rows_again = sum(each.rows + each.rows_again for each in (epoch.plan.takes[number] for epoch in replaced))
            takes.append(replace(own, again=again(replaced, epochs, number), rows_again=rows_again))
        oldest = min([spans[0][0], *(epoch.oldest for epoch in replaced)])
        plan = replace(
            drafted,
            kind="backfill",
            takes=tuple(takes),
            lots=lots,
            replaces=spans_of(replaced),
            bounds=span,
            asked=Asked(spans),
            oldest=oldest,
        )
        if plan.rows == 0:
            return Waiting(_none_between(insert, spans, seen), seen.waiting)
        again_of = Again(replaced)
        self._refuse_new_snapshot(seen.pins, [pin for epoch in replaced for pin in epoch.plan.pins], again_of)
        self._refuse_lost_versions(seen.pins, oldest, again_of)
        self._refuse_closed_files(replaced)
        quarantined = quarantined_in(epochs) if lots else []
        wanted = [item for item in quarantined if any(lot.holds(item.epoch, item.reason) for lot in lots)]
        gone = removed(quarantined, removed_upto(lake, insert, self.on_lake.quarantine_path))
        refuse_removed(insert.id, gone, wanted)
        taken = [epoch for epoch in epochs if any(lot.first <= epoch.plan.epoch <= lot.last for lot in lots)]
        refuse_removed_span(lake, plan, replaced, min(map(first_landed, taken), default=None))
        return plan

    def unreached(self, last: ReleasePlan | None, spans: Sequence[Span]) -> Waiting | None:
        """The landed rows of `spans` that have to wait, and for what; with `rows` 0 where some may still land; None
        where the watermark has reached all of the spans."""
        seen = self._seen(last)
        if isinstance(seen, Waiting):
            return seen
        reached, rows = micros(seen.watermark), 0
        bounds = [(max(just_before(low), reached), just_before(high)) for low, high in union(spans)]
        if not any(low < high for low, high in bounds):
            return None
        for landed, stream in zip(seen.landed, self.on_lake.probes, strict=True):
            areas = [Area(0, landed.epoch if landed else 0, low, high) for low, high in bounds]
            beyond = Part(tuple(area for area in areas if not area.empty))
            rows += Releasable(landed.generation if landed else 1, (beyond,)).measured(stream.path, self.spark)[0]
        return Waiting(_watermark_text(seen), rows, reached=seen.watermark)

    def _refuse_closed_files(self, replaced: Sequence[ReleasedEpoch]) -> None:
        """Raise PlanningError if rows cannot be taken out of a table, before anything is planned."""
        for path in (self.on_lake.target_path, self.on_lake.quarantine_path) if replaced else ():
            table = delta_log.opened(path)
            if table is not None and appends_only(table):
                raise PlanningError(
                    "no row may leave the table ('delta.appendOnly'), so its epochs cannot be replaced",
                    where=str(path),
                    state="nothing was released; what is published stays",
                    next_command=letting_rows_go(path),
                )
            if table is not None and not table.plain:
                raise PlanningError(
                    "the table has deletion vectors or column mapping, so its epochs cannot be replaced",
                    where=str(path),
                    state="nothing was released; what is published stays",
                    next_command=f"in Spark: ALTER TABLE delta.`{path}` DROP FEATURE deletionVectors",
                )


def _none_between(insert: Insert, spans: Sequence[Span], seen: Seen) -> str:
    none = f"no row of {insert.probe}{' or'.join(map(_between, spans))} can be released"
    return f"{none}; {_watermark_text(seen)}" if seen.waiting and seen.watermark < spans[-1][1] else none


def _between(span: Span) -> str:
    low, high = span
    after = "" if low == MIN_TIMESTAMP else f" from {instant(low)}"
    return after if high == MAX_TIMESTAMP else f"{after} before {instant(high)}"


def _watermark_text(seen: Seen) -> str:
    held = f" (held by {' and '.join(seen.holds)})" if seen.holds else ""
    if seen.watermark == MIN_TIMESTAMP:
        return f"no watermark is emitted yet{held}"
    return f"the watermark stands at {instant(seen.watermark)}{held}"


# --- which epochs a backfill takes the place of ---------------------------------------------------------------------


def fresh_areas(low: int, high: int, upto: int, landed: int, watermark: int) -> tuple[Area, ...]:
    """The rows of a span that no release has taken: of the probe epochs up to `upto`, which releases have read, those
    beyond the watermark; of later epochs all.

    Args:
        low: ms, UTC.
        high: us, UTC: the greatest rowtime of the span that may be released now.
        watermark: ms, UTC: what the releases have reached.
    """
    begin = just_before(low)
    seen = Area(0, upto, max(begin, micros(watermark)), high)
    return tuple(area for area in (seen, Area(upto, landed, begin, high)) if not area.empty)


def touches(epoch: ReleasedEpoch, low: int, high: int) -> bool:
    """Whether a published epoch has a row with low <= rowtime < high (ms). Rows out of quarantine are those of the
    epochs that had them first (`with_what_they_became`)."""
    if epoch.plan.out_of_quarantine:
        return False
    least, greatest = epoch.extent
    return least <= greatest and least <= just_before(high) and greatest > just_before(low)


def spans_of(epochs: Sequence[ReleasedEpoch]) -> tuple[tuple[int, int], ...]:
    """The numbers of epochs as (first, last) of each run of consecutive ones."""
    found: list[tuple[int, int]] = []
    for number in sorted(epoch.plan.epoch for epoch in epochs):
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return tuple(found)


def again(replaced: Sequence[ReleasedEpoch], epochs: Sequence[ReleasedEpoch], number: int) -> tuple[Part, ...]:
    """The landed rows that replaced epochs took of one branch. Releases that followed one another are one part, however
    many they were."""
    chosen = {epoch.plan.epoch for epoch in replaced}
    found: list[Part] = []
    line: list[ReleasePlan] = []
    for epoch in epochs:
        if not (epoch.published or epoch.replaced) or epoch.plan.looks_back:
            continue
        if epoch.plan.epoch in chosen:
            line.append(epoch.plan)
        elif line:
            found.append(_line(line, number))
            line = []
    if line:
        found.append(_line(line, number))
    fills = [epoch.plan for epoch in replaced if epoch.plan.looks_back]
    return joined([*found, *(part for fill in fills for part in fill.takes[number].parts)])


def with_what_they_became(replaced: Sequence[ReleasedEpoch], epochs: Sequence[ReleasedEpoch]) -> list[ReleasedEpoch]:
    """`replaced`, and all published epochs that have joined rows out of their quarantine: these hold rows of theirs, so
    they are replaced, too. What a person has discarded is in no other epoch."""
    found = list(replaced)
    numbers = {epoch.plan.epoch for epoch in found}
    # An epoch takes rows of earlier ones only, so that one look in their order finds all.
    for epoch in epochs:
        taken = any(lot.first <= number <= lot.last for lot in epoch.plan.joined for number in numbers)
        if epoch.published and taken and epoch.plan.epoch not in numbers:
            found.append(epoch)
            numbers.add(epoch.plan.epoch)
    return sorted(found, key=lambda epoch: epoch.plan.epoch)


def lots_again(replaced: Sequence[ReleasedEpoch], epochs: Sequence[ReleasedEpoch]) -> tuple[Lot, ...]:
    """What replaced epochs had taken out of the quarantine of epochs that are not replaced."""
    numbers, quarantined = {epoch.plan.epoch for epoch in replaced}, quarantined_in(epochs)
    wanted = [
        item
        for item in quarantined
        if item.epoch not in numbers and item.taken is not None and item.taken.epoch in numbers and item.taken.joined
    ]
    return lots_of(wanted, quarantined)


def _line(plans: Sequence[ReleasePlan], number: int) -> Part:
    """What a run of consecutive releases took of one branch; what backfills before the last of them took is in none of
    them."""
    first, last = (plan.takes[number] for plan in (plans[0], plans[-1]))
    without = tuple(dict.fromkeys(area for plan in plans for area in plan.takes[number].ahead))
    return released(first.after, last.upto, plans[0].before, plans[-1].watermark, first.since, without)
