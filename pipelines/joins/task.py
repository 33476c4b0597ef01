"""The first task of a release, before Spark's SQL: it reads its share of the probe, and finds the version of each build
that a row meets.

Rows are in frames: name -> Arrow array, all of one length. A table's column is called `_of_alias$column`. The others
are:

    _probe_op, _probe_epoch, _probe_split, _probe_offset     of the landed row; the last three only in a frame of which
                                                             some row may be quarantined
    _probe                                                   a STRUCT of the probe's columns, only if Spark reads the
                                                             probe; else they are read again for quarantined rows
    _probe_time                                              in event time: us, UTC
    _probe_seq                                               of rows out of quarantine, where statements join the target
    _further                                                 of an UNNEST: not the first row of its landed row
    _instant                                                 PROCTIME() in this release
    _split, _offset                                          of the landed row, if functions of the script are called
    _why<n>                                                  why the n-th join gave no version; NULL if it gave one, or
                                                             was not asked
    _build<n>_epoch, _build<n>_seq                           with 'gate.proof': the version that the n-th join gave
    _counted<n>                                              the counts of the n-th pass (JSON), in the first of the
                                                             rows that they are of; NULL in the others
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
    NOT_ASKED,
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
"""Counts for the gate, by name."""

Columns = Mapping[str, str]
"""Name -> Spark type."""

AT_ONCE, BYTES_AT_ONCE = 1 << 20, 64 << 20
"""The most rows, and about the most bytes, that are joined at once."""

BATCH, PACKED_BYTES = 1 << 16, 256 << 10
"""The most rows of a batch for Spark, and about the most bytes that are packed in it. Larger arrays are slow: for half
a megabyte Java's collector looks through its whole heap, and Spark holds a row in up to twice its size."""

PACKED = "_packed"
"""The column with all columns that Spark does not need: in the first row of a batch those of all its rows, as an Arrow
stream; NULL in the others. Between two tasks Spark only projects, so rows come back complete and in order, and each
gets its own columns again."""

ROW = "_row"
"""The column with a row's number in its task, from 0 on (INT; after 2^31 rows it goes on below 0). By it the next task
checks that no row was lost or has changed places."""

ROWS_BACK, BYTES_BACK, FEW_BACK = 1 << 14, 64 << 20, 1 << 8
"""The most rows, and bytes, of a batch that Spark returns; the last number is the most rows if they are too wide for
that."""
UNMEASURED = {"spark.sql.execution.arrow.maxBytesPerBatch": str((1 << 31) - 1)}
"""No limit in bytes. With one, Spark measures the batch after each row that it adds, which takes a quarter of its time.
A task measures what it gives Spark instead, once a batch: see `Pass.batches`."""

COUNTED = "_counted"
"""With the number of a pass: the name of the column with its counts, and in the counts, how many rows they are of."""

OWN = {"_probe_op": "_op", "_probe_epoch": "_epoch", "_probe_split": "_split", "_probe_offset": "_offset"}
"""A frame's column -> the landed table's column that it has."""
FIRST_SEQ = "_first_seq"
"""The column of landed rows that were in quarantine with the place in the order of changes that they were given when
they were first taken."""
FURTHER = "_further"
"""The column of rows that UNNEST gives with whether one is none of the rows taken: not the first of its landed row."""
CALLED = {"_split": "STRING", "_offset": "BIGINT"}
"""What functions of the script are called with, beside their arguments: the row's place, as Spark sees it."""
PLACE = ("_probe_epoch", "_probe_split", "_probe_offset")
"""What is stored with quarantined rows only."""

_MATCH = -1
_WHY = np.array([_MATCH, why_number(KEY_ABSENT), why_number(BEFORE_FIRST), why_number(DELETED)], np.int8)
"""Reasons (`why_number`) by the values of `versions.Found.what`."""

_AHEAD = {"use_threads": False, "batch_readahead": 1, "fragment_readahead": 1}
_TEXT = pa.dictionary(pa.int32(), pa.string())


def flat(alias: str, column: str) -> str:
    """The frame's name of a column of the table `alias`. No column of a target has it, as none begins with `_`."""
    return f"{RESERVED_PREFIX}of_{alias}${column}"


