"""A run: the versions of a build that landed in some of its epochs, as files that never change and that every task
maps.

hashes         of the distinct keys, ascending; `first` is a table over their top bits
start          the place of each key's first version; one more at the end
times          of each version (us, UTC; NO_TIME first), in order of (key, rowtime, seq)
epochs, ops    of each version; an op is its letter's number: DELETE
latest         the place of each key's version with the greatest seq
keys           the distinct keys, if equal hashes do not prove equal keys
rows           the table's columns and `_seq`, in the same order (Arrow IPC)
truncates      rowtime, epoch and seq of each truncate
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.pipelines.connectors.spec import SEQ_PARTS
from tidegate.pipelines.versions.checksums import FACTS, compare, facts_of
from tidegate.pipelines.versions.hashing import Flags, Hashes, Numbers, Word, masked, restored, same

Ops = npt.NDArray[np.uint8]

NO_TIME = int(np.iinfo(np.int64).min)
"""The time of a version without one: before all others."""

NONE = -1
"""Stands for a key or a version that does not exist."""

DELETE, TRUNCATE = ord("d"), ord("t")

ARRAYS = ("hashes", "first", "start", "times", "epochs", "ops", "latest")
HOT_VERSIONS, HOT_KEYS = 1000, 16
"""A key with more versions than the first number is searched by itself, if there are at most so many such keys as the
second."""
FEW_ABSENT = 8
"""If at most an eighth of the rows have a key that the run lacks, they are searched like the others."""


def times_of(column: pa.ChunkedArray) -> Numbers:
    return column.cast(pa.int64()).fill_null(NO_TIME).to_numpy()


def seq_parts(seq: pa.Array) -> list[Numbers]:
    """The parts of each seq, the most significant first; NULL is less than any value, as in Spark."""
    parts = pa.Table.from_arrays(seq.flatten(), [field.name for field in seq.type])
    return [_number(parts[name]) for name in SEQ_PARTS]


def _number(part: pa.ChunkedArray) -> Numbers:
    if part.null_count == len(part):
        return np.broadcast_to(np.int64(NO_TIME), len(part))
    return part.cast(pa.int64()).fill_null(NO_TIME).to_numpy()


def ranked(parts: Sequence[Numbers]) -> Numbers:
    """A number for each seq of a run, in the order of the seqs."""
    found, bits = np.zeros(len(parts[0]), np.int64), 0
    moving = [part for part in parts if len(part) and part.min() != part.max()]
    spans = [int(part.max()) - int(part.min()) for part in moving]
    for part, span in zip(moving, spans, strict=True):
        bits += span.bit_length()
        if bits > 62:
            return _ranked_by_sorting(parts)
        found = (found << span.bit_length()) | (part - part.min())
    return found


def _ranked_by_sorting(parts: Sequence[Numbers]) -> Numbers:
    order = np.lexsort(list(reversed(parts)))
    new = np.zeros(len(order), bool)
    for part in parts:
        new[1:] |= part[order][1:] != part[order][:-1]
    found = np.empty(len(order), np.int64)
    found[order] = np.cumsum(new)
    return found


def latest_places(rank: Numbers, start: Numbers) -> Numbers:
    """The place of each key's version with the greatest rank; of equal ones the last."""
    keys = len(start) - 1
    counts = np.diff(start)
    found = np.full(keys, NONE, np.int64)
    if len(rank):
        there = np.flatnonzero(counts)
        greatest = np.maximum.reduceat(rank, start[:-1][there])
        owner = np.repeat(there, counts[there])
        places = np.flatnonzero(rank == np.repeat(greatest, counts[there]))
        found[owner[places]] = places
    return found


def joined(pieces: Sequence[pa.Array]) -> pa.Array:
    """Arrays of one column one after another: some may be dictionaries, or large text."""
    plain = [piece.dictionary_decode() if pa.types.is_dictionary(piece.type) else piece for piece in pieces]
    kind = max((piece.type for piece in plain), key=lambda each: str(each).startswith("large"))
    return pa.concat_arrays([piece.cast(kind) for piece in plain])


def _mapped(path: Path) -> pa.RecordBatch:
    return pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0)


