"""Upkeep of a running pipeline: what `tidegate maintain` does at once, in pieces that each take less than a tick.

The runner does it, under the leases that it holds anyway. So a pipeline that never stops is maintained too, and nothing
that a tick reads grows with its age. If a lease is let go between two pieces, as that of a held INSERT is, the work
under it ends. A piece that fails costs only space: it is logged, and tried again in the next round.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

import pyarrow as pa
from deltalake.exceptions import DeltaError

from tidegate.pipelines.clock import Clock
from tidegate.pipelines.connectors.options import CHANGELOG_RETENTION, LANDED_RETENTION, QUARANTINE_RETENTION
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import TidegateError
from tidegate.pipelines.lake import Lake, delta_log
from tidegate.pipelines.lake.by_name import DataFile, TableState
from tidegate.pipelines.lake.leases import Leases
from tidegate.pipelines.lake.owner_log import OwnerLog
from tidegate.pipelines.lake.releasable import micros, over
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.lake.upkeep import (
    CONTROL_KEEP,
    SMALL_FILES,
    May,
    clean_kept_log,
    clean_log,
    put_together,
    remove_dead,
    still_read,
)
from tidegate.pipelines.location import Location
from tidegate.pipelines.runtime.epochs import insert_owner, stored_plan
from tidegate.pipelines.runtime.epochs.history import newest_epochs
from tidegate.pipelines.runtime.indexes import INDEXES, Indexed
from tidegate.pipelines.runtime.ledger import checkpoint, looked_back
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.sql.model import Insert
from tidegate.pipelines.versions import Made, ensure
from tidegate.pipelines.watermarks import MIN_TIMESTAMP

log = logging.getLogger(__name__)

FAILED = (TidegateError, DeltaError, OSError, pa.ArrowException)
AFTER_A_FAILURE_S = 60.0

LEAST_S = 0.05
"""The least duration of a piece. Most folders and tables need nothing, so a piece goes on through them until then.
Otherwise a loop that is behind, and does one piece a tick, would never end a round, since each tick adds folders."""

RETENTION = {"build": CHANGELOG_RETENTION, "probe": LANDED_RETENTION}
"""The option of a source table that removes rows of it, by the table's role."""

OFTEN_S, RARELY_S = 60.0, 3600.0
"""The shortest and the longest time from one search for dead files and old logs to the next; in between, a hundredth of
the time for which they are kept."""


@dataclass(frozen=True)
class _Place:
    """A table that needs upkeep, under the leases of `owners`. `may`: returns the files that may be put together."""

    path: Location
    owners: tuple[str, ...]
    may: May | None = None