@dataclass(frozen=True)
class Groups:
    """Row groups of one file."""

    path: str
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Landed:
    """The landed rows of the probe, as row groups for each task (`shares`), or as Spark reads them.

    `stored`: a frame's column -> the table's column that it has. `types`: of these. `columns`: of those that a
    quarantined row holds; they are looked up by the row's place in the row groups that the task has read, and so are
    not read, joined or written for rows that are published. Where Spark reads the rows (`carrying`), every row has
    them, as `_probe`.
    """

    stored: Mapping[str, str]
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
        """Frames of landed rows. A column that was added to the table later is NULL."""
        for rows in together(batches, BYTES_AT_ONCE, AT_ONCE):

            def column(name: str, kind: pa.DataType, rows: pa.RecordBatch = rows) -> pa.Array:
                return rows[name] if name in rows.schema.names else pa.nulls(rows.num_rows, kind)

            frame = {name: column(stored, self.types[stored]) for name, stored in self.stored.items()}
            frame |= {name: rows[stored] for name, stored in OWN.items()}
            if self.event:
                frame["_probe_time"] = rows["_rowtime"].cast(pa.int64())
            if FIRST_SEQ in rows.schema.names:
                frame["_probe_seq"] = rows[FIRST_SEQ]
            if FURTHER in rows.schema.names:
                frame[FURTHER] = rows[FURTHER]
            if self.carrying:
                values = [column(name, kind) for name, kind in self.columns.items()]
                frame["_probe"] = pa.StructArray.from_arrays(values, list(self.columns))
            yield frame

    def at(self, share: int, places: pa.Table) -> tuple[pa.StructArray, int]:
        """A STRUCT of the `columns` for each of the `places` (columns `_epoch`, `_op`, `_split`, `_offset`), NULL where
        a part of a place is NULL; and how many places were not found exactly once: if any, the STRUCTs must not be
        used. Raises OSError."""
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
    """The schema in which landed rows are read: the lake's own columns, and some of the table's."""
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
    """Frames of rows that come from Spark, with their packed columns. Raises LakeError."""
    for batch in together(_unpacked(batches), BYTES_AT_ONCE, AT_ONCE):
        yield dict(zip(batch.schema.names, batch.columns, strict=True))


def packed(shown: Frame, rest: pa.RecordBatch, first: int = 0) -> pa.RecordBatch:
    """A batch with the columns of `shown`, those of `rest` packed into one, and the rows' numbers from `first` on."""
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
    """Rows with their packed columns, in whatever batches Spark returns them. Raises LakeError."""
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
    """The error if rows or counts that Spark returns are not those that a task gave it."""
    return LakeError(
        "Spark returned other rows than it was given",
        where="between the two tasks of a release",
        state="nothing of the epoch is staged",
        next_command="report it; `tidegate explain` shows the INSERT whose expressions Spark evaluates",
    )


@dataclass(frozen=True)
class LookUp:
    """The look-up of the `number`-th join.

    Attributes:
        keys: The frame's columns with the keys.
        other: The frame's column that is true where a key has no equal value in the build's type; None if that cannot
            be.
        columns: The build's columns that are taken from the version.
        proof: Whether the version's epoch and seq are taken, too.
        asked: The frame's column that is true where a row asks for a version; None if all do.
    """

    number: int
    join: Join
    build: IndexOf
    keys: tuple[str, ...]
    other: str | None
    columns: tuple[str, ...]
    proof: bool
    asked: str | None = None

    @cached_property
    def _index(self) -> Index:
        return opened(self.build)

    @property
    def width(self) -> float:
        """The average bytes that are added to a row."""
        return self._index.width(self.columns)

    def look_up(self, frame: Frame) -> Counts:
        """Add to each row the version that it meets. Returns counts, which the rest of ON does not change: versions
        outside of the pin (or younger than the row), and the greatest epoch of all versions. Raises OSError,
        LakeError."""
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
        asked = np.ones(len(why), bool) if self.asked is None else flags(frame[self.asked].fill_null(False))
        if at is not None and frame["_probe_time"].null_count:
            why[flags(frame["_probe_time"].is_null())] = WITHOUT_TIME
        met, none = (why == _MATCH) & asked, why == WITHOUT_TIME
        columns = (*self.columns, *(["_seq"] if self.proof else []))
        values = dict(zip(columns, self._index.taken(columns, found, met), strict=True))
        frame |= {flat(self.join.alias, name): values[name] for name in self.columns}
        missed = ~met & (asked | none)
        frame[f"_why{self.number}"] = masked(why, missed)
        if self.proof:
            frame[f"_build{self.number}_epoch"] = masked(epochs, met)
            frame[f"_build{self.number}_seq"] = values["_seq"]
        alias, greatest = self.join.alias, int(epochs.max(where=met, initial=NONE))
        others = int(np.count_nonzero(~(met | missed)))
        return {
            f"outside-pin@{alias}": int(np.count_nonzero(met & outside)),
            f"greatest-epoch@{alias}": None if greatest == NONE else greatest,
            **({} if self.asked is None else {f"{NOT_ASKED}@{alias}": others}),
        }


