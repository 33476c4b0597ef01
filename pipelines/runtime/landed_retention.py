"""'landed.retention': landed rows of a probe that nobody needs any more leave its table.

What is removed is always the oldest epochs of the newest generation, as a whole. The first epoch that stays is one that
landed within the retention, or is still needed: by an INSERT of the lake that has not released it (in event time: some
of its rows wait for their time), by a process that has not read it, by a newest plan that is not published, or by rows
in quarantine that nobody has released or discarded. How far removal has gone is a mark in the table's log
(`tidegate.pipelines.lake.stream`), set by the commit that removes the files. Whatever needs removed rows later is
refused: a backfill, a new INSERT, rows of a discarded epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.pipelines.commands import NextCommand
from tidegate.pipelines.connectors.options import LANDED_RETENTION
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import BeyondRetention
from tidegate.pipelines.lake import Lake, delta_log
from tidegate.pipelines.lake.adopt import Epochs, replace, without
from tidegate.pipelines.lake.by_name import TableState
from tidegate.pipelines.lake.delta_log import committed
from tidegate.pipelines.lake.releasable import whole_up_to
from tidegate.pipelines.lake.stream import Generation, Removed, Stream
from tidegate.pipelines.location import Location, dataset_of
from tidegate.pipelines.runtime.epochs import ReleasePlan, Taken, insert_owner, stored_plan
from tidegate.pipelines.runtime.epochs.history import ReleasedEpoch, newest_plans, target_of
from tidegate.pipelines.runtime.ledger import all_done
from tidegate.pipelines.runtime.retention import NOT_PLAIN, WORTH_IT, OldRows, Retained
from tidegate.pipelines.text import counted
from tidegate.pipelines.watermarks.watermark import instant

AT_ONCE = 10_000_000
"""About how many rows one commit removes, rounded up to a whole epoch."""

STEP = 1_000
"""Epochs of the watermark log that are read together."""


@dataclass(frozen=True)
class LandedRetention(OldRows):
    """Removes landed rows of probes. The caller holds the table's lease, and those of `readers`."""

    option = LANDED_RETENTION
    what = "landed rows"

    def readers(self, table: str) -> list[str]:
        """The INSERTs and processes of the script and of the lake that read a table, by their owners' names."""
        found = [insert.id for insert in self.pipeline.inserts if table in insert.inputs]
        found += [plan.insert for plan in newest_plans(self.lake) if any(item.table == table for item in plan.takes)]
        return [insert_owner(insert) for insert in dict.fromkeys(found)]

    def apply(self, table: Table, retention: timedelta) -> Retained:
        """Remove the rows that may go, in one commit; about AT_ONCE of them at most. Raises LakeError."""
        stream = Stream(self.lake, table.name)
        last, opened = stream.newest, stream.table
        generation = last.generation if last else 1
        nothing = partial(self.nothing, table.name, generation)
        if last is None:
            return nothing("nothing has landed")
        limit = self._asked_for(table, generation)
        if isinstance(limit, str):
            return nothing(limit)
        own = stream.generation(generation)
        before = own.removed
        after = before.epoch or 0
        upto, more = self._old(own, after, min(limit[0], last.epoch), self.since(retention))
        if opened is not None and not opened.plain:
            return nothing(NOT_PLAIN)
        if opened is None or own.landed(after, upto) == 0:
            held_by = f": {limit[1]}" if limit[0] <= upto and limit[0] < last.epoch else ""
            return nothing(f"no row may go{held_by}")
        landed = own.landed(0, upto) - (before.rows or 0)
        there = own.there(upto)
        if there != landed:
            return nothing(
                f"of {counted(landed, 'row')} that landed up to epoch {upto}, the table has {there:,}: tidegate verify"
            )
        found = delta_log.data_files(opened, generation, -1, upto)
        examined = sum(file.rows or 0 for file in found.files)
        if not found.exact and landed < examined * WORTH_IT:
            upto = whole_up_to(opened, generation, upto)
            landed = own.landed(0, upto) - (before.rows or 0)
            if upto <= after or landed == 0:
                return nothing("few rows may go, which is not worth writing the rest of their files anew")
        removed = self._removed(opened, own, upto, before, landed)
        return Retained(table.name, generation, examined, removed, what=self.what, more=more)

    def _removed(self, opened: TableState, own: Generation, upto: int, before: Removed, rows: int) -> int:
        """Remove all rows of the epochs up to `upto` and set the mark, in one commit."""
        path, epochs = own.path, Epochs(own.number, [(0, upto)])
        old, remaining = without(opened, path, epochs)
        latest = _latest(opened.paths(old), epochs)
        if before.time is not None:
            latest = before.time if latest is None else max(latest, before.time)
        marks = own.marks(Removed(latest, upto, rows + before.rows))
        replace(path, path, remaining, old, note=f"{LANDED_RETENTION}: {counted(rows, 'row')} went", marks=marks)
        return rows

    def _old(self, own: Generation, after: int, upto: int, oldest: int) -> tuple[int, bool]:
        """The last epoch, up to `upto`, up to which all epochs landed at or before `oldest` (ms, UTC); and whether
        there are more of them, as the search ends after enough rows."""
        rows = 0
        while after < upto:
            log = own.log(after + 1, min(after + STEP, upto))
            for row in log:
                if row.epoch != after + 1 or row.landed_at > oldest:
                    return after, False
                if rows >= AT_ONCE:
                    return after, True
                after, rows = row.epoch, rows + row.rows
            if not log:
                return after, False
        return after, False

    # --- who still asks -------------------------------------------------------------------------------------------

    def _asked_for(self, table: Table, generation: int) -> tuple[int, str] | str:
        """The last epoch that nobody needs, nor any before it, and who needs the next one; or why that cannot be known
        yet."""
        newest = self.lake.epochs.last(table.name)
        if table.parts and (newest is None or newest.plan["ranges"]["part"] < len(table.parts) - 1):
            return "its last table has not begun: where it does is read from the rows before it"
        found: list[tuple[int, str]] = []
        for owner in self.readers(table.name):
            limits = self._asked_by(owner, table.name, generation)
            if isinstance(limits, str):
                return limits
            found += limits
        return min(found, default=(0, "nobody has read it"))

    def _asked_by(self, owner: str, table: str, generation: int) -> list[tuple[int, str]] | str:
        """The same for one INSERT or process."""
        insert, row = owner.removeprefix("insert "), self.lake.epochs.last(owner)
        if row is None:
            return f"{insert} has not released anything yet"
        plan = stored_plan(row)
        if plan.state is not None:
            spans = [span for span in plan.takes if span.table == table]
            if not spans:
                return f"{insert} has not read anything yet"
            if any(span.generation != generation and span.upto for span in spans):
                return f"{insert} still reads another generation"
            return [(span.after, f"{insert} has to meet every row, and has read no further") for span in spans]
        own = [item for item in plan.takes if item.table == table]
        other = next((item for item in own or plan.takes if not own or item.generation != generation), None)
        if other is not None:
            return f"{insert} still reads generation {other.generation} of {other.table}"
        named = any(item.id == insert for item in self.pipeline.inserts)
        target = target_of(self.lake, self.pipeline if named else None, insert)
        application = self.lake.application(owner, "publish", plan.generation)
        published = target is not None and committed(target, application) >= plan.epoch
        path, why = Stream(self.lake, table).path, f"{insert} has come no further"
        found = [(plan.settled_upto(item, path) if published else _before(plan, item), why) for item in own]
        return [*found, *self._quarantined(insert, target, plan)]

    def _quarantined(self, insert: str, target: Location | None, plan: ReleasePlan) -> list[tuple[int, str]]:
        """For rows in quarantine that may still be released: the last epoch before the first of them landed, and why it
        is the last that may go."""
        why = f"rows that {insert} has quarantined may still be released (tidegate quarantine list SCRIPT)"
        left = all_done(self.lake, insert, target).undecided
        # An epoch number is that of some branch, so that it may hold more than it has to.
        united, number = len(plan.branches) > 1, plan.first.generation
        return [(item.landed - 1, why) for item in left if united or item.probe_generation == number]


