"""For rows without a match: their keys, and for each key its nearest version, by the index of the build's versions. No
Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.pipelines.errors import LakeError
from tidegate.pipelines.lake import Lake, StagedRow, delta_log
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.location import Address, Location, dataset_of
from tidegate.pipelines.parquet import python_rows
from tidegate.pipelines.runtime.epochs import Pin, ReleasePlan
from tidegate.pipelines.runtime.quarantine import PROBE, PROBE_PLACE, UNMATCHED, QuarantinedRow
from tidegate.pipelines.sources.arrow_types import arrow_type
from tidegate.pipelines.sql.compile import KeyedJoin, MissedKey, Pipeline, keyed_joins
from tidegate.pipelines.sql.model import Insert, splits_of
from tidegate.pipelines.text import counted
from tidegate.pipelines.versions import GONE, MATCH, NO_TIME, Found, Index, opened
from tidegate.pipelines.versions.hashing import Numbers

MOST_INDEXED = 5_000_000
"""How many versions are indexed for an answer at most, some seconds' work: callers have other things to do."""
MOST_EXAMINED = 100_000
"""How many rows are searched for keys: one key may have most of them."""
_OPS = {"r": "read by the snapshot", "c": "inserted", "+": "inserted", "u": "updated", "d": "deleted"}
_AT = "_at"
"""The column with a row's number."""


def missed_keys(
    lake: Lake, joins: Sequence[KeyedJoin], staged_at: Address, plan: ReleasePlan, staged: StagedRow, most: int
) -> list[MissedKey]:
    """Up to `most` keys of rows of an epoch, staged below `staged_at`, that have no match; each key once."""
    folder = Location(staged_at) / staged.folder
    files = [str(folder / file.path) for file in staged.of("quarantine") if (folder / file.path).is_there()]
    # An adopted file lies where it was staged, so a published epoch is read the same way.
    if not files or most <= 0:
        return []
    found = pa.table({_AT: pa.array([], pa.int64())})
    for examined in (most * 20, MOST_EXAMINED):
        rows = dataset_of(files).head(
            examined,
            columns=["_reason", *PROBE_PLACE, PROBE],
            filter=pc.starts_with(pc.field("_reason"), UNMATCHED),  # type: ignore[attr-defined]
        )
        placed = _placed(lake, joins, plan, rows)
        if placed is None:
            return []
        found = _distinct(placed, joins, most)
        if found.num_rows == most or rows.num_rows < examined:
            break
    return [missed for _, missed in sorted(_with_nearest(lake, joins, plan, found), key=lambda one: one[0])]


def nearest_of_rows(
    lake: Lake, pipeline: Pipeline, insert: Insert, rows: Sequence[QuarantinedRow]
) -> Iterator[MissedKey | None]:
    """For each quarantined row its nearest version; None if it had a match, or its key cannot be known. Each epoch's
    rows are looked up together."""
    joins = keyed_joins(pipeline, insert, lake.target_path)
    for _, group in groupby(rows, key=lambda row: row.group.epoch):
        own = list(group)
        columns = {name: pa.array([row.place[name] for row in own]) for name in PROBE_PLACE}
        columns |= {"_reason": pa.array([row.group.reason for row in own]), PROBE: pa.array([row.probe for row in own])}
        placed = pa.table(columns)
        found = dict(_with_nearest(lake, joins, own[0].group.plan, _placed(lake, joins, own[0].group.plan, placed)))
        yield from map(found.get, range(len(own)))


def nearest_keys(
    lake: Lake, pipeline: Pipeline, insert: Insert, rows: Sequence[QuarantinedRow], most: int
) -> list[tuple[QuarantinedRow, MissedKey]]:
    """Up to `most` keys of quarantined rows that had no match, each with the first row that has it, once an epoch and
    reason. Reads no more epochs than needed."""
    found: list[tuple[QuarantinedRow, MissedKey]] = []
    nearest = nearest_of_rows(lake, pipeline, insert, rows)
    for row in rows if most > 0 else ():
        missed = next(nearest)
        if missed is not None and (row.group.epoch, missed) not in ((other.group.epoch, key) for other, key in found):
            found.append((row, missed))
            if len(found) == most:
                break
    return found