@dataclass(frozen=True)
class Pass:
    """The joins of one task. After them, Spark gets the columns that are `shown`; all others are packed, but for those
    `not_packed`.

    Attributes:
        number: Of the pass.
        probe: The probe's alias.
        timed: The probe's alias, if its times are counted. `late_upto` (us, UTC): a time at or below it is late.
        instant: ms, UTC; None if no expression uses it.
        missed: The columns with the reasons for which a row can be quarantined, if there is no other way (but a missing
            time); None if there is.
        most_bytes: The most bytes of ROWS_BACK rows that Spark gets; None for no limit.
    """

    lookups: tuple[LookUp, ...] = ()
    not_packed: frozenset[str] = frozenset()
    shown: Columns = field(default_factory=dict)
    instant: int | None = None
    missed: tuple[str, ...] | None = None
    most_bytes: int | None = None
    number: int = 0
    timed: str | None = None
    late_upto: int | None = None
    probe: str = ""

    def over(self, frames: Iterable[Frame]) -> Iterator[Frame]:
        width = max(sum(lookup.width for lookup in self.lookups), 1.0)
        size = max(min(AT_ONCE, int(BYTES_AT_ONCE / width)), 1)
        for frame in _pieces(frames, size):
            rows = len(next(iter(frame.values())))
            counts = {f"{COUNTED}{self.number}": rows, **self._times(frame)}
            if (further := frame.pop(FURTHER, None)) is not None:
                counts[f"further@{self.probe}"] = int(np.count_nonzero(flags(further)))
            for lookup in self.lookups:
                counts |= lookup.look_up(frame)
            first = pa.array(np.zeros(rows, np.int32), mask=np.arange(rows) > 0)
            frame[f"{COUNTED}{self.number}"] = pa.DictionaryArray.from_arrays(first, [json.dumps(counts)])
            if self.instant is not None:
                moment = pa.scalar(self.instant * 1000, pa.timestamp("us", tz="UTC"))
                frame["_instant"] = pa.repeat(moment, rows)
            frame |= {name: frame[f"_probe{name}"] for name in CALLED if name in self.shown}
            nameless = PLACE if self._none_quarantined(frame) else ()
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

    def _none_quarantined(self, frame: Frame) -> bool:
        """Whether no row of a frame can be quarantined, so that their places are not needed."""
        if self.missed is None or any(frame[name].null_count < len(frame[name]) for name in self.missed):
            return False
        return "_probe_time" not in frame or not frame["_probe_time"].null_count

    def batches(self, frames: Iterable[Frame]) -> Iterator[pa.RecordBatch]:
        """The batches for Spark. Raises RowsTooWide if so many rows as Spark returns at once have too many bytes."""
        first, window, size = 0, 0, 0
        for frame in self.over(frames):
            shown = {name: _for_spark(frame[name]) for name in self.shown}
            rest = pa.RecordBatch.from_pydict({name: frame[name] for name in frame if name not in self.not_packed})
            rows = min(BATCH, PACKED_BYTES * rest.num_rows // max(rest.nbytes, 1) + 1)
            for start in range(0, rest.num_rows, rows):
                some = {name: column.slice(start, rows) for name, column in shown.items()}
                batch = packed(some, rest.slice(start, rows), first)
                if first // ROWS_BACK > window:
                    window, size = first // ROWS_BACK, 0
                size += batch.nbytes
                if self.most_bytes is not None and size > self.most_bytes:
                    raise RowsTooWide
                first += batch.num_rows
                yield batch


class RowsTooWide(Exception):
    """ROWS_BACK rows have more bytes than Spark may return at once."""


def _pieces(frames: Iterable[Frame], size: int) -> Iterator[Frame]:
    for frame in frames:
        rows = len(next(iter(frame.values())))
        for start in range(0, rows, size):
            yield frame if rows <= size else {name: column.slice(start, size) for name, column in frame.items()}


def _short(column: pa.Array) -> pa.Array:
    """A column whose dictionary has no more values than the batch has rows: it is packed with each batch."""
    if not pa.types.is_dictionary(column.type) or len(column.dictionary) <= len(column):
        return column
    used = pa.array(np.flatnonzero(np.bincount(column.indices.drop_null().to_numpy(), minlength=1)))
    indices = pc.index_in(column.indices.cast(pa.int64()), value_set=used)  # type: ignore[attr-defined]
    return pa.DictionaryArray.from_arrays(indices.cast(column.type.index_type), column.dictionary.take(used))


def fixed_width(spark_type: str) -> bool:
    """Whether all values of a type have the same size."""
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
    """Row groups divided among `tasks` tasks, or fewer if there are not enough: all get about as many rows."""
    wanted = min(tasks, len(groups))
    rows, found = [0] * wanted, [dict[str, list[int]]() for _ in range(wanted)]
    for path, number, count in sorted(groups, key=lambda group: -group[2]):
        least = rows.index(min(rows))
        rows[least] += count
        found[least].setdefault(path, []).append(number)
    return [tuple(Groups(path, tuple(sorted(numbers))) for path, numbers in mine.items()) for mine in found]
