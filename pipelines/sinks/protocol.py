"""What a target is to the runtime: a table that an INSERT's epochs are added to, each once; and sinks that react to
them.

Every target has a Delta table in its folder, which `TableSink` commits to and reads. A connector whose targets do more
has a method `sink` (`MakesSinks`); the runtime uses its result wherever an epoch is published or looked up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from tidegate.pipelines.connectors.registry import connector
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.location import Location

if TYPE_CHECKING:  # a script with a target is compiled without Arrow and Spark
    from pyspark.sql import DataFrame, SparkSession

    from tidegate.pipelines.lake.adopt import Epochs
    from tidegate.pipelines.lake.records import StagedFile


@runtime_checkable
class Sink(Protocol):
    """One target. `path`: the folder of its table, in which its epochs are staged.

    What it has committed is what the log of that Delta table says: status, retention and alerts read it there.
    """

    @property
    def path(self) -> Location: ...

    def adopt(
        self,
        folder: Location,
        files: Sequence[StagedFile],
        *,
        application: str,
        epoch: int,
        instead_of: Epochs | None = None,
    ) -> int:
        """Add staged `files` (paths relative to `folder`, which lies in `path`) under (application, epoch), once, and
        remove the rows of the epochs that they come `instead_of` in the same commit. Without files only (application,
        epoch) is stored. Returns the rows added; 0 if it was committed before.

        Raises LakeError when a staged file is gone or has another size, ConcurrentRun when a later epoch is there.
        """
        ...

    def committed(self, application: str) -> int:
        """The last epoch that `application` has committed; -1 when there is none. Without Spark."""
        ...

    def read(self, spark: SparkSession, generation: int, after: int, upto: int) -> DataFrame:
        """The rows of one generation with after < epoch <= upto: the target's columns, `_op`, `_generation`,
        `_epoch`."""
        ...


@runtime_checkable
class EpochListener(Protocol):
    """A sink that reacts to published epochs. It is notified of each epoch after its commit, in order, at least once:
    again if a crash interrupted it."""

    def published(self, rows: DataFrame) -> None:
        """Called with the committed rows of one epoch (`Sink.read`); not for an epoch without rows. While this raises,
        the INSERT does not go on: OSError and Spark's errors are reported as StepFailed."""
        ...


@runtime_checkable
class MakesSinks(Protocol):
    """A connector whose targets do more than store their table."""

    def sink(self, table: Table, path: Location) -> Sink:
        """The sink of one target, whose folder is `path`. Opens nothing yet."""
        ...


@dataclass(frozen=True)
class TableSink:
    """A target that only stores its Delta table."""

    path: Location

    def adopt(
        self,
        folder: Location,
        files: Sequence[StagedFile],
        *,
        application: str,
        epoch: int,
        instead_of: Epochs | None = None,
    ) -> int:
        from tidegate.pipelines.lake.adopt import adopt

        return adopt(self.path, folder, files, application=application, epoch=epoch, instead_of=instead_of)

    def committed(self, application: str) -> int:
        from tidegate.pipelines.lake.delta_log import committed

        return committed(self.path, application)

    def read(self, spark: SparkSession, generation: int, after: int, upto: int) -> DataFrame:
        from tidegate.pipelines.lake import rows

        return rows.between(spark, self.path, generation, after, upto)


def sink_of(table: Table, path: Location) -> Sink:
    """The sink of a target, whose folder is `path`. A generation beside the target only stores its table."""
    if table.beside is not None:
        return TableSink(path)
    made = connector(table.connector)
    return made.sink(table, path) if isinstance(made, MakesSinks) else TableSink(path)
