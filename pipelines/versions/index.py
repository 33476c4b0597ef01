"""All runs of a build as one: the version that each row meets, by event time or by processing time.

A row meets the last version of its key with rowtime <= t (then by seq), or the one with the greatest seq. A delete, and
a truncate that came after the version and by then, leave a gap. Of several runs the later version wins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.pipelines.versions.hashing import SALT, Flags, Hashes, Numbers, Word, hashed, masked, taken, words
from tidegate.pipelines.versions.run import (
    DELETE,
    NO_TIME,
    NONE,
    Made,
    Run,
    joined,
    seen,
    seq_parts,
    shard_of,
    times_of,
)
from tidegate.pipelines.versions.runs import whole

BLOCK = 1 << 17
"""Rows that are looked up at once: their numbers stay in the processor's cache."""

MATCH, ABSENT, BEFORE_FIRST, GONE = range(4)
"""What a row met: a version; no version of its key by the pin; none by its time, but a later one; a gap."""


@dataclass(frozen=True)
class IndexOf:
    """An index for a task to open: the runs of a build's generation, as of the pin `epoch`. `rows`: how many rows they
    hold in all; None where nobody knows (retention has removed some)."""

    runs: tuple[Made, ...]
    epoch: int
    rows: int | None = None


@dataclass(frozen=True)
class Found:
    """What each row met (MATCH, …), and, but for ABSENT and BEFORE_FIRST, the version: its run, and its place there."""

    what: npt.NDArray[np.int8]
    run: npt.NDArray[np.int16]
    place: Numbers


@dataclass
class _Truncates:
    """By rowtime, then seq: those that have a time; and the seq of the last one of all."""

    times: Numbers
    seqs: list[Numbers]
    last: list[int] | None


