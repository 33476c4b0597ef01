"""Landed probe rows by epoch and time: those that a watermark has reached, found by the files' statistics.

The landed table is the buffer of an event-time join. A release reads only files that may hold a releasable row, so that
its cost depends on what it releases and not on what has ever landed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from tidegate.pipelines.lake import delta_log
from tidegate.pipelines.lake.areas import Area, Part, any_of, micros
from tidegate.pipelines.location import Address, dataset_of
from tidegate.pipelines.watermarks import MAX_TIMESTAMP, MIN_TIMESTAMP

if TYPE_CHECKING:
    import pyarrow.compute as pc
    from pyspark.sql import DataFrame, SparkSession


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
        table = delta_log.opened(path)
        if table is None:
            return 0, MAX_TIMESTAMP
        if not delta_log.plain(table):
            from tidegate.pipelines.lake.rows import read

            releasable = read(spark(), path).where(self.condition())
            rows, least = releasable.selectExpr("count(1)", "unix_micros(min(_rowtime))").collect()[0]
            return int(rows), MAX_TIMESTAMP if least is None else int(least) // 1000
        rows, least = 0, MAX_TIMESTAMP
        files = self.files(table)
        if not files:
            return rows, least
        import pyarrow.compute as pc

        releasable = dataset_of(files)
        for batch in releasable.to_batches(columns=["_rowtime"], filter=self.expression()):
            rows += batch.num_rows
            earliest = pc.min(batch["_rowtime"].cast(pa.int64())).as_py()  # type: ignore[attr-defined]
            least = least if earliest is None else min(least, earliest // 1000)
        return rows, least

    def reaching(self, path: Address, spark: Callable[[], SparkSession], most: int) -> int:
        """The least moment (ms, UTC) up to which at least `most` releasable rows lie; MAX where fewer have a time."""
        table = delta_log.opened(path)
        if table is None:
            return MAX_TIMESTAMP
        if not delta_log.plain(table):
            from tidegate.pipelines.lake.rows import read

            releasable = read(spark(), path).where(self.condition()).where("_rowtime IS NOT NULL")
            found = (
                releasable.selectExpr("unix_micros(_rowtime) AS at").orderBy("at").offset(most - 1).limit(1).collect()
            )
            return -(-int(found[0][0]) // 1000) if found else MAX_TIMESTAMP
        files = self.files(table)
        if not files:
            return MAX_TIMESTAMP
        import numpy as np

        releasable = dataset_of(files)
        batches = releasable.to_batches(columns=["_rowtime"], filter=self.expression())
        times = [batch["_rowtime"].drop_null().cast(pa.int64()).to_numpy() for batch in batches]
        at = np.concatenate(times) if times else np.empty(0, np.int64)
        return -(-int(np.partition(at, most - 1)[most - 1]) // 1000) if at.size >= most else MAX_TIMESTAMP

    def rows(self, spark: SparkSession, path: Address) -> DataFrame:
        from tidegate.pipelines.lake.rows import of_files, read

        table = delta_log.opened(path)
        if table is None or not delta_log.plain(table):
            return read(spark, path).where(self.condition())
        return of_files(spark, table, self.files(table)).where(self.condition())

    def files(self, table: delta_log.Table) -> list[str]:
        """The files of the landed table that may hold a releasable row."""
        areas = [area for part in self.parts for area in part.areas]
        chosen = [file for file in _statistics(table, self.generation) if file.may_hold(areas)]
        return delta_log.paths_of(table, [file.path for file in chosen])


def settled(path: Address, generation: int, since: int, upto: int, watermark: int) -> int:
    """The greatest probe epoch, of those up to `upto`, up to which no row waits any more once all up to `watermark`
    (ms) are released. `since`: the result of an earlier call."""
    table = delta_log.opened(path)
    if table is None or not delta_log.plain(table):
        return since
    waiting = [
        file.least_epoch - 1
        for file in _statistics(table, generation)
        if file.meets(since, upto) and not file.over(micros(watermark))
    ]
    return max(since, min([*waiting, upto]))


def over(table: delta_log.Table, generation: int, upto: int, bound: int) -> set[str]:
    """The files of a landed table, as its log names them, that hold no row of an epoch after `upto`, and none with a
    time > bound (us)."""
    found = _statistics(table, generation)
    return {file.path for file in found if file.greatest_epoch <= upto and file.over(bound)}


def whole_up_to(table: delta_log.Table, generation: int, upto: int) -> int:
    """The greatest epoch, of those up to `upto`, up to which no file holds rows of later epochs as well."""
    spans = [(file.least_epoch, file.greatest_epoch) for file in _statistics(table, generation)]
    while cut := [least for least, greatest in spans if least <= upto < greatest]:
        upto = min(cut) - 1
    return upto


@dataclass(frozen=True)
class _File:
    """A file of the landed table by its statistics; times in us, None where they are not known.

    `nulls`: it may hold null times; `timeless`: it holds nothing else.
    """

    path: str
    least_epoch: int
    greatest_epoch: int
    least_time: int | None
    greatest_time: int | None
    nulls: bool
    timeless: bool

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


def _at_most(logged: int) -> int:
    """The greatest time (us) that a file with this upper bound may hold: OPTIMIZE cuts bounds to a millisecond."""
    return logged if logged % 1000 else logged + 999


_STATISTICS = tuple(f"{bound}.{name}" for name in ("_epoch", "_generation", "_rowtime") for bound in ("min", "max"))


def _statistics(table: delta_log.Table, generation: int) -> list[_File]:
    found = []
    for file in delta_log.files_of(table, "path", "num_records", "null_count._rowtime", *_STATISTICS):
        low, high = file["min._generation"], file["max._generation"]
        if low is not None and high is not None and not low <= generation <= high:
            continue
        first, last, latest = file["min._epoch"], file["max._epoch"], file["max._rowtime"]
        nulls, rows = file["null_count._rowtime"], file["num_records"]
        found.append(
            _File(
                file["path"],
                0 if first is None else first,
                MAX_TIMESTAMP if last is None else last,
                file["min._rowtime"],
                None if latest is None else _at_most(latest),
                nulls != 0,
                rows is not None and nulls == rows,
            )
        )
    return found
