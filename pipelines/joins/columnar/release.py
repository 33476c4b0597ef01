"""One share of a release: row groups of landed probe rows in, staged files out, every outcome counted.

Files, columns and counts are those of `pipelines.joins.release`, which does the same in SQL for every INSERT.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow.fs import LocalFileSystem

from pipelines.joins.columnar.plain import Plain, PlainJoin, Ref
from pipelines.joins.columnar.versions import NO_KEY, Flags, Numbers, Versions, flags, load
from pipelines.joins.outcome import (
    BEFORE_FIRST,
    BEYOND_RETENTION,
    DELETED,
    KEY_ABSENT,
    KEY_NULL,
    MATCHED,
    TIME_NULL,
    Outcomes,
    outcomes,
    why_number,
)
from pipelines.joins.release import Release
from pipelines.lake.due import Due
from pipelines.lake.rows import LAKE_COLUMNS
from pipelines.parquet import BatchWriter
from pipelines.sources.arrow_types import arrow_type
from pipelines.watermarks import MAX_TIMESTAMP, MIN_TIMESTAMP

Found = dict[str, int | None]
"""The counts of a release, by the names that `pipelines.joins.release` gives them."""

AT_ONCE, BYTES_AT_ONCE = 1 << 20, 256 << 20
"""So many rows, of about so many bytes, are joined at once, at most; not fewer without need, as every look among the
keys of a build begins with a table of them."""

OWN = ("_op", "_epoch", "_generation", "_rowtime", "_split", "_offset")
"""What is read of a landed row beside its own columns."""

_OWN_TYPES = {name: arrow_type(LAKE_COLUMNS[name]) for name in OWN}

_FORMAT = ds.ParquetFileFormat(read_options=ds.ParquetReadOptions(dictionary_columns={"_op", "_split"}))

_MATCH = -1
"""In the place of a reason (`why_number`) why a build gave no version."""


@dataclass(frozen=True)
class Groups:
    """Row groups of one file."""

    path: str
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Share:
    """What one task does: `groups` of the probe's files, written as the `number`-th file to `folder`.

    `versions`: of each join, where its versions are saved; `pins`: generation and epoch that they are of; `horizons`:
    what `pipelines.joins.Build` has of each.
    """

    plain: Plain
    release: Release
    due: Due
    groups: tuple[Groups, ...]
    versions: tuple[str, ...]
    pins: tuple[tuple[int, int], ...]
    horizons: tuple[int | None, ...]
    folder: str
    number: int


@dataclass(frozen=True)
class Staged:
    """What tasks have written: `files`, by their names in the folder of the release, and what they counted."""

    files: list[str]
    counts: Found


def stage(share: Share) -> dict[str, Any]:
    """Join and write one share: a `Staged`, as a dict. Another attempt at it writes other files, so that what a task
    has told of stays as it is. Raises OSError."""
    counts = _Counts(share)
    name = f"part-{share.number:05d}-{uuid.uuid4().hex[:8]}.parquet"
    with ExitStack() as open_files:
        files = {}
        for kind in ("publish", "quarantine"):
            folder = Path(share.folder) / f"_disposition={kind}"
            folder.mkdir(parents=True, exist_ok=True)
            files[kind] = open_files.enter_context(BatchWriter(folder / name))
        publish = share.release.on_unmatched == "publish"
        last = Outcomes(share.plain.insert).last_published(publish_unmatched=publish)
        for rows in _due(share):
            matched = _Matched.of(share, rows)
            counts.add(matched)
            published = matched.outcome <= last
            files["publish"].write(_staged(share, matched, published, told=False))
            files["quarantine"].write(_staged(share, matched, ~published & ~matched.dropped, told=True))
    told = [f"_disposition={kind}/{name}" for kind, file in files.items() if file.rows]
    return {"files": told, "counts": counts.found}


def merged(staged: Sequence[Staged]) -> Staged:
    """What all shares have written and counted."""
    return Staged([name for each in staged for name in each.files], _added([each.counts for each in staged]))


def _added(found: Sequence[Found]) -> Found:
    return {name: _together(name, [each[name] for each in found]) for name in found[0]}


def _together(name: str, values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    if name.startswith("least-time@"):
        return min(known)
    if name.startswith(("greatest-time@", "greatest-epoch@")):
        return max(known, default=None)
    return sum(known)


def _due(share: Share) -> Iterator[pa.RecordBatch]:
    """The due rows of a share, in batches of about as many as may be joined at once."""
    held: list[pa.RecordBatch] = []
    wanted = _at_once([load(saved).rows for saved in share.versions])
    for batch in _read(share, wanted):
        held.append(batch)
        if sum(each.num_rows for each in held) >= wanted or sum(each.nbytes for each in held) >= BYTES_AT_ONCE:
            yield _one(held)
            held = []
    if held:
        yield _one(held)


def _at_once(builds: Sequence[pa.RecordBatch]) -> int:
    """How many rows are joined at once, by what is found for each on the average."""
    width = sum(rows.nbytes / max(rows.num_rows, 1) for rows in builds)
    return max(min(AT_ONCE, int(BYTES_AT_ONCE / max(width, 1))), 10_000)


def _one(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _read(share: Share, size: int) -> Iterator[pa.RecordBatch]:
    """The due rows of a share, as they are read."""
    plain = share.plain
    text = dict.fromkeys(("_op", "_split"), pa.dictionary(pa.int32(), pa.string()))
    types = {**_OWN_TYPES, **text, **{name: plain.types[Ref(plain.probe, name)] for name in plain.probe_columns}}
    schema, due = pa.schema(list(types.items())), share.due.expression()
    for groups in share.groups:
        chosen = _FORMAT.make_fragment(groups.path, LocalFileSystem()).subset(row_group_ids=list(groups.numbers))
        ahead = {"use_threads": False, "batch_readahead": 1, "fragment_readahead": 1}
        for batch in chosen.to_batches(schema=schema, filter=due, batch_size=size, **ahead):
            if batch.num_rows:
                yield batch


@dataclass
class _Matched:
    """Joined rows: of each join, why it gave no version (_MATCH where it gave one), the version's row in the changelog
    (`places`), and since when it is valid (`since`, us).

    `time`: us, UTC; `timed`: whether there is one.
    """

    rows: pa.RecordBatch
    time: Numbers
    timed: Flags
    whys: list[Numbers]
    places: list[Numbers]
    since: list[Numbers]
    versions: list[Versions]
    outcome: Numbers
    dropped: Flags

    @classmethod
    def of(cls, share: Share, rows: pa.RecordBatch) -> _Matched:
        times = rows.column("_rowtime").cast(pa.int64())
        timed = flags(times.is_valid())
        none = np.zeros(rows.num_rows, np.int64)
        found = cls(rows, times.fill_null(0).to_numpy(), timed, [], [], [], [], none, none.astype(bool))
        for join, saved, horizon in zip(share.plain.joins, share.versions, share.horizons, strict=True):
            found._meet(share.plain, join, load(saved), horizon)
        found._conclude(share)
        return found

    def column(self, plain: Plain, ref: Ref, rows: Numbers | None = None) -> pa.Array:
        """A column of the joined rows, of those at `rows`; NULL where there was no match."""
        if ref.alias == plain.probe:
            found = self.rows.column(ref.column)
            return found if rows is None else found.take(pa.array(rows))
        number = [join.alias for join in plain.joins].index(ref.alias)
        places, why = self.places[number], self.whys[number]
        if rows is not None:
            places, why = places[rows], why[rows]
        return self.versions[number].rows.column(ref.column).take(pa.array(places, mask=why != _MATCH))

    def _meet(self, plain: Plain, join: PlainJoin, versions: Versions, horizon: int | None) -> None:
        """The version of one build that each row meets at its time."""
        keys = [self.column(plain, ref) for ref, _ in join.keys]
        numbers, after = versions.find(keys, self.time)
        why = np.full(len(numbers), _MATCH, np.int64)
        known = (numbers != NO_KEY) & self.timed
        early = known & (after < versions.starts[np.maximum(numbers, 0)])
        met = known & ~early
        places = np.zeros(len(numbers), np.int64)
        places[met] = versions.order[after[met]]
        gone = flags(versions.rows.column("_gone"))
        why[met] = np.where(gone[places[met]], why_number(DELETED), _MATCH)
        why[early] = why_number(BEFORE_FIRST)
        if horizon is not None:
            why[self.timed & (self.time < horizon)] = why_number(BEYOND_RETENTION)
        why[~known] = why_number(KEY_ABSENT)
        for values in keys:
            if values.null_count:
                why[flags(values.is_null())] = why_number(KEY_NULL)
        self.whys.append(why)
        self.places.append(places)
        self.since.append(versions.times[np.maximum(after, 0)] if len(versions.times) else places)
        self.versions.append(versions)

    def _conclude(self, share: Share) -> None:
        """The number of each row's outcome: by the first join that gave no version, and of a LEFT one only where no
        INNER one did, if unmatched rows are published."""
        known = Outcomes(share.plain.insert)
        publish = share.release.on_unmatched == "publish"
        outcome = np.full(len(self.time), known.number(MATCHED), np.int64)
        missed = [(join, why, why != _MATCH) for join, why in zip(share.plain.insert.joins, self.whys, strict=True)]
        for join, why, rows in reversed(missed):
            outcome[rows] = known.first_missed("unmatched", join) + why[rows]
        for join, why, rows in reversed([each for each in missed if publish and each[0].kind == "INNER"]):
            outcome[rows] = known.first_missed("dropped", join) + why[rows]
            self.dropped = self.dropped | rows
        outcome[~self.timed] = known.number(TIME_NULL)
        self.dropped = self.dropped & self.timed
        self.outcome = outcome


class _Counts:
    """What the gate wants to know, over all batches of a share."""

    def __init__(self, share: Share) -> None:
        self._share = share
        self._known = Outcomes(share.plain.insert)
        probe = share.plain.probe
        self.found: Found = {"rows": 0, f"late@{probe}": 0}
        self.found |= {f"least-time@{probe}": MAX_TIMESTAMP, f"greatest-time@{probe}": MIN_TIMESTAMP}
        retained = any(horizon is not None for horizon in share.horizons)
        self.found |= dict.fromkeys(outcomes(share.plain.insert, retained=retained), 0)
        self.found |= dict.fromkeys([f"to:{kind}" for kind in ("publish", "quarantine", "drop")], 0)
        for join in share.plain.joins:
            self.found |= {f"matches@{join.alias}": 0, f"outside-pin@{join.alias}": 0}
            self.found[f"greatest-epoch@{join.alias}"] = None

    def add(self, matched: _Matched) -> None:
        """Count one batch."""
        share, probe = self._share, self._share.plain.probe
        found: Found = dict.fromkeys(self.found, 0)
        times = matched.time[matched.timed]
        found["rows"] = len(matched.time)
        if share.release.late_upto is not None:
            found[f"late@{probe}"] = int((times <= share.release.late_upto).sum())
        found[f"least-time@{probe}"] = int(times.min()) if len(times) else MAX_TIMESTAMP
        found[f"greatest-time@{probe}"] = int(times.max()) if len(times) else MIN_TIMESTAMP
        by_number = np.bincount(matched.outcome, minlength=len(self._known.names))
        for name, count in zip(self._known.names, by_number, strict=True):
            if name in found:
                found[name] = int(count)
        last = self._known.last_published(publish_unmatched=share.release.on_unmatched == "publish")
        found["to:publish"] = int(by_number[: last + 1].sum())
        found["to:drop"] = int(matched.dropped.sum())
        found["to:quarantine"] = len(matched.time) - (found["to:publish"] or 0) - (found["to:drop"] or 0)
        for number, join in enumerate(share.plain.joins):
            self._count_matches(found, matched, number, join.alias)
        self.found = _added([self.found, found])

    def _count_matches(self, found: Found, matched: _Matched, number: int, alias: str) -> None:
        """Of a join, its matches, and whether they are what its pin allows: asked of the versions that were taken."""
        met = matched.whys[number] == _MATCH
        versions, (generation, epoch) = matched.versions[number], self._share.pins[number]
        places = matched.places[number][met]
        generations = versions.rows.column("_generation").to_numpy()[places]
        epochs = versions.rows.column("_epoch").to_numpy()[places]
        valid = matched.since[number][met] <= matched.time[met]
        inside = (generations == generation) & (epochs <= epoch) & valid
        if (horizon := self._share.horizons[number]) is not None:
            inside &= matched.time[met] >= horizon
        found[f"matches@{alias}"] = len(places)
        found[f"outside-pin@{alias}"] = len(places) - int(inside.sum())
        found[f"greatest-epoch@{alias}"] = int(epochs.max()) if len(epochs) else None


def _staged(share: Share, matched: _Matched, chosen: Flags, *, told: bool) -> pa.RecordBatch:
    """The chosen rows as they are staged. `told`: which probe row each was, and why it is kept out."""
    plain, release = share.plain, share.release
    rows = None if chosen.all() else np.flatnonzero(chosen)
    size = len(chosen) if rows is None else len(rows)
    columns = {name: matched.column(plain, ref, rows) for name, ref in plain.output}

    def own(name: str) -> pa.Array:
        return matched.column(plain, Ref(plain.probe, name), rows)

    columns["_op"] = own("_op")
    columns["_generation"] = pa.repeat(pa.scalar(release.generation, pa.int32()), size)
    columns["_epoch"] = pa.repeat(pa.scalar(release.epoch, pa.int64()), size)
    beside = {"_probe_epoch": "_epoch", "_split": "_split", "_offset": "_offset"}
    for name, source in beside.items():
        columns[name] = own(source) if told else pa.nulls(size, _OWN_TYPES[source])
    names = pa.array(Outcomes(plain.insert).names)
    outcome = matched.outcome if rows is None else matched.outcome[rows]
    columns["_reason"] = names.take(pa.array(outcome)) if told else pa.nulls(size, pa.string())
    return pa.RecordBatch.from_arrays([_plain(values) for values in columns.values()], list(columns))


def _plain(values: pa.Array) -> pa.Array:
    """Text as it is written; what is found of a build is large text, which looks the same in a file."""
    return values.cast(pa.string()) if pa.types.is_dictionary(values.type) else values


def row_groups(paths: Sequence[str]) -> list[tuple[str, int, int]]:
    """File, number and rows of every row group."""
    found: list[tuple[str, int, int]] = []
    for path in paths:
        footer = pq.read_metadata(path)
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
