"""Landed probe rows by epoch and time: those that a watermark has reached, found by the files' statistics.

The landed table is the buffer of an event-time join. Its rows are areas of a plane, probe epoch by time. A release
takes whole areas: each row is taken exactly once if areas do not overlap, and no row has to be looked up. It reads only
files that may hold a releasable row, so that its cost depends on what it releases and not on what has ever landed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from tidegate.pipelines.lake import delta_log
from tidegate.pipelines.lake.by_name import DataFile, TableState
from tidegate.pipelines.location import Address, dataset_of
from tidegate.pipelines.watermarks import MAX_TIMESTAMP, MIN_TIMESTAMP

if TYPE_CHECKING:
    import pyarrow.compute as pc
    from pyspark.sql import DataFrame, SparkSession

_TIME = pa.timestamp("us", tz="UTC")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def micros(watermark: int) -> int:
    """The greatest rowtime (us) that a watermark (ms) covers; MAX where it covers all of them, MIN where none."""
    return max(min(watermark * 1000, MAX_TIMESTAMP), MIN_TIMESTAMP)


def just_before(moment: int) -> int:
    """The greatest rowtime (us) below a moment (ms)."""
    return moment if moment in (MIN_TIMESTAMP, MAX_TIMESTAMP) else micros(moment) - 1


@dataclass(frozen=True)
class Area:
    """Landed rows with after < epoch <= upto and low < rowtime <= high (us, UTC; MIN and MAX: no bound); with `nulls`
    those without a time too."""

    after: int
    upto: int
    low: int
    high: int
    nulls: bool = False

    @property
    def empty(self) -> bool:
        return self.upto <= self.after or (not self.nulls and not self.timed)

    @property
    def timed(self) -> bool:
        """Whether rows that have a time may be in it."""
        return self.high > self.low

    def covered_by(self, epoch: int, high: int) -> bool:
        """Whether all of its timed rows have an epoch up to `epoch` and a time (us) up to `high`."""
        return self.upto <= epoch and self.high <= high

    def meets(self, other: Area) -> bool:
        """Whether a row may be in both; considers rows that have a time."""
        epochs = max(self.after, other.after) < min(self.upto, other.upto)
        return epochs and max(self.low, other.low) < min(self.high, other.high)

    def condition(self) -> str:
        """Spark SQL over the landed table."""
        bounds = ["_rowtime IS NOT NULL"]
        if self.low > MIN_TIMESTAMP:
            bounds.append(f"_rowtime > timestamp_micros({int(self.low)}L)")
        if self.high < MAX_TIMESTAMP:
            bounds.append(f"_rowtime <= timestamp_micros({int(self.high)}L)")
        timed = " AND ".join(bounds) if self.timed else "false"
        in_time = f"(_rowtime IS NULL OR ({timed}))" if self.nulls else timed
        return f"(_epoch > {int(self.after)} AND _epoch <= {int(self.upto)} AND {in_time})"

    def expression(self) -> pc.Expression:
        """The same for Arrow."""
        import pyarrow.compute as pc

        time, epoch = pc.field("_rowtime"), pc.field("_epoch")
        timed = time.is_valid() if self.timed else pc.scalar(False)
        if self.timed and self.low > MIN_TIMESTAMP:
            timed = timed & (time > pa.scalar(self.low, _TIME))
        if self.timed and self.high < MAX_TIMESTAMP:
            timed = timed & (time <= pa.scalar(self.high, _TIME))
        return (epoch > self.after) & (epoch <= self.upto) & ((time.is_null() | timed) if self.nulls else timed)


@dataclass(frozen=True)
class Part:
    """The rows of `areas`, which do not overlap, less those of `without`."""

    areas: tuple[Area, ...]
    without: tuple[Area, ...] = ()

    @property
    def upto(self) -> int:
        """The greatest probe epoch of which it may take rows."""
        return max((area.upto for area in self.areas), default=0)

    def condition(self) -> str:
        """Spark SQL over the landed table."""
        taken = f"({' OR '.join(area.condition() for area in self.areas) or 'false'})"
        without = " OR ".join(area.condition() for area in self.without)
        return f"({taken} AND NOT coalesce({without}, false))" if without else taken

    def expression(self) -> pc.Expression:
        """The same for Arrow."""
        found = any_of(self.areas)
        return found & ~any_of(self.without) if self.without else found


def merged(areas: Sequence[Area]) -> tuple[Area, ...]:
    """The same rows in fewer areas: areas of the same epochs that follow one another in time become one."""
    found: list[Area] = []
    for area in sorted(areas, key=lambda one: (one.after, one.upto, one.nulls, one.low)):
        last = found[-1] if found else None
        if last is not None and last.high == area.low and replace(last, low=area.low, high=area.high) == area:
            found[-1] = replace(last, high=area.high)
        else:
            found.append(area)
    return tuple(found)


def joined(parts: Sequence[Part]) -> tuple[Part, ...]:
    """The same rows in fewer parts: the areas of those that have one alone are `merged`."""
    alone = defaultdict[tuple[Area, ...], list[Area]](list)
    for part in parts:
        if len(part.areas) == 1:
            alone[part.without].append(part.areas[0])
    single = (Part((area,), without) for without, areas in alone.items() for area in merged(areas))
    return (*single, *(part for part in parts if len(part.areas) != 1))


def any_of(rows: Sequence[Area] | Sequence[Part]) -> pc.Expression:
    """Rows of any of these, as an Arrow expression. Built by halving, as Arrow walks an expression by recursion, one
    level deeper for each term of a chain."""
    import pyarrow.compute as pc

    if len(rows) > 1:
        middle = len(rows) // 2
        return any_of(rows[:middle]) | any_of(rows[middle:])
    return rows[0].expression() if rows else pc.scalar(False)


def released(
    after: int, upto: int, before: int, watermark: int, since: int = 0, without: tuple[Area, ...] = ()
) -> Part:
    """What a run of releases takes (DESIGN, "How a row travels", 3), from the one that found P at `after` and W at
    `before` to the one that left them at `upto` and `watermark`:

        epoch in (after, upto]  and  rowtime <= watermark, or null
        epoch <= after          and  before < rowtime <= watermark

    `before` and `watermark` are ms, UTC. `since`: no row of an epoch up to it was waiting any more. `without`: what
    backfills had released before.
    """
    new = Area(max(after, since), upto, MIN_TIMESTAMP, micros(watermark), nulls=True)
    waited = Area(since, after, micros(before), micros(watermark))
    return Part(tuple(area for area in (new, waited) if not area.empty), without)


@dataclass(frozen=True)
class Releasable:
    """The landed rows that an event-time release takes."""

    generation: int
    parts: tuple[Part, ...]

    def condition(self) -> str:
        """As Spark SQL over the landed table."""
        taken = " OR ".join(part.condition() for part in self.parts) or "false"
        return f"_generation = {int(self.generation)} AND ({taken})"

    def expression(self) -> pc.Expression:
        """The same for Arrow."""
        import pyarrow.compute as pc

        return (pc.field("_generation") == self.generation) & any_of(self.parts)

    def measured(self, path: Address, spark: Callable[[], SparkSession]) -> tuple[int, int]:
        """How many rows are releasable, and a moment (ms, UTC) that none lies before: MAX where none has a time."""
        import pyarrow.compute as pc

        rows, least = 0, MAX_TIMESTAMP
        for times in self._times(path, spark):
            rows += len(times)
            earliest = pc.min(times).as_py()  # type: ignore[attr-defined]
            least = least if earliest is None else min(least, earliest // 1000)
        return rows, least

    def reaching(self, path: Address, spark: Callable[[], SparkSession], most: int) -> int:
        """The least moment (ms, UTC) up to which at least `most` releasable rows lie; MAX where fewer have a time."""
        import numpy as np

        found = [times.drop_null().to_numpy() for times in self._times(path, spark)]
        at = np.concatenate([np.empty(0, np.int64), *found])
        return -(-int(np.partition(at, most - 1)[most - 1]) // 1000) if at.size >= most else MAX_TIMESTAMP

    def _times(self, path: Address, spark: Callable[[], SparkSession]) -> Iterator[pa.Array]:
        """The times (us) of releasable rows, batch by batch."""
        for batch in self.batches(path, spark, "_rowtime"):
            yield batch["_rowtime"].cast(_TIME).cast(pa.int64())

    def batches(self, path: Address, spark: Callable[[], SparkSession], *columns: str) -> Iterator[pa.RecordBatch]:
        """Columns of the rows, batch by batch; by Spark where the files alone do not give the rows."""
        table = delta_log.opened(path)
        if table is not None and not table.plain:
            yield from self.rows(spark(), path).select(*columns).toArrow().to_batches()
        elif table is not None and (files := self.files(table)):
            yield from dataset_of(files).to_batches(columns=list(columns), filter=self.expression())

    def rows(self, spark: SparkSession, path: Address) -> DataFrame:
        """The rows, as of now."""
        from tidegate.pipelines.lake.rows import of_files, read

        table = delta_log.opened(path)
        if table is None or not table.plain:
            return read(spark, path).where(self.condition())
        return of_files(spark, table, self.files(table)).where(self.condition())

    def files(self, table: TableState) -> list[str]:
        """The files of the landed table that may hold a releasable row."""
        areas = [area for part in self.parts for area in part.areas]
        return table.paths(item.file for item in _statistics(table, self.generation) if item.may_hold(areas))


def settled(path: Address, generation: int, since: int, upto: int, watermark: int) -> int:
    """The greatest probe epoch, of those up to `upto`, up to which no row waits any more once all up to `watermark`
    (ms) are released. `since`: the result of an earlier call."""
    table = delta_log.opened(path)
    if table is None or not table.plain:
        return since
    waiting = [
        file.least_epoch - 1
        for file in _statistics(table, generation)
        if file.meets(since, upto) and not file.over(micros(watermark))
    ]
    return max(since, min([*waiting, upto]))


def over(table: TableState, generation: int, upto: int, bound: int) -> set[DataFile]:
    """The files of a landed table that hold no row of an epoch after `upto`, and none with a time > bound (us)."""
    found = _statistics(table, generation)
    return {item.file for item in found if item.greatest_epoch <= upto and item.over(bound)}


def whole_up_to(table: TableState, generation: int, upto: int) -> int:
    """The greatest epoch, of those up to `upto`, up to which no file holds rows of later epochs as well."""
    spans = [(file.least_epoch, file.greatest_epoch) for file in _statistics(table, generation)]
    while cut := [least for least, greatest in spans if least <= upto < greatest]:
        upto = min(cut) - 1
    return upto


@dataclass(frozen=True)
class _Landed:
    """A file of the landed table by its statistics; times in us, None where they are not known.

    `nulls`: it may hold null times; `timeless`: it holds nothing else.
    """

    file: DataFile
    least_epoch: int
    greatest_epoch: int
    least_time: int | None
    greatest_time: int | None
    nulls: bool
    timeless: bool

    @classmethod
    def of(cls, file: DataFile) -> Self:
        first, last, latest = file.least("_epoch"), file.greatest("_epoch"), _micros(file.greatest("_rowtime"))
        nulls = file.nulls("_rowtime")
        return cls(
            file,
            0 if first is None else first,
            MAX_TIMESTAMP if last is None else last,
            _micros(file.least("_rowtime")),
            # OPTIMIZE cuts bounds to a millisecond.
            latest if latest is None or latest % 1000 else latest + 999,
            nulls != 0,
            file.rows is not None and nulls == file.rows,
        )

    def meets(self, after: int, upto: int) -> bool:
        return self.least_epoch <= upto and self.greatest_epoch > after

    def may_hold(self, areas: Sequence[Area]) -> bool:
        """Whether a row of it may be in one of the areas."""
        return any(self.meets(area.after, area.upto) and self._in_time(area) for area in areas)

    def _in_time(self, area: Area) -> bool:
        if area.nulls and self.nulls:
            return True
        if self.timeless or not area.timed:
            return False
        reached = self.least_time is None or self.least_time <= area.high
        return reached and (self.greatest_time is None or self.greatest_time > area.low)

    def over(self, bound: int) -> bool:
        """Whether no rowtime in it is > bound (us)."""
        if self.timeless or bound >= MAX_TIMESTAMP:
            return True
        return bound > MIN_TIMESTAMP and self.greatest_time is not None and self.greatest_time <= bound


def _micros(bound: object) -> int | None:
    """A bound of a time (us), which statistics have as text; None outside of the years 1 to 9999."""
    with suppress(ValueError, OverflowError):
        at = datetime.fromisoformat(bound) if isinstance(bound, str) else None
        return at and ((at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH) // timedelta(microseconds=1)
    return None


def _statistics(table: TableState, generation: int) -> list[_Landed]:
    return [_Landed.of(file) for file in table.files.values() if file.meets("_generation", generation, generation)]
