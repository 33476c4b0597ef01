"""What an epoch commits once it has passed the gate: each commit is made once, in their order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from tidegate.pipelines.lake import Lake, WatermarkRow
from tidegate.pipelines.lake.adopt import Epochs
from tidegate.pipelines.lake.delta_log import opened
from tidegate.pipelines.lake.lake import CommitRole
from tidegate.pipelines.lake.publishers import refuse_other_publisher
from tidegate.pipelines.lake.records import StagedFile
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.location import Location
from tidegate.pipelines.runtime.epochs.plan import ReleasePlan
from tidegate.pipelines.runtime.faults import OfProcess, Point
from tidegate.pipelines.sinks.protocol import EpochListener, Sink


def in_no_place() -> Epochs | None:
    """For rows that replace none."""
    return None


class Commit(ABC):
    """One commit of an epoch to one table. `point`: the fault point that is passed after it."""

    point: Point | OfProcess | None = None

    @property
    @abstractmethod
    def state(self) -> str:
        """What an error says of the state, if the commit cannot be made."""

    @abstractmethod
    def make(self, lake: Lake, plan: ReleasePlan) -> int:
        """Make it, unless it was made before. Returns the rows added now."""


@dataclass(frozen=True)
class FileCommit(Commit):
    """Adds staged `files` of `folder` to the table of `sink`. Without rows there is no commit, unless `always`.
    `instead_of`: called when the commit is made, returns the epochs whose rows are replaced."""

    role: CommitRole
    table: str
    sink: Sink
    folder: Location
    files: Sequence[StagedFile]
    point: Point | OfProcess
    always: bool = False
    instead_of: Callable[[], Epochs | None] = in_no_place

    @property
    def path(self) -> Location:
        """The folder of the table."""
        return self.sink.path

    @property
    def needed(self) -> bool:
        """Whether there is anything to commit."""
        return self.always or any(file.rows for file in self.files)

    @property
    def state(self) -> str:
        return "the epoch passed the gate; where it was added it stands, and is added once"

    def make(self, lake: Lake, plan: ReleasePlan) -> int:
        if not self.needed:
            return 0
        application = self._application(lake, plan)
        return self.sink.adopt(
            self.folder, self.files, application=application, epoch=plan.epoch, instead_of=self.instead_of()
        )

    def refuse_other(self, lake: Lake, plan: ReleasePlan) -> None:
        """Raise LakeError if this would publish into the target of another INSERT. `make` looks once more, at the very
        version that it commits to."""
        table = opened(self.path)
        if table is not None:
            refuse_other_publisher(table, self._application(lake, plan))

    def _application(self, lake: Lake, plan: ReleasePlan) -> str:
        return lake.application(plan.owner, self.role, plan.generation)

    def made(self, lake: Lake, plan: ReleasePlan) -> int:
        """The last epoch of a plan's generation that is committed to the table; -1 if there is none."""
        return self.sink.committed(self._application(lake, plan))


@dataclass(frozen=True)
class LogCommit(Commit):
    """A target's row of the watermark log: with it the epoch has landed for readers of the target; and the rows of the
    epochs before it that have none. `rows` is called when the commit is made."""

    rows: Callable[[], Sequence[WatermarkRow]]

    @property
    def state(self) -> str:
        return "the epoch is published; its watermark is logged with the next run"

    def make(self, lake: Lake, plan: ReleasePlan) -> int:
        rows = self.rows()
        Stream(lake, rows[0].owner).generation(rows[0].generation).log_epochs(rows)
        return 0


@dataclass(frozen=True)
class NotifyCommit(Commit):
    """Notifies a target of its published epoch, then commits a transaction without rows, by which the next run knows
    that the target was notified."""

    published: FileCommit
    spark: Callable[[], SparkSession]

    @property
    def state(self) -> str:
        return f"the epoch is published; what {self.published.table} does with it is done again by the next run"

    def make(self, lake: Lake, plan: ReleasePlan) -> int:
        sink, application = self.published.sink, notified_by(lake, plan)
        if sink.committed(application) >= plan.epoch:
            return 0
        if isinstance(sink, EpochListener) and any(file.rows for file in self.published.files):
            sink.published(sink.read(self.spark(), plan.generation, plan.epoch - 1, plan.epoch))
        sink.adopt(self.published.folder, (), application=application, epoch=plan.epoch)
        return 0


@dataclass(frozen=True)
class EpochCommits:
    """What an epoch commits, in this order: to tables `beside` the target; to the target, which publishes it; `after`
    that, what is for readers of the target."""

    beside: Sequence[FileCommit]
    publishing: FileCommit
    after: Sequence[Commit]


def notified_by(lake: Lake, plan: ReleasePlan) -> str:
    """The transaction of a NotifyCommit."""
    return lake.application(plan.owner, "notified", plan.generation)
