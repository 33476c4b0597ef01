"""The ledger of rows: each landed probe row is in one of four places, counted from control tables alone.

landed = published + quarantined + dropped + waiting        (per INSERT, exactly)

UNNEST makes several rows of one; those beyond the first are counted apart, and added to the left side.

Of a process: landed = handled + left out + waiting, over all inputs; its output rows are counted apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from tidegate.pipelines.lake import Lake, LedgerRow
from tidegate.pipelines.lake.delta_log import committed
from tidegate.pipelines.lake.records import restored
from tidegate.pipelines.lake.stream import Generation, Stream
from tidegate.pipelines.location import Location
from tidegate.pipelines.records.kinds import Count, fact
from tidegate.pipelines.runtime.epochs import ReleasePlan, Taken, insert_owner, stored_plan
from tidegate.pipelines.runtime.epochs.history import ReleasedEpoch, history, newest_epochs, target_of
from tidegate.pipelines.runtime.epochs.processed import (
    Given,
    InputRows,
    Processed,
    TakenSoFar,
    input_rows,
    processed_by,
)
from tidegate.pipelines.runtime.quarantine import (
    QuarantinedSum,
    quarantined_by_epoch,
    quarantined_in,
    removed,
    removed_upto,
    summed,
)

if TYPE_CHECKING:
    from tidegate.pipelines.sql.compile import Pipeline
    from tidegate.pipelines.sql.model import Insert


@dataclass(frozen=True)
class WhereRowsAre:
    """The landed rows of one INSERT's probe; of a process, those of all its inputs.

    Attributes:
        landed: rows of the probe's generation that the INSERT reads, by the watermark log.
        matched: published rows that had a version in every build; of a process, rows that it has handled.
        null_extended: published rows without one, by `why@alias` (policy `publish`, LEFT).
        quarantined: rows in quarantine or discarded, by `why@alias`, `violated:constraint`, `time-null` or `discarded`.
        released_again: rows that later epochs have taken out of quarantine, by the reason for which they had been
            there; each is counted a second time in the place where it is now.
        dropped: rows that WHERE (`where`) or INNER (`why@alias`, policy `publish`) left out.
        waiting: not released yet, or in an epoch that is not published; `held` of them in one that the gate holds.
        outputs: of a process, the rows that it has written to each output, and where they went.
        branches: of a UNION ALL, the rows of each branch, by the newest plan.
        further: rows that UNNEST gave beyond one for each landed row: each of them is in a place, too.
    """

    insert: str
    probe: str
    generation: int
    landed: Count
    matched: Count = 0
    null_extended: Mapping[str, int] = field(default_factory=dict)
    quarantined: Mapping[str, int] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    waiting: Count = 0
    held: Count = 0
    released_again: Mapping[str, int] = field(default_factory=dict)
    outputs: tuple[Given, ...] = ()
    branches: tuple[InputRows, ...] = ()
    further: Count = 0

    @property
    @fact()
    def published(self) -> Count:
        """Rows in the target; of a process, in all its outputs."""
        return sum(each.published for each in self.outputs) if self.outputs else self._done

    @property
    def rows_quarantined(self) -> int:
        """Rows in quarantine or discarded; of a process, output rows."""
        return sum(self.quarantined.values()) + sum(each.quarantined for each in self.outputs)

    def into(self, output: int) -> Given:
        """Where the rows written to the target are; of a process, those of one of its outputs."""
        if self.outputs:
            return self.outputs[output]
        return Given(published=self.published, quarantined=self.rows_quarantined)

    @property
    def _done(self) -> int:
        return self.matched + sum(self.null_extended.values())

    @property
    def in_quarantine(self) -> int:
        """Rows of the quarantine's table, which rows that were released again do not leave."""
        return sum(self.quarantined.values()) + sum(self.released_again.values())

    @property
    def accounted(self) -> int:
        """Rows that are in one of the places."""
        return self._done + sum(self.quarantined.values()) + sum(self.dropped.values()) + self.waiting

    @property
    @fact()
    def balanced(self) -> bool:
        """Whether every landed row, and each that UNNEST made of it, is in exactly one place."""
        return self.accounted == self.landed + self.further


