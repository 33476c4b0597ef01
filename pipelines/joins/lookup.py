"""Copies of a build's large files, in which the rows of a key are found without a look at the others.

A small release asks for the versions of a few thousand keys; a scan of the build for them takes as long as the build is
large. A copy has the rows of one data file, each of its row groups in order of the key, as Arrow files that are mapped
into memory: a key is found by halving, and only what is touched is read. Data files never change, so a copy is right
for as long as its file is there.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipelines.joins.columnar.mapped import LARGE, key_type, mapped, write

Numbers = npt.NDArray[np.int64]

BATCH = 10_000
"""Keys that are looked up in one call, at most (Spark's Arrow batch)."""


@dataclass(frozen=True)
class Copying:
    """The data file at `path` is to be copied: the columns of `types`, in order of `keys`, to a folder of its own
    inside of `folder`."""

    path: str
    folder: str
    keys: tuple[str, ...]
    types: Mapping[str, pa.DataType]


def copy(work: Copying) -> tuple[list[str], int]:
    """Make a copy: the paths of its files, of which there may be none, and its `crowd`, how many rows BATCH keys have
    at most beyond one each. Rows with a NULL in their key are found by nobody, and not in it. Another attempt at it has
    another folder. Raises OSError."""
    folder, paths, crowd = Path(work.folder) / uuid.uuid4().hex, list[str](), 0
    folder.mkdir(parents=True)
    kinds = {name: key_type(kind) if name in work.keys else LARGE.get(kind, kind) for name, kind in work.types.items()}
    with pq.ParquetFile(work.path) as file:
        names = [name for name in kinds if name in file.schema_arrow.names]
        for number in range(file.num_row_groups):
            read = file.read_row_group(number, columns=names)
            for key in work.keys:
                if read[key].null_count:
                    read = read.filter(read[key].is_valid())
            if not read.num_rows:
                continue
            order = pc.sort_indices(read, [(key, "ascending") for key in work.keys])  # type: ignore[attr-defined]
            # A column at a time: that much is in memory twice.
            columns = [_in_order(read, name, kind, order) for name, kind in kinds.items()]
            rows = pa.RecordBatch.from_arrays(columns, list(kinds))
            crowd += _crowd([rows.column(key) for key in work.keys])
            path = folder / f"{number}.arrow"
            write(path, rows)
            _to_disk(path)
            paths.append(str(path))
    return paths, crowd


def _in_order(rows: pa.Table, name: str, kind: pa.DataType, order: pa.Array) -> pa.Array:
    if name not in rows.column_names:  # the file is older than the column
        return pa.nulls(len(order), kind)
    return _whole(rows[name].cast(kind).combine_chunks().take(order), kind)


def _crowd(keys: Sequence[pa.Array]) -> int:
    count = len(keys[0])
    new = np.ones(count, bool)
    if count > 1:
        same = [_flags(pc.equal(key.slice(1), key.slice(0, count - 1))) for key in keys]  # type: ignore[attr-defined]
        new[1:] = ~np.logical_and.reduce(same)
    sizes = np.diff(np.append(np.flatnonzero(new), count))
    return int(np.sort(sizes)[-BATCH:].sum()) - min(len(sizes), BATCH)


def _to_disk(path: Path) -> None:
    """A copy outlives a loss of power, or is not there."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def looking_up(
    files: Sequence[str], keys: Sequence[str], types: Mapping[str, pa.DataType], generation: int, epoch: int
) -> Callable[..., pa.Array]:
    """A function of columns of keys (none is NULL): for each, all its rows in the copies' `files` that a pin
    (generation, epoch) sees, as a list of structs of `types`."""
    given = tuple(files), tuple(keys), dict(types), generation, epoch

    def call(*wanted):  # without annotations: Spark would read them
        return _rows_of(wanted, *given)

    return call


def _rows_of(
    wanted: Sequence[pa.Array],
    files: tuple[str, ...],
    keys: tuple[str, ...],
    types: Mapping[str, pa.DataType],
    generation: int,
    epoch: int,
) -> pa.Array:
    count = len(wanted[0])
    schema = pa.schema(list(types.items()))
    owners: list[Numbers] = [np.empty(0, np.int64)]
    found: list[pa.RecordBatch] = []
    for rows in _opened(files):
        owner, places = _places([rows.column(key) for key in keys], wanted)
        taken = rows.take(pa.array(places))
        pinned = _flags(pc.equal(taken.column("_generation"), generation)) & _flags(  # type: ignore[attr-defined]
            pc.less_equal(taken.column("_epoch"), epoch)  # type: ignore[attr-defined]
        )
        owners.append(owner[pinned])
        found.append(taken.filter(pa.array(pinned)))
    whose = np.concatenate(owners)
    order = np.argsort(whose, kind="stable")
    table = pa.Table.from_batches(found).select(schema.names).take(pa.array(order)).cast(schema).combine_chunks()
    columns = [_whole(table[name], kind) for name, kind in types.items()]
    rows_of_all = pa.StructArray.from_arrays(columns, fields=list(schema))
    ends = np.concatenate([[0], np.cumsum(np.bincount(whose, minlength=count))])
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), rows_of_all)


_OPEN: dict[tuple[str, int, int], pa.RecordBatch] = {}
"""What this process has mapped: the next release of a worker finds the pages that the last one has touched."""


def _opened(files: Sequence[str]) -> list[pa.RecordBatch]:
    """The rows of the files. Those of files that are there no more are let go: their disk would not be free."""
    wanted = []
    for path in files:
        status = os.stat(path)
        wanted.append((path, status.st_ino, status.st_mtime_ns))
    for key in _OPEN.keys() - set(wanted):
        if key[0] in files or not os.path.exists(key[0]):
            del _OPEN[key]
    for key in wanted:
        if key not in _OPEN:
            _OPEN[key] = mapped(Path(key[0]))
    return [_OPEN[key] for key in wanted]


def _places(kept: Sequence[pa.Array], wanted: Sequence[pa.Array]) -> tuple[Numbers, Numbers]:
    """Where the rows of each wanted key lie: pairs of its number and a row's place."""
    low, high = _bounds(kept, [one.cast(other.type) for one, other in zip(wanted, kept, strict=True)])
    counts = high - low
    owner = np.repeat(np.arange(len(low)), counts)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    return owner, np.repeat(low, counts) + within


def _bounds(kept: Sequence[pa.Array], wanted: Sequence[pa.Array]) -> tuple[Numbers, Numbers]:
    """The first place of each key, and the first one after it."""
    if len(kept) == 1 and pa.types.is_integer(kept[0].type):
        values, asked = kept[0].to_numpy(), wanted[0].to_numpy()
        return np.searchsorted(values, asked, "left"), np.searchsorted(values, asked, "right")
    return _halved(kept, wanted, equal=False), _halved(kept, wanted, equal=True)


def _halved(kept: Sequence[pa.Array], wanted: Sequence[pa.Array], *, equal: bool) -> Numbers:
    """How many of the keys that are kept, in order, lie before each that is wanted; with those that are `equal`."""
    low, high = np.zeros(len(wanted[0]), np.int64), np.full(len(wanted[0]), len(kept[0]), np.int64)
    rows = np.flatnonzero(low < high)
    while len(rows):
        middle = (low[rows] + high[rows]) >> 1
        places, asked = pa.array(middle), pa.array(rows)
        before = np.full(len(rows), equal)
        for own, other in zip(reversed(kept), reversed(wanted), strict=True):
            one, two = own.take(places), other.take(asked)
            less, same = pc.less(one, two), pc.equal(one, two)  # type: ignore[attr-defined]
            before = _flags(less) | (_flags(same) & before)
        low[rows] = np.where(before, middle + 1, low[rows])
        high[rows] = np.where(before, high[rows], middle)
        rows = rows[low[rows] < high[rows]]
    return low


def _whole(column: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """A column in one piece."""
    found = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(found, pa.ChunkedArray):
        return found.chunk(0) if found.num_chunks else pa.array([], kind)
    return found


def _flags(values: pa.Array) -> npt.NDArray[np.bool_]:
    return values.to_numpy(zero_copy_only=False).astype(np.bool_)
