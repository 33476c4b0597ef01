"""A table that statements read: its rows, and its log of what has landed and how complete that is.

Callers name positions: a generation, and epochs of its watermark log. Only this module decides where these rows lie,
how many there are, and what retention has removed of them. It serves the tables of sources and what statements publish.

Nothing is cached here: each method reads what is committed now, at a cost that does not grow with the number of epochs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Self

from tidegate.pipelines.connectors.spec import SEQ_TYPE
from tidegate.pipelines.connectors.table import BOTH
from tidegate.pipelines.lake import delta_log
from tidegate.pipelines.lake.by_name import NOT_COMMITTED, TableState
from tidegate.pipelines.lake.records import Sums, WatermarkRow
from tidegate.pipelines.lake.releasable import Part, micros
from tidegate.pipelines.location import Location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidegate.pipelines.lake.lake import CommitRole, Lake
    from tidegate.pipelines.sql.compile import Pipeline


_REMOVED: tuple[CommitRole, ...] = ("retention-time", "retention-epoch", "retention-rows")
"""The transactions that store `Removed`, field by field."""


PLACED = {"_split": "STRING", "_offset": "BIGINT", "_rowtime": "TIMESTAMP"}
"""What a published row has beside its own columns where statements read the target: its place within the epoch, and its
event time; NULL where it has none."""

ORDERED = {"_seq": SEQ_TYPE}
"""What a published row has in addition where statements join its target, and a quarantined row of it: its place in the
order of changes, which it keeps from the epoch that first took it (`joins.writer`)."""


def has_places(table: TableState | None) -> bool:
    """Whether the rows of a target have places."""
    return table is not None and PLACED.keys() <= {field.name for field in table.schema.fields}


def has_order(table: TableState | None) -> bool:
    """Whether the rows of a target have an order."""
    return table is not None and {**PLACED, **ORDERED}.keys() <= {field.name for field in table.schema.fields}


@dataclass(frozen=True)
class Stream:
    """One table, over all its generations. `output`: the folder of what an INSERT or a process publishes; None for a
    source's table."""

    lake: Lake
    name: str
    output: Location | None = None

    @classmethod
    def of(cls, lake: Lake, pipeline: Pipeline, name: str) -> Self:
        """A table that a statement of a script reads."""
        target = pipeline.tables.get(name) if pipeline.writer_of(name) is not None else None
        return cls(lake, name, None if target is None else lake.target_path(target))

    @property
    def path(self) -> Location:
        """Where its rows lie."""
        return self.lake.table_path(self.name) if self.output is None else self.output

    @property
    def table(self) -> TableState | None:
        """The Delta table as it is now; None before its first epoch. Raises LakeError where it is damaged."""
        return delta_log.opened(self.path)

    @property
    def newest(self) -> WatermarkRow | None:
        """The log row of the last epoch that has landed, of the newest generation that has any."""
        return self.lake.watermarks.last(self.name)

    @property
    def flipped(self) -> Iterator[WatermarkRow]:
        """The last log row of each generation whose flip is proved, the newest generation first."""
        newest = self.newest
        for number in range(newest.generation if newest else 0, 0, -1):
            row = self.generation(number).last
            if row is not None and row.flip_epoch is not None:
                yield row

    @property
    def kind(self) -> Literal["build", "probe"] | None:
        """What it was landed as: a build (its table is a changelog) or a probe. None for an output."""
        stored = self.lake.definitions.last(self.name)
        role = None if stored is None else stored.form.get("role")
        return "build" if role == BOTH else role

    def generation(self, number: int) -> Generation:
        """One generation: what plans read, and pins name."""
        return Generation(self, number)

    @property
    def landed(self) -> int:
        """How many rows have landed, in all generations."""
        newest = self.newest
        return sum(self.generation(number).sums().rows for number in range(1, newest.generation + 1 if newest else 1))

    @property
    def empty(self) -> bool:
        """Whether no row of it was ever stored, in any generation: none has landed or was kept apart, and no epoch is
        committed beyond its log."""
        planned = self.lake.epochs.last(self.name)
        return all(
            own.committed <= (last.epoch if (last := own.last) else 0) and not (own.sums().rows or own.sums().rejected)
            for own in map(self.generation, range(1, planned.generation + 1 if planned else 1))
        )

    def log(self) -> list[WatermarkRow]:
        """The log rows of all generations, in order."""
        return self.lake.watermarks.rows(self.name)

    def rows(self, spark: SparkSession) -> DataFrame:
        """All its rows, as of now."""
        from tidegate.pipelines.lake.rows import read  # who looks at a lake's state alone does without Spark

        return read(spark, self.path)