class Index:
    """The runs of one build at a pin."""

    def __init__(self, runs: Sequence[tuple[Run, int]], pin: int) -> None:
        """`runs`: each with the number of its shard."""
        self.pin = pin
        self.runs = [(seen(run, pin), shard) for run, shard in runs]

    def find(self, keys: Sequence[pa.Array], times: Numbers | None) -> Found:
        """What rows with these keys meet at their times (us, UTC), or, without times, as of the pin. What a row finds
        that has a NULL in its key, or no time, means nothing."""
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
        def look(run: Run, key: Numbers, rows: Numbers | None) -> tuple[Numbers, Flags]:
            if times is None:
                return run.last(key)
            return run.last_by(key, times if rows is None else times.take(rows))

        run_of, place_of, known = self._best(keys, look, self._later, times is not None)
        none = np.where(known, np.int8(BEFORE_FIRST), np.int8(ABSENT))
        what = np.where(run_of != NONE, np.int8(MATCH), none)
        for number, (run, _) in enumerate(self.runs):
            if run.deletes or len(self._truncates.seqs):
                self._gaps(what, np.flatnonzero(run_of == number), number, place_of, times)
        return Found(what, run_of, place_of)

    def first(self, keys: Sequence[pa.Array]) -> Found:
        """The first version of each key by time and seq, of an index of those that have a time."""

        def look(run: Run, key: Numbers, _: Numbers | None) -> tuple[Numbers, Flags]:
            begin, end = run.range(key)
            return np.where(begin < end, begin, NONE), begin < end

        run_of, place_of, _ = self._best(keys, look, lambda *found: ~self._later(*found), by_time=True)
        return Found(np.where(run_of != NONE, np.int8(MATCH), np.int8(ABSENT)), run_of, place_of)

    def _best(
        self,
        keys: Sequence[pa.Array],
        look: Callable[[Run, Numbers, Numbers | None], tuple[Numbers, Flags]],
        wins: Callable[[int, Numbers, npt.NDArray[np.int16], Numbers, bool], Flags],
        by_time: bool,
    ) -> tuple[npt.NDArray[np.int16], Numbers, Flags]:
        """Of what each run has for a row, the one that wins over those of other runs: its run and place; and whether
        there is any version of the key in time."""
        run_of, place_of = np.full(len(keys[0]), NONE, np.int16), np.full(len(keys[0]), NONE, np.int64)
        known = np.zeros(len(run_of), bool)
        for number, (run, rows, key) in enumerate(self._keys(keys)):
            place, some = look(run, key, rows)
            if rows is None and number == 0:
                place_of, known, run_of = place, some, (place != NONE).astype(np.int16) - 1
                continue
            hit, some = np.flatnonzero(place != NONE), np.flatnonzero(some)
            known[some if rows is None else rows.take(some)] = True
            place, rows = place.take(hit), hit if rows is None else rows.take(hit)
            before = np.flatnonzero(run_of.take(rows) != NONE)
            lost = before[~wins(number, place.take(before), run_of[rows[before]], place_of[rows[before]], by_time)]
            run_of[np.delete(rows, lost)], place_of[np.delete(rows, lost)] = number, np.delete(place, lost)
        return run_of, place_of, known

    def _keys(self, keys: Sequence[pa.Array]) -> Iterator[tuple[Run, Numbers | None, Numbers]]:
        """Of each run: the rows whose keys may be in its shard (None: all), and the number of each one's key."""
        parts, by_salt = words(keys), dict[int, Hashes]()
        for run, shard in self.runs:
            hashes = _hashed(by_salt, parts, run.salt)
            if run.shards == 1:
                yield run, None, run.key_of(hashes, parts)
            else:
                own = np.flatnonzero(shard_of(_hashed(by_salt, parts, SALT), run.shards) == shard)
                yield run, own, run.key_of(hashes.take(own), [taken(part, own) for part in parts])

    def of(self, keys: Sequence[pa.Array], *, timed: bool) -> Index:
        """An index of all versions of these keys, or of those that have a time, and of no other: cheap to look at as
        other pins see it."""
        runs: list[tuple[Run, int]] = []
        for number, (run, _, key) in enumerate(self._keys(keys)):
            ranges = zip(*run.range(np.unique(key[key != NONE])), strict=True)
            places = np.concatenate([np.empty(0, np.int64), *(np.arange(*each) for each in ranges)])
            if timed:
                places = places[run.times[places] != NO_TIME]
            runs.append((run.of(places, run.upto), self.runs[number][1]))
        return Index(runs, self.pin)

    def at(self, pin: int) -> Index:
        """As an earlier pin sees it."""
        return Index(self.runs, pin)

    def _later(self, number: int, place: Numbers, runs: npt.NDArray[np.int16], places: Numbers, by_time: bool) -> Flags:
        """Whether versions of a run come after those of others, by time and seq, or by seq."""
        found = np.ones(len(place), bool)
        for other in np.unique(runs):
            rows = np.flatnonzero(runs == other)
            one, two = self.runs[number][0], self.runs[other][0]
            mine, theirs = place[rows], places[rows]
            if by_time:
                after = one.times[mine] > two.times[theirs]
                tied = np.flatnonzero(one.times[mine] == two.times[theirs])
            else:
                after, tied = np.zeros(len(rows), bool), np.arange(len(rows))
            if len(tied):
                after[tied] = ~_less(one.seq(mine[tied]), two.seq(theirs[tied]))
            found[rows] = after
        return found

    def _gaps(
        self, what: npt.NDArray[np.int8], rows: Numbers, number: int, places: Numbers, times: Numbers | None
    ) -> None:
        """Mark what has met a delete, or a version that a truncate has ended."""
        run, place = self.runs[number][0], places.take(rows)
        what[rows[run.ops.take(place) == DELETE]] = GONE
        truncates = self._truncates
        if times is None:
            if truncates.last is not None and len(rows):
                last = [np.full(len(rows), part, np.int64) for part in truncates.last]
                what[rows[_less(run.seq(place), last)]] = GONE
        elif len(truncates.times):
            begun = run.times[place]
            after = np.searchsorted(truncates.times, begun, "right")
            safe = np.minimum(after, len(truncates.times) - 1)
            what[rows[(after < len(truncates.times)) & (truncates.times[safe] <= times[rows])]] = GONE
            # Truncates of the version's own time: the last of them by seq comes after it, or none does.
            same = np.flatnonzero((after > 0) & (truncates.times[np.maximum(after - 1, 0)] == begun))
            if len(same):
                ends = [part[after[same] - 1] for part in truncates.seqs]
                what[rows[same[_less(run.seq(place[same]), ends)]]] = GONE

    @cached_property
    def _truncates(self) -> _Truncates:
        held = [run.truncates for run, _ in self.runs]
        if not any(batch.num_rows for batch in held):
            return _Truncates(np.empty(0, np.int64), [], None)
        rows = pa.Table.from_batches(held)
        rows = rows.filter(pa.array(rows["_epoch"].to_numpy() <= self.pin))
        times, seqs = times_of(rows["_rowtime"]), seq_parts(rows["_seq"].combine_chunks())
        if not len(times):
            return _Truncates(times, [], None)
        last = np.lexsort(list(reversed(seqs)))[-1]
        timed = rows["_rowtime"].is_valid().to_numpy()
        order = np.lexsort([*reversed(seqs), times])
        order = order[timed[order]]
        return _Truncates(times[order], [part[order] for part in seqs], [int(part[last]) for part in seqs])

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
        values = np.zeros(len(found.run), np.int64)
        for number, (run, _) in enumerate(self.runs):
            if len(self.runs) == 1 and len(run.times):
                return getattr(run, array).take(found.place, mode="clip")
            rows = np.flatnonzero(found.run == number)
            values[rows] = getattr(run, array)[found.place[rows]]
        return values


def opened(index: IndexOf) -> Index:
    """The index, its runs made where they are missing. Raises OSError, LakeError."""
    return Index(
        [(run, made.shard) for made, run in zip(index.runs, whole(index.runs, index.rows), strict=True)], index.epoch
    )


def _hashed(known: dict[int, Hashes], parts: Sequence[Word], salt: int) -> Hashes:
    if salt not in known:
        known[salt] = hashed(parts, salt)
    return known[salt]


def _less(one: Sequence[Numbers], other: Sequence[Numbers]) -> Flags:
    """Whether seqs come before others."""
    found, alike = np.zeros(len(one[0]), bool), np.ones(len(one[0]), bool)
    for mine, theirs in zip(one, other, strict=True):
        found |= alike & (mine < theirs)
        alike &= mine == theirs
    return found
