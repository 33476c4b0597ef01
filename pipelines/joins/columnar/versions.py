"""The versions of every key of a build, in order of time, as files that the tasks of a release map into their memory.

A key is a number: its place among the distinct keys. The versions of key k are those from starts[k] to starts[k + 1],
by rowtime, then seq; what a probe row meets is the last one that is not after it. One is found by halving, so a key
with many versions costs little more than one with few.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from pipelines.joins.columnar.mapped import LARGE, key_type, mapped, write
from pipelines.lake.rows import LAKE_COLUMNS
from pipelines.sources.arrow_types import arrow_type
from pipelines.sources.protocol import SEQ_PARTS

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

NO_KEY = -1
"""The number of a key that the build has never had."""

BUILD_COLUMNS = ("_generation", "_epoch")
"""What is known of every version, beside its columns, its time, and whether it is a delete (`_gone`)."""

MOST_HELD = 1 << 30
"""Bytes of a build's rows, in memory, at most."""

CLOSE = 4
"""Keys lie close together where so many values are between two of them, at most, on the average."""

ARRAYS = ("order", "times", "starts", "by_value")

_LEAST = np.iinfo(np.int64).min
"""Spark puts NULLs first."""


@dataclass(frozen=True)
class Changelog:
    """A build at its pin: `files` that hold its rows, and maybe others. `types`: of `keys`, and of the `columns` that
    are asked for. Its versions are saved in a folder of their own inside of `folder`."""

    files: tuple[str, ...]
    generation: int
    epoch: int
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    types: Mapping[str, pa.DataType]
    folder: str


def save_versions(changelog: Changelog) -> str | None:
    """Put the versions of a build in order, and save them; the folder that `load` takes. None where they are more than
    MOST_HELD. Another attempt at it has another folder. Raises OSError."""
    own = {name: arrow_type(LAKE_COLUMNS[name]) for name in (*BUILD_COLUMNS, "_op", "_rowtime", "_seq")}
    schema = pa.schema(list({**own, **changelog.types}.items()))
    pinned = (pc.field("_generation") == changelog.generation) & (pc.field("_epoch") <= changelog.epoch)
    files = ds.dataset(list(changelog.files), schema=schema, format="parquet")
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in files.to_batches(filter=pinned & (pc.field("_op") != "t"), batch_readahead=4, fragment_readahead=1):
        held.append(batch)
        size += batch.nbytes
        if size > MOST_HELD:
            return None
    folder = Path(changelog.folder) / uuid.uuid4().hex
    versions_of(pa.Table.from_batches(held, schema), changelog.keys, changelog.columns).save(folder)
    return str(folder)


@dataclass(frozen=True)
class Versions:
    """The versions of one build at its pin.

    `rows`: their columns, BUILD_COLUMNS and `_gone`, as they lay in the changelog; `order`: the row of each version;
    `times`: its rowtime (us, UTC); `distinct`: see `_numbered`; `by_value`: see `_by_value`.
    """

    rows: pa.RecordBatch
    order: Numbers
    times: Numbers
    starts: Numbers
    by_value: Numbers
    distinct: tuple[pa.Array, ...]

    def find(self, keys: Sequence[pa.Array], times: Numbers) -> tuple[Numbers, Numbers]:
        """The number of each row's key, and the version that it meets at its time: its place in `order`, or, before the
        key's first version, the one in front of that."""
        numbers = self._number_of(keys)
        safe = np.maximum(numbers, 0)
        low = self.starts[safe]
        after, end = low.copy(), self.starts[safe + 1]
        end[numbers == NO_KEY] = after[numbers == NO_KEY]
        rows = np.flatnonzero(after < end)
        first, last, wanted = after[rows], end[rows], times[rows]
        while len(rows):
            middle = (first + last) >> 1
            before = self.times[middle] <= wanted
            first = np.where(before, middle + 1, first)
            last = np.where(before, last, middle)
            going = first < last
            after[rows] = first
            rows, first, last, wanted = rows[going], first[going], last[going], wanted[going]
        return numbers, after - 1

    def _number_of(self, keys: Sequence[pa.Array]) -> Numbers:
        """The numbers of keys by what `_numbered` gave; NO_KEY where it has none."""
        if len(self.by_value):
            return _picked(keys[0], pc.min(self.distinct[0]).as_py(), self.by_value)  # type: ignore[attr-defined]
        numbers = _looked_up(keys[0], self.distinct[0])
        for values, own, pairs in zip(keys[1:], self.distinct[1::2], self.distinct[2::2], strict=True):
            second = _looked_up(values, own)
            none = (numbers == NO_KEY) | (second == NO_KEY)
            numbers = _looked_up(pa.array(numbers * len(own) + second, mask=none), pairs)
        return numbers

    def save(self, folder: Path) -> None:
        """Write them where `load` finds them."""
        folder.mkdir(parents=True)
        for name in ARRAYS:
            np.save(folder / f"{name}.npy", getattr(self, name))
        write(folder / "rows.arrow", self.rows)
        for number, values in enumerate(self.distinct):
            write(folder / f"distinct-{number}.arrow", pa.RecordBatch.from_arrays([values], ["distinct"]))


