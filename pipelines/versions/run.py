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

import json
import os
import secrets
import shutil
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.pipelines.connectors.spec import SEQ_PARTS
from tidegate.pipelines.location import dataset_of
from tidegate.pipelines.parquet import together
from tidegate.pipelines.sources.arrow_types import arrow_type
from tidegate.pipelines.versions.hashing import (
    SALT,
    Flags,
    Hashes,
    Numbers,
    Word,
    hashed,
    masked,
    one_to_one,
    restored,
    same,
    stored,
    taken,
    words,
)

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
_OWN = ("_generation", "_epoch", "_op", "_rowtime", "_seq")
_LARGE: Mapping[pa.DataType, pa.DataType] = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
_SAMPLE, _REPEATED = 1 << 16, 4
"""A text column becomes a dictionary if it has at most so many values, each at least four times on average."""
_LETTERS = pa.dictionary(pa.int32(), pa.string())
DEALT_BYTES, DEALT_ROWS = 16 << 20, 1 << 20
"""The most rows, and about the most bytes, that are divided among shards at once."""
BATCH = 1 << 14
"""Rows of a file that are read at once, few enough that wide ones stay near DEALT_BYTES."""
THREADS = min(os.cpu_count() or 1, 4)
"""Threads that make a run. The tasks that need it wait meanwhile, so their processors are free."""
_APART = 1 << 16
"""From so many rows on, four threads sort a quarter of the hashes each."""
_AHEAD = {"use_threads": False, "batch_readahead": 1, "fragment_readahead": 1}
_MOST_IN_A_COLUMN = 1 << 30
"""Bytes of text beyond which a column is of the large kind."""


@dataclass(frozen=True)
class Made:
    """What a run is made of: the rows of `generation` with after < epoch <= upto in `files`, and of those the keys of
    one of `shards` (a power of two). `types`: of all columns that the table stores. Its files lie in `folder`."""

    folder: str
    files: tuple[str, ...]
    generation: int
    after: int
    upto: int
    keys: tuple[str, ...]
    types: Mapping[str, pa.DataType]
    shard: int = 0
    shards: int = 1


def shard_of(hashes: Hashes, shards: int) -> Numbers:
    """The shard that each key is in, by the low bits of its hash."""
    return (hashes & np.uint64(shards - 1)).astype(np.int64)


