"""All runs of a build as one: the version that each row meets, by event time or by processing time.

A row meets the last version of its key with rowtime <= t (then by seq), or the one with the greatest seq. A delete, and
a truncate that came after the version and by then, leave a gap. Of several runs the later version wins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from tidegate.pipelines.versions.hashing import SALT, Flags, Hashes, Numbers, Word, hashed, taken, words
from tidegate.pipelines.versions.run import DELETE, NO_TIME, NONE, Made, Run, seen, seq_parts, shard_of, times_of
from tidegate.pipelines.versions.runs import whole

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

    what: Numbers
    run: Numbers
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
        run_of, place_of = (np.full(len(keys[0]), NONE, np.int64) for _ in range(2))
        known = np.zeros(len(run_of), bool)
        for number, (run, rows, key) in enumerate(self._keys(keys)):
            place, some = run.last(key) if times is None else run.last_by(key, times[rows])
            rows, place = np.arange(len(run_of))[rows], place
            known[rows[some]] = True
            hit = place != NONE
            rows, place = rows[hit], place[hit]
            wins = self._later(number, place, run_of[rows], place_of[rows], by_time=times is not None)
            run_of[rows[wins]], place_of[rows[wins]] = number, place[wins]
        what = np.where(run_of != NONE, MATCH, np.where(known, BEFORE_FIRST, ABSENT))
        for number in range(len(self.runs)):
            self._gaps(what, np.flatnonzero(run_of == number), number, place_of, times)
        return Found(what, run_of, place_of)

    def _keys(self, keys: Sequence[pa.Array]) -> Iterator[tuple[Run, Numbers | slice, Numbers]]:
        """Of each run: the rows whose keys may be in its shard, and the number of each one's key."""
        parts, by_salt = words(keys), dict[int, Hashes]()
        for run, shard in self.runs:
            hashes = _hashed(by_salt, parts, run.salt)
            if run.shards == 1:
                yield run, slice(None), run.key_of(hashes, parts)
            else:
                own = np.flatnonzero(shard_of(_hashed(by_salt, parts, SALT), run.shards) == shard)
                yield run, own, run.key_of(hashes[own], [taken(part, own) for part in parts])

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

    def first(self, keys: Sequence[pa.Array]) -> Found:
        """The first version of each key by time and seq, of an index of those that have a time."""
        run_of, place_of = (np.full(len(keys[0]), NONE, np.int64) for _ in range(2))
        for number, (run, rows, key) in enumerate(self._keys(keys)):
            begin, end = run.range(key)
            hit = begin < end
            rows, place = np.arange(len(run_of))[rows][hit], begin[hit]
            wins = ~self._later(number, place, run_of[rows], place_of[rows], by_time=True) | (run_of[rows] == NONE)
            run_of[rows[wins]], place_of[rows[wins]] = number, place[wins]
        return Found(np.where(run_of == NONE, ABSENT, MATCH), run_of, place_of)

    def _later(self, number: int, place: Numbers, runs: Numbers, places: Numbers, *, by_time: bool) -> Flags:
        """Whether versions of a run come after those that were found before, by time and seq, or by seq."""
        wins = np.ones(len(place), bool)
        for other in np.unique(runs[runs != NONE]):
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
            wins[rows] = after
        return wins

    def _gaps(self, what: Numbers, rows: Numbers, number: int, places: Numbers, times: Numbers | None) -> None:
        """Mark what has met a delete, or a version that a truncate has ended."""
        run, place = self.runs[number][0], places[rows]
        what[rows[run.ops[place] == DELETE]] = GONE
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

    def taken(self, column: str, found: Found, wanted: Flags) -> pa.Array:
        """A column of the versions that were met; NULL where not `wanted`."""
        pieces: list[pa.Array] = []
        at, total = np.full(len(wanted), NONE, np.int64), 0
        for number, (run, _) in enumerate(self.runs):
            rows = np.flatnonzero(wanted & (found.run == number))
            if len(self.runs) == 1 and len(rows):
                return run.taken(column, found.place, None if len(rows) == len(wanted) else ~wanted)
            if len(rows):
                pieces.append(run.taken(column, found.place[rows]))
                at[rows] = total + np.arange(len(rows))
                total += len(rows)
        if not pieces:
            return pa.nulls(len(wanted), self.runs[0][0].rows.schema.field(column).type)
        kind = max((piece.type for piece in pieces), key=lambda each: str(each).startswith("large"))
        return pa.concat_arrays([piece.cast(kind) for piece in pieces]).take(pa.array(at, mask=at == NONE))

    def width(self, columns: Sequence[str]) -> float:
        """The bytes of these columns of one version, on the average."""
        rows = sum(run.rows.num_rows for run, _ in self.runs)
        size = sum(run.rows.column(name).nbytes for run, _ in self.runs for name in columns)
        return size / max(rows, 1)

    def numbers(self, array: str, found: Found, wanted: Flags) -> Numbers:
        """`times`, `epochs` or `ops` of the versions that were met; 0 where not `wanted`."""
        values = np.zeros(len(wanted), np.int64)
        for number, (run, _) in enumerate(self.runs):
            rows = np.flatnonzero(wanted & (found.run == number))
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
