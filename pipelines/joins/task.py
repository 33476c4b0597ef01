"""What a task of a release does before Spark's SQL: it reads its share of the probe, and finds the version that each
row meets.

Rows are frames, name -> Arrow array, of one length. A column of a table travels as `_of_alias$column`; beside them are
    _probe_op, _probe_epoch, _probe_split, _probe_offset     of the landed row; the last three are left out where no row
                                                             of the frame can be quarantined any more
    _probe                                                   its columns, a STRUCT, of a table whose files alone do not
                                                             tell its rows; else they are found when they are asked for
    _probe_time                                              in event time: us, UTC
    _instant                                                 what PROCTIME() is in this release
    _why<n>, _build<n>_epoch, _build<n>_seq                  of the n-th join: why it gave no version (NULL: it gave
                                                             one), and, with 'gate.proof', which it was
    _counted<n>                                              what the n-th pass has counted of some rows (JSON), with
                                                             the first of them; NULL with the others
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from tidegate.pipelines.connectors.table import RESERVED_PREFIX
from tidegate.pipelines.errors import LakeError
from tidegate.pipelines.joins.outcome import (
    BEFORE_FIRST,
    BEYOND_RETENTION,
    DELETED,
    KEY_ABSENT,
    KEY_NULL,
    WITHOUT_TIME,
    why_number,
)
from tidegate.pipelines.lake.releasable import Releasable
from tidegate.pipelines.lake.rows import LAKE_COLUMNS
from tidegate.pipelines.location import Location
from tidegate.pipelines.parquet import together
from tidegate.pipelines.sources.arrow_types import arrow_type
from tidegate.pipelines.sql.model import Join
from tidegate.pipelines.versions import Index, IndexOf, opened
from tidegate.pipelines.versions.hashing import flags, masked
from tidegate.pipelines.versions.run import NONE

Frame = dict[str, pa.Array]

Counts = dict[str, int | None]
"""What the gate wants to know of rows, by name."""

Columns = Mapping[str, str]
"""Name -> Spark type."""

AT_ONCE, BYTES_AT_ONCE = 1 << 20, 64 << 20
"""So many rows, of about so many bytes, are joined at once, at most."""

BATCH, PACKED_BYTES = 1 << 16, 256 << 10
"""So many rows are handed to Spark at once, at most, and of about so many bytes that are packed: for the sake of arrays
of half a megabyte Java's collector looks through its whole heap, and Spark holds a row in up to twice its size."""

PACKED = "_packed"
"""The columns that Spark is not shown: in the first row of a batch those of all its rows, as an Arrow stream; NULL in
the others. Between two tasks Spark only projects, so the rows come back as many as they were and in their order, and
each meets its own again."""

ROW = "_row"
"""The number of a row in its task, from 0 on (INT; after 2^31 rows it goes on below 0): the next task sees by it that
no row was lost and none is in the place of another."""

ROWS_BACK, BYTES_BACK, FEW_BACK = 1 << 14, 64 << 20, 1 << 8
"""So many rows, of so many bytes, Spark hands on in one batch, at most; so many where they are wider than that."""
UNMEASURED = {"spark.sql.execution.arrow.maxBytesPerBatch": str((1 << 31) - 1)}
"""With a limit in bytes Spark looks how large a batch is after each row that it adds to it, which is a quarter of its
time. In its place a task looks at what it hands to Spark, once a batch: see `Pass.batches`."""

COUNTED = "_counted"
"""With the number of a pass: the column of what it has counted, and how many rows those counts are of."""

OWN = {"_probe_op": "_op", "_probe_epoch": "_epoch", "_probe_split": "_split", "_probe_offset": "_offset"}
"""A fact of a landed row, and the lake's column that it is."""
PLACE = ("_probe_epoch", "_probe_split", "_probe_offset")
"""What is stored with quarantined rows only."""

_MATCH = -1
_WHY = np.array([_MATCH, why_number(KEY_ABSENT), why_number(BEFORE_FIRST), why_number(DELETED)], np.int8)
"""By what `versions.Found.what` says."""

_AHEAD = {"use_threads": False, "batch_readahead": 1, "fragment_readahead": 1}
_TEXT = pa.dictionary(pa.int32(), pa.string())