class Run:
    """A run that was made, mapped from disk: once it was compared, only what is used is read. Raises OSError, EOFError,
    ValueError, KeyError, TypeError if it is not whole."""

    def __init__(self, folder: Path) -> None:
        facts = facts_of(folder)
        self.count, self.salt, self.shards = int(facts["rows"]), int(facts["salt"]), int(facts["shards"])
        self.upto = int(facts["upto"])  # the greatest epoch of a version
        self.timeless, self.deletes = bool(facts["timeless"]), bool(facts["deletes"])  # whether there are any
        self.hashes: Hashes
        self.hashes, self.first, self.start, self.times, self.epochs, self.ops, self.latest = (
            np.load(folder / f"{name}.npy", mmap_mode="r").view(np.ndarray) for name in ARRAYS
        )
        self.rows = _mapped(folder / "rows.arrow")
        self.truncates = _mapped(folder / "truncates.arrow")
        held = _mapped(folder / "keys.arrow") if facts["compared"] else None
        self.keys = [] if held is None else restored(dict(zip(held.schema.names, held.columns, strict=True)))
        self.places: Numbers | None = None
        self._shift = np.uint64(64 - (len(self.first) - 2).bit_length())

    def of(self, places: Numbers, upto: int) -> Run:
        """A run of the same keys with the versions at these places alone, in their order; none is of an epoch after
        `upto`."""
        seen = object.__new__(Run)
        seen.__dict__ = {**self.__dict__, "upto": upto, "start": np.searchsorted(places, self.start)}
        seen.places = places if self.places is None else self.places[places]
        seen.times, seen.epochs, seen.ops = self.times[places], self.epochs[places], self.ops[places]
        seen.latest = latest_places(ranked(self.seq(places)), seen.start)
        return seen

    def range(self, keys: Numbers) -> tuple[Numbers, Numbers]:
        """The place of each key's first version, and the place after its last; equal for a key without versions."""
        safe = np.maximum(keys, 0)
        first = self.start[safe]
        return first, np.where(keys == NONE, first, self.start[safe + 1])

    def key_of(self, hashes: Hashes, parts: Sequence[Word]) -> Numbers:
        """The number of each row's key; NONE where the run does not have it."""
        if not len(self.hashes):
            return np.full(len(hashes), NONE, np.int64)
        prefix = (hashes >> self._shift).view(np.int64)
        found = self.first.take(prefix).astype(np.int64)
        known = self.hashes.take(found, mode="clip") == hashes
        # Most keys are the first of their prefix; the others are looked for one by one.
        rows = np.flatnonzero(~known)
        place, wanted = found.take(rows) + 1, hashes.take(rows)
        end = self.first.take(prefix.take(rows) + 1)
        while len(live := np.flatnonzero(place < end)):
            rows, place, wanted, end = rows.take(live), place.take(live), wanted.take(live), end.take(live)
            hit = np.flatnonzero(self.hashes.take(place) == wanted)
            found[rows.take(hit)], known[rows.take(hit)] = place.take(hit), True
            end[hit] = 0
            place += 1
        rows = np.flatnonzero(known)
        for own, part in zip(self.keys, parts, strict=False):  # none where the hash alone decides
            known[rows] &= same(own, found.take(rows), part, rows)
        found[~known] = NONE
        return found

    def last(self, keys: Numbers, times: Numbers | None) -> tuple[Numbers, Flags]:
        """The place of each row's version, or NONE: the last one of its key up to the row's time or, without times, the
        one with the greatest seq. And whether the key has any version (with a time)."""
        absent, whole = keys == NONE, self.places is None and len(self.times) > 0
        if times is not None and whole and np.count_nonzero(absent) * FEW_ABSENT <= len(keys):
            own = np.maximum(keys, 0)  # to look for any key costs less than to leave a few rows out
            found, known = self._last_in(self.start.take(own), self.start.take(own + 1), times)
            found[absent], known[absent] = NONE, False
            return found, known
        found, known = np.full(len(keys), NONE, np.int64), np.zeros(len(keys), bool)
        if times is None:
            rows = np.flatnonzero(~absent)
            found[rows] = self.latest.take(keys.take(rows))
            return found, found != NONE
        first, end = self.range(keys)
        rows = np.flatnonzero(first < end)
        found[rows], known[rows] = self._last_in(first.take(rows), end.take(rows), times.take(rows))
        return found, known

    def _last_in(self, first: Numbers, end: Numbers, upto: Numbers) -> tuple[Numbers, Flags]:
        """The same, searched at places first <= p < end; no range is empty."""
        known = self.times.take(end - 1) != NO_TIME if self.timeless else np.ones(len(end), bool)
        size = end - first
        at = self._in_hot(first, size, upto)
        # All rows halve their `size` in lockstep; those that are left alone are taken out once they are the most.
        place, live, limit = first, np.arange(0), upto
        while True:
            half = size >> 1
            middle = at + half
            at = np.where(self.times.take(middle) <= limit, middle, at)
            size = size - half
            going = np.flatnonzero(size > 1)
            if len(going) > 0 and len(size) <= 2 * len(going):
                continue
            if place is first:
                place, live = at.copy(), going
            else:
                place[live], live = at, live.take(going)
            if not len(going):
                break
            at, size, limit = at.take(going), size.take(going), limit.take(going)
        time = self.times.take(place)
        met = time <= upto
        if self.timeless:
            met &= time != NO_TIME
        return np.where(met, place, NONE), known

    def _in_hot(self, first: Numbers, size: Numbers, upto: Numbers) -> Numbers:
        """The place at which each row's search begins. If few keys have many versions, their rows are searched here:
        `size` becomes 1."""
        many = np.flatnonzero(size > HOT_VERSIONS)
        hot = np.unique(first.take(many)) if len(many) else many
        if not 0 < len(hot) <= HOT_KEYS:
            return first
        at = first.copy()
        for begin in hot:
            rows = many[first.take(many) == begin]
            rows = rows[np.argsort(upto.take(rows))]
            line = self.times[begin : begin + size[rows[0]]]
            at[rows] = begin + np.maximum(np.searchsorted(line, upto.take(rows), "right") - 1, 0)
        size[many] = 1
        return at

    def taken(self, columns: Sequence[str], places: Numbers, wanted: Flags | None = None) -> list[pa.Array]:
        """Columns of the versions at these places; NULL where they are not `wanted`."""
        if wanted is not None and not wanted.any():
            return [pa.nulls(len(places), self.rows.schema.field(name).type) for name in columns]
        if self.places is not None:
            places = self.places.take(places, mode="clip")
        at = masked(places, None if wanted is None or wanted.all() else wanted)
        return [self.rows.column(name).take(at) for name in columns]

    def seq(self, places: Numbers) -> list[Numbers]:
        """The parts of the seqs of the versions at these places."""
        return seq_parts(self.taken(["_seq"], places)[0])