@dataclass(frozen=True)
class Generation:
    """One generation of a table. `number`: its own; epochs are counted anew in each."""

    stream: Stream
    number: int

    @property
    def path(self) -> Location:
        return self.stream.path

    def application(self, role: Literal["data", "watermark"]) -> str:
        """The transaction name under which its rows, or its log rows, are committed."""
        return self.stream.lake.application(self.stream.name, role, self.number)

    @property
    def committed(self) -> int:
        """The last epoch whose rows are committed, whether it has landed or not; -1 for none."""
        return delta_log.committed(self.path, self.application("data"))

    # --- its log -------------------------------------------------------------------------------------------------

    @property
    def last(self) -> WatermarkRow | None:
        """The log row of the last epoch that has landed: the watermark, the flip, how far the source was."""
        return self.stream.lake.watermarks.last(self.stream.name, self.number)

    def epoch(self, number: int) -> WatermarkRow | None:
        """The log row of an epoch; None where it has not landed."""
        found = self.stream.lake.watermarks.rows(self.stream.name, generation=self.number, epoch=number)
        return found[0] if found else None

    def log(self, since: int = 0, upto: int | None = None) -> list[WatermarkRow]:
        """The log rows of its epochs from `since` on and up to `upto`, in order."""
        return self.stream.lake.watermarks.rows(self.stream.name, generation=self.number, since=since, upto=upto)

    def sampled(self, most: int) -> list[WatermarkRow]:
        """The log rows of about `most` epochs at even distances, in order, ending with the newest epoch; all rows if
        there are fewer epochs."""
        newest = self.last.epoch if self.last is not None else 0
        if newest <= most:
            return self.log()
        found = map(self.epoch, [*range(1, newest, -(-newest // most)), newest])
        return [row for row in found if row is not None]

    def sums(self, upto: int | None = None) -> Sums:
        """The sums over its landed epochs, up to one if given. Each log row has those up to itself: one row is read."""
        row = self._upto(upto)
        return Sums() if row is None else row.sums

    def landed(self, after: int, upto: int) -> int:
        """The rows of the landed epochs with after < epoch <= upto."""
        if upto <= after:
            return 0
        before = self.sums(after).rows if after > 0 else 0
        return self.sums(upto).rows - before

    def landed_before(self, instant: int, since: int = 0) -> int:
        """The last epoch, `since` or later, that had landed before `instant` (ms, UTC). Found by bisection, as epochs
        land in order. If clocks disagree, it is some epoch that is followed by a later one."""
        newest = self.last

        def later(epoch: int) -> bool:
            row = self._upto(epoch)
            return row is not None and row.landed_at >= instant

        return since + bisect_left(range(since + 1, newest.epoch + 1 if newest else 0), True, key=later)

    def _upto(self, epoch: int | None) -> WatermarkRow | None:
        """The log row of the last landed epoch, up to one if given."""
        return next(
            self.stream.lake.watermarks.newest_first(self.stream.name, generation=self.number, upto=epoch), None
        )

    def log_epoch(self, row: WatermarkRow) -> None:
        """Write an epoch's log row, with the sums up to itself: it has landed now. Repeating it changes nothing."""
        self.log_epochs([row])

    def log_epochs(self, rows: Sequence[WatermarkRow]) -> None:
        """The same for epochs that land by one commit, in order."""
        sums, found = self.sums(rows[0].epoch - 1), list[WatermarkRow]()
        for row in rows:
            sums = sums.with_epoch(row)
            found.append(replace(row, sums=sums))
        self.stream.lake.watermarks.append(found, application=self.application("watermark"), version=rows[-1].epoch)

    # --- its rows ------------------------------------------------------------------------------------------------

    def at(self, spark: SparkSession, epoch: int) -> DataFrame:
        """The rows that a pin at this epoch sees."""
        return self.rows(spark, -1, epoch)

    def rows(self, spark: SparkSession, after: int, upto: int) -> DataFrame:
        """The rows with after < epoch <= upto."""
        from tidegate.pipelines.lake.rows import between

        return between(spark, self.path, self.number, after, upto)

    def there(self, upto: int | None = None) -> int | None:
        """How many rows of the epochs up to `upto` the table holds: 0 if there is no table, None if its files alone do
        not give its rows."""
        table = self.stream.table
        return 0 if table is None else delta_log.rows_of(table, self.number, upto)

    @property
    def removed(self) -> Removed:
        """How far retention has gone, by the table's log."""
        time, epoch, rows = (
            None if mark == NOT_COMMITTED else mark
            for mark in (delta_log.committed(self.path, name) for name in self._marks())
        )
        return Removed(time + 1 if time is not None and time < 0 else time, epoch, rows or 0)

    def marks(self, removed: Removed) -> dict[str, int]:
        """The transactions that store how far retention has gone, for the commit that removes the rows. A time before
        1970 is stored as one less, as -1 stands for no mark."""
        time = removed.time - 1 if removed.time is not None and removed.time < 0 else removed.time
        reached = zip(self._marks(), (time, removed.epoch, removed.rows), strict=True)
        return {name: value for name, value in reached if value is not None}

    def _marks(self) -> list[str]:
        return [self.stream.lake.application(self.stream.name, role, self.number) for role in _REMOVED]


@dataclass(frozen=True)
class Removed:
    """How far retention has ever gone in a generation of a table; nothing where it has removed none.

    Of a build single versions go ('changelog.retention'), of a probe whole landed epochs ('landed.retention'). Stored
    as marks in the table's own log, by the commit that removed the rows.

    Attributes:
        time: ms, UTC. Of a build: every version that was removed had a successor at or before it. Of a probe: no row
            that was removed lies after it; None where none has a time.
        epoch: Of a build: no processing-time pin of this epoch or a later one lost its latest versions. Of a probe: all
            rows of the epochs up to this one were removed, and no others.
        rows: How many rows were removed.
    """

    time: int | None = None
    epoch: int | None = None
    rows: int = 0

    @property
    def nothing(self) -> bool:
        return self == Removed()

    def asked_by(self, parts: Sequence[Part]) -> bool:
        """Whether any removed row of a probe may be in one of these parts of its landed rows."""
        if self.epoch is None:
            return False
        areas = [area for part in parts for area in part.areas if area.after < self.epoch and not area.empty]
        return any(area.nulls or (self.time is not None and area.low < micros(self.time)) for area in areas)
