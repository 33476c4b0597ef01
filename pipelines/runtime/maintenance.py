"""What a lake needs from time to time: retention of old versions and landed rows ('changelog.retention',
'landed.retention'), small and dead files, old logs.

Files with landed rows that wait for their time are not put together with others: a release finds its rows by the
statistics of files (`tidegate.pipelines.lake.releasable`), and would read all that ever landed otherwise.

Nothing changes that anybody can still ask for. All of it is done under the leases of what it touches, so it can be
scheduled beside the pipeline: tables that a run is working on are skipped, and named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta

from pyspark.sql import SparkSession

from tidegate.pipelines.clock import Clock
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import LeaseHeld
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.lake.leases import Leases
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.lake.upkeep import Tidied, swept, tidy
from tidegate.pipelines.progress import Progress
from tidegate.pipelines.runtime.definitions import Definitions
from tidegate.pipelines.runtime.epochs import insert_owner
from tidegate.pipelines.runtime.epochs.history import newest_epochs
from tidegate.pipelines.runtime.failures import explained
from tidegate.pipelines.runtime.landed_retention import LandedRetention
from tidegate.pipelines.runtime.retention import QuarantineRetention, Retained, Retention
from tidegate.pipelines.runtime.upkeep import Upkeep, released_files, remove_staged
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.sql.model import Insert, ProcessInsert

KEEP = timedelta(days=7)
"""What a version younger than this names stays: somebody may be reading it."""


@dataclass(frozen=True)
class Maintained:
    """One table of the lake. `name` is that of the source table, or the INSERT's id; `skipped`: who works on it."""

    name: str
    retained: Retained | None = None
    tidied: tuple[Tidied, ...] = ()
    skipped: str = ""

    @property
    def files_before(self) -> int:
        return sum(item.files_before for item in self.tidied)

    @property
    def files_after(self) -> int:
        return sum(item.files_after for item in self.tidied)

    @property
    def freed(self) -> int:
        """Bytes freed on the disk."""
        return sum(item.freed for item in self.tidied)


@dataclass(frozen=True)
class Maintenance:
    """The upkeep of one pipeline's tables."""

    lake: Lake
    pipeline: Pipeline
    leases: Leases
    spark: Callable[[], SparkSession]
    clock: Clock
    progress: Progress
    environment: Mapping[str, str]
    keep: timedelta = KEEP
    definitions: Definitions | None = None

    def run(self) -> list[Maintained]:
        """All tables: retention first, so that what it has replaced is deleted once it is dead. Raises LakeError, and
        DefinitionChanged if the script differs from the lake's definitions."""
        if self.definitions is not None:
            self.definitions.require()
        sources, targets = self.pipeline.sources, {insert.target: [] for insert in self.pipeline.inserts}
        for insert in self.pipeline.inserts:
            targets[insert.target].append(insert)
        task = self.progress.task("maintain", len(sources) + len(targets), "tables")
        found = []
        for table in sources:
            found.append(self._leased(table.name, [table.name], lambda table=table: self._source(table)))
            task.advance(1, table.name)
        for target, inserts in targets.items():
            owners = [insert_owner(insert.id) for insert in inserts]
            found.append(self._leased(target, owners, lambda target=target, own=inserts: self._target(target, own)))
            task.advance(1, target)
        tidy(self.lake.completeness_path, keep=self.keep, together=False)
        return found

    def upkeep(self) -> Upkeep:
        """The same in pieces, for a runner that holds the leases and goes on."""
        return Upkeep(self.lake, self.pipeline, self.leases, self.clock, self.keep, self._retained_of)

    def _retained_of(self, owner: str) -> bool:
        """Do a piece of the retention of a table, or of an INSERT's quarantine; returns whether there is more."""
        insert = next((item for item in self.pipeline.inserts if insert_owner(item.id) == owner), None)
        found = self._retained(self.pipeline.table(owner)) if insert is None else self._quarantine(insert)
        return found is not None and found.more

    def _quarantine(self, insert: Insert) -> Retained | None:
        """What retention did to an INSERT's quarantine. The caller holds its lease."""
        retention = QuarantineRetention(self.lake, self.pipeline, self.clock, self.environment)
        target = self.pipeline.table(insert.target)
        keep, path = retention.of(target), self.lake.quarantine_path(target, insert)
        if keep is None:
            return None
        with explained(insert.id, f"{path}: '{retention.option}'", "no row was removed"):
            return retention.apply(insert, keep)

    def _leased(self, name: str, owners: Sequence[str], work: Callable[[], Maintained]) -> Maintained:
        try:
            with self._holding(owners):
                return work()
        except LeaseHeld as error:
            return Maintained(name, skipped=f"{error.owner} is being worked on by {error.holder}")

    @contextmanager
    def _holding(self, owners: Sequence[str]) -> Iterator[None]:
        """The leases of `owners` during the block; those that this runner held before, it keeps. Raises LeaseHeld."""
        with ExitStack() as taken:
            for owner in owners:
                if not self.leases.holds(owner):
                    self.leases.acquire(owner)
                    taken.callback(self.leases.release, owner)
            yield

    def _source(self, table: Table) -> Maintained:
        retained = self._retained(table)
        while retained is not None and retained.more and (again := self._retained(table)) is not None:
            retained = replace(
                again, examined=again.examined + retained.examined, removed=again.removed + retained.removed
            )
        path = Stream(self.lake, table.name).path
        tidied = tidy(path, keep=self.keep, may=released_files(self.lake, self.pipeline, table.name))
        return Maintained(table.name, retained, (tidied,) if tidied else ())

    def _retained(self, table: Table) -> Retained | None:
        """What retention did to a table, while nobody worked on an INSERT that reads it: an epoch planned meanwhile, a
        backfill above all, might need what is being removed."""
        of = self.lake, self.pipeline, self.clock, self.environment
        retention = Retention(*of, self.spark) if table.role == "build" else LandedRetention(*of)
        keep = retention.of(table)
        if keep is None:
            return None
        try:
            where = f"{Stream(self.lake, table.name).path}: '{retention.option}'"
            with (
                self._holding(retention.readers(table.name)),
                explained(table.name, where, "no row was removed"),
            ):
                return retention.apply(table, keep)
        except LeaseHeld as error:
            return retention.nothing(table.name, 0, f"{error.owner} is being worked on by {error.holder}")

    def _target(self, name: str, inserts: Sequence[Insert]) -> Maintained:
        retained = [self._quarantine(insert) for insert in inserts if not isinstance(insert, ProcessInsert)]
        found = self._published(name, inserts)
        for insert in inserts:
            if isinstance(insert, ProcessInsert):
                for second in insert.outputs[1:]:
                    found += self._published(second, [insert])
                path = self.lake.target_path(self.pipeline.table(name))
                # What a staged epoch has written of the state is named by no version.
                if all(item.published for item in newest_epochs(self.lake, insert.id, path)):
                    found.append(tidy(self.lake.state_path(insert), keep=self.keep, together=False))
        return Maintained(name, next(iter(retained), None), tuple(item for item in found if item))

    def _published(self, name: str, inserts: Sequence[Insert]) -> list[Tidied | None]:
        """A table that `inserts` publish to, with the quarantine and the staged files of each."""
        target = self.pipeline.table(name)
        path = self.lake.target_path(target)
        found: list[Tidied | None] = [tidy(path, keep=self.keep)]
        for insert in inserts:
            found.append(tidy(self.lake.quarantine_path(target, insert), keep=self.keep))
            staged = remove_staged(self.lake, self.pipeline, target, insert, self.keep)
            found.append(swept([*self.lake.staged_paths(target, insert).values()], staged))
        return found
