"""What an epoch's files say of its splits, where a row's value is a column of it less a constant (`lags`).

The greatest value, the greatest rowtime and the number of rows are in the files' footers. Which rows are late is in
there too, for most row groups; of the others two or three columns are read again, in the order in which they were
written. A large epoch's in Spark tasks, a small one's by the driver. Where files do not lie so that this can be told,
nothing is said, and SQL has to look at the rows (`builtin`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from pipelines.lake.footers import statistics_of, times_of_groups
from pipelines.runtime.tasks import each
from pipelines.runtime.watermarking import builtin
from pipelines.runtime.watermarking.lags import Lag
from pipelines.runtime.watermarking.late import micros
from pipelines.runtime.watermarking.passes import SplitPass, SplitsBefore

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

Told = dict[str, Any]
"""What was counted of a split's rows, as `builtin.split_pass` takes it."""

SMALL_EPOCH = 65_536
"""So many rows are read by the driver sooner than a task has started."""

AT_ONCE = 1 << 18
"""Rows that are held at once."""

_LEAST, _MOST = -(2**63), 2**63 - 1


def scan(
    files: Mapping[str, pq.FileMetaData],
    lag: Lag,
    gap: int | None,
    standing: SplitsBefore,
    spark: SparkSession,
) -> list[SplitPass] | None:
    """What the rows in `files` (by path, with their footers) say of every split that they have; None where that is not
    to be told from them."""
    if gap is not None and (gap > 1 or builtin.pending(standing, standing.splits)):
        return None
    if sum(footer.num_rows for footer in files.values()) <= SMALL_EPOCH:
        told = _by_rows(files, lag, gap, standing)
    else:
        told = _by_groups(files, lag, gap, standing, spark)
    return None if told is None else [builtin.split_pass(item, gap, standing) for item in told]


@dataclass(frozen=True)
class Bounds:
    """What is known of rows that were not looked at one by one.

    Attributes:
        timed: How many of them have a rowtime.
        least: rowtime (µs), and the `newest` one; None where none has one.
        greatest: value (ms); None where none has one.
    """

    rows: int
    timed: int
    least: int | None
    newest: int | None
    greatest: int | None

    @classmethod
    def of(cls, parts: Iterable[Bounds]) -> Bounds:
        """Those of all `parts` together."""
        known = list(parts)
        return cls(
            sum(part.rows for part in known),
            sum(part.timed for part in known),
            min((part.least for part in known if part.least is not None), default=None),
            max((part.newest for part in known if part.newest is not None), default=None),
            max((part.greatest for part in known if part.greatest is not None), default=None),
        )

    def told_after(self, before: int, emits: bool) -> int:
        """What is told after the rows, where `before` (ms) was told before them, and each tells its value or none."""
        return max(before, self.greatest) if emits and self.greatest is not None else before

    def late(self, before: int, after: int) -> int | None:
        """How many of the rows are late, in whatever order they lie; None where that is not to be told."""
        if self.least is None or self.newest is None or self.least > micros(after):
            return 0
        return self.timed if self.newest <= micros(before) else None

    def told(self, split: str, late: int) -> Told:
        """That, of a whole split."""
        rowtime = None if self.newest is None else self.newest // 1000
        return {"_split": split, "rows": self.rows, "late": late, "greatest": self.greatest, "rowtime": rowtime}


# A large epoch, by its row groups.


@dataclass(frozen=True)
class Group:
    """A row group with rows of one split, from its `first` offset to its `last`."""

    path: str
    number: int
    split: str
    first: int
    last: int
    bounds: Bounds


@dataclass(frozen=True)
class Look:
    """Rows to be counted: those of a row group that are late by `before` (ms), or by what its `own` rows emit."""

    split: str
    path: str
    number: int
    before: int
    own: bool
    lag: Lag


def _by_groups(
    files: Mapping[str, pq.FileMetaData], lag: Lag, gap: int | None, standing: SplitsBefore, spark: SparkSession
) -> list[Told] | None:
    groups = _groups(files, lag)
    if groups is None:
        return None
    splits: dict[str, list[Group]] = defaultdict(list)
    for group in sorted(groups, key=lambda group: (group.split, group.first)):
        splits[group.split].append(group)
    counts, looks = dict.fromkeys(splits, 0), list[Look]()
    for split, own in splits.items() if standing.floor is not None else ():
        decided = _decided(own, standing.started(split), lag, emits=gap is not None)
        if decided is None:
            return None
        counts[split] = decided[0]
        looks += decided[1]
    found = each(spark, count_late, looks) if looks else []
    for look, count in zip(looks, found, strict=True):
        if count is None:
            return None
        counts[look.split] += count
    return [Bounds.of(group.bounds for group in own).told(split, counts[split]) for split, own in splits.items()]


def _groups(files: Mapping[str, pq.FileMetaData], lag: Lag) -> list[Group] | None:
    found: list[Group] = []
    for path, footer in files.items():
        known = _bounds(footer, lag)
        if known is None:
            return None
        for number, bounds in enumerate(known):
            if not bounds.rows:
                continue
            group = footer.row_group(number)
            split, offsets = statistics_of(group, "_split"), statistics_of(group, "_offset")
            if split is None or split.null_count or split.min != split.max or offsets is None or offsets.null_count:
                return None
            found.append(Group(path, number, split.min, offsets.min, offsets.max, bounds))
    return found