def make(made: Made, dealt: Sequence[Path] = ()) -> None:
    """Write a run, whole or not at all, from `made.files`, or from the files `dealt` to its shard. Raises OSError."""
    folder = Path(made.folder)
    if made.shards > 1 and not dealt:
        raise ValueError(f"{folder} is a shard, and nothing was dealt to it")
    unfinished = folder.with_name(f"{folder.name}.{uuid.uuid4().hex[:8]}")
    unfinished.mkdir(parents=True)
    try:
        with ThreadPoolExecutor(THREADS) as pool:
            batches = _dealt(made, dealt) if made.shards > 1 else _read(made, pool)
            _write(unfinished, made, pa.Table.from_batches(batches, _schema(made)), pool)
        shutil.rmtree(folder, ignore_errors=True)  # one that was not whole
        os.replace(unfinished, folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def deal(made: Made, files: Sequence[str], into: Path) -> None:
    """Read some of the run's files, and write their rows into one file with a batch for each shard, for each block of
    rows; whole or not at all. So the table is read once, however many shards there are. Raises OSError."""
    into.parent.mkdir(parents=True, exist_ok=True)
    unfinished = into.with_name(f"{into.name}.{uuid.uuid4().hex[:8]}")
    try:
        with pa.OSFile(str(unfinished), "wb") as file, pa.ipc.new_file(file, _schema(made)) as writer:
            for block in together(_batches(made, files), DEALT_BYTES, DEALT_ROWS):
                shard = shard_of(hashed(words([block[key] for key in made.keys])), made.shards)
                order = np.argsort(shard.astype(np.int16) if made.shards < 1 << 15 else shard, kind="stable")
                block, ends = block.take(pa.array(order)), np.cumsum(np.bincount(shard, minlength=made.shards)).tolist()
                for begin, end in zip([0, *ends], ends, strict=False):
                    writer.write_batch(block.slice(begin, end - begin))
        os.replace(unfinished, into)
    finally:
        unfinished.unlink(missing_ok=True)


def is_dealt(path: Path) -> bool:
    """Whether a dealt file is whole: a power cut may have left out all or a part of it."""
    try:
        return pa.ipc.open_file(pa.memory_map(str(path))) is not None
    except (OSError, pa.ArrowInvalid):
        return False


def _dealt(made: Made, paths: Sequence[Path]) -> Iterator[pa.RecordBatch]:
    """The rows dealt to a shard, mapped from disk."""
    for path in paths:
        file = pa.ipc.open_file(pa.memory_map(str(path)))
        yield from map(file.get_batch, range(made.shard, file.num_record_batches, made.shards))


def _schema(made: Made) -> pa.Schema:
    """The schema of a run's rows; `_op` is its letter's number."""
    from tidegate.pipelines.lake.rows import LAKE_COLUMNS  # it imports pyspark

    own = {name: arrow_type(LAKE_COLUMNS[name]) for name in _OWN if name != "_generation"}
    return pa.schema(list({**own, "_op": pa.uint8(), **made.types}.items()))


def _batches(made: Made, files: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The run's rows in some of its files."""
    of_run, epoch = _schema(made), pc.field("_epoch")
    stored = [field.with_type(_LETTERS) if field.name == "_op" else field for field in of_run]
    schema = pa.schema([*stored, pa.field("_generation", pa.int32())])
    wanted = (pc.field("_generation") == made.generation) & (epoch > made.after) & (epoch <= made.upto)
    if files:
        scanned = dataset_of(files, schema, ("_op",)).to_batches(
            columns=of_run.names, filter=wanted, batch_size=BATCH, **_AHEAD
        )
        for batch in scanned:
            ops = pa.array(_letters(batch.column("_op")))
            columns = [ops if name == "_op" else batch.column(name) for name in of_run.names]
            yield pa.RecordBatch.from_arrays(columns, schema=of_run)


def _read(made: Made, pool: ThreadPoolExecutor) -> Iterator[pa.RecordBatch]:
    """The run's rows, in the order of its files."""
    some = -(-len(made.files) // (2 * THREADS)) or 1
    parts = [made.files[first : first + some] for first in range(0, len(made.files), some)]
    for batches in pool.map(lambda files: list(_batches(made, files)), parts):
        yield from batches


def _write(folder: Path, made: Made, rows: pa.Table, pool: ThreadPoolExecutor) -> None:
    count = rows.num_rows
    truncates = rows.filter(pc.equal(rows["_op"], TRUNCATE)).select(["_rowtime", "_epoch", "_seq"])  # type: ignore[attr-defined]
    _save(folder / "truncates.arrow", truncates)
    is_version = pc.not_equal(rows["_op"], TRUNCATE)  # type: ignore[attr-defined]
    for key in made.keys:
        is_version = pc.and_(is_version, rows[key].is_valid())  # type: ignore[attr-defined]
    if not pc.all(is_version, min_count=0).as_py():  # type: ignore[attr-defined]
        rows = rows.filter(is_version)
    parts = words([_whole(rows[key]) for key in made.keys])
    times = times_of(rows["_rowtime"])
    rank, salt = _rank(seq_parts(_whole(rows["_seq"]))), SALT
    while True:
        hashes = hashed(parts, salt)
        order = _ordered(hashes, times, rank, pool)
        ordered = hashes[order]
        alike = ordered[1:] == ordered[:-1]
        if one_to_one(parts) or _keys_alike(parts, order, alike):
            break
        salt = secrets.randbits(64)  # two keys have one hash: with another salt they have two
    places, columns = pa.array(order), {name: rows[name] for name in ["_seq", *made.types]}
    epochs, ops = rows["_epoch"].to_numpy(), rows["_op"].to_numpy()
    del rows  # so that a column goes as soon as it is taken
    payload = pool.map(lambda name: _repeated(_whole(columns.pop(name)).take(places)), list(columns))
    starts = np.flatnonzero(np.append(True, ~alike)) if len(order) else np.zeros(0, np.int64)
    distinct, start = ordered[starts], np.append(starts if len(order) else 0, len(order))
    bits = len(distinct).bit_length() + 1
    first = np.zeros((1 << bits) + 1, np.int64)
    np.cumsum(np.bincount((distinct >> np.uint64(64 - bits)).astype(np.int64), minlength=1 << bits), out=first[1:])
    arrays = {
        "hashes": distinct,
        "first": first.astype(np.int32 if len(distinct) < 1 << 31 else np.int64),
        "start": start.astype(np.int64),
        "times": times.take(order),
        "epochs": epochs.take(order),
        "ops": ops.take(order),
        "latest": _latest(rank.take(order), start),
    }
    for name in ARRAYS:
        np.save(folder / f"{name}.npy", arrays[name])
    if not one_to_one(parts):
        _save(folder / "keys.arrow", pa.table(stored([taken(part, order[starts]) for part in parts])))
    _save(folder / "rows.arrow", pa.table(dict(zip(["_seq", *made.types], payload, strict=True))))
    facts = {"rows": count, "salt": salt, "shards": made.shards, "upto": int(arrays["epochs"].max(initial=0))}
    facts["compared"] = not one_to_one(parts)
    facts |= {"timeless": bool((times == NO_TIME).any()), "deletes": bool((arrays["ops"] == DELETE).any())}
    (folder / "run.json").write_text(json.dumps(facts))


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


def _letters(ops: pa.DictionaryArray) -> Ops:
    """The letters' numbers of texts of one letter each, which come as a dictionary."""
    letters = np.array([ord(op) for op in ops.dictionary.to_pylist()], np.uint8)
    return letters[ops.indices.to_numpy()]


def _rank(parts: Sequence[Numbers]) -> Numbers:
    """A number for each seq of a run, in the order of the seqs."""
    found, bits = np.zeros(len(parts[0]), np.int64), 0
    moving = [part for part in parts if len(part) and part.min() != part.max()]
    spans = [int(part.max()) - int(part.min()) for part in moving]
    for part, span in zip(moving, spans, strict=True):
        bits += span.bit_length()
        if bits > 62:
            return _rank_by_sorting(parts)
        found = (found << span.bit_length()) | (part - part.min())
    return found


def _rank_by_sorting(parts: Sequence[Numbers]) -> Numbers:
    order = np.lexsort(list(reversed(parts)))
    new = np.zeros(len(order), bool)
    for part in parts:
        new[1:] |= part[order][1:] != part[order][:-1]
    found = np.empty(len(order), np.int64)
    found[order] = np.cumsum(new)
    return found


def _ordered(hashes: Hashes, times: Numbers, rank: Numbers, pool: ThreadPoolExecutor) -> Numbers:
    """The order of rows by hash, time and seq."""
    if len(hashes) < _APART:
        return _sorted(hashes, times, rank)

    def quarter(top: int) -> Numbers:
        rows = np.flatnonzero(hashes >> np.uint64(62) == top)
        return rows.take(_sorted(hashes.take(rows), times.take(rows), rank.take(rows)))

    return np.concatenate(list(pool.map(quarter, range(4))))


def _sorted(hashes: Hashes, times: Numbers, rank: Numbers) -> Numbers:
    order = _by_hash_and_time(hashes, times)
    tied = (np.diff(hashes.take(order)) == 0) & (np.diff(times.take(order)) == 0)
    if tied.any():
        places = np.flatnonzero(np.append(tied, False) | np.insert(tied, 0, False))
        rows = order[places]
        order[places] = rows[np.lexsort((rank[rows], times[rows], hashes[rows]))]
    return order


def _by_hash_and_time(hashes: Hashes, times: Numbers) -> Numbers:
    """The order by hash and time. If a hash's rank and the time fit into 63 bits together, two sorts of single numbers
    do it in a third of the time of a sort by two columns."""
    order = np.argsort(hashes)
    if not len(order):
        return order
    ordered = hashes.take(order)
    number = np.cumsum(np.append(False, ordered[1:] != ordered[:-1]))
    least, bits = int(times.min()), (int(times.max()) - int(times.min())).bit_length()
    if int(number[-1]).bit_length() + bits > 63:
        return np.lexsort((times, hashes))
    return order.take(np.argsort((number << bits) | (times.take(order) - least)))


def _keys_alike(parts: Sequence[Word], order: Numbers, alike: Flags) -> bool:
    """Whether neighbours with equal hashes have equal keys."""
    one, two = order[1:][alike], order[:-1][alike]
    return all(bool(same(part, one, part, two).all()) for part in parts)


def _latest(rank: Numbers, start: Numbers) -> Numbers:
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


def _whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column in one piece."""
    if isinstance(column, pa.Array):
        return column
    if column.nbytes > _MOST_IN_A_COLUMN:
        column = column.cast(_LARGE.get(column.type, column.type))
    found = column.combine_chunks()
    if isinstance(found, pa.ChunkedArray):
        if found.num_chunks > 1:
            raise pa.ArrowCapacityError(f"a column of {found.type} has more than 2 GiB in {len(found):,} versions")
        return found.chunk(0)
    return found


def _repeated(column: pa.Array) -> pa.Array:
    """A column of text as a dictionary, if its values repeat: taking rows of it then takes only numbers."""
    text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    if not text:
        return column
    # Of as many values as a dictionary may have, 63% are among as many rows that are in no order.
    values = len(column.slice(0, _SAMPLE).unique())
    if values * _REPEATED > len(column) or values * 3 > _SAMPLE * 2:
        return column
    found = column.dictionary_encode()
    return found if len(found.dictionary) <= _SAMPLE and len(found.dictionary) * _REPEATED <= len(column) else column


def joined(pieces: Sequence[pa.Array]) -> pa.Array:
    """Arrays of one column one after another: some may be dictionaries, or large text."""
    plain = [piece.dictionary_decode() if pa.types.is_dictionary(piece.type) else piece for piece in pieces]
    kind = max((piece.type for piece in plain), key=lambda each: str(each).startswith("large"))
    return pa.concat_arrays([piece.cast(kind) for piece in plain])


def _save(path: Path, rows: pa.Table) -> None:
    arrays = [_whole(rows.column(name)) for name in rows.column_names]
    batch = pa.RecordBatch.from_arrays(arrays, rows.column_names)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)


def _mapped(path: Path) -> pa.RecordBatch:
    return pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0)


class Run:
    """A run that was made, mapped from disk: only what is used is read. Raises OSError, EOFError, ValueError, KeyError
    if it is not whole."""

    def __init__(self, folder: Path) -> None:
        facts = json.loads((folder / "run.json").read_text())
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
        seen.latest = _latest(_rank(self.seq(places)), seen.start)
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


_NOT_WHOLE = (OSError, EOFError, ValueError, KeyError)

_OPEN: dict[tuple[str, int, int], Run] = {}
"""The runs that this process has mapped, the last used one at the end. A worker's next release finds the pages of the
last one in memory."""

_LOCK = threading.Lock()

MAPPED = 48
"""How many runs stay mapped. Each has ten open files, and a process may often have 1,024 at most."""


def opened(folder: str) -> Run | None:
    """The run in a folder; None if it is not there whole. Runs whose folders are gone are unmapped, or their disk space
    would not be freed."""
    try:
        status = (Path(folder) / "run.json").stat()
        key = (folder, status.st_ino, status.st_mtime_ns)
        with _LOCK:
            run = _OPEN.pop(key, None)
            if run is None:
                for other in [one for one in _OPEN if not os.path.exists(one[0])]:
                    del _OPEN[other]
                run = Run(Path(folder))
                while len(_OPEN) >= MAPPED:
                    del _OPEN[next(iter(_OPEN))]
            _OPEN[key] = run
            return run
    except _NOT_WHOLE:
        return None


def whole_at(folder: str) -> bool:
    """Whether a whole run is there; it does not stay mapped."""
    try:
        return Run(Path(folder)) is not None
    except _NOT_WHOLE:
        return False


@lru_cache(maxsize=16)
def _seen(run: Run, pin: int) -> Run:
    return run.of(np.flatnonzero(run.epochs <= pin), pin)


def seen(run: Run, pin: int) -> Run:
    """A run without the versions of epochs after the pin."""
    return run if run.upto <= pin else _seen(run, pin)