def _before(plan: ReleasePlan, item: Taken) -> int:
    """The last epoch that a plan which is not published does not need."""
    return min(plan.reads_of(item)[0], item.since if plan.bounds else item.after)


def _latest(paths: Sequence[str], epochs: Epochs) -> int | None:
    """The greatest rowtime (ms, UTC, rounded up) of rows of some epochs; None if none has one."""
    latest: int | None = None
    for batch in dataset_of(list(paths)).to_batches(columns=["_rowtime"], filter=epochs.holds()):
        found = pc.max(batch["_rowtime"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())).as_py()  # type: ignore[attr-defined]
        latest = found if latest is None else max(latest, latest if found is None else found)
    return None if latest is None else -(-latest // 1000)


# --- what is asked for below the mark --------------------------------------------------------------------------------


def refuse_removed(lake: Lake, plan: ReleasePlan) -> None:
    """Raise BeyondRetention if a plan reads landed rows that retention has removed. Only a new INSERT or process can:
    any other plan begins where the one before it ended."""
    for item in () if plan.looks_back else plan.takes:
        removed = Stream(lake, item.table).generation(item.generation).removed
        if item.after < item.upto and item.after < (removed.epoch or 0):
            raise _beyond(lake, plan.insert, item.table, item.generation, removed)
    if plan.looks_back:
        refuse_removed_span(lake, plan)


def refuse_removed_span(
    lake: Lake, plan: ReleasePlan, replaced: Sequence[ReleasedEpoch] = (), first_lot: int | None = None
) -> None:
    """Raise BeyondRetention if a backfill would take landed rows, or rows out of quarantine that landed from epoch
    `first_lot` on, some of which retention has removed. `replaced`: the epochs that it would replace."""
    for number, item in enumerate(plan.takes):
        removed = Stream(lake, item.table).generation(item.generation).removed
        in_lots = first_lot is not None and removed.epoch is not None and first_lot <= removed.epoch
        if not in_lots and not removed.asked_by(item.parts):
            continue
        asking = [each for each in replaced if each.plan.lots or removed.asked_by(each.plan.takes[number].parts)]
        known = [] if removed.time is None else [removed.time]
        since = max([*known, *(epoch.extent[1] // 1000 for epoch in asking)], default=0) + 1
        again = NextCommand("run", ("--from", instant(since)))
        raise _beyond(lake, plan.insert, item.table, item.generation, removed, again)


def refuse_removed_lots(lake: Lake, plan: ReleasePlan, first: int) -> None:
    """Raise BeyondRetention if rows out of quarantine that landed from epoch `first` on are to be joined again, and
    retention has removed some of them."""
    for item in plan.takes:
        removed = Stream(lake, item.table).generation(item.generation).removed
        if removed.epoch is not None and first <= removed.epoch:
            show = NextCommand("quarantine show", (plan.insert, "--state", "discarded"), "what they were")
            raise _beyond(lake, plan.insert, item.table, item.generation, removed, show)


def _beyond(
    lake: Lake, insert: str, table: str, generation: int, removed: Removed, next_command: NextCommand | None = None
) -> BeyondRetention:
    upto = removed.epoch or 0
    first = Stream(lake, table).generation(generation).epoch(upto + 1)
    since = f"; those that landed since {instant(first.landed_at)} are there" if first else ""
    late = "" if removed.time is None else f"; none of them has a time after {instant(removed.time)}"
    return BeyondRetention(
        f"landed rows of {table}, of its epochs up to {upto}, are gone ('{LANDED_RETENTION}'), and {insert} would have "
        f"to read them{late}",
        where=f"INSERT {insert}, {table}, generation {generation}",
        state=f"nothing was released; what is published stays{since}",
        next_command=next_command
        or f"declare {table} once more under another name, and let {insert} read that   (it lands what its source has)",
        table=table,
        upto=upto,
    )