def _bounds(footer: pq.FileMetaData, lag: Lag) -> list[Bounds] | None:
    """Of every row group."""
    rowtimes, values = times_of_groups(footer, "_rowtime"), times_of_groups(footer, lag.column)
    if rowtimes is None or values is None:
        return None
    found: list[Bounds] = []
    for number, (rowtime, value) in enumerate(zip(rowtimes, values, strict=True)):
        if value.least is not None and value.least - lag.micros < _LEAST:
            return None  # what is left is no number of 64 bits
        rows, greatest = footer.row_group(number).num_rows, value.greatest
        latest = None if greatest is None else lag.value(greatest)
        found.append(Bounds(rows, rows - rowtime.nulls, rowtime.least, rowtime.greatest, latest))
    return found


def _decided(own: Sequence[Group], before: int, lag: Lag, *, emits: bool) -> tuple[int, list[Look]] | None:
    """Late rows of a split's groups, by their first offset, as far as bounds tell, and what has to be looked at; None
    where rows that emit lie in groups that are not one after the other. `emits`: each row's value is told after it."""
    late, looks = 0, list[Look]()
    if emits and any(one.last >= after.first for one, after in pairwise(own)):
        together = Bounds.of(group.bounds for group in own)
        known = together.late(before, together.told_after(before, emits))
        return None if known is None else (known, [])
    for group in own:
        after = group.bounds.told_after(before, emits)
        known = group.bounds.late(before, after)
        if known is None:
            looks.append(Look(group.split, group.path, group.number, before, after > before, lag))
        late, before = late + (known or 0), after
    return late, looks


def count_late(look: Look) -> int | None:
    """The late rows of one row group; None where its rows do not lie in the order of their offsets."""
    columns = ["_rowtime", *(["_offset", look.lag.column] if look.own else [])]
    late, before, last = 0, look.before, _LEAST
    with pq.ParquetFile(look.path) as file:
        for batch in file.iter_batches(AT_ONCE, row_groups=[look.number], columns=list(dict.fromkeys(columns))):
            rowtimes, timed = _times(batch, "_rowtime")
            if not look.own:
                late += _count(timed & (rowtimes <= micros(before)))
                continue
            offsets = batch.column("_offset").to_numpy()
            if offsets[0] <= last or not bool(np.all(offsets[1:] > offsets[:-1])):
                return None
            last = int(offsets[-1])
            found, before = _emitting(rowtimes, timed, _values(batch, look.lag), before)
            late += found
    return late


# A small epoch, row by row of its columns.


def _by_rows(
    files: Mapping[str, pq.FileMetaData], lag: Lag, gap: int | None, standing: SplitsBefore
) -> list[Told] | None:
    if any(_bounds(footer, lag) is None for footer in files.values()):
        return None
    names = list(dict.fromkeys(("_split", "_offset", "_rowtime", lag.column)))
    tables = [pq.ParquetFile(path).read(columns=names) for path, footer in files.items() if footer.num_rows]
    if not tables:
        return []
    rows = pa.concat_tables(tables).combine_chunks().to_batches()[0]
    rowtimes, timed = _times(rows, "_rowtime")
    values, offsets = _values(rows, lag), rows.column("_offset").to_numpy()
    named = rows.column("_split").dictionary_encode()
    numbers = named.indices.to_numpy()
    order = np.lexsort((offsets, numbers))
    found: list[Told] = []
    for own in np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1):
        split = named.dictionary[int(numbers[own[0]])].as_py()
        bounds, before, emits = _bounds_of(rowtimes[own], timed[own], values[own]), standing.started(split), gap == 1
        late = 0 if standing.floor is None else bounds.late(before, bounds.told_after(before, emits))
        if late is None and not emits:
            late = _count(timed[own] & (rowtimes[own] <= micros(before)))
        elif late is None and bool(np.all(np.diff(offsets[own]) > 0)):
            late, _ = _emitting(rowtimes[own], timed[own], values[own], before)
        if late is None:
            return None
        found.append(bounds.told(split, late))
    return found


def _bounds_of(rowtimes: Numbers, timed: Flags, values: Numbers) -> Bounds:
    count, greatest = _count(timed), int(values.max())
    least, newest = (int(rowtimes[timed].min()), int(rowtimes.max())) if count else (None, None)
    return Bounds(len(rowtimes), count, least, newest, None if greatest == _LEAST else greatest)


# Columns of a batch.


def _emitting(rowtimes: Numbers, timed: Flags, values: Numbers, before: int) -> tuple[int, int]:
    """Of rows in order, each of which emits its value: how many are late, and what was emitted after the last."""
    emitted = np.maximum.accumulate(np.concatenate(([before], values)))
    told = np.clip(emitted[:-1], _LEAST // 1000 + 1, _MOST // 1000) * 1000  # in µs, as `micros` has it
    return _count(timed & (rowtimes <= told)), int(emitted[-1])


def _values(batch: pa.RecordBatch, lag: Lag) -> Numbers:
    """In ms, and before all others where there is none."""
    times, there = _times(batch, lag.column)
    return np.where(there, lag.value(times), _LEAST)  # type: ignore[call-overload]


def _times(batch: pa.RecordBatch, path: str) -> tuple[Numbers, Flags]:
    """A column of times in µs, and which of them there are; the others are before all."""
    first, *fields = path.split(".")
    column = batch.column(first)
    column = pc.call_function("struct_field", [column], pc.StructFieldOptions(fields)) if fields else column
    there = column.is_valid().to_numpy(zero_copy_only=False)
    return column.cast(pa.int64()).fill_null(_LEAST).to_numpy(), there


def _count(flags: Flags) -> int:
    return int(np.count_nonzero(flags))