@dataclass(frozen=True)
class Done:
    """What epochs of an INSERT have done with rows; see WhereRowsAre. `released`: the greatest probe epoch that a
    published one has taken. `in_time`: the rows that published epochs of event time, or of a UNION ALL, took straight
    from what landed; None if there is no such epoch. `decided`: quarantined rows that were released or discarded.
    `sums`: what was quarantined; of rows decided about, those of the last DECISIONS decisions: the ones after epoch
    `since`, 0 for all. `processed`: the rows of a process. `further`: rows that UNNEST gave beyond one for each."""

    released: int = 0
    matched: int = 0
    null_extended: Mapping[str, int] = field(default_factory=dict)
    quarantined: Mapping[str, int] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    released_again: Mapping[str, int] = field(default_factory=dict)
    in_time: int | None = None
    decided: int = 0
    sums: tuple[QuarantinedSum, ...] = ()
    since: int = 0
    processed: Processed = Processed()
    further: int = 0

    @classmethod
    def of(cls, row: LedgerRow) -> Done:
        """Read back from a checkpoint."""
        return restored(cls, row.sums, row.place)

    def decided_upto(self, epoch: int) -> int | None:
        """The quarantined rows that epochs up to one have released or discarded; None if all epochs have to be read to
        find out."""
        if self.since > epoch:
            return None
        return self.decided - sum(item.rows for item in self.sums if item.decided[0] > epoch)

    @property
    def undecided(self) -> list[QuarantinedSum]:
        """The quarantined rows that may still be released; none for a process."""
        return [item for item in self.sums if item.state == "open" and item.probe_generation]

    def __add__(self, other: Done) -> Done:
        sums, since = _last_decisions(summed([*self.sums, *other.sums]))
        return Done(
            max(self.released, other.released),
            self.matched + other.matched,
            dict(Counter(self.null_extended) + Counter(other.null_extended)),
            dict(Counter(self.quarantined) + Counter(other.quarantined)),
            dict(Counter(self.dropped) + Counter(other.dropped)),
            dict(Counter(self.released_again) + Counter(other.released_again)),
            None if self.in_time is other.in_time is None else (self.in_time or 0) + (other.in_time or 0),
            self.decided + other.decided,
            sums,
            max(since, self.since, other.since),
            self.processed + other.processed,
            self.further + other.further,
        )


DECISIONS = 500
"""How many of the last epochs that have decided about quarantined rows a checkpoint holds."""


def done_by(epochs: Sequence[ReleasedEpoch]) -> Done:
    """What epochs have done with rows. Each earlier epoch to which one of them refers (a backfill, rows out of
    quarantine) must be among them."""
    released, matched, further, extended, dropped = 0, 0, 0, Counter[str](), Counter[str]()
    for epoch in epochs:
        if not epoch.published or epoch.staged is None:
            continue
        released = max(released, epoch.plan.first.upto)
        counts, further = epoch.staged.counts, further + epoch.staged.further
        dropped.update(_reasons(counts, "dropped:"))
        if epoch.plan.state is not None:  # the function has taken them; what it gave are other rows
            matched += counts.get("processed", 0)
            continue
        matched += counts.get("matched", 0)
        if epoch.plan.on_unmatched == "publish":
            extended.update(_reasons(counts, "unmatched:"))
    quarantined, again = Counter[str](), Counter[str]()
    groups = quarantined_in(epochs)
    for item in groups:
        if item.plan.state is not None:  # rows of its function's own
            continue
        if item.state == "released":
            again[item.short] += item.rows
        else:
            quarantined["discarded" if item.state == "discarded" else item.short] += item.rows
    numbered = {epoch.plan.epoch: epoch for epoch in epochs}
    every = [QuarantinedSum.of(item, numbered[item.epoch]) for item in groups]
    sums, since = _last_decisions(summed(every))
    plans = [epoch.plan for epoch in epochs if epoch.published]
    in_time = [plan.rows_landed for plan in plans if plan.bounds or len(plan.branches) > 1]
    return Done(
        released,
        matched,
        dict(extended),
        dict(quarantined),
        dict(dropped),
        dict(again),
        sum(in_time) if in_time else None,
        sum(item.rows for item in every if item.state != "open"),
        sums,
        since,
        processed_by(epochs),
        further,
    )


def _last_decisions(found: tuple[QuarantinedSum, ...]) -> tuple[tuple[QuarantinedSum, ...], int]:
    """The sums with the last DECISIONS decisions alone, and the last epoch whose decisions were left out (0 for
    none)."""
    since = max([0, *sorted({item.decided[0] for item in found if item.state != "open"})[:-DECISIONS]])
    return tuple(item for item in found if item.state == "open" or item.decided[0] > since), since


CHECKPOINT = 100
"""Epochs of an INSERT from one checkpoint to the next; at most twice as many are read to make one."""


