"""The last task of a release, after Spark's SQL: it writes the staged files, and counts every outcome.

A staged row has the target's columns, then

    _op, _generation, _epoch           in every row
    _probe_epoch, _split, _offset      the probe row; NULL if published
    _split, _offset, _rowtime          of a published row that statements read: its place (the split begins with the
                                       probe's epoch) and its event time
    _seq                               where statements join the target: the row's place in the order of changes
    _probe                             the probe's own columns; only if quarantined
    _reason                            why it is quarantined; of a published row only with 'gate.proof'
    _violated                          the constraints that it violates (joins.violations), if the target has any

and lies in a folder `_disposition=publish` or `_disposition=quarantine`, each below a folder of its own.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.pipelines.connectors.options import OnUnmatched
from tidegate.pipelines.frames import task_number
from tidegate.pipelines.joins.outcome import MASK, MATCHED, NOT_ASKED, TIME_NULL, WHERE, Outcomes, outcomes
from tidegate.pipelines.joins.task import COUNTED, Counts, Frame, Landed, lost
from tidegate.pipelines.lake.rows import LAKE_COLUMNS
from tidegate.pipelines.location import Location
from tidegate.pipelines.parquet import GROUP_BYTES, BatchWriter
from tidegate.pipelines.sources.arrow_types import arrow_type
from tidegate.pipelines.sql.model import Insert
from tidegate.pipelines.versions.hashing import Flags, Numbers, flags, masked
from tidegate.pipelines.watermarks import MAX_TIMESTAMP, MIN_TIMESTAMP

LOOKED_UP = 100_000
"""Of how many quarantined rows a task holds the probe's columns at once: they may be much larger than the target's."""


@dataclass(frozen=True)
class Release:
    """The epoch. `instant` (ms, UTC) is its PROCTIME(). `discard`: all rows are quarantined that would leave.
    `late_upto` (us, UTC): in event time, a row at or below it is late; None while no row can be. `retained`: retention
    has removed versions of a build. `placed`: statements read the target, so its rows keep their place and time.
    `splits`: where statements join it, the splits of the rows' places, in order; None where none does."""

    generation: int
    epoch: int
    instant: int
    on_unmatched: OnUnmatched
    discard: bool = False
    late_upto: int | None = None
    retained: bool = False
    placed: bool = False
    splits: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Writer:
    """Writes frames to `folders` (by disposition). `columns`: the target's name -> the frame's name of a column."""

    insert: Insert
    release: Release
    columns: Mapping[str, str]
    folders: Mapping[str, str]
    probe: Landed | None = None

    def write(self, frames: Iterable[Frame]) -> str:
        """Write all frames of a task; returns the files' names and the counts, as JSON. Another attempt writes other
        files, so that files which a task has reported never change. Raises OSError, and LakeError if the counts are not
        of all rows."""
        known, name = Outcomes(self.insert), f"part-{uuid.uuid4().hex}.parquet"
        last = known.last_published(publish_unmatched=self.release.on_unmatched == "publish")
        waiting, counts, unclear = list[pa.RecordBatch](), nothing(self.insert, self.release), 0
        with ExitStack() as open_files:
            files: dict[str, BatchWriter] = {}
            for kind, folder in self.folders.items():
                place = Location(folder) / f"_disposition={kind}" / name
                files[kind] = open_files.enter_context(BatchWriter(place))
            for frame in frames:
                outcome = frame["_outcome"].to_numpy() if "_outcome" in frame else self._concluded(frame, known)
                counts = _added([counts, counted(self.insert, self.release, frame, outcome)])
                published = outcome <= last
                files["publish"].write(self._staged(frame, outcome, published, quarantined=False))
                quarantined = ~published & (outcome < known.number(WHERE))
                if quarantined.any():
                    waiting.append(self._staged(frame, outcome, quarantined, quarantined=True))
                if sum(batch.nbytes for batch in waiting) >= GROUP_BYTES:
                    unclear += self._quarantine(files["quarantine"], waiting)
                    waiting.clear()
            unclear += self._quarantine(files["quarantine"], waiting)
        of = {counts.pop(name) for name in [name for name in counts if name.startswith(COUNTED)]}
        if of - {counts["rows"]} or (counts["rows"] and not of):
            raise lost()  # what was counted of some rows, or of rows that are none of these
        written = [f"_disposition={kind}/{name}" for kind, file in files.items() if file.rows]
        return json.dumps({"files": written, "counts": counts, "unclear": unclear})

    def _quarantine(self, file: BatchWriter, batches: Sequence[pa.RecordBatch]) -> int:
        """Write quarantined rows with the probe's columns; returns for how many rows these were not found exactly
        once."""
        if self.probe is None or not batches:
            for batch in batches:
                file.write(batch)
            return 0
        rows, unclear = pa.Table.from_batches(batches).unify_dictionaries().combine_chunks(), 0
        for first in range(0, rows.num_rows, LOOKED_UP):
            some = rows.slice(first, LOOKED_UP)
            places = {"_epoch": some["_probe_epoch"], "_offset": some["_offset"]}
            places |= {name: some[name].cast(pa.string()) for name in ("_op", "_split")}
            columns, missed = self.probe.at(task_number(), pa.table(places))
            unclear += missed
            for batch in some.append_column("_probe", columns).to_batches():
                file.write(batch)
        return unclear

    def _concluded(self, frame: Frame, known: Outcomes) -> Numbers:
        """The outcome of each row of an INSERT without conditions: by the first join that gave no version. If unmatched
        rows are published, INNER joins decide before LEFT ones."""
        numbered = list(enumerate(self.insert.joins))
        outcome = np.full(len(frame["_probe_op"]), known.number(MATCHED), np.int64)
        publish = self.release.on_unmatched == "publish"
        lost = [("dropped", each) for each in numbered if publish and each[1].kind == "INNER"]
        for kind, (number, join) in [*lost, *(("unmatched", each) for each in numbered)][::-1]:
            why = frame[f"_why{number}"]
            if why.null_count < len(why):
                rows = np.flatnonzero(flags(why.is_valid()))
                first = known.first_missed("dropped" if kind == "dropped" else "unmatched", join)
                outcome[rows] = first + why.fill_null(0).to_numpy().take(rows)
        if self.insert.time == "event" and frame["_probe_time"].null_count:
            outcome[flags(frame["_probe_time"].is_null())] = known.number(TIME_NULL)
        return outcome

    def _staged(self, frame: Frame, outcome: Numbers, chosen: Flags, *, quarantined: bool) -> pa.RecordBatch:
        rows = None if chosen.all() else pa.array(np.flatnonzero(chosen))
        size = len(chosen) if rows is None else len(rows)

        def own(name: str) -> pa.Array:
            return frame[name] if rows is None else frame[name].take(rows)

        types = {item.name: arrow_type(item.spark_type) for item in self.insert.projections}
        columns = {name: _as(own(source), types[name]) for name, source in self.columns.items()}
        columns["_op"] = own("_probe_op")
        columns["_generation"] = pa.repeat(pa.scalar(self.release.generation, pa.int32()), size)
        columns["_epoch"] = pa.repeat(pa.scalar(self.release.epoch, pa.int64()), size)
        for name, column in (("_probe_epoch", "_epoch"), ("_split", "_split"), ("_offset", "_offset")):
            source, kind = name if name == "_probe_epoch" else f"_probe{name}", arrow_type(LAKE_COLUMNS[column])
            columns[name] = _as(own(source), kind) if quarantined else _nulls(size, kind)
        if self.release.placed and not quarantined:
            columns |= _placed(own)
        if self.release.splits is not None:
            columns["_seq"] = own("_probe_seq") if "_probe_seq" in frame else ordered(own, self.release)
        if quarantined and "_probe" in frame:
            columns["_probe"] = own("_probe")
        if quarantined or self.insert.proof:
            names = [None if name == MATCHED else name for name in Outcomes(self.insert).names]
            columns["_reason"] = pa.array(names, pa.string()).take(masked(outcome[chosen]))
        else:
            columns["_reason"] = _nulls(size, pa.string())
        if self.insert.constraints:
            columns[MASK] = own(MASK)
        if self.insert.proof:
            columns |= self._proof(own, size)
        return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))

    def _proof(self, own, size: int) -> Frame:
        """The match proof of each row: the versions that it met, and whether every build had one."""
        found: Frame = {}
        matched = np.ones(size, bool)
        for number, (epoch, seq) in enumerate(self.insert.proofs):
            met = flags(own(f"_why{number}").is_null())
            none = pa.array(np.where(met, np.arange(size), -1), mask=~met)
            found[epoch], found[seq] = own(f"_build{number}_epoch").take(none), own(f"_build{number}_seq").take(none)
            matched &= met
        return {**found, "_matched": pa.array(matched)}


