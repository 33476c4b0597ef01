"""Where the state of a process is: which row groups hold a bucket, and the time of its first timer.

Every epoch writes the keys that it has changed into files of its own, which its staged row names; so they count exactly
if the epoch does. From time to time an epoch writes all keys, and later ones read no further back than that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.pipelines.errors import LakeError, PlanningError
from tidegate.pipelines.lake import StagedRow
from tidegate.pipelines.lake.delta_log import committed
from tidegate.pipelines.location import Location
from tidegate.pipelines.process.engine.bucket import RowGroup
from tidegate.pipelines.runtime.epochs import stored_plan
from tidegate.pipelines.runtime.epochs.position import InsertOnLake

KeyColumns = tuple[tuple[str, str], ...]
"""Columns, in order, each with its type."""

FACT = "state"
REWRITE_AFTER = 32
"""Epochs after which all state is rewritten."""
MOST_DEAD = 3
"""All state is rewritten when more than so many rows were written for each living key."""


@dataclass(frozen=True)
class StateFiles:
    """What one epoch wrote.

    Attributes:
        folder: In the state's table.
        files: As `survey` describes them, and `groups`: the bucket of each row group.
        buckets: By each bucket that has state: [its first timer or None, its number of living keys].
        buckets_of: The number of buckets.
        key: The columns of the key, each with its Arrow type; None if no epoch has stored them.
        definition: Identifies what the state of SQL's windows means (`WindowedQuery.definition`); None for any other
            function.
    """

    folder: str
    files: tuple[Mapping[str, Any], ...]
    buckets: Mapping[int, tuple[int | None, int]]
    buckets_of: int
    key: KeyColumns | None
    definition: str | None = None

    @property
    def rows(self) -> int:
        return sum(file["rows"] for file in self.files)

    def fact(self) -> dict[str, Any]:
        """As a fact of a staged row."""
        buckets = {str(bucket): list(word) for bucket, word in self.buckets.items()}
        key = None if self.key is None else [list(column) for column in self.key]
        own = {} if self.definition is None else {"definition": self.definition}
        files = list(self.files)
        return {"folder": self.folder, "files": files, "buckets": buckets, "of": self.buckets_of, "key": key, **own}

    @classmethod
    def of(cls, row: StagedRow) -> StateFiles:
        stored = row.facts[FACT]
        buckets = {int(bucket): (word[0], word[1]) for bucket, word in stored["buckets"].items()}
        found = stored.get("key")  # epochs of before it was stored have none
        key = None if found is None else tuple((name, kind) for name, kind in found)
        definition = stored.get("definition")
        return cls(stored["folder"], tuple(stored["files"]), buckets, stored["of"], key, definition)


@dataclass(frozen=True)
class StateBefore:
    """The state that an epoch begins with. `epochs`: what was written since the base, the oldest first."""

    path: Location
    epochs: tuple[StateFiles, ...] = ()

    @property
    def buckets(self) -> Mapping[int, tuple[int | None, int]]:
        return self.epochs[-1].buckets if self.epochs else {}

    @property
    def least_timer(self) -> int | None:
        """The time of the first of all timers (ms, UTC)."""
        return min((word[0] for word in self.buckets.values() if word[0] is not None), default=None)

    @property
    def living(self) -> int:
        return sum(word[1] for word in self.buckets.values())

    @property
    def worn(self) -> bool:
        """Whether so much was written since the base that the next epoch should write all of the state."""
        written = sum(epoch.rows for epoch in self.epochs)
        return len(self.epochs) >= REWRITE_AFTER or written > MOST_DEAD * max(self.living, 1_000)

    def groups(self) -> dict[int, tuple[RowGroup, ...]]:
        """For every bucket, the row groups that hold state of it, the newest first."""
        found: dict[int, list[RowGroup]] = {}
        for epoch in reversed(self.epochs):
            for file in epoch.files:
                path = str(self.path / epoch.folder / file["path"])
                for number, bucket in enumerate(file["groups"]):
                    found.setdefault(bucket, []).append((path, number))
        return {bucket: tuple(groups) for bucket, groups in found.items()}

    def due(self, time: int) -> frozenset[int]:
        """The buckets that have a timer up to `time`."""
        return frozenset(bucket for bucket, word in self.buckets.items() if word[0] is not None and word[0] <= time)


def state_before(on_lake: InsertOnLake, epoch: int, base: int) -> StateBefore:
    """The state as the published epochs before `epoch` have left it, read from `base` on.

    Raises LakeError if the state's table is missing though the target is there, or a file of it is gone: a process
    never starts again from nothing.
    """
    path = on_lake.lake.state_path(on_lake.insert)
    rows = published_rows(on_lake, epoch, base)
    if rows:
        last, there = rows[-1], committed(path, on_lake.lake.application(on_lake.owner, "state", rows[-1].generation))
        if there != last.epoch:
            raise _lost(on_lake, path, f"it stands at epoch {there}, and epoch {last.epoch} is published")
    found = StateBefore(path, tuple(map(StateFiles.of, rows)))
    for file, _ in {group for groups in found.groups().values() for group in groups}:
        if not Location(file).is_there():
            raise _lost(on_lake, path, f"{Location(file).below(path)} is gone")
    return found


def check_unchanged(
    insert: str, before: StateBefore, buckets: int, key: KeyColumns, definition: str | None = None
) -> None:
    """Check that keys are in the same buckets as before (as many buckets, the same key columns in the same order), and
    that the state of SQL's windows means the same. Raises PlanningError: with another key or number of buckets no
    stored row would be found, and with another statement a window would hold the sums of two."""
    if not before.epochs:
        return
    last = before.epochs[-1]
    if last.definition != definition:
        what = "has open windows of another statement: its table function, WHERE, GROUP BY or aggregates have changed"
        then = "put the statement back, or write into another target: its windows then begin at the first landed row"
    elif last.buckets_of != buckets:
        what = f"has put its keys into {last.buckets_of} buckets, and is now given {buckets}"
        then = f"give it buckets={last.buckets_of} again"
    elif last.key is not None and last.key != key:
        what = f"has stored its state by {_shown(last.key)}, and is now given {_shown(key)}"
        then = "give it the old key again, or give the process a new name: it then begins at the first landed row"
    else:
        return
    where, state = f"process {insert}", "nothing was run; the state is as it was"
    raise PlanningError(f"{insert} {what}", where=where, state=state, next_command=then)


def _shown(key: KeyColumns) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in key)


def published_rows(on_lake: InsertOnLake, epoch: int, base: int) -> list[StagedRow]:
    """The staged rows of the published epochs from `base` to the one before `epoch`.

    Raises LakeError if a row is gone: the state would lack what that epoch has written.
    """
    plans = [stored_plan(row) for row in on_lake.lake.epochs.rows(on_lake.owner, since=base)]
    gone = {plan.supersedes for plan in plans}
    digests = {plan.epoch: plan.digest for plan in plans if base <= plan.epoch < epoch and plan.epoch not in gone}
    staged = on_lake.lake.staged.rows(on_lake.owner, since=base)
    found = [row for row in staged if digests.get(row.epoch) == row.plan_digest]
    missing = sorted(digests.keys() - {row.epoch for row in found})
    if missing:
        path = on_lake.lake.state_path(on_lake.insert)
        raise _lost(on_lake, path, f"no row says what epoch {missing[0]} has written")
    return found


def _lost(on_lake: InsertOnLake, path: Location, what: str) -> LakeError:
    return LakeError(
        f"the state of {on_lake.insert.id} is lost: {what}",
        where=str(path),
        state="nothing was changed; the inputs are whole, and what is published stays",
        next_command="bring the state's folder back from a backup, or give the process a new name: it then begins "
        "at the first landed row",
    )


def merged(
    before: Mapping[int, tuple[int | None, int]], reports: Sequence[Mapping[str, Any]]
) -> dict[int, tuple[int | None, int]]:
    """The state of every bucket after all tasks of an epoch have reported."""
    found = dict(before)
    for report in reports:
        found |= {int(bucket): (word[0], word[1]) for bucket, word in report["buckets"].items()}
    return {bucket: word for bucket, word in found.items() if word[1] or word[0] is not None}
