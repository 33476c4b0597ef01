"""The built-in strategies, as Spark SQL aggregates over an epoch's rows: no row enters Python.

Each row has a value (FLIP-66: what the expression gives; FLIP-126: its rowtime - delay - 1 ms) and a split's watermark
is the greatest value so far. Periodic: emitted at the end of the epoch. Punctuated: emitted after every `gap` rows. A
row is late by the table's watermark as of the epoch before, wherever in its epoch it is.

For any strategy: the splits before an epoch, and the result of its rows for each (`SplitsBefore`, `SplitPass`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from tidegate.pipelines.lake import SplitWatermark
from tidegate.pipelines.lake.releasable import micros
from tidegate.pipelines.parquet import bounds_of_files
from tidegate.pipelines.watermarks import (
    BEGINNING,
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    BoundedOutOfOrderness,
    ExpressionWatermarks,
    SourceWatermarks,
    Watermark,
)


@dataclass(frozen=True)
class SplitPass:
    """The result of a pass for one split.

    Attributes:
        rows: how many there were.
        late: those whose rowtime is at or below the table's watermark as of the epoch before.
        watermark: the last one emitted, also before this epoch; BEGINNING before the first.
        state: of its generator, after them, as JSON.
        idle: a user's generator has marked the split as idle.
        rowtime: the greatest rowtime (ms, UTC) among the rows; None if none has one.
    """

    split: str
    rows: int
    late: int
    watermark: Watermark
    state: Any
    idle: bool = False
    rowtime: int | None = None


@dataclass(frozen=True)
class SplitsBefore:
    """The splits before the epoch.

    Attributes:
        splits: by name.
        floor: the table's watermark (ms), by which a row of the epoch is late; None before the first watermark, when
            nothing is late.
    """

    splits: Mapping[str, SplitWatermark] = field(default_factory=dict)
    floor: int | None = None

    def emitted(self, split: str) -> Watermark:
        """The last watermark of `split`; BEGINNING for one that was never seen."""
        known = self.splits.get(split)
        return known.watermark if known else BEGINNING

    def state(self, split: str) -> Any:
        """The state of its generator, None where there is none."""
        known = self.splits.get(split)
        return known.state if known else None


def rowtime_ms() -> Column:
    """The rowtime in ms, rounded up: it is at or below t exactly if the rowtime is."""
    rowtime = F.col("_rowtime")
    return F.unix_millis(rowtime) + F.when(F.pmod(F.unix_micros(rowtime), F.lit(1000)) == 0, 0).otherwise(1)


BuiltIn = BoundedOutOfOrderness | ExpressionWatermarks | SourceWatermarks

_KIND = "greatest"


def scan(rows: DataFrame | None, generator: BuiltIn, gap: int | None, splits_before: SplitsBefore) -> list[SplitPass]:
    """The pass of `rows` (with _split, _offset, _seq, _rowtime) for every split that they have."""
    if rows is None:
        return []
    found = _by_splits(valued(rows, generator), gap, splits_before).collect()  # one row a split
    return [split_pass(row.asDict(), gap, splits_before) for row in found]


def _by_splits(rows: DataFrame, gap: int | None, splits_before: SplitsBefore) -> DataFrame:
    """By one aggregate; over ordered rows if `gap` is above 1."""
    emitted = []
    if gap is not None and gap > 1:
        rows, emitted = _emitting(rows, gap, splits_before), [F.max("_emitted").alias("emitted")]
    counts = (
        F.count(F.lit(1)).alias("rows"),
        F.max(VALUE).alias(_GREATEST),
        _rowtime(),
        _late(splits_before),
        *emitted,
    )
    return rows.groupBy("_split").agg(*counts)


def split_pass(row: Mapping[str, Any], gap: int | None, splits_before: SplitsBefore) -> SplitPass:
    """The log's columns of a split, from its counts: _split, rows, late, greatest (value, ms), rowtime (the greatest,
    ms), and with a `gap` above 1 what was emitted."""
    split, before = row["_split"], splits_before.emitted(row["_split"])
    known, since = remembered(splits_before.state(split))
    greatest = max((value for value in (known, row["greatest"]) if value is not None), default=None)
    emitted = greatest if gap in (None, 1) else row["emitted"]
    timestamp = max(before.timestamp, MIN_TIMESTAMP if emitted is None else emitted)
    state = {_KIND: greatest} if gap is None else {_KIND: greatest, "since": (since + row["rows"]) % gap}
    return SplitPass(split, row["rows"], row["late"], Watermark(timestamp), state, rowtime=row["rowtime"])


def remembered(state: Any) -> tuple[int | None, int]:
    """(the greatest value so far, rows since the last emission) of a stored state; initial values for another
    strategy's state."""
    if isinstance(state, int):  # a lake of version 0.1
        return state, 0
    if isinstance(state, dict) and _KIND in state:
        return state[_KIND], state.get("since", 0)
    return None, 0


_FIRST, _LAST, _GREATEST, _ROWTIME = "first_split", "last_split", "greatest", "rowtime"
_BOUNDS = (_FIRST, _LAST, _GREATEST, _ROWTIME)