def _placed(own: Callable[[str], pa.Array]) -> Frame:
    """The place and the time of published rows: the split begins with the epoch that the row landed in, in ten digits,
    so that splits are in the order of these epochs."""
    time = own("_probe_time").cast(pa.timestamp("us", "UTC"))
    return {"_split": _split(own), "_offset": _as(own("_probe_offset"), pa.int64()), "_rowtime": time}


def split_of(epoch: int, split: str) -> str:
    """The split of the place of a row that landed in an epoch and a split."""
    return f"{epoch:010}/{split}"


def _split(own: Callable[[str], pa.Array]) -> pa.Array:
    """The same for every row."""
    epochs, splits = _as(own("_probe_epoch"), pa.int64()), own("_probe_split").cast(pa.string())
    padded = pc.utf8_lpad(epochs.cast(pa.string()), 10, "0")  # type: ignore[attr-defined]
    return pc.binary_join_element_wise(padded, splits, "/")  # type: ignore[attr-defined]


def ordered(own: Callable[[str], pa.Array], release: Release) -> pa.StructArray:
    """The place of rows in the order of changes of their target: by the epoch that takes them, for the first time here,
    by rowtime, split, offset. The fields are those of any seq:

        phase      the epoch
        log        the upper 32 bits of the rowtime (us); NULL, before all others, without one
        file       the lower 32 bits, then the split's number among those of the epoch, 31 bits
        position   the offset
    """
    split = pc.index_in(_split(own), value_set=pa.array(release.splits, pa.string()))  # type: ignore[attr-defined]
    if split.null_count:
        raise lost()
    times = own("_probe_time")
    micros = times.fill_null(0).to_numpy().astype(np.int64)
    low = np.where(flags(times.is_valid()), micros & 0xFFFFFFFF, 0)
    parts = {
        "phase": np.full(len(micros), release.epoch),
        "log": micros >> 32,
        "file": (low << 31) | split.to_numpy().astype(np.int64),
        "position": _as(own("_probe_offset"), pa.int64()),
    }
    kind = arrow_type(LAKE_COLUMNS["_seq"])
    fields = {field.name: field.type for field in kind}
    columns = [
        pa.array(parts[name], fields[name]) if name in parts else pa.nulls(len(micros), fields[name]) for name in fields
    ]
    columns[list(fields).index("log")] = pa.array(parts["log"], fields["log"], mask=flags(times.is_null()))
    return pa.StructArray.from_arrays(columns, fields=list(kind))