@dataclass
class Upkeep:
    """The upkeep of one pipeline. `retain` does a piece of the retention of a source table, or of an INSERT's
    quarantine (by its owner's name), if it has the option, and returns whether there is more; without it, retention is
    not done here.

    Dead files are deleted when they are `keep` old: somebody may be reading them until then. A piece takes at least
    `least` seconds, if there is so much to do.
    """

    lake: Lake
    pipeline: Pipeline
    leases: Leases
    clock: Clock
    keep: timedelta
    retain: Callable[[str], bool] | None = None
    now: Callable[[], float] = time.monotonic
    least: float = LEAST_S
    _round: Iterator[object] | None = field(default=None, init=False)
    _examined: dict[Location, int] = field(default_factory=dict, init=False)
    _done_at: dict[str, float] = field(default_factory=dict, init=False)
    _rests_until: float = field(default=0.0, init=False)
    _merging: Future[None] | None = field(default=None, init=False)
    _begun: set[str] = field(default_factory=set, init=False)

    def piece(self) -> bool:
        """Do the next piece; False if nothing is left to do for now."""
        began = self.now()
        if began < self._rests_until:
            return False
        if self._round is None:
            self._round = self._pieces()
        try:
            next(self._round)
            while self.now() - began < self.least:
                next(self._round)
        except StopIteration:
            self._round = None
            return False
        except FAILED as error:
            log.warning("upkeep has failed, and is tried again in %d s: %s", AFTER_A_FAILURE_S, error)
            self._round, self._rests_until = None, self.now() + AFTER_A_FAILURE_S
            return False
        return True

    def until(self, end: float) -> None:
        """Do what there is to do, until `end` (by the same clock) at most."""
        while self.now() < end and self.piece():
            pass

    def _pieces(self) -> Iterator[object]:
        yield from self._control()
        for place in self._places():
            if self._held(place):
                yield from self._leased(place.owners, self._small_files(place))
        yield from self._indexes()
        yield from self._dead_of_control()
        for place in self._places():
            if self._held(place) and self._is_time_for(f"dead {place.path}", self.keep):
                yield from self._leased(place.owners, self._dead(place))
        for insert in self.pipeline.inserts:
            owner = insert_owner(insert.id)
            if self.leases.holds(owner) and self._is_time_for(f"staged {insert.id}", self.keep):
                for target in map(self.pipeline.table, insert.outputs):
                    removed = remove_staged(self.lake, self.pipeline, target, insert, self.keep)
                    yield from self._leased((owner,), removed)
        retained = {table.name: table.options.get(RETENTION[table.role]) for table in self.pipeline.sources}
        for insert in self.pipeline.inserts:
            options = self.pipeline.table(insert.target).options
            retained[insert_owner(insert.id)] = options.get(QUARANTINE_RETENTION)
        for owner, option in retained.items() if self.retain is not None else ():
            if option is not None and self.leases.holds(owner) and self._is_time_for(f"retention {owner}", None):
                yield from self._leased((owner,), iter(partial(self.retain, owner), False))  # type: ignore[arg-type]
                yield

    def _leased(self, owners: Sequence[str], pieces: Iterator[object]) -> Iterator[object]:
        """The pieces of a work, as long as this runner holds the leases for it."""
        while all(map(self.leases.holds, owners)) and next(pieces, self) is not self:
            yield

    def _indexes(self) -> Iterator[None]:
        """Merge the runs of version indexes. A large merge takes seconds: a thread makes it, one at a time, while the
        pieces go on; the end of the process waits for it."""
        if self._merging is not None:
            if not self._merging.done():
                return
            done, self._merging = self._merging, None
            done.result()
        for insert in self.pipeline.inserts:
            row = self.lake.epochs.last(insert_owner(insert.id)) if insert.builds else None
            for pin in stored_plan(row).pins if row and self.leases.holds(row.owner) else ():
                if not (self.lake.scratch(INDEXES) / pin.table).exists() or pin.table not in self.pipeline.tables:
                    continue
                runs = Indexed.of(self.lake, self.pipeline.table(pin.table), pin.generation).merged(pin.epoch)
                yield
                if runs:
                    pool = ThreadPoolExecutor(1, "index")
                    self._merging = pool.submit(_made, runs)
                    pool.shutdown(wait=False)
                    return

    # --- control tables ------------------------------------------------------------------------------------------

    def _control(self) -> Iterator[object]:
        for log in self.lake.logs.there():
            yield from self._together(log)
        for insert in self.pipeline.inserts:
            yield from self._leased((insert_owner(insert.id),), self._checkpoints(insert))

    def _checkpoints(self, insert: Insert) -> Iterator[None]:
        target = self.lake.target_path(self.pipeline.table(insert.target))
        if insert.id not in self._begun:  # who published it may have been killed before its checkpoint
            if looked_back(self.lake, insert.id, target):
                checkpoint(self.lake, insert.id, target, self.clock(), looked_back=True)
                yield
            self._begun.add(insert.id)
        while checkpoint(self.lake, insert.id, target, self.clock()):
            yield
            yield from self._together(self.lake.logs.of(insert_owner(insert.id)))

    @staticmethod
    def _together(log: OwnerLog) -> Iterator[None]:
        while log.together() > 0:
            yield

    def _dead_of_control(self) -> Iterator[object]:
        if not self._is_time_for("control", CONTROL_KEEP):
            return
        keep = min(CONTROL_KEEP, self.keep)
        control = [log.path for log in self.lake.logs.there()]
        for path in (*control, self.lake.completeness_path):
            yield from remove_dead(path, still_read(path, keep=keep), keep=keep, hidden=True)
            yield from clean_log(path, keep=keep)

    # --- tables, targets, quarantines ----------------------------------------------------------------------------

    def _places(self) -> Iterator[_Place]:
        for table in self.pipeline.sources:
            may = released_files(self.lake, self.pipeline, table.name)
            yield _Place(Stream(self.lake, table.name).path, (table.name,), may)
            yield _Place(self.lake.rejected_path(table.name), (table.name,))
        owners: dict[str, list[Insert]] = {}
        for insert in self.pipeline.inserts:
            for name in insert.outputs:
                owners.setdefault(name, []).append(insert)
        for name, inserts in owners.items():
            target = self.pipeline.table(name)
            yield _Place(self.lake.target_path(target), tuple(insert_owner(insert.id) for insert in inserts))
            for insert in inserts:
                yield _Place(self.lake.quarantine_path(target, insert), (insert_owner(insert.id),))

    def _held(self, place: _Place) -> bool:
        """Whether only this runner writes to a table."""
        return all(map(self.leases.holds, place.owners)) and delta_log.opened(place.path) is not None

    def _small_files(self, place: _Place) -> Iterator[None]:
        table = delta_log.opened(place.path)
        if table is None or table.version - self._examined.get(place.path, -SMALL_FILES) < SMALL_FILES:
            return
        while put_together(place.path, place.may):
            yield
        table = delta_log.opened(place.path)
        self._examined[place.path] = table.version if table is not None else 0

    def _dead(self, place: _Place) -> Iterator[object]:
        yield from remove_dead(place.path, still_read(place.path, keep=self.keep), keep=self.keep)
        yield from clean_kept_log(place.path, self.keep)

    def _is_time_for(self, what: str, keep: timedelta | None) -> bool:
        """Whether it is time to check `what` again; if so, its next time counts from now."""
        every = RARELY_S if keep is None else min(max(keep.total_seconds() / 100, OFTEN_S), RARELY_S)
        if self.now() - self._done_at.get(what, -RARELY_S * 2) < every:
            return False
        self._done_at[what] = self.now()
        return True


