"""All runs of a build as one: the version that each row meets, by event time or by processing time.

A row meets the last version of its key with rowtime <= t (then by seq), or the one with the greatest seq. A delete
leaves a gap, and so does a truncate after the version, up to the row's time. Of several runs' versions the later one
wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.pipelines.versions.hashing import SALT, Flags, Numbers, hashed, masked, taken, words
from tidegate.pipelines.versions.run import DELETE, NO_TIME, NONE, Run, joined, seen, seq_parts, times_of
from tidegate.pipelines.versions.run_files import Made, shard_of
from tidegate.pipelines.versions.runs import whole

BLOCK = 1 << 17
"""Rows that are looked up at once: few enough that their numbers stay in the processor's cache."""

MATCH, ABSENT, BEFORE_FIRST, GONE = range(4)
"""What a row met: a version; no version of its key up to the pin; only versions after its time; a gap."""


@dataclass(frozen=True)
class IndexOf:
    """An index for a task to open: the runs of a build's generation, as of the pin `epoch`.

    `rows`: how many rows they have in all; None if that is not known (retention has removed some). `horizon`: retention
    has removed versions that ended at or before it (us, UTC), so a row before it finds nothing.
    """

    runs: tuple[Made, ...]
    epoch: int
    rows: int | None = None
    horizon: int | None = None


@dataclass(frozen=True)
class Found:
    """What each row met (MATCH, …), and its version (not for ABSENT and BEFORE_FIRST): its run, and its place in the
    run."""

    what: npt.NDArray[np.int8]
    run: npt.NDArray[np.int16]
    place: Numbers


class _Truncates:
    """Truncates in order of (rowtime, seq), as a run has versions; `newest` is the place of the one with the greatest
    seq."""

    def __init__(self, rows: pa.Table) -> None:
        times, parts = times_of(rows["_rowtime"]), seq_parts(rows["_seq"].combine_chunks())
        order = np.lexsort([*reversed(parts), times])
        self.times, self._parts = times[order], [part[order] for part in parts]
        self.newest = int(np.lexsort(self._parts[::-1])[-1]) if len(order) else NONE

    def seq(self, places: Numbers) -> list[Numbers]:
        return [part[places] for part in self._parts]