def _as(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Text as it is written: a build's text may be large text, or a dictionary's, and looks the same in a file."""
    own = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    return (
        values if own == kind or pa.types.is_large_string(own) or pa.types.is_large_binary(own) else values.cast(kind)
    )


@lru_cache(maxsize=8)
def _nulls(size: int, kind: pa.DataType) -> pa.Array:
    """NULLs of a type; the same array for every batch."""
    return pa.nulls(size, kind)


def counted(insert: Insert, release: Release, frame: Mapping[str, pa.Array], outcome: Numbers) -> Counts:
    """The counts of released rows for the gate: how many there are, one count an outcome and a disposition, the matches
    of each join, and the counts of the first tasks."""
    known = Outcomes(insert)
    numbers = np.bincount(outcome, minlength=len(known.names))
    last = known.last_published(publish_unmatched=release.on_unmatched == "publish")
    published, dropped = int(numbers[: last + 1].sum()), int(numbers[known.number(WHERE) :].sum())
    found: Counts = {"rows": len(outcome)}
    found |= {name: int(numbers[known.number(name)]) for name in outcomes(insert, retained=release.retained)}
    found |= {"to:publish": published, "to:quarantine": len(outcome) - published - dropped, "to:drop": dropped}
    before = [column.drop_null().to_pylist() for name, column in frame.items() if name.startswith(COUNTED)]
    counts = _added([found, *(json.loads(text) for texts in before for text in texts)])
    for number, join in enumerate(insert.joins):
        others = counts.get(f"{NOT_ASKED}@{join.alias}") or 0
        counts[f"matches@{join.alias}"] = frame[f"_why{number}"].null_count - others
    return counts


def nothing(insert: Insert, release: Release) -> Counts:
    """The counts of no rows."""
    frame = {f"_why{number}": pa.array([], pa.int8()) for number in range(len(insert.joins))}
    found = counted(insert, release, frame, np.empty(0, np.int64))
    found |= {
        f"{name}@{join.alias}": of
        for join in insert.joins
        for name, of in (("outside-pin", 0), ("greatest-epoch", None), *([(NOT_ASKED, 0)] if join.of else []))
    }
    times = {"late": 0, "least-time": MAX_TIMESTAMP, "greatest-time": MIN_TIMESTAMP} if insert.time == "event" else {}
    times |= {"further": 0} if insert.unnests else {}
    return found | {f"{name}@{insert.probe_alias}": of for name, of in times.items()}


@dataclass(frozen=True)
class Staged:
    """What tasks have written: `files`, by their names in the folder of their disposition, and `counts`. `unclear`: for
    how many quarantined rows the probe's table has several rows in that place, or none."""

    files: list[str]
    counts: Counts
    unclear: int = 0


def merged(results: Sequence[str], insert: Insert, release: Release) -> Staged:
    """The reports of all tasks as one."""
    found = [json.loads(text) for text in results]
    return Staged(
        [name for each in found for name in each["files"]],
        _added([nothing(insert, release), *(each["counts"] for each in found)]),
        sum(each["unclear"] for each in found),
    )


def _added(found: Sequence[Counts]) -> Counts:
    names = dict.fromkeys(name for each in found for name in each)
    return {name: _together(name, [each[name] for each in found if name in each]) for name in names}


def _together(name: str, values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    if name.startswith("least-time@"):
        return min(known, default=MAX_TIMESTAMP)
    if name.startswith("greatest-time@"):
        return max(known, default=MIN_TIMESTAMP)
    return max(known, default=None) if name.startswith("greatest-epoch@") else sum(known)