_NOT_WHOLE = (OSError, EOFError, ValueError, KeyError, TypeError)

_Key = tuple[str, int, int]
"""A run: its folder, and what changes when another one is made there."""

_OPEN: dict[_Key, Run] = {}
"""The runs that this process has mapped, the last used one at the end. A worker's next release finds the pages of the
last one in memory."""

_COMPARED: set[_Key] = set()
"""The runs whose checksums this process has compared."""

_LOCK = threading.Lock()

MAPPED = 48
"""How many runs stay mapped. Each has ten open files, and a process may often have 1,024 at most."""


def opened(folder: str) -> Run | None:
    """The run in a folder; None if it is not there as it was made. Runs whose folders are gone are unmapped, or their
    disk space would not be freed."""
    try:
        key = _key(folder)
        with _LOCK:
            run = _OPEN.pop(key, None)
            if run is None:
                for other in [one for one in _OPEN if not os.path.exists(one[0])]:
                    del _OPEN[other]
                _compare_once(key)
                run = Run(Path(folder))
                while len(_OPEN) >= MAPPED:
                    del _OPEN[next(iter(_OPEN))]
            _OPEN[key] = run
            return run
    except _NOT_WHOLE:
        return None


def whole_at(folder: str) -> bool:
    """Whether a run is there as it was made; it does not stay mapped."""
    try:
        _compare_once(_key(folder))
        return Run(Path(folder)) is not None
    except _NOT_WHOLE:
        return False


def _key(folder: str) -> _Key:
    status = (Path(folder) / FACTS).stat()
    return folder, status.st_ino, status.st_mtime_ns


def _compare_once(key: _Key) -> None:
    if key not in _COMPARED:
        compare(Path(key[0]))
        _COMPARED.difference_update([one for one in _COMPARED if not os.path.exists(one[0])])
        _COMPARED.add(key)


@lru_cache(maxsize=16)
def _seen(run: Run, pin: int) -> Run:
    return run.of(np.flatnonzero(run.epochs <= pin), pin)


def seen(run: Run, pin: int) -> Run:
    """A run without the versions of epochs after the pin."""
    return run if run.upto <= pin else _seen(run, pin)