class Index:
    """The runs of one build at a pin."""

    def __init__(self, runs: Sequence[tuple[Run, int]], pin: int) -> None:
        """`runs`: each with the number of its shard."""
        self.pin = pin
        self.runs = [(seen(run, pin), shard) for run, shard in runs]

    def find(self, keys: Sequence[pa.Array], times: Numbers | None) -> Found:
        """What rows with these keys meet at their times (us, UTC) or, without times, as of the pin. For a row with a
        NULL in its key, or without a time, the result means nothing."""
        found = [
            self._find(
                [key.slice(first, BLOCK) for key in keys], times if times is None else times[first : first + BLOCK]
            )
            for first in range(0, max(len(keys[0]), 1), BLOCK)
        ]
        if len(found) == 1:
            return found[0]
        what, run, place = zip(*((each.what, each.run, each.place) for each in found), strict=True)
        return Found(np.concatenate(what), np.concatenate(run), np.concatenate(place))

    def _find(self, keys: Sequence[pa.Array], times: Numbers | None) -> Found:
        run_of, place_of, known = self._best(keys, times)
        none = np.where(known, np.int8(BEFORE_FIRST), np.int8(ABSENT))
        what = np.where(run_of != NONE, np.int8(MATCH), none)
        for number, (run, _) in enumerate(self.runs):
            if run.deletes or len(self._truncates.times):
                rows = np.flatnonzero(run_of == number)
                gone = self._gone(run, place_of.take(rows), None if times is None else times.take(rows))
                what[rows[gone]] = GONE
        return Found(what, run_of, place_of)

    def first(self, keys: Sequence[pa.Array]) -> Found:
        """The first version of each key by time and seq, of an index of those that have a time."""
        run_of, place_of, _ = self._best(keys, None, first=True)
        return Found(np.where(run_of != NONE, np.int8(MATCH), np.int8(ABSENT)), run_of, place_of)

    def _best(
        self, keys: Sequence[pa.Array], times: Numbers | None, *, first: bool = False
    ) -> tuple[npt.NDArray[np.int16], Numbers, Flags]:
        """For each row the best of the runs' versions, as run and place: the last by time and seq, or by seq alone, or
        the `first` by time and seq; and whether the key has any version (with a time)."""
        run_of, place_of = np.full(len(keys[0]), NONE, np.int16), np.full(len(keys[0]), NONE, np.int64)
        known, by_time = np.zeros(len(run_of), bool), first or times is not None
        for number, (run, rows, key) in enumerate(self._keys(keys)):
            if first:
                begin, end = run.range(key)
                some, place = begin < end, np.where(begin < end, begin, NONE)
            else:
                place, some = run.last(key, times if times is None or rows is None else times.take(rows))
            if rows is None and number == 0:
                place_of, known, run_of = place, some, (place != NONE).astype(np.int16) - 1
                continue
            hit, some = np.flatnonzero(place != NONE), np.flatnonzero(some)
            known[some if rows is None else rows.take(some)] = True
            place, rows = place.take(hit), hit if rows is None else rows.take(hit)
            before, wins = run_of.take(rows), np.ones(len(rows), bool)
            for other in np.unique(before[before != NONE]):
                both = np.flatnonzero(before == other)
                theirs = place_of.take(rows.take(both))
                wins[both] = _after(run, place.take(both), self.runs[other][0], theirs, by_time=by_time) != first
            rows, place = rows[wins], place[wins]
            run_of[rows], place_of[rows] = number, place
        return run_of, place_of, known

    def _keys(self, keys: Sequence[pa.Array]) -> Iterator[tuple[Run, Numbers | None, Numbers]]:
        """For each run: the rows whose keys may be in its shard (None for all), and the number of each row's key in
        it."""
        parts = words(keys)
        hashes = cache(lambda salt: hashed(parts, salt))
        for run, shard in self.runs:
            if run.shards == 1:
                yield run, None, run.key_of(hashes(run.salt), parts)
            else:
                own = np.flatnonzero(shard_of(hashes(SALT), run.shards) == shard)
                yield run, own, run.key_of(hashes(run.salt).take(own), [taken(part, own) for part in parts])

    def of(self, keys: Sequence[pa.Array], *, timed: bool) -> Index:
        """A small index of the versions of these keys alone; if `timed`, only of those with a time. Looking at several
        pins in it (`at`) is cheap."""
        runs: list[tuple[Run, int]] = []
        for number, (run, _, key) in enumerate(self._keys(keys)):
            ranges = zip(*run.range(np.unique(key[key != NONE])), strict=True)
            places = np.concatenate([np.empty(0, np.int64), *(np.arange(*each) for each in ranges)])
            if timed:
                places = places[run.times[places] != NO_TIME]
            runs.append((run.of(places, run.upto), self.runs[number][1]))
        return Index(runs, self.pin)

    def at(self, pin: int) -> Index:
        """The index as of an earlier pin."""
        return Index(self.runs, pin)

    def _gone(self, run: Run, places: Numbers, times: Numbers | None) -> Flags:
        """Whether versions of a run are deletes, or were ended by a truncate by these times."""
        gone, ends = run.ops.take(places) == DELETE, self._truncates
        last = np.full(len(places), ends.newest) if times is None else np.searchsorted(ends.times, times, "right") - 1
        rows = np.flatnonzero(last != NONE)
        gone[rows] |= ~_after(run, places[rows], ends, last[rows], by_time=times is not None)
        return gone

    @cached_property
    def _truncates(self) -> _Truncates:
        rows = pa.Table.from_batches([run.truncates for run, _ in self.runs])
        return _Truncates(rows.filter(pa.array(rows["_epoch"].to_numpy() <= self.pin)))

    def taken(self, columns: Sequence[str], found: Found, wanted: Flags) -> list[pa.Array]:
        """Columns of the versions that were met; NULL where not `wanted`."""
        if len(self.runs) == 1:
            return self.runs[0][0].taken(columns, found.place, wanted)
        held: list[list[pa.Array]] = []
        at, total = np.zeros(len(wanted), np.int64), 0
        for number, (run, _) in enumerate(self.runs):
            rows = np.flatnonzero(wanted & (found.run == number))
            held.append(run.taken(columns, found.place[rows]))
            at[rows] = total + np.arange(len(rows))
            total += len(rows)
        return [joined(pieces).take(masked(at, wanted)) for pieces in zip(*held, strict=True)]

    def width(self, columns: Sequence[str]) -> float:
        """The bytes of these columns of one version, on the average."""
        rows = sum(run.rows.num_rows for run, _ in self.runs)
        size = sum(run.rows.column(name).nbytes for run, _ in self.runs for name in columns)
        return size / max(rows, 1)

    def numbers(self, array: str, found: Found) -> Numbers:
        """`times`, `epochs` or `ops` of the versions that were met; any number where there is none."""
        if len(self.runs) == 1 and len(self.runs[0][0].times):
            return getattr(self.runs[0][0], array).take(found.place, mode="clip")
        values = np.zeros(len(found.run), np.int64)
        for number, (run, _) in enumerate(self.runs):
            rows = np.flatnonzero(found.run == number)
            values[rows] = getattr(run, array)[found.place[rows]]
        return values


def opened(index: IndexOf) -> Index:
    """The index, its runs made where they are missing. Raises OSError, LakeError."""
    return Index(
        [(run, made.shard) for made, run in zip(index.runs, whole(index.runs, index.rows), strict=True)], index.epoch
    )


def newest(
    index: IndexOf, columns: Mapping[str, pa.DataType], keys: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """For each batch of `keys`, those that have a version, which may be a delete, with these columns of the newest
    one."""
    runs = None
    for batch in keys:
        runs = runs or opened(index)
        found = runs.find(batch.columns, None)
        there = found.run != NONE
        held = [joined([column]) for column in runs.taken(list(columns), found, there)]
        values = [column.cast(kind) for column, kind in zip(held, columns.values(), strict=True)]
        names = [*batch.schema.names, *columns]
        yield pa.RecordBatch.from_arrays([*batch.columns, *values], names=names).filter(pa.array(there))


def _after(one: Run, mine: Numbers, other: Run | _Truncates, theirs: Numbers, *, by_time: bool) -> Flags:
    """Whether versions of one run come after those of another, or at the same place, by time and seq or by seq
    alone."""
    found, tied = np.zeros(len(mine), bool), np.arange(len(mine))
    if by_time:
        times, others = one.times[mine], other.times[theirs]
        found, tied = times > others, np.flatnonzero(times == others)
    if len(tied):
        found[tied] = ~_less(one.seq(mine[tied]), other.seq(theirs[tied]))
    return found


def _less(one: Sequence[Numbers], other: Sequence[Numbers]) -> Flags:
    """Whether seqs come before others."""
    found, alike = np.zeros(len(one[0]), bool), np.ones(len(one[0]), bool)
    for mine, theirs in zip(one, other, strict=True):
        found |= alike & (mine < theirs)
        alike &= mine == theirs
    return found