def flat(alias: str, column: str) -> str:
    """The name under which a column of `alias` travels: no column of the target has it, as none begins with `_`."""
    return f"{RESERVED_PREFIX}of_{alias}${column}"


@dataclass(frozen=True)
class Groups:
    """Row groups of one file."""

    path: str
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Landed:
    """The landed rows of the probe, as row groups for each task (`shares`), or as Spark reads them. `types`: of the
    columns that are joined; `columns`: of those that a quarantined row holds. Those are looked up by its place in the
    row groups that its task has read: none is read, joined or written for a row that is published. Where Spark reads
    the rows (`carrying`), they travel with each one, as `_probe`."""

    alias: str
    types: Mapping[str, pa.DataType]
    columns: Mapping[str, pa.DataType]
    releasable: Releasable
    event: bool
    shares: Sequence[Sequence[Groups]] = ()
    carrying: bool = False

    def frames(self, share: int) -> Iterator[Frame]:
        """The releasable rows of a share, in batches of about as many as may be joined at once."""
        schema = _schema(self.types, _op=_TEXT, _split=_TEXT)
        return self.of(_batches(self.shares[share], schema, self.releasable.expression()))

    def of(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Frame]:
        """Landed rows, in such batches. A column that was declared since comes with the next epoch that lands."""
        for rows in together(batches, BYTES_AT_ONCE, AT_ONCE):

            def column(name: str, kind: pa.DataType, rows: pa.RecordBatch = rows) -> pa.Array:
                return rows[name] if name in rows.schema.names else pa.nulls(rows.num_rows, kind)

            frame = {flat(self.alias, name): column(name, kind) for name, kind in self.types.items()}
            frame |= {name: rows[stored] for name, stored in OWN.items()}
            if self.event:
                frame["_probe_time"] = rows["_rowtime"].cast(pa.int64())
            if self.carrying:
                values = [column(name, kind) for name, kind in self.columns.items()]
                frame["_probe"] = pa.StructArray.from_arrays(values, list(self.columns))
            yield frame

    def at(self, share: int, places: pa.Table) -> tuple[pa.StructArray, int]:
        """The `columns`, a STRUCT for each of the `places` (columns `_epoch`, `_op`, `_split`, `_offset`), NULL where a
        place is not whole; and how many were not found exactly once, in which case the STRUCTs are worth nothing.
        Raises OSError."""
        keys, schema, wanted = list(OWN.values()), _schema(self.columns), self.releasable.expression()
        for name in ("_epoch", "_offset"):  # a row group that has none of them is not read
            bounds = pc.min_max(places[name]).as_py()  # type: ignore[attr-defined]
            wanted = wanted & (pc.field(name) >= bounds["min"]) & (pc.field(name) <= bounds["max"])
        wanted = wanted & pc.field("_offset").isin(places["_offset"].unique())
        own, rows = _numbered(places, keys, "_place"), schema.empty_table().select([*keys, *self.columns])
        for each in self.shares[share]:
            chosen = Location(each.path).row_groups(each.numbers)
            asked = {"schema": schema, "columns": [*keys, *self.columns], "filter": wanted}
            for batch in chosen.to_batches(**asked, **_AHEAD):
                rows = pa.concat_tables([rows, pa.Table.from_batches([batch])])
                if rows.num_rows > 2 * places.num_rows:  # other splits have rows with the same offsets
                    same = _numbered(rows, keys, "_row").join(own, keys, join_type="left semi", use_threads=False)
                    rows = rows.take(same["_row"])
        # Arrow joins no nested columns: the places are joined, and say where the columns are taken from.
        right = _numbered(rows, keys, "_row")
        pairs = own.join(right, keys, join_type="left outer", use_threads=False).sort_by("_place")
        whole = places.select(keys).drop_null().num_rows
        unclear = abs(len(pairs["_row"].drop_null()) - whole) + pairs.num_rows - places.num_rows
        row = pairs["_row"].slice(0, places.num_rows).combine_chunks()
        values = [rows[name].combine_chunks().take(row) for name in self.columns]
        fields = [pa.field(name, kind) for name, kind in self.columns.items()]
        return pa.StructArray.from_arrays(values, fields=fields, mask=row.is_null()), unclear


