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

from pipelines.lake.footers import Times, statistics_of, times_of_groups
from pipelines.runtime.tasks import each
from pipelines.runtime.watermarking import builtin
from pipelines.runtime.watermarking.lags import Lag
from pipelines.runtime.watermarking.late import micros
from pipelines.runtime.watermarking.passes import SplitPass, SplitsBefore

Numbers = npt.NDArray[np.int64]

Told = dict[str, Any]
"""What was counted of a split's rows, as `builtin.split_pass` takes it."""

SMALL_EPOCH = 65_536
"""So many rows are read by the driver sooner than a task has started."""

AT_ONCE = 1 << 18
"""Rows that are held at once."""

_LEAST = -(2**63)
_ALWAYS = micros(2**63)
"""The last µs there is."""


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


# A large epoch, by its row groups.


@dataclass(frozen=True)
class Group:
    """A row group with rows of one split. Times in µs, the greatest value in ms; None where all are NULL."""

    path: str
    number: int
    split: str
    first: int
    last: int
    rows: int
    timed: int
    least: int | None
    newest: int | None
    greatest: int | None


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
    files: Mapping[str, pq.FileMetaData],
    lag: Lag,
    gap: int | None,
    standing: SplitsBefore,
    spark: SparkSession,
) -> list[Told] | None:
    groups = _groups(files, lag)
    if groups is None:
        return None
    splits: dict[str, list[Group]] = defaultdict(list)
    for group in sorted(groups, key=lambda group: (group.split, group.first)):
        splits[group.split].append(group)
    emits = gap is not None and standing.floor is not None
    if emits and any(one.last >= next.first for own in splits.values() for one, next in pairwise(own)):
        return None
    counts: dict[str, int] = dict.fromkeys(splits, 0)
    looks: list[Look] = []
    for split, own in splits.items() if standing.floor is not None else ():
        counts[split], undecided = _decided(own, standing.started(split), lag, emits)
        looks += undecided
    found = each(spark, count_late, looks) if looks else []
    for look, count in zip(looks, found, strict=True):
        if count is None:
            return None
        counts[look.split] += count
    return [_told(split, own, counts[split]) for split, own in splits.items()]


def _told(split: str, own: Sequence[Group], late: int) -> Told:
    newest = _most(group.newest for group in own)
    return {
        "_split": split,
        "rows": sum(group.rows for group in own),
        "late": late,
        "greatest": _most(group.greatest for group in own),
        "rowtime": None if newest is None else newest // 1000,
    }


def _most(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _groups(files: Mapping[str, pq.FileMetaData], lag: Lag) -> list[Group] | None:
    found: list[Group] = []
    for path, footer in files.items():
        known = _bounds(footer, lag)
        if known is None:
            return None
        for number, (rowtime, value) in enumerate(known):
            group = footer.row_group(number)
            if not group.num_rows:
                continue
            split, offsets = statistics_of(group, "_split"), statistics_of(group, "_offset")
            if split is None or split.null_count or split.min != split.max or offsets is None or offsets.null_count:
                return None
            greatest = None if value.greatest is None else lag.value(value.greatest)
            timed = group.num_rows - rowtime.nulls
            own = (rowtime.least, rowtime.greatest, greatest)
            found.append(Group(path, number, split.min, offsets.min, offsets.max, group.num_rows, timed, *own))
    return found


def _bounds(footer: pq.FileMetaData, lag: Lag) -> list[tuple[Times, Times]] | None:
    """Of every row group those of the rowtime, and of the column that the values come from."""
    rowtimes, values = times_of_groups(footer, "_rowtime"), times_of_groups(footer, lag.column)
    if rowtimes is None or values is None:
        return None
    if any(value.least is not None and value.least - lag.micros < _LEAST for value in values):
        return None  # what is left is no number of 64 bits
    return list(zip(rowtimes, values, strict=True))


def _decided(own: Sequence[Group], before: int, lag: Lag, emits: bool) -> tuple[int, list[Look]]:
    """Late rows of a split's groups, in order, as far as bounds tell, and what has to be looked at. `emits`: what the
    rows say is told row by row."""
    late, looks = 0, list[Look]()
    for group in own:
        after = max(before, group.greatest) if emits and group.greatest is not None else before
        if group.least is None or group.newest is None or group.least > micros(after):
            pass
        elif group.newest <= micros(before):
            late += group.timed
        else:
            looks.append(Look(group.split, group.path, group.number, before, after > before, lag))
        before = after
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
    edges = np.flatnonzero(np.diff(numbers[order])) + 1
    emits, found = gap is not None and standing.floor is not None, list[Told]()
    for own in np.split(order, edges):
        split = named.dictionary[int(numbers[own[0]])].as_py()
        if emits and not bool(np.all(np.diff(offsets[own]) > 0)):
            return None
        before = standing.started(split)
        if standing.floor is None:
            late = 0
        elif emits:
            late, _ = _emitting(rowtimes[own], timed[own], values[own], before)
        else:
            late = _count(timed[own] & (rowtimes[own] <= micros(before)))
        greatest, newest = int(values[own].max()), int(rowtimes[own].max())
        found.append(
            {
                "_split": split,
                "rows": len(own),
                "late": late,
                "greatest": None if greatest == _LEAST else greatest,
                "rowtime": newest // 1000 if bool(timed[own].any()) else None,
            }
        )
    return found


# Columns of a batch.


def _emitting(rowtimes: Numbers, timed: npt.NDArray[np.bool_], values: Numbers, before: int) -> tuple[int, int]:
    """Of rows in order, each of which emits its value: how many are late, and what was emitted after the last."""
    emitted = np.maximum.accumulate(np.concatenate(([before], values)))
    told = np.clip(emitted[:-1], _LEAST // 1000 + 1, _ALWAYS // 1000) * 1000
    return _count(timed & (rowtimes <= told)), int(emitted[-1])


def _values(batch: pa.RecordBatch, lag: Lag) -> Numbers:
    """In ms, and before all others where there is none."""
    times, there = _times(batch, lag.column)
    return np.where(there, lag.value(times), _LEAST)  # type: ignore[call-overload]


def _times(batch: pa.RecordBatch, path: str) -> tuple[Numbers, npt.NDArray[np.bool_]]:
    """A column of times in µs, and which of them there are; the others are before all."""
    first, *fields = path.split(".")
    column = batch.column(first)
    column = pc.call_function("struct_field", [column], pc.StructFieldOptions(fields)) if fields else column
    there = column.is_valid().to_numpy(zero_copy_only=False)
    return column.cast(pa.int64()).fill_null(_LEAST).to_numpy(), there


def _count(flags: npt.NDArray[np.bool_]) -> int:
    return int(np.count_nonzero(flags))
