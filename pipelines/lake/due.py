"""Landed probe rows by epoch and time: those that a watermark lets go, found by the files' statistics.

The landed table is the buffer of an event-time join. A release looks at the files that may hold a due row and at no
others, so that its cost follows what it releases and not what has ever landed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable

from pipelines.lake import delta_log
from pipelines.watermarks import MAX_TIMESTAMP, MIN_TIMESTAMP

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TIME = pa.timestamp("us", tz="UTC")
_READ = ["_generation", "_epoch", "_rowtime"]


@dataclass(frozen=True)
class Due:
    """Which landed rows an event-time release takes (DESIGN, "How a row travels", 3).

        epoch in (after, upto]  and  rowtime <= watermark, or null
        epoch <= after          and  before < rowtime <= watermark

    `before` and `watermark` are ms, UTC: the combined watermark of the release before, and of this one. `since`: no row
    of an epoch up to it is waiting any more.
    """

    generation: int
    after: int
    upto: int
    before: int
    watermark: int
    since: int = 0

    def condition(self) -> str:
        """The rule as Spark SQL over the landed table."""
        reached, passed = _sql_upto(self.watermark), _sql_after(self.before)
        new, waited = f"(_rowtime IS NULL OR {reached})", f"({reached} AND {passed})"
        return (
            f"_generation = {int(self.generation)} AND _epoch > {int(self.since)} AND _epoch <= {int(self.upto)} AND "
            f"(({new} AND _epoch > {int(self.after)}) OR ({waited} AND _epoch <= {int(self.after)}))"
        )

    def _expression(self) -> pc.Expression:
        """The same for Arrow."""
        time, epoch = pc.field("_rowtime"), pc.field("_epoch")
        upto, before = _upto(time, self.watermark), _upto(time, self.before)
        return (
            (pc.field("_generation") == self.generation)
            & (epoch > self.since)
            & (epoch <= self.upto)
            & (((epoch > self.after) & (time.is_null() | upto)) | ((epoch <= self.after) & upto & ~before))
        )

    @property
    def late_upto(self) -> int | None:
        """A row with a rowtime (us) up to here is late; None before the first release."""
        if self.before == MIN_TIMESTAMP:
            return None
        bound = micros(self.before)
        return MAX_TIMESTAMP if bound is None else bound

    # --- what there is -------------------------------------------------------------------------------------------

    def count(self, path: Path, spark: Callable[[], SparkSession]) -> int:
        """How many rows are due. Counted over two narrow columns, apart from the join, which counts them again."""
        table = delta_log.opened(path)
        if table is None:
            return 0
        if not delta_log.plain(table):
            from pipelines.lake.rows import read

            return int(read(spark(), path).where(self.condition()).selectExpr("count(1)").collect()[0][0])
        files = self._files(table)
        if not files:
            return 0
        return ds.dataset(files, format="parquet").count_rows(filter=self._expression())

    def rows(self, spark: SparkSession, path: Path) -> DataFrame:
        """The due rows."""
        from pipelines.lake.rows import of_files, read

        table = delta_log.opened(path)
        if table is None or not delta_log.plain(table):
            return read(spark, path).where(self.condition())
        return of_files(spark, table, self._files(table)).where(self.condition())

    def next_since(self, path: Path) -> int:
        """The greatest epoch up to which nothing waits once these rows are released: `since` of the next release."""
        table = delta_log.opened(path)
        if table is None or not delta_log.plain(table):
            return self.since
        waiting = [
            file.least_epoch - 1
            for file in _statistics(table, self.generation)
            if file.meets(self.since + 1, self.upto) and not file.over(self.watermark)
        ]
        return max(self.since, min([*waiting, self.upto]))

    def _files(self, table: DeltaTable) -> list[str]:
        root = delta_log.root_of(table)
        chosen = [file for file in _statistics(table, self.generation) if self._may_hold(file)]
        return [str(root / unquote(file.path)) for file in chosen]

    def _may_hold(self, file: _File) -> bool:
        new = file.meets(max(self.after, self.since) + 1, self.upto) and (file.nulls or file.begins_by(self.watermark))
        waited = file.meets(self.since + 1, self.after) and file.begins_by(self.watermark)
        return new or (waited and not file.over(self.before))


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

    def meets(self, low: int, high: int) -> bool:
        return self.least_epoch <= high and self.greatest_epoch >= low

    def begins_by(self, watermark: int) -> bool:
        """Whether a row of it may have a rowtime <= watermark."""
        bound = micros(watermark)
        return watermark != MIN_TIMESTAMP and (bound is None or self.least_time is None or self.least_time <= bound)

    def over(self, watermark: int) -> bool:
        """Whether no rowtime in it is > watermark."""
        bound = micros(watermark)
        if self.timeless:
            return True
        if watermark == MIN_TIMESTAMP:
            return False
        return bound is None or (self.greatest_time is not None and self.greatest_time <= bound)


def _statistics(table: DeltaTable, generation: int) -> list[_File]:
    actions = pa.table(table.get_add_actions(flatten=True))
    size = actions.num_rows

    def column(name: str) -> list[int | None]:
        if name not in actions.column_names:
            return [None] * size
        values = actions[name]
        if pa.types.is_timestamp(values.type):
            values = values.cast(pa.timestamp("us", tz=values.type.tz))
        return values.cast(pa.int64()).to_pylist()

    def bounds(name: str) -> tuple[list[int | None], list[int | None]]:
        return column(f"min.{name}"), column(f"max.{name}")

    epochs, generations, times = bounds("_epoch"), bounds("_generation"), bounds("_rowtime")
    nulls, rows = column("null_count._rowtime"), column("num_records")
    found = []
    for index, path in enumerate(actions["path"].to_pylist()):
        low, high = (bound[index] for bound in generations)
        if low is not None and high is not None and not low <= generation <= high:
            continue
        first, last = (bound[index] for bound in epochs)
        found.append(
            _File(
                path,
                0 if first is None else first,
                MAX_TIMESTAMP if last is None else last,
                times[0][index],
                times[1][index],
                nulls[index] != 0,
                rows[index] is not None and nulls[index] == rows[index],
            )
        )
    return found


def micros(watermark: int) -> int | None:
    """The greatest rowtime (us) that a watermark covers; None where it covers all of them."""
    bound = watermark * 1000
    return None if bound > MAX_TIMESTAMP else max(bound, MIN_TIMESTAMP)


def _sql_upto(watermark: int) -> str:
    """Spark SQL: whether a rowtime is <= watermark."""
    bound = micros(watermark)
    if watermark == MIN_TIMESTAMP:
        return "false"
    return "_rowtime IS NOT NULL" if bound is None else f"_rowtime <= timestamp_micros({bound}L)"


def _sql_after(watermark: int) -> str:
    """Spark SQL: whether a rowtime is > watermark."""
    bound = micros(watermark)
    if watermark == MIN_TIMESTAMP:
        return "_rowtime IS NOT NULL"
    return "false" if bound is None else f"_rowtime > timestamp_micros({bound}L)"


def _upto(time: pc.Expression, watermark: int) -> pc.Expression:
    bound = micros(watermark)
    if watermark == MIN_TIMESTAMP:
        return pc.scalar(False)
    if bound is None:
        return time.is_valid()
    return time.is_valid() & (time <= pa.scalar(bound, _TIME))
