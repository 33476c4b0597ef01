"""What is done for the epochs of an INSERT, by its kind: how they are planned and staged, and what they commit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, Protocol

from pyspark.sql import SparkSession

from tidegate.pipelines.clock import Clock
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.lake import StagedRow
from tidegate.pipelines.lake.adopt import Epochs
from tidegate.pipelines.lake.records import StagedFile
from tidegate.pipelines.location import Location
from tidegate.pipelines.progress import Progress
from tidegate.pipelines.runtime.definitions import Definitions
from tidegate.pipelines.runtime.epochs import BackfillPlan, ReleasePlan
from tidegate.pipelines.runtime.epochs.commits import Commit, FileCommit, NotifyCommit, notified_by
from tidegate.pipelines.runtime.epochs.history import ReleasedEpoch, history_of
from tidegate.pipelines.runtime.epochs.position import InsertOnLake
from tidegate.pipelines.runtime.faults import OfProcess, Point
from tidegate.pipelines.runtime.quarantine import quarantined_in, removed, removed_upto
from tidegate.pipelines.runtime.releasing.backfill import BackfillPlanner
from tidegate.pipelines.runtime.releasing.event_time import EventTimePlanner
from tidegate.pipelines.runtime.releasing.planner import ProcessingTimePlanner, ReleasePlanner
from tidegate.pipelines.runtime.releasing.staging import Stager
from tidegate.pipelines.sinks.protocol import EpochListener, TableSink, sink_of


class Stages(Protocol):
    """Stages plans."""

    def stage(self, plan: ReleasePlan) -> StagedRow:
        """Write the plan's rows where no commit names them yet; the row that describes the files."""
        ...

    def sweep(self, plan: ReleasePlan, keep: str) -> None:
        """Remove what other attempts at this very plan left behind."""
        ...


@dataclass(frozen=True)
class EpochWork(ABC):
    """What is done for the epochs of one INSERT. `ready`: the tables that this process has found to be there and as
    declared."""

    on_lake: InsertOnLake
    spark: Callable[[], SparkSession]
    clock: Clock
    progress: Progress
    ready: set[Location] = field(default_factory=set)
    environment: Mapping[str, str] = field(default_factory=dict)
    definitions: Definitions | None = None

    @property
    @abstractmethod
    def planner(self) -> ReleasePlanner:
        """Plans its epochs."""

    @property
    def backfills(self) -> BackfillPlanner:
        """Plans the backfills of an INSERT in event time."""
        return BackfillPlanner(self.on_lake, self.clock, self.spark, self.environment)

    @property
    @abstractmethod
    def stager(self) -> Stages:
        """Stages them."""

    @property
    def targets(self) -> tuple[Table, ...]:
        """The table of each output."""
        return (self.on_lake.target,)

    def completed(self, plan: ReleasePlan) -> list[int]:
        """The last epoch of the plan's generation that has each of the commits that follow publishing."""
        lake = self.on_lake.lake
        sinks = [sink_of(target, lake.target_path(target)) for target in self.targets]
        return [sink.committed(notified_by(lake, plan)) for sink in sinks if isinstance(sink, EpochListener)]

    @abstractmethod
    def commits(self, plan: ReleasePlan, staged: StagedRow) -> list[Commit]:
        """What an epoch commits, in this order. That to the INSERT's target publishes it: what comes before lies beside
        the target, what comes after is for those who read the target."""

    def _commit(
        self,
        staged: StagedRow,
        target: Table,
        role: Literal["publish", "quarantine"],
        files: Sequence[StagedFile],
        point: Point | OfProcess,
        *,
        always: bool = False,
    ) -> FileCommit:
        lake, insert = self.on_lake.lake, self.on_lake.insert
        own = role == "publish"
        sink = sink_of(target, lake.target_path(target)) if own else TableSink(lake.quarantine_path(target, insert))
        folder = lake.staged_folder(target, insert, staged.folder, role)
        return FileCommit(role, target.name, sink, folder, files, point, always)

    def _notifications(self, *published: FileCommit) -> list[Commit]:
        """The commits that notify the targets which listen to their epochs."""
        return [NotifyCommit(commit, self.spark) for commit in published if isinstance(commit.sink, EpochListener)]


@dataclass(frozen=True)
class JoinWork(EpochWork):
    """What is done for an INSERT that joins."""

    @property
    def planner(self) -> ReleasePlanner:
        if self.on_lake.insert.time == "event":
            return EventTimePlanner(self.on_lake, self.clock, self.spark, self.environment)
        return ProcessingTimePlanner(self.on_lake, self.clock)

    @property
    def stager(self) -> Stager:
        return Stager(self.on_lake, self.spark, self.clock, self.progress, self.ready, self.definitions)

    def commits(self, plan: ReleasePlan, staged: StagedRow) -> list[Commit]:
        """The quarantine's commit, then the target's. A backfill takes rows out of both, whether it brings any or
        not."""
        own = self.on_lake.target
        quarantine = self._commit(staged, own, "quarantine", staged.of("quarantine"), "insert.quarantined")
        target = self._commit(staged, own, "publish", staged.of("publish"), "insert.published", always=True)
        if isinstance(plan, BackfillPlan):
            taken_out = partial(self._instead_of, plan, "quarantine"), partial(self._instead_of, plan, "publish")
            quarantine = replace(quarantine, always=True, instead_of=taken_out[0])
            target = replace(target, instead_of=taken_out[1])
        return [quarantine, target, *self._notifications(target)]

    def _instead_of(self, plan: BackfillPlan, role: Literal["publish", "quarantine"]) -> Epochs:
        """The epochs that a backfill's rows take the place of in one table, and how many rows those have there."""
        epochs = history_of(self.on_lake.lake, self.on_lake.pipeline, self.on_lake.insert)
        replaced = [item for item in epochs if plan.takes_the_place_of(item.plan)]
        staged = [item.staged for item in replaced if item.staged and (item.published or item.replaced)]
        rows = sum(file.rows for row in staged for file in row.of(role))
        if role == "quarantine":
            rows -= self._removed(plan, epochs)
        return Epochs(plan.generation, plan.backfill.replaces, rows)

    def _removed(self, plan: BackfillPlan, epochs: Sequence[ReleasedEpoch]) -> int:
        """The rows of replaced epochs that retention had removed from the quarantine before."""
        upto = removed_upto(self.on_lake.lake, self.on_lake.insert, self.on_lake.quarantine_path)
        before = [
            replace(item, published=item.published or item.replaced, superseded=False, replaced=False)
            if plan.takes_the_place_of(item.plan)
            else item
            for item in (epochs if upto else ())
        ]
        return sum(item.rows for item in removed(quarantined_in(before), upto) if plan.takes_the_place_of(item.plan))
