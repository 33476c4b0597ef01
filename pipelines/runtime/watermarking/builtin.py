"""The strategies that Tidegate brings, as Spark SQL aggregates over an epoch's rows: no row enters Python.

Each row has a value (FLIP-66: what the expression gives; FLIP-126: its rowtime - delay - 1 ms) and a split's watermark
is the greatest value so far. Periodic: emitted at the end of the epoch, so a row's place has what the epoch before
left. Punctuated: emitted after every `gap` rows, so a row's place has what its split emitted before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from pipelines.lake.footers import bounds_of_files
from pipelines.runtime.watermarking.passes import SplitPass, SplitsBefore
from pipelines.watermarks import (
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    BoundedOutOfOrderness,
    ExpressionWatermarks,
    SourceWatermarks,
    Watermark,
)

BuiltIn = BoundedOutOfOrderness | ExpressionWatermarks | SourceWatermarks

_KIND = "greatest"


def scan(rows: DataFrame | None, generator: BuiltIn, gap: int | None, standing: SplitsBefore) -> list[SplitPass]:
    """What `rows` (with _split, _offset, _seq, _rowtime) say of every split that they have."""
    if rows is None:
        return []
    rows = valued(rows, generator)
    found = _periodic(rows, standing) if gap is None else _punctuated(rows, gap, standing)
    return [_pass(row.asDict(), gap, standing) for row in found.collect()]  # one row a split


def _pass(row: Mapping[str, Any], gap: int | None, standing: SplitsBefore) -> SplitPass:
    split, before = row["_split"], standing.emitted(row["_split"])
    known, since = remembered(standing.state(split))
    greatest = max((value for value in (known, row["greatest"]) if value is not None), default=None)
    emitted = greatest if gap is None else row["emitted"]
    timestamp = max(before.timestamp, MIN_TIMESTAMP if emitted is None else emitted)
    state = {_KIND: greatest} if gap is None else {_KIND: greatest, "since": (since + row["rows"]) % gap}
    return SplitPass(split, row["rows"], row["late"], Watermark(timestamp), state, rowtime=row["rowtime"])


def remembered(state: Any) -> tuple[int | None, int]:
    """(the greatest value so far, rows since the last emission) of a stored state; that of another strategy is none."""
    if isinstance(state, int):  # a lake of version 0.1
        return state, 0
    if isinstance(state, dict) and _KIND in state:
        return state[_KIND], state.get("since", 0)
    return None, 0


_FIRST, _LAST, _GREATEST, _LATE, _ROWTIME = "first_split", "last_split", "greatest", "late", "rowtime"
_LEAST = "least_rowtime"


def tally(standing: SplitsBefore, gap: int | None) -> list[Column]:
    """Counted over `valued` rows on their way into the lake: what `scan` would find, if they are all of one split.

    Which splits they are of is not counted row by row: to compare strings costs more than all the rest. The files tell.
    What each block of a longer `gap` holds is not to be had without an order; then each value is computed, no more.
    """
    if gap is not None and gap > 1:
        return [F.count(VALUE).alias("values")]
    found = [F.max(VALUE).alias(_GREATEST), _rowtime(), _late(standing, _threshold(standing))]
    return found if gap is None else [*found, F.min(rowtime_ms()).alias(_LEAST)]


def splits_of_rows() -> list[Column]:
    """Counted over committed rows: the least and the greatest split."""
    return [F.min("_split").alias(_FIRST), F.max("_split").alias(_LAST)]


def splits_of_files(footers: Iterable[pq.FileMetaData]) -> dict[str, str | None]:
    """The same, of the files that were written; nothing where their footers do not tell it."""
    bounds = bounds_of_files(footers, "_split")
    return {} if bounds is None else dict(zip((_FIRST, _LAST), bounds, strict=True))


def counted(found: Mapping[str, Any], gap: int | None, standing: SplitsBefore) -> list[SplitPass] | None:
    """The pass of an epoch of not more than one split; None where what was found is not enough to tell it.

    Punctuated, it is enough if no row is late wherever it stands: each is later than all that is told in the epoch.

    `found`: what `tally` counted, and what `splits_of_files` or `splits_of_rows` says.
    """
    if _GREATEST not in found or _FIRST not in found or found[_FIRST] != found[_LAST]:
        return None
    if found[_FIRST] is None:
        return []
    split = found[_FIRST]
    known, _ = remembered(standing.state(split))
    told = [value for value in (known, found[_GREATEST]) if value is not None]
    floor, least = standing.floor, found.get(_LEAST)
    if floor is not None and least is not None and least <= max(floor, standing.emitted(split).timestamp, *told):
        return None
    return [_pass({"_split": split, "emitted": max(told, default=None), **found}, gap, standing)]


VALUE = "_watermark"


def valued(rows: DataFrame, generator: BuiltIn) -> DataFrame:
    """`rows` with their values, as a column: an expression may hold a Python function, which no aggregate takes."""
    return rows.withColumn(VALUE, _value(generator))


def _value(generator: BuiltIn) -> Column:
    """A row's value in ms; null says nothing."""
    if isinstance(generator, BoundedOutOfOrderness):
        return F.unix_millis(F.col("_rowtime")) - F.lit(generator.behind)
    if generator.expression is None:
        return F.lit(None).cast("bigint")
    value = F.expr(generator.expression)
    value = value.cast("bigint") if generator.type == "BIGINT" else F.unix_millis(value.cast("timestamp"))
    return _delayed(value, generator.behind) if isinstance(generator, SourceWatermarks) else value