def checkpoint(lake: Lake, insert: str, target: Location | None, at: int, *, looked_back: bool = False) -> bool:
    """Store the sums of an INSERT's epochs as a checkpoint, if the last one is more than CHECKPOINT epochs old; or if
    `looked_back`: an epoch since has changed what earlier ones count for. Returns whether one was stored. An
    unpublished newest epoch is left out, since its rows may still go anywhere. `target`: where the target's table lies;
    `at`: ms, UTC.

    An INSERT with many epochs and no checkpoint gets several, each made from the one before. Where an epoch looks back,
    all epochs are read, once: the new checkpoint replaces it.
    """
    owner = insert_owner(insert)
    newest, stored = lake.epochs.last(owner), lake.ledger.last(owner)
    left = 0 if newest is None else newest.epoch - (stored.epoch if stored else 0)
    if newest is None or (left <= CHECKPOINT and not looked_back):
        return False
    upto = None if looked_back or left <= 2 * CHECKPOINT else newest.epoch - left + CHECKPOINT + 1
    before, epochs = since_checkpoint(lake, insert, target, upto)
    settled = epochs if epochs and upto is None and epochs[-1].published else epochs[:-1]
    if not settled:
        return False
    plan = settled[-1].plan
    row = LedgerRow(owner, plan.generation, plan.epoch, at, plan.digest, asdict(before + done_by(settled)))
    return lake.ledger.append([row], application=lake.application(owner, "ledger", plan.generation), version=plan.epoch)


def looked_back(lake: Lake, insert: str, target: Location) -> bool:
    """Whether an epoch since the newest checkpoint has looked back, and is in the target; False if a checkpoint has to
    be made anyway."""
    owner = insert_owner(insert)
    newest, stored = lake.epochs.last(owner), lake.ledger.last(owner)
    if newest is None or stored is None or newest.epoch - stored.epoch > CHECKPOINT:
        return False
    plans = map(stored_plan, lake.epochs.rows(owner, since=stored.epoch + 1))
    back = [plan.epoch for plan in plans if plan.looks_back]
    return bool(back) and min(back) <= committed(target, lake.application(owner, "publish", newest.generation))


def since_checkpoint(
    lake: Lake, insert: str, target: Location | None, upto: int | None = None
) -> tuple[Done, list[ReleasedEpoch]]:
    """The sums of the newest checkpoint, and the epochs after it, up to `upto`. Without a checkpoint that can be used:
    no sums, and all epochs. One cannot be used if it belongs to another history, or if a published epoch after it looks
    back, which may have changed what earlier ones count for."""
    owner = insert_owner(insert)
    stored = lake.ledger.last(owner)
    if stored is not None:
        last = lake.epochs.rows(owner, generation=stored.generation, epoch=stored.epoch)
        epochs = history(lake, insert, target, stored.epoch + 1, upto)
        same = len(last) == 1 and last[0].digest == stored.plan_digest
        on = (not epoch.plan.looks_back or not epoch.published for epoch in epochs)
        if same and all(on):
            return Done.of(stored), epochs
    return Done(), history(lake, insert, target, upto=upto)


def newest_of(lake: Lake, insert: str, target: Location | None) -> tuple[ReleasedEpoch | None, WhereRowsAre | None]:
    """The newest epoch of an INSERT, and where the rows of its probe are; None before the first plan."""
    before, epochs = since_checkpoint(lake, insert, target)
    newest = next(iter(epochs[-1:] or newest_epochs(lake, insert, target)), None)
    if newest is None:
        return None, None
    return newest, where_rows_are(lake, insert, newest.plan.probe, epochs, newest, before)


def all_done(lake: Lake, insert: str, target: Location | None) -> Done:
    """What all epochs of an INSERT have done with rows."""
    before, epochs = since_checkpoint(lake, insert, target)
    return before + done_by(epochs)


def removed_rows(lake: Lake, pipeline: Pipeline, insert: Insert, done: Done) -> int:
    """The rows that retention has taken out of an INSERT's quarantine, whose epochs have `done` so much."""
    upto = removed_upto(lake, insert, lake.quarantine_path(pipeline.table(insert.target), insert))
    rows = done.decided_upto(upto) if upto else 0
    return (
        sum(item.rows for item in removed(quarantined_by_epoch(lake, pipeline, insert), upto)) if rows is None else rows
    )


