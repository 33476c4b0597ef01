"""Copies of a build's large files, in which the rows of a key are found without a look at the others.

A small release asks for the versions of a few thousand keys; a scan of the build for them takes as long as the build is
large. A copy has the rows of one data file, each of its row groups in order of the key, as Arrow files that are mapped
into memory: a key is found by halving, and only what is touched is read. Data files never change, so a copy is right
for as long as its file is there.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

Numbers = npt.NDArray[np.int64]

_LARGE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
"""More than 2 GiB of text do not fit into a column of the others."""


@dataclass(frozen=True)
class Copying:
    """The data file at `path` is to be copied: the columns of `types`, in order of `keys`, to a folder of its own
    inside of `folder`."""

    path: str
    folder: str
    keys: tuple[str, ...]
    types: Mapping[str, pa.DataType]


def copy(work: Copying) -> list[str]:
    """Make a copy; the paths of its files, of which there may be none. Rows with a NULL in their key are found by
    nobody, and not in it. Another attempt at it has another folder. Raises OSError."""
    folder, paths = Path(work.folder) / uuid.uuid4().hex, list[str]()
    folder.mkdir(parents=True)
    schema = pa.schema([(name, _kept(kind, name in work.keys)) for name, kind in work.types.items()])
    with pq.ParquetFile(work.path) as file:
        for number in range(file.num_row_groups):
            rows = file.read_row_group(number, columns=schema.names).select(schema.names).cast(schema)
            for key in work.keys:
                if rows[key].null_count:
                    rows = rows.filter(rows[key].is_valid())
            if not rows.num_rows:
                continue
            rows = rows.sort_by([(key, "ascending") for key in work.keys]).combine_chunks()
            paths.append(str(folder / f"{number}.arrow"))
            with pa.OSFile(paths[-1], "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
                writer.write_batch(rows.to_batches()[0])
    return paths


def _kept(kind: pa.DataType, key: bool) -> pa.DataType:
    """The type that a column has in a copy: whole numbers of all widths are looked up among those of one."""
    return pa.int64() if key and pa.types.is_integer(kind) else _LARGE.get(kind, kind)


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
    for file in files:
        rows = _mapped(file)
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


@lru_cache(maxsize=4096)
def _mapped(path: str) -> pa.RecordBatch:
    return pa.ipc.open_file(pa.memory_map(path)).get_batch(0)


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


def _whole(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    return column.chunk(0) if column.num_chunks else pa.array([], kind)


def _flags(values: pa.Array) -> npt.NDArray[np.bool_]:
    return values.to_numpy(zero_copy_only=False).astype(np.bool_)