def released_files(lake: Lake, pipeline: Pipeline, name: str) -> May | None:
    """The files whose rows have all been released, of a table that INSERTs release in event time. Other files are not
    put together, as a release finds releasable rows by the statistics of files. None: all files of any other table."""
    probing = [each for each in pipeline.inserts if name in each.taken and each.time == "event"]
    if not probing:
        return None

    def released(table: TableState) -> Collection[DataFile]:
        found = set(table.files.values())
        for insert in probing:
            row = lake.epochs.last(insert_owner(insert.id))
            plan = stored_plan(row) if row else None
            own = next((item for item in plan.takes if item.table == name), None) if plan else None
            if plan is None or own is None or plan.before == MIN_TIMESTAMP:
                return ()
            found &= over(table, own.generation, own.after, micros(plan.before))  # the newest one may not be published
        return found

    return released


def remove_staged(lake: Lake, pipeline: Pipeline, target: Table, insert: Insert, keep: timedelta) -> Iterator[int]:
    """Delete, piece by piece, staged files of an INSERT that its target has adopted and then compacted; yields the
    number of each piece. The newest epoch's files stay until it is published."""
    path = lake.target_path(pipeline.table(insert.target))
    quarantine, own = lake.quarantine_path(target, insert), lake.target_path(target)
    for place in lake.staged_paths(target, insert).values():  # each as of when its turn comes
        newest = newest_epochs(lake, insert.id, path)
        current = tuple(item.plan.attempts for item in newest if not item.published)
        live = still_read(own, quarantine, keep=keep)
        yield from remove_dead(place, live, keep=keep, hidden=True, without=current)


def _made(runs: Sequence[Made]) -> None:
    for run in runs:
        ensure(run)
