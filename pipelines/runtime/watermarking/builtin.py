"""The strategies that Tidegate brings, as Spark SQL aggregates over an epoch's rows: no row enters Python.

Each row has a value (FLIP-66: what the expression gives; FLIP-126: its rowtime - delay - 1 ms) and a split's watermark
is the greatest value so far. Periodic: emitted at the end of the epoch, so a row's place has what the epoch before
left. Punctuated: emitted after every `gap` rows, so a row's place has what its split emitted before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from pipelines.lake.footers import bounds_of_files, bounds_of_groups
from pipelines.runtime.watermarking import blocks
from pipelines.runtime.watermarking.late import late_by, micros, rowtime_ms
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


def scan(
    rows: DataFrame | None,
    generator: BuiltIn,
    gap: int | None,
    standing: SplitsBefore,
    tally: Mapping[str, Any] | None = None,
) -> list[SplitPass]:
    """What `rows` (with _split, _offset, _seq, _rowtime) say of every split that they have.

    `tally`: what was counted of them on their way, which saves a large epoch from being put in order.
    """
    if rows is None:
        return []
    rows = valued(rows, generator)
    cut = _blocks(tally or {}, gap, standing)
    found = None if cut is None else _cut(rows, cut, standing)
    return [split_pass(row, gap, standing) for row in found or _whole(rows, gap, standing)]


def _whole(rows: DataFrame, gap: int | None, standing: SplitsBefore) -> list[dict[str, Any]]:
    """By one aggregate; over rows in order where an order says something: before its flip a table has no late row."""
    plain = gap is None or (gap == 1 and standing.floor is None)
    found = _periodic(rows, standing) if plain else _punctuated(rows, gap or 1, standing)
    return [row.asDict() for row in found.collect()]  # one row a split


def _blocks(tally: Mapping[str, Any], gap: int | None, standing: SplitsBefore) -> blocks.Blocks | None:
    """How an epoch is cut. None where its rows are looked at as a whole: of a small epoch, where no order is needed, or
    one of all rows is: with a longer gap, after an epoch that left something to emit, and where it is not known how
    the offsets lie."""
    floor, rows = standing.floor, tally.get(_OFFSETS)
    if gap != 1 or floor is None or rows is None or tally["rows"] < blocks.SMALL_EPOCH:
        return None
    only = tally.get(_FIRST) if tally.get(_FIRST) == tally.get(_LAST) else None
    if pending(standing, standing.splits.keys() if only is None else standing.splits.keys() & {only}):
        return None
    told = (tally.get(_GREATEST), floor, *_started(standing).values())
    guess = max(value for value in told if value is not None)
    return blocks.Blocks.of(rows, only, guess)


def _cut(rows: DataFrame, cut: blocks.Blocks, standing: SplitsBefore) -> list[dict[str, Any]] | None:
    floor = MIN_TIMESTAMP if standing.floor is None else standing.floor
    found = blocks.scan(rows, VALUE, cut, _started(standing), floor)
    if found is None:
        return None
    return [
        {"_split": split, "rows": own.rows, "late": own.late, _GREATEST: own.greatest, _ROWTIME: own.newest}
        for split, own in found.items()
    ]


def _started(standing: SplitsBefore) -> dict[str, int]:
    """The watermark of each known split at the start of the epoch."""
    return {name: standing.started(name) for name in standing.splits}


def pending(standing: SplitsBefore, splits: Iterable[str]) -> bool:
    """Whether one of `splits` begins with something left to emit: the gap was longer before."""
    for name in splits:
        left, _ = remembered(standing.state(name))
        if left is not None and left > standing.started(name):
            return True
    return False


def split_pass(row: Mapping[str, Any], gap: int | None, standing: SplitsBefore) -> SplitPass:
    """What is said of a split by what was counted of its rows: _split, rows, late, greatest (value, ms), rowtime (the
    greatest, ms), and with a `gap` above 1 what was emitted."""
    split, before = row["_split"], standing.emitted(row["_split"])
    known, since = remembered(standing.state(split))
    greatest = max((value for value in (known, row["greatest"]) if value is not None), default=None)
    emitted = greatest if gap in (None, 1) else row["emitted"]
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


_FIRST, _LAST, _GREATEST, _ROWTIME = "first_split", "last_split", "greatest", "rowtime"
_LEAST, _OFFSETS = "least_micros", "offsets"


def tally(standing: SplitsBefore, gap: int | None) -> list[Column]:
    """Counted over `valued` rows on their way into the lake: what `scan` would find, if they are all of one split.

    Which splits they are of is not counted row by row: to compare strings costs more than all the rest. The files tell.
    What each block of a longer `gap` holds is not to be had without an order; then each value is computed, no more.
    """
    if gap is not None and gap > 1:
        return [F.count(VALUE).alias("values")]
    found = [F.max(VALUE).alias(_GREATEST), _rowtime(), _late(standing)]
    return found if gap is None else [*found, F.min(F.unix_micros("_rowtime")).alias(_LEAST)]


def ends_of_rows() -> list[Column]:
    """Counted over committed rows: the least and the greatest split."""
    return [F.min("_split").alias(_FIRST), F.max("_split").alias(_LAST)]


def ends_of_files(footers: Sequence[pq.FileMetaData]) -> dict[str, Any]:
    """The same, of the files that were written, and how their rows' offsets lie; without what footers do not tell."""
    splits, found = bounds_of_files(footers, "_split"), dict[str, Any]()
    if splits is not None:
        found |= dict(zip((_FIRST, _LAST), splits, strict=True))
    offsets = bounds_of_groups(footers, "_offset")
    if offsets:
        found[_OFFSETS] = [blocks.Rows(*each) for each in offsets]
    return found


def counted(found: Mapping[str, Any], gap: int | None, standing: SplitsBefore) -> list[SplitPass] | None:
    """The pass of an epoch of not more than one split; None where what was found is not enough to tell it.

    Punctuated, it is enough if no row is late wherever it stands: each is later than all that is told in the epoch.

    `found`: what `tally` counted, and what `ends_of_files` or `ends_of_rows` says.
    """
    if _GREATEST not in found or _FIRST not in found or found[_FIRST] != found[_LAST]:
        return None
    if found[_FIRST] is None:
        return []
    split = found[_FIRST]
    known, _ = remembered(standing.state(split))
    told = [value for value in (known, found[_GREATEST]) if value is not None]
    floor, least = standing.floor, found.get(_LEAST)
    if floor is not None and least is not None and least <= 1000 * max(floor, standing.emitted(split).timestamp, *told):
        return None
    return [split_pass({"_split": split, **found}, gap, standing)]


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


def _late(standing: SplitsBefore, also: Column | None = None) -> Column:
    """Rows that are late by the watermark at the start of the epoch, or are `also`; before the flip none is."""
    floor = standing.floor
    if floor is None:
        return F.lit(0).cast("bigint").alias("late")
    started = {name: micros(watermark) for name, watermark in _started(standing).items()}
    found = late_by(_by_split(started, micros(floor)))
    return F.count_if(found if also is None else found | also).alias("late")


def _periodic(rows: DataFrame, standing: SplitsBefore) -> DataFrame:
    return rows.groupBy("_split").agg(
        F.count(F.lit(1)).alias("rows"),
        F.max(VALUE).alias("greatest"),
        _rowtime(),
        _late(standing),
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
        _late(standing, rowtime_ms() <= F.coalesce("_told", F.lit(MIN_TIMESTAMP))),
    )