@lru_cache(maxsize=8)
def load(name: str) -> Versions:
    """What was saved; most of it stays on disk until it is looked at."""
    folder = Path(name)
    arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r").view(np.ndarray) for name in ARRAYS}
    distinct = sorted(folder.glob("distinct-*.arrow"), key=lambda path: int(path.stem.partition("-")[2]))
    found = tuple(mapped(path).column(0) for path in distinct)
    return Versions(mapped(folder / "rows.arrow"), distinct=found, **arrays)


def versions_of(changelog: pa.Table, keys: Sequence[str], columns: Sequence[str]) -> Versions:
    """The versions of a changelog: `keys`, `columns`, BUILD_COLUMNS, `_op`, `_rowtime`, `_seq`; one with a NULL key, or
    without a time, is none. There is no truncate in it."""
    for needed in ("_rowtime", *keys):
        if changelog[needed].null_count:
            changelog = changelog.filter(changelog[needed].is_valid())
    numbers, distinct = _numbered([_comparable(_whole(changelog[key])) for key in keys])
    times = changelog["_rowtime"].cast(pa.int64()).to_numpy()
    order = _ordered(numbers, times, changelog["_seq"])
    starts = np.concatenate([[0], np.cumsum(np.bincount(numbers, minlength=1))]).astype(np.int64)
    kept = list(dict.fromkeys([*columns, *BUILD_COLUMNS]))
    gone = pc.equal(changelog["_op"], "d")  # type: ignore[attr-defined]
    rows = pa.RecordBatch.from_arrays([*(_whole(changelog[name]) for name in kept), _whole(gone)], [*kept, "_gone"])
    return Versions(rows, order, times[order], starts, _by_value(distinct), distinct)


def _ordered(numbers: Numbers, times: Numbers, seq: pa.ChunkedArray) -> Numbers:
    """The rows by key, time and seq."""
    order = np.lexsort((times, numbers)) if not _packable(numbers, times) else np.argsort(_packed(numbers, times))
    same = (np.diff(numbers[order]) == 0) & (np.diff(times[order]) == 0)
    if same.any():
        tied = np.flatnonzero(np.append(same, False) | np.insert(same, 0, False))
        rows = order[tied]
        parts = pa.Table.from_arrays(seq.take(pa.array(rows)).flatten(), [field.name for field in seq.type])
        told = [parts[name].cast(pa.int64()).fill_null(_LEAST).to_numpy() for name in reversed(SEQ_PARTS)]
        order[tied] = rows[np.lexsort([*told, times[rows], numbers[rows]])]
    return order


def _packable(numbers: Numbers, times: Numbers) -> bool:
    if not len(numbers):
        return False
    span = int(times.max()) - int(times.min())
    return int(numbers.max()).bit_length() + span.bit_length() < 64


def _packed(numbers: Numbers, times: Numbers) -> Numbers:
    """Key and time in one number, which is sorted in half the time."""
    least = times.min()
    return (numbers << (int(times.max()) - int(least)).bit_length()) | (times - least)


def _numbered(keys: Sequence[pa.Array]) -> tuple[Numbers, tuple[pa.Array, ...]]:
    """The number of each row's key, and what `_number_of` needs: the distinct values of the first column, then for each
    further column its own and the distinct pairs of them and of what came before."""
    first = keys[0].dictionary_encode()
    numbers, distinct = _places(first.indices), [first.dictionary]
    for values in keys[1:]:
        own = values.dictionary_encode()
        pairs = pa.array(numbers * len(own.dictionary) + _places(own.indices)).dictionary_encode()
        numbers = _places(pairs.indices)
        distinct += [own.dictionary, pairs.dictionary]
    return numbers, tuple(distinct)


def _by_value(distinct: tuple[pa.Array, ...]) -> Numbers:
    """The number of every value from the least key to the greatest, where keys are whole numbers that lie close
    together, as those that a database has counted; else nothing. It is faster than to look them up."""
    first, *more = distinct
    if more or not pa.types.is_integer(first.type) or not len(first):
        return np.empty(0, np.int64)
    values = first.to_numpy()
    least, span = int(values.min()), int(values.max()) - int(values.min())
    if span > CLOSE * len(values):
        return np.empty(0, np.int64)
    found = np.full(span + 1, NO_KEY, np.int64)
    found[values - least] = np.arange(len(values))
    return found


def _picked(keys: pa.Array, least: int, by_value: Numbers) -> Numbers:
    valid, values = flags(keys.is_valid()), keys.cast(pa.int64()).fill_null(least).to_numpy()
    inside = valid & (values >= least) & (values <= least + len(by_value) - 1)
    return np.where(inside, by_value[np.where(inside, values - least, 0)], NO_KEY)


def flags(values: pa.Array) -> Flags:
    """Booleans without NULLs, for numpy."""
    return values.to_numpy(zero_copy_only=False)


def _looked_up(values: pa.Array, distinct: pa.Array) -> Numbers:
    found = pc.index_in(_comparable(values), value_set=distinct, skip_nulls=True)  # type: ignore[attr-defined]
    return _places(found.fill_null(NO_KEY))


def _places(indices: pa.Array) -> Numbers:
    return indices.to_numpy(zero_copy_only=False).astype(np.int64)


def _comparable(keys: pa.Array) -> pa.Array:
    return keys.cast(key_type(keys.type))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """A column in one piece."""
    column = column.cast(LARGE.get(column.type, column.type))
    if column.num_chunks == 1:
        return column.chunk(0)
    found = column.combine_chunks()
    return found if isinstance(found, pa.Array) else found.chunk(0)