def sums_of(
    lake: Lake, pipeline: Pipeline, insert: Insert, *, by_epoch: bool = False, output: str = ""
) -> Sequence[QuarantinedSum]:
    """The rows that an INSERT has quarantined, summed, or one item for each epoch. `output`: the second output of a
    process; its rows have no checkpoint, so every epoch is read."""
    done = None if by_epoch or output else all_done(lake, insert.id, target_of(lake, pipeline, insert.id))
    if done is not None and not done.since:
        return summed(item.shown for item in done.sums)
    found = quarantined_by_epoch(lake, pipeline, insert)
    each = [QuarantinedSum.of(item).shown for item in found if item.output == output]
    return each if by_epoch else summed(each)


def where_rows_are(
    lake: Lake,
    insert: str,
    probe: str,
    epochs: Sequence[ReleasedEpoch],
    newest: ReleasedEpoch | None = None,
    before: Done = Done(),
) -> WhereRowsAre:
    """Count the rows of the probe for one INSERT, from its `epochs` and what earlier ones have done (`before`); of a
    process those of all inputs. `newest`: its newest epoch, if that is not among `epochs`."""
    newest = epochs[-1] if epochs else newest
    if newest is None:
        return nothing_done(lake, insert, probe)
    plan = newest.plan
    inputs = [Stream(lake, item.table).generation(item.generation) for item in plan.branches]
    done, landed = before + done_by(epochs), sum(own.sums().rows for own in inputs)
    held = 0
    for each in (epoch.plan for epoch in epochs if epoch.state == "held"):
        held += each.rows_waiting
    if done.in_time is None:
        waiting = landed - (inputs[0].sums(done.released).rows if done.released else 0)
    else:
        waiting = landed - done.in_time
    taken, others = done.processed.taken, [item.table for item in plan.takes[len(plan.branches) :]]
    for rows in (taken.get(table, TakenSoFar()).of(lake, table) for table in others):
        landed, waiting = landed + rows.landed, waiting + rows.waiting
    return WhereRowsAre(
        insert=insert,
        probe=probe,
        generation=plan.first.generation,
        landed=landed,
        matched=done.processed.read if others else done.matched,
        null_extended=done.null_extended,
        quarantined=done.quarantined,
        dropped=done.dropped,
        waiting=waiting,
        held=held,
        released_again=done.released_again,
        outputs=done.processed.given if taken else (),
        branches=tuple(
            input_rows(lake, item.table, item.generation, item.taken if newest.published else item.earlier)
            for item in (plan.branches if len(plan.branches) > 1 else ())
        ),
        further=done.further,
    )


def nothing_done(lake: Lake, insert: str, probe: str, names: Sequence[str] = ()) -> WhereRowsAre:
    """The rows of an INSERT, or a process, that has planned nothing yet: all of them wait. `names`: the tables that it
    reads, if these are not those of its probe."""
    branches = probe.split(" and ")  # of a UNION ALL several: no table's name has a space
    found = tuple(input_rows(lake, name) for name in names or branches)
    landed, united = sum(each.landed for each in found), len(branches) > 1
    return WhereRowsAre(insert, probe, found[0].generation, landed, waiting=landed, branches=found if united else ())


def left_waiting(lake: Lake, epochs: Sequence[ReleasedEpoch]) -> list[int | None]:
    """For each of these epochs, how many rows it left waiting: rows that had landed before its plan's instant, and that
    neither it nor an earlier epoch takes. Rows of a held epoch do not count as waiting. Of a process, rows of all
    inputs.

    By plans and watermark logs alone; None where they do not give the exact number.
    """
    found: list[int | None] = []
    for plan in (epoch.plan for epoch in epochs):
        left = [_left_by(Stream(lake, item.table).generation(item.generation), plan, item) for item in plan.takes]
        found.append(None if None in left else sum(rows or 0 for rows in left))
    return found


def _left_by(own: Generation, plan: ReleasePlan, item: Taken) -> int | None:
    """The rows of a table that a plan left waiting: it takes `item` of it. None if an epoch is missing in the log."""
    newest, upto = own.last, item.upto
    landed = newest.epoch if newest is not None else 0
    if upto > landed or own.sums().epochs != landed:
        return None

    # What a plan takes had landed, whatever another machine's clock said of when.
    seen = own.landed_before(plan.instant, upto)
    rows = own.sums(seen).rows
    return rows - item.taken if item.taken <= rows else None


def _reasons(counts: Mapping[str, int], prefix: str) -> dict[str, int]:
    return {name.removeprefix(prefix): number for name, number in counts.items() if number and name.startswith(prefix)}
