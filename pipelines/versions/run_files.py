"""The files of a run, made from the rows that landed in some of a build's epochs. `run` has what is in each of them.

A run of several shards is made in two steps: the table's files are read once and dealt to the shards, and each shard is
made from what was dealt to it.
"""

from __future__ import annotations

import os
import secrets
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.pipelines.location import dataset_of
from tidegate.pipelines.parquet import together
from tidegate.pipelines.sources.arrow_types import arrow_type
from tidegate.pipelines.versions.checksums import THREADS, seal, sync_name
from tidegate.pipelines.versions.hashing import (
    SALT,
    Flags,
    Hashes,
    Numbers,
    Word,
    hashed,
    one_to_one,
    same,
    stored,
    taken,
    words,
)
from tidegate.pipelines.versions.run import (
    ARRAYS,
    DELETE,
    NO_TIME,
    TRUNCATE,
    Ops,
    latest_places,
    ranked,
    seq_parts,
    times_of,
)

_OWN = ("_generation", "_epoch", "_op", "_rowtime", "_seq")
_LARGE: Mapping[pa.DataType, pa.DataType] = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
_SAMPLE, _REPEATED = 1 << 16, 4
"""A text column becomes a dictionary if it has at most so many values, each at least four times on average."""
_LETTERS = pa.dictionary(pa.int32(), pa.string())
DEALT_BYTES, DEALT_ROWS = 16 << 20, 1 << 20
"""The most rows, and about the most bytes, that are divided among shards at once."""
BATCH = 1 << 14
"""Rows of a file that are read at once, few enough that wide ones stay near DEALT_BYTES."""
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
        sync_name(folder)
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
    rank, salt = ranked(seq_parts(_whole(rows["_seq"]))), SALT
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
        "latest": latest_places(rank.take(order), start),
    }
    for name in ARRAYS:
        np.save(folder / f"{name}.npy", arrays[name])
    if not one_to_one(parts):
        _save(folder / "keys.arrow", pa.table(stored([taken(part, order[starts]) for part in parts])))
    _save(folder / "rows.arrow", pa.table(dict(zip(["_seq", *made.types], payload, strict=True))))
    facts = {"rows": count, "salt": salt, "shards": made.shards, "upto": int(arrays["epochs"].max(initial=0))}
    facts["compared"] = not one_to_one(parts)
    facts |= {"timeless": bool((times == NO_TIME).any()), "deletes": bool((arrays["ops"] == DELETE).any())}
    seal(folder, facts, pool)


def _letters(ops: pa.DictionaryArray) -> Ops:
    """The numbers of the ops' letters, which come as a dictionary. The rows of a target are all new ones (+I)."""
    letters = np.array([ord(op[-1]) for op in ops.dictionary.to_pylist()], np.uint8)
    return letters[ops.indices.to_numpy()]


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


def _save(path: Path, rows: pa.Table) -> None:
    arrays = [_whole(rows.column(name)) for name in rows.column_names]
    batch = pa.RecordBatch.from_arrays(arrays, rows.column_names)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)