def _schema(columns: Mapping[str, pa.DataType], **kinds: pa.DataType) -> pa.Schema:
    """How landed rows are read: what a lake adds to each, and some columns."""
    own = {name: arrow_type(LAKE_COLUMNS[name]) for name in (*OWN.values(), "_generation", "_rowtime")}
    return pa.schema(list({**own, **kinds, **columns}.items()))


def _numbered(rows: pa.Table, keys: Sequence[str], name: str) -> pa.Table:
    """The `keys` of some rows, and their numbers as `name`."""
    return rows.select(keys).append_column(name, pa.array(np.arange(rows.num_rows)))


def _batches(groups: Sequence[Groups], schema: pa.Schema, releasable: ds.Expression) -> Iterator[pa.RecordBatch]:
    for each in groups:
        chosen = Location(each.path).row_groups(each.numbers, ("_op", "_split"))
        yield from chosen.to_batches(schema=schema, filter=releasable, batch_size=AT_ONCE, **_AHEAD)


def frames_of(batches: Iterable[pa.RecordBatch]) -> Iterator[Frame]:
    """Rows that come from Spark, with what was packed of them. Raises LakeError."""
    for batch in together(_unpacked(batches), BYTES_AT_ONCE, AT_ONCE):
        yield dict(zip(batch.schema.names, batch.columns, strict=True))