def _placed(lake: Lake, joins: Sequence[KeyedJoin], plan: ReleasePlan, rows: pa.Table) -> pa.Table | None:
    """Of some rows (their `_reason`, place and `_probe`) those that had no match, numbered, with the probe's columns
    that joins read, and with their time in event time. None if there are none, or if a changed script reads other
    columns."""
    numbered = rows.append_column(_AT, pa.array(range(rows.num_rows), pa.int64()))
    found = numbered.filter(pc.starts_with(rows["_reason"], UNMATCHED))  # type: ignore[attr-defined]
    columns, kind = sorted({name for join in joins for name in join.keys.values()}), found[PROBE].type
    if not found.num_rows or not pa.types.is_struct(kind) or any(kind.get_field_index(name) < 0 for name in columns):
        return None
    for name in columns:
        found = found.append_column(name, pc.struct_field(found[PROBE], name))  # type: ignore[attr-defined]
    found = found.drop_columns([PROBE])
    return _timed(lake, joins, plan, found) if any(join.time == "event" for join in joins) else found


def _timed(lake: Lake, joins: Sequence[KeyedJoin], plan: ReleasePlan, rows: pa.Table) -> pa.Table | None:
    """The rows with the time of the landed row that each of them is; None if they are gone."""
    found = list[pa.Table]()
    for number, item in enumerate(plan.branches):
        begin = splits_of(number, item.table) if len(plan.branches) > 1 else ""
        own = rows.filter(pc.starts_with(rows["_split"], begin))  # type: ignore[attr-defined]
        table = _stream(lake, joins, item.table).table
        if table is None or not own.num_rows:
            continue
        epochs = own["_probe_epoch"].unique().to_pylist()
        files = delta_log.data_files(table, item.generation, min(epochs) - 1, max(epochs))
        at = (
            (pc.field("_generation") == item.generation)
            & pc.field("_epoch").isin(epochs)
            & pc.field("_offset").isin(own["_offset"].unique())
        )
        there = [path for path in table.paths(files.files) if Location(path).is_there()]
        if there:
            read = {"_probe_epoch": pc.field("_epoch")} | {n: pc.field(n) for n in ("_split", "_offset", "_rowtime")}
            landed = dataset_of(there).to_table(columns=read, filter=at)
            splits = pa.array(
                [begin + split for split in landed["_split"].to_pylist()], landed.schema.field("_split").type
            )
            landed = landed.set_column(landed.schema.get_field_index("_split"), "_split", splits)
            found.append(own.join(landed, list(PROBE_PLACE), join_type="inner"))
    return pa.concat_tables(found).sort_by(_AT) if found else None


def _stream(lake: Lake, joins: Sequence[KeyedJoin], name: str) -> Stream:
    """A table that some joins of an INSERT read."""
    target = next((join.targets[name] for join in joins if name in join.targets), None)
    return Stream(lake, name, None if target is None else Location(target))


def _of_join(rows: pa.Table, join: KeyedJoin) -> pa.Table:
    """The rows for which this join found no version."""
    return rows.filter(pc.ends_with(rows["_reason"], f"@{join.alias}"))  # type: ignore[attr-defined]


def _distinct(placed: pa.Table, joins: Sequence[KeyedJoin], most: int) -> pa.Table:
    """The first row of each of the first `most` keys; in event time a key at another time is another one."""
    firsts: list[int] = []
    for join in joins:
        own = _of_join(placed, join)
        by = sorted({*join.keys.values(), *(["_rowtime"] if join.time == "event" else [])})
        found = own.group_by(by, use_threads=False).aggregate([(_AT, "min")]) if by else own.slice(0, 1)
        firsts += found[f"{_AT}_min" if by else _AT].slice(0, most).to_pylist()
    wanted = pa.array(sorted(firsts)[:most], pa.int64())
    return placed.filter(pc.is_in(placed[_AT], wanted))  # type: ignore[attr-defined]


def _with_nearest(
    lake: Lake, joins: Sequence[KeyedJoin], plan: ReleasePlan, rows: pa.Table | None
) -> Iterator[tuple[int, MissedKey]]:
    """The number of each row, and its key."""
    for join in joins if rows is not None and rows.num_rows else ():
        own = _of_join(rows, join)
        if not own.num_rows:
            continue
        pin = next((pin for pin in plan.pins if pin.table == join.build), None)
        for row, nearest in zip(python_rows(own), _nearest(lake, join, pin, own), strict=True):
            key = {column: row[name] for column, name in join.keys.items()}
            yield row[_AT], MissedKey(key, row["_reason"].removeprefix(UNMATCHED), nearest)