def _delayed(value: Column, behind: int) -> Column:
    """SourceWatermarks.delayed, of a column."""
    if not behind:
        return value
    earlier = F.greatest(value, F.lit(MIN_TIMESTAMP + behind)) - F.lit(behind)
    return F.when(value < F.lit(MAX_TIMESTAMP), earlier).otherwise(value)


def rowtime_ms() -> Column:
    """The rowtime in ms, a part of one counted as a whole one: it is at or below t exactly if this is."""
    rowtime = F.col("_rowtime")
    return F.unix_millis(rowtime) + F.when(F.pmod(F.unix_micros(rowtime), F.lit(1000)) == 0, 0).otherwise(1)


def _rowtime() -> Column:
    """The greatest rowtime in ms."""
    return F.unix_millis(F.max("_rowtime")).alias(_ROWTIME)


def _by_split(values: Mapping[str, int], default: int) -> Column:
    """A number by split."""
    named = {split: value for split, value in values.items() if value != default}
    if not named:
        return F.lit(default).cast("bigint")
    entries = [item for split, value in named.items() for item in (F.lit(split), F.lit(value).cast("bigint"))]
    return F.coalesce(F.try_element_at(F.create_map(*entries), F.col("_split")), F.lit(default).cast("bigint"))


def _threshold(standing: SplitsBefore) -> Column:
    """The watermark at the start of the epoch: the table's, or the split's own where it is further."""
    floor = MIN_TIMESTAMP if standing.floor is None else standing.floor
    return _by_split({name: max(split.timestamp, floor) for name, split in standing.splits.items()}, floor)


def _late(standing: SplitsBefore, threshold: Column) -> Column:
    late = F.count_if(rowtime_ms() <= threshold) if standing.floor is not None else F.lit(0)
    return late.cast("bigint").alias("late")


def _periodic(rows: DataFrame, standing: SplitsBefore) -> DataFrame:
    return rows.groupBy("_split").agg(
        F.count(F.lit(1)).alias("rows"),
        F.max(VALUE).alias("greatest"),
        _rowtime(),
        _late(standing, _threshold(standing)),
    )


def _punctuated(rows: DataFrame, gap: int, standing: SplitsBefore) -> DataFrame:
    """Rows are counted on from the epoch before; each `gap`-th emits the greatest value so far, which holds for those
    after it. What an epoch before left pending is emitted with the first."""
    carried = {name: remembered(split.state) for name, split in standing.splits.items()}
    pending = _by_split(
        {n: MIN_TIMESTAMP if greatest is None else greatest for n, (greatest, _) in carried.items()}, MIN_TIMESTAMP
    )
    since = _by_split({n: since for n, (_, since) in carried.items()}, 0)
    ordered = Window.partitionBy("_split").orderBy("_offset", "_seq")
    before = ordered.rowsBetween(Window.unboundedPreceding, -1)
    number = F.row_number().over(ordered).cast("bigint")

    def greatest_of(frame: WindowSpec) -> Column:
        return F.greatest(F.coalesce(F.max(VALUE).over(frame), F.lit(MIN_TIMESTAMP)), pending)

    emitted = F.when((number + since) % gap == 0, greatest_of(ordered)).alias("_emitted")
    if gap == 1:  # what a row is told is known at once: to go through the rows in order again takes a third longer
        told = rows.select("*", emitted, F.when(number > 1, greatest_of(before)).alias("_told"))
    else:
        told = rows.select("*", emitted).select("*", F.max("_emitted").over(before).alias("_told"))
    return told.groupBy("_split").agg(
        F.count(F.lit(1)).alias("rows"),
        F.max(VALUE).alias("greatest"),
        F.max("_emitted").alias("emitted"),
        _rowtime(),
        _late(standing, F.greatest(_threshold(standing), F.coalesce("_told", F.lit(MIN_TIMESTAMP)))),
    )