def tally(splits_before: SplitsBefore, gap: int | None) -> list[Column]:
    """Aggregates over `valued` rows while they are written: the result of `scan`, if all rows are of one split. Splits
    are not counted, since comparing strings costs more than all the rest: the files' bounds show how many there are.
    With a `gap` above 1 the watermark depends on the rows' order, so the values are only computed."""
    if gap is not None and gap > 1:
        return [F.count(VALUE).alias("values")]
    return [F.max(VALUE).alias(_GREATEST), _rowtime(), _late(splits_before)]


@dataclass(frozen=True)
class Tally:
    """The counts, by name, of `valued` rows that a task writes itself: `rows`, `truncates`, and those of `tally`, with
    `late` by the watermark `floor` (ms). `values`: whether the rows' values are enough to know the watermark; with a
    gap above 1 they are not."""

    floor: int | None = None
    values: bool = False

    def of(self, batch: pa.RecordBatch | None) -> dict[str, int | None]:
        """The counts of a batch; None if it has no rows."""
        if batch is None:
            found: dict[str, int | None] = {"rows": 0, "truncates": 0}
            return {**found, _GREATEST: None, _ROWTIME: None, "late": 0} if self.values else found
        found = {"rows": batch.num_rows, "truncates": _true(pc.equal(batch.column("_op"), "t"))}  # type: ignore[attr-defined]
        if not self.values:
            return found
        times = batch.column("_rowtime").cast(pa.int64())
        rowtime = pc.max(times).as_py()  # type: ignore[attr-defined]
        floor = None if self.floor is None else micros(self.floor)
        late = 0 if floor is None else _true(pc.less_equal(times, floor))  # type: ignore[attr-defined]
        greatest = pc.max(batch.column(VALUE)).as_py()  # type: ignore[attr-defined]
        return {**found, _GREATEST: greatest, _ROWTIME: None if rowtime is None else rowtime // 1000, "late": late}


def _true(values: pa.Array) -> int:
    return int(pc.sum(values).as_py() or 0)  # type: ignore[attr-defined]


def merged(counts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The results of `Tally` and `ends_of_files` for parts of an epoch, merged into one for all of it."""
    together: dict[str, Any] = {"rows": 0, "truncates": 0}
    for name in {name: None for each in counts for name in each}:
        known = [each[name] for each in counts if each.get(name) is not None]
        if name in (_FIRST, _LAST) and any(name not in each for each in counts):
            continue  # a footer without it
        least_of = min if name == _FIRST else max
        together[name] = least_of(known, default=None) if name in _BOUNDS else sum(known)
    return together


def ends_of_rows() -> list[Column]:
    """Aggregates over committed rows: the least and the greatest split."""
    return [F.min("_split").alias(_FIRST), F.max("_split").alias(_LAST)]


def ends_of_files(footers: Sequence[pq.FileMetaData]) -> dict[str, Any]:
    """The same from the footers of written files; without what footers do not have."""
    splits = bounds_of_files(footers, "_split")
    return {} if splits is None else dict(zip((_FIRST, _LAST), splits, strict=True))


def counted(found: Mapping[str, Any], gap: int | None, splits_before: SplitsBefore) -> list[SplitPass] | None:
    """The pass of an epoch with at most one split; None if the counts are not enough to know it. `found`: the results
    of `tally`, and of `ends_of_files` or `ends_of_rows`."""
    if _GREATEST not in found or _FIRST not in found or found[_FIRST] != found[_LAST]:
        return None
    if found[_FIRST] is None:
        return []
    return [split_pass({"_split": found[_FIRST], **found}, gap, splits_before)]


VALUE = "_watermark"


def valued(rows: DataFrame, generator: BuiltIn) -> DataFrame:
    """`rows` with their values as a column: an expression may hold a Python function, which no aggregate takes."""
    return rows.withColumn(VALUE, _value(generator))


def _value(generator: BuiltIn) -> Column:
    """A row's value in ms; a row whose value is null is ignored."""
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


def _late(splits_before: SplitsBefore) -> Column:
    """Rows at or below the table's watermark as of the epoch before; before the flip none is late."""
    if splits_before.floor is None:
        return F.lit(0).cast("bigint").alias("late")
    return F.count_if(F.unix_micros("_rowtime") <= F.lit(micros(splits_before.floor))).alias("late")


def _emitting(rows: DataFrame, gap: int, splits_before: SplitsBefore) -> DataFrame:
    """`rows` with `_emitted`, the watermark that each emits. The row count goes on from the epoch before; each `gap`-th
    row emits the greatest value so far. A watermark that the epoch before left pending is emitted with the first
    row."""
    carried = {name: remembered(split.state) for name, split in splits_before.splits.items()}
    pending = _by_split(
        {n: MIN_TIMESTAMP if greatest is None else greatest for n, (greatest, _) in carried.items()}, MIN_TIMESTAMP
    )
    since = _by_split({n: since for n, (_, since) in carried.items()}, 0)
    ordered = Window.partitionBy("_split").orderBy("_offset", "_seq")
    number = F.row_number().over(ordered).cast("bigint")
    so_far = F.max(VALUE).over(ordered.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    greatest = F.greatest(F.coalesce(so_far, F.lit(MIN_TIMESTAMP)), pending)
    return rows.select("*", F.when((number + since) % gap == 0, greatest).alias("_emitted"))