def _nearest(lake: Lake, join: KeyedJoin, pin: Pin | None, rows: pa.Table) -> list[str]:
    """The version nearest to each row, as text. In this order: what the pin sees (a version that the rest of ON
    refused; the key was deleted, or its table truncated); what a join to today's versions finds; in event time, the
    key's first version."""
    from tidegate.pipelines.runtime.indexes import Indexed  # it imports pyspark

    if not join.types or pin is None:
        return ["not looked for: the join's key is an expression"] * rows.num_rows
    try:
        stream = _stream(lake, [join], join.build)
        indexed = Indexed(lake, join.build, tuple(join.keys), join.types, pin.generation, output=stream.output)
        newest = stream.generation(pin.generation).last
        upto = pin.epoch if newest is None else newest.epoch
        missing = indexed.missing(upto)
        if missing > MOST_INDEXED or not indexed.plain:
            return [f"not looked for: {counted(missing, 'row')} of {join.build} without an index"] * rows.num_rows
        keys = [_cast(rows[name], arrow_type(join.types[column])) for column, name in join.keys.items()]
        index = opened(indexed.upto(upto)).of(keys, timed=join.time == "event")
    except (LakeError, OSError, pa.ArrowException) as error:
        return [f"not looked for: {error}"] * rows.num_rows
    times = rows["_rowtime"].cast(pa.int64()).fill_null(NO_TIME).to_numpy() if join.time == "event" else None
    return described(index, keys, times, pin.epoch)


def described(index: Index, keys: Sequence[pa.Array], times: Numbers | None, pin: int) -> list[str]:
    """The same for an index that goes further than the pin; `times` of the rows: us, UTC, or NO_TIME."""
    at_pin, none = index.at(pin), f"none up to epoch {pin}, nor since"
    seen, now = _met(at_pin, at_pin.find(keys, times)), _met(index, index.find(keys, times))
    first = [None] * len(seen) if times is None else _met(index, index.first(keys))
    at = [None] * len(seen) if times is None else times.tolist()
    known = np.logical_and.reduce([key.is_valid() for key in keys])
    texts = [_described(*found, pin) or none for found in zip(seen, now, first, at, strict=True)]
    return [text if valid else none for text, valid in zip(texts, known, strict=True)]


def _cast(values: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """As the build's type; NULL for values that it cannot hold."""
    try:
        return values.combine_chunks().cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        found = []
        for value in values:
            try:
                found.append(value.cast(kind))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                found.append(pa.scalar(None, kind))
        return pa.array([value.as_py() for value in found], kind)


@dataclass(frozen=True)
class _Met:
    """What a row has met (MATCH, GONE, …), and the version's op, time (us, UTC) and epoch, if any."""

    what: int
    op: int
    time: int
    epoch: int

    @property
    def text(self) -> str:
        if self.what == GONE and chr(self.op) != "d":
            return "none since a truncate of its table"
        at = "" if self.time == NO_TIME else f" at {np.datetime64(self.time // 1000, 'ms')} UTC".replace("T", " ", 1)
        return f"{_OPS.get(chr(self.op), chr(self.op))}{at} (epoch {self.epoch})"


def _met(index: Index, found: Found) -> list[_Met]:
    columns = [found.what, *(index.numbers(name, found) for name in ("ops", "times", "epochs"))]
    return [_Met(*map(int, row)) for row in zip(*columns, strict=True)]


def _described(seen: _Met, now: _Met, first: _Met | None, time: int | None, pin: int) -> str:
    """The nearest version, given what the pin sees, what a join finds today, and the key's first version in time."""
    if seen.what == MATCH:
        return seen.text
    after, found = f", after the pin (epoch {pin})", [seen.text] if seen.what == GONE else []
    if now.what == MATCH:
        found.append(f"{now.text}{after}: joining again finds it")
    elif now.what == GONE and not found:
        found.append(f"{now.text}{after}")
    if not found and first is not None and first.what == MATCH:
        late = "" if time in (None, NO_TIME) else f", {timedelta(microseconds=first.time - time)} after the row"
        found.append(f"{first.text}{late}{after if first.epoch > pin else ''}")
    return "; then ".join(found)