def packed(shown: Frame, rest: pa.RecordBatch, first: int = 0) -> pa.RecordBatch:
    """The columns of `shown`, those of `rest` as one more, and the numbers of the rows, from `first` on."""
    rest = pa.RecordBatch.from_pydict(dict(zip(rest.schema.names, map(_short, rest.columns), strict=True)))
    sink, rows = pa.BufferOutputStream(), rest.num_rows
    with pa.ipc.new_stream(sink, rest.schema) as stream:
        stream.write_batch(rest)
    data = sink.getvalue()
    offsets, valid = np.full(rows + 1, data.size, np.int32), np.zeros(-(-rows // 8), np.uint8)
    offsets[0], valid[0] = 0, 1
    buffers = [pa.py_buffer(valid), pa.py_buffer(offsets), data]
    own = {ROW: _numbers(first, rows), PACKED: pa.Array.from_buffers(pa.binary(), rows, buffers)}
    return pa.RecordBatch.from_pydict({**shown, **own})


def _numbers(first: int, rows: int) -> pa.Array:
    return pa.array(np.arange(first, first + rows).astype(np.int32))


def _unpacked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows with what was packed of them, however Spark has cut the batches since. Raises LakeError."""
    seen, missing, rest = 0, 0, pa.RecordBatch.from_pydict({})
    for batch in batches:
        if not batch[ROW].equals(_numbers(seen, batch.num_rows)):
            raise lost()
        seen += batch.num_rows
        packs, shown, start = batch[PACKED], batch.drop_columns([ROW, PACKED]), 0
        while start < batch.num_rows:
            if not missing:
                if (pack := packs[start].as_buffer()) is None:
                    raise lost()
                rest = pa.ipc.open_stream(pack).read_next_batch()
                missing = rest.num_rows
            rows = min(missing, batch.num_rows - start)
            own = rest.slice(rest.num_rows - missing, rows)
            columns = [*shown.slice(start, rows).columns, *own.columns]
            yield pa.RecordBatch.from_arrays(columns, [*shown.schema.names, *own.schema.names])
            start, missing = start + rows, missing - rows
    if missing:
        raise lost()


def lost() -> LakeError:
    """The error where rows, or what was counted of them, are not those that a task has handed to Spark."""
    return LakeError(
        "Spark has given back other rows than it was handed",
        where="between the two tasks of a release",
        state="nothing of the epoch is staged",
        next_command="report it; `tidegate explain` shows the INSERT whose expressions Spark evaluates",
    )


@dataclass(frozen=True)
class Meeting:
    """The look-up of the `number`-th join: `keys` are columns of the frame, `other` the one that says whether a key is
    none that the build's type has; `columns` of the build are asked for afterwards."""

    number: int
    join: Join
    build: IndexOf
    keys: tuple[str, ...]
    other: str | None
    columns: tuple[str, ...]
    proof: bool

    @cached_property
    def _index(self) -> Index:
        return opened(self.build)

    @property
    def width(self) -> float:
        """The bytes that are found for one row, on the average."""
        return self._index.width(self.columns)

    def meet(self, frame: Frame) -> Counts:
        """Add what each row meets; how many versions the pin does not allow (or are younger than the row), and the
        greatest epoch of all, whatever the rest of ON says of them. Raises OSError, LakeError."""
        keys = [frame[name] for name in self.keys]
        at = frame["_probe_time"].fill_null(0).to_numpy() if self.join.time == "event" else None
        found = self._index.find(keys, at)
        why, epochs = _WHY.take(found.what), self._index.numbers("epochs", found)
        outside = epochs > self.build.epoch
        if at is not None:
            outside |= self._index.numbers("times", found) > at
            if self.build.horizon is not None:
                beyond = at < self.build.horizon
                why[(why != why_number(KEY_ABSENT)) & beyond] = why_number(BEYOND_RETENTION)
                outside |= beyond
        for key in keys:
            if key.null_count:
                why[flags(key.is_null())] = why_number(KEY_NULL)
        if self.other is not None:
            why[flags(frame[self.other].fill_null(False))] = why_number(KEY_ABSENT)
        if at is not None and frame["_probe_time"].null_count:
            why[flags(frame["_probe_time"].is_null())] = WITHOUT_TIME
        met = why == _MATCH
        columns = (*self.columns, *(["_seq"] if self.proof else []))
        values = dict(zip(columns, self._index.taken(columns, found, met), strict=True))
        frame |= {flat(self.join.alias, name): values[name] for name in self.columns}
        frame[f"_why{self.number}"] = masked(why, ~met)
        if self.proof:
            frame[f"_build{self.number}_epoch"] = masked(epochs, met)
            frame[f"_build{self.number}_seq"] = values["_seq"]
        alias, greatest = self.join.alias, int(epochs.max(where=met, initial=NONE))
        return {
            f"outside-pin@{alias}": int(np.count_nonzero(met & outside)),
            f"greatest-epoch@{alias}": None if greatest == NONE else greatest,
        }


@dataclass(frozen=True)
class Pass:
    """What is done to each frame: the joins. Then Spark is handed it: the columns that are `shown`, and packed what is
    not `gone`. So nothing that only counts ask for is handed on with each row.

    `number`: of the pass. `timed`: the alias of the probe where its times are counted; one at or below `late_upto` is
    late (us, UTC).
    `instant`: ms, UTC; None where nobody asks. `missed`: the columns that say of which rows a version is missing that
    they are quarantined for, where no other row can be quarantined but one without a time; else None. `at_once`: of
    so many bytes ROWS_BACK rows may be that Spark is handed; None: of any.
    """

    meetings: tuple[Meeting, ...] = ()
    gone: frozenset[str] = frozenset()
    shown: Columns = field(default_factory=dict)
    instant: int | None = None
    missed: tuple[str, ...] | None = None
    at_once: int | None = None
    number: int = 0
    timed: str | None = None
    late_upto: int | None = None

    def over(self, frames: Iterable[Frame]) -> Iterator[Frame]:
        width = max(sum(meeting.width for meeting in self.meetings), 1.0)
        size = max(min(AT_ONCE, int(BYTES_AT_ONCE / width)), 1)
        for frame in _pieces(frames, size):
            rows = len(next(iter(frame.values())))
            counts = {f"{COUNTED}{self.number}": rows, **self._times(frame)}
            for meeting in self.meetings:
                counts |= meeting.meet(frame)
            first = pa.array(np.zeros(rows, np.int32), mask=np.arange(rows) > 0)
            frame[f"{COUNTED}{self.number}"] = pa.DictionaryArray.from_arrays(first, [json.dumps(counts)])
            if self.instant is not None:
                moment = pa.scalar(self.instant * 1000, pa.timestamp("us", tz="UTC"))
                frame["_instant"] = pa.repeat(moment, rows)
            nameless = PLACE if self._all_leave(frame) else ()
            yield {name: column for name, column in frame.items() if name not in nameless}

    def _times(self, frame: Frame) -> Counts:
        """How many rows came late, the least and the greatest time (us)."""
        if self.timed is None:
            return {}
        times, bounds = frame["_probe_time"], pc.min_max(frame["_probe_time"]).as_py()  # type: ignore[attr-defined]
        late = 0 if self.late_upto is None else int(np.count_nonzero(times.drop_null().to_numpy() <= self.late_upto))
        return {
            f"late@{self.timed}": late,
            f"least-time@{self.timed}": bounds["min"],
            f"greatest-time@{self.timed}": bounds["max"],
        }

    def _all_leave(self, frame: Frame) -> bool:
        """Whether no row can be quarantined, so that nobody asks for its place."""
        if self.missed is None or any(frame[name].null_count < len(frame[name]) for name in self.missed):
            return False
        return "_probe_time" not in frame or not frame["_probe_time"].null_count

    def batches(self, frames: Iterable[Frame]) -> Iterator[pa.RecordBatch]:
        """The rows for Spark. Raises RowsTooWide if it could not hand as many of them on at once as it would."""
        first, window, size = 0, 0, 0
        for frame in self.over(frames):
            shown = {name: _for_spark(frame[name]) for name in self.shown}
            rest = pa.RecordBatch.from_pydict({name: frame[name] for name in frame if name not in self.gone})
            rows = min(BATCH, PACKED_BYTES * rest.num_rows // max(rest.nbytes, 1) + 1)
            for start in range(0, rest.num_rows, rows):
                some = {name: column.slice(start, rows) for name, column in shown.items()}
                batch = packed(some, rest.slice(start, rows), first)
                if first // ROWS_BACK > window:
                    window, size = first // ROWS_BACK, 0
                size += batch.nbytes
                if self.at_once is not None and size > self.at_once:
                    raise RowsTooWide
                first += batch.num_rows
                yield batch


class RowsTooWide(Exception):
    """ROWS_BACK rows have more bytes than they may have."""


def _pieces(frames: Iterable[Frame], size: int) -> Iterator[Frame]:
    for frame in frames:
        rows = len(next(iter(frame.values())))
        for start in range(0, rows, size):
            yield frame if rows <= size else {name: column.slice(start, size) for name, column in frame.items()}


def _short(column: pa.Array) -> pa.Array:
    """With no more of a dictionary, which is packed with each batch, than the batch has rows."""
    if not pa.types.is_dictionary(column.type) or len(column.dictionary) <= len(column):
        return column
    used = pa.array(np.flatnonzero(np.bincount(column.indices.drop_null().to_numpy(), minlength=1)))
    indices = pc.index_in(column.indices.cast(pa.int64()), value_set=used)  # type: ignore[attr-defined]
    return pa.DictionaryArray.from_arrays(indices.cast(column.type.index_type), column.dictionary.take(used))


def fixed_width(spark_type: str) -> bool:
    """Whether each value of a type takes as much as any other."""
    kind = arrow_type(spark_type)
    return pa.types.is_primitive(kind) or pa.types.is_decimal(kind)


def _for_spark(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return column.cast(kind.value_type)
    if pa.types.is_large_string(kind):
        return column.cast(pa.string())
    return column.cast(pa.binary()) if pa.types.is_large_binary(kind) else column


def row_groups(paths: Sequence[str]) -> list[tuple[str, int, int]]:
    """File, number and rows of every row group."""
    found: list[tuple[str, int, int]] = []
    for path in paths:
        footer = Location(path).footer()
        found += [(path, number, footer.row_group(number).num_rows) for number in range(footer.num_row_groups)]
    return found


def dealt(groups: Sequence[tuple[str, int, int]], tasks: int) -> list[tuple[Groups, ...]]:
    """Row groups for so many tasks, or fewer, so that each has some, and all about as many rows."""
    wanted = min(tasks, len(groups))
    rows, found = [0] * wanted, [dict[str, list[int]]() for _ in range(wanted)]
    for path, number, count in sorted(groups, key=lambda group: -group[2]):
        least = rows.index(min(rows))
        rows[least] += count
        found[least].setdefault(path, []).append(number)
    return [tuple(Groups(path, tuple(sorted(numbers))) for path, numbers in mine.items()) for mine in found]
