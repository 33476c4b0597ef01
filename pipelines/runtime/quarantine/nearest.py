"""For rows without a match: their keys, and the version of each key that comes nearest.

Read by Arrow from the tables' own files, filtered by epoch and key: no Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from tidegate.pipelines.lake import Lake, StagedRow, delta_log
from tidegate.pipelines.parquet import python_rows
from tidegate.pipelines.runtime.plans import Pin, ReleasePlan
from tidegate.pipelines.runtime.quarantine.kept import UNMATCHED
from tidegate.pipelines.runtime.quarantine.rows import PROBE_PLACE, KeptRow
from tidegate.pipelines.sources.protocol import SEQ_PARTS
from tidegate.pipelines.sql.model import Insert, Join
from tidegate.pipelines.sql.types import quoted

LONGEST_LOOK = 50_000_000
"""Rows of a changelog beyond which it is not searched: who asks has other things to do."""
MOST_LOOKED_AT = 100_000
"""Rows among which the keys are looked for: one key may have most of them."""
_OPS = {"r": "read by the snapshot", "c": "inserted", "u": "updated", "d": "deleted"}


@dataclass(frozen=True)
class KeyedJoin:
    """A join of an INSERT. `keys`: column of the build -> column of the probe; empty where one is an expression."""

    probe: str
    build: str
    alias: str
    time: str
    keys: Mapping[str, str]


@dataclass(frozen=True)
class MissedKey:
    """A probe row without a match: its key (column of the build -> value), why (`key-absent@user_info`), and the
    version of that key that comes nearest, in words."""

    key: Mapping[str, Any]
    reason: str
    nearest: str


def keyed_joins(insert: Insert) -> tuple[KeyedJoin, ...]:
    """The joins of an INSERT, as far as they compare plain columns."""
    return tuple(_keyed(insert, join) for join in insert.joins)


def _keyed(insert: Insert, join: Join) -> KeyedJoin:
    own = f"{quoted(insert.probe_alias)}."
    keys = {key.column: key.probe.removeprefix(own) for key in join.keys if key.probe.startswith(own)}
    plain = {column: name[1:-1].replace("``", "`") for column, name in keys.items() if quoted(name[1:-1]) == name}
    return KeyedJoin(insert.probe, join.build, join.alias, join.time, plain if len(plain) == len(join.keys) else {})


def missed_keys(
    lake: Lake, joins: Sequence[KeyedJoin], staged_at: Path, plan: ReleasePlan, staged: StagedRow, most: int
) -> list[MissedKey]:
    """Up to `most` keys of rows of an epoch, staged below `staged_at`, that have no match; each key once."""
    folder = staged_at / staged.folder
    files = [str(folder / file.path) for file in staged.of("quarantine") if (folder / file.path).exists()]
    # An adopted file lies where it was staged, so a published epoch is read the same way.
    if not files or most <= 0:
        return []
    found: list[_Missed] = []
    for looked_at in (most * 20, MOST_LOOKED_AT):
        rows = ds.dataset(files, format="parquet").head(
            looked_at,
            columns=["_reason", *PROBE_PLACE],
            filter=pc.starts_with(pc.field("_reason"), UNMATCHED),  # type: ignore[attr-defined]
        )
        found = _distinct(rows, _probe_table(lake, joins, plan, rows), joins, most)
        if len(found) == most or rows.num_rows < looked_at:
            break
    told: list[MissedKey] = []
    for join in joins:
        keys = [(missed.why, missed.key, missed.rowtime) for missed in found if missed.join == join]
        pin = next((pin for pin in plan.pins if pin.table == join.build), None)
        told += _with_nearest(lake, join, pin, keys) if keys else []
    return told


@dataclass(frozen=True)
class _Missed:
    """A key without a match; `at` is the number of the first row that has it."""

    at: int
    join: KeyedJoin
    why: str
    key: dict[str, Any]
    rowtime: Any


def _distinct(rows: pa.Table, probes: pa.Table | None, joins: Sequence[KeyedJoin], most: int) -> list[_Missed]:
    """The first `most` keys of these rows; in event time a key at another time is another one."""
    if probes is None:
        return []
    numbered = rows.append_column("_at", pa.array(range(rows.num_rows), pa.int64()))
    placed = numbered.join(probes, list(PROBE_PLACE), join_type="inner").sort_by("_at")
    found: list[_Missed] = []
    for join in joins:
        own = placed.filter(pc.ends_with(placed["_reason"], f"@{join.alias}"))  # type: ignore[attr-defined]
        by = sorted({*join.keys.values(), *(["_rowtime"] if join.time == "event" else [])})
        firsts = own.group_by(by, use_threads=False).aggregate([("_at", "min")]) if by else own.slice(0, 1)
        wanted = firsts["_at_min" if by else "_at"].slice(0, most)
        for row in python_rows(own.filter(pc.is_in(own["_at"], wanted.combine_chunks()))):  # type: ignore[attr-defined]
            key = {column: row[name] for column, name in join.keys.items()}
            found.append(_Missed(row["_at"], join, row["_reason"].removeprefix(UNMATCHED), key, row["_rowtime"]))
    return sorted(found, key=lambda missed: missed.at)[:most]


def nearest_of_rows(lake: Lake, insert: Insert, rows: Sequence[KeptRow]) -> list[MissedKey | None]:
    """One for each quarantined row; None where it had a match, or its key can not be told."""
    joins, found = keyed_joins(insert), dict[tuple[Any, ...], MissedKey]()
    for plan in {row.kept.epoch: row.kept.plan for row in rows}.values():
        own = [row for row in rows if row.kept.epoch == plan.epoch and row.kept.reason.startswith(UNMATCHED)]
        found |= {(plan.epoch, *place): missed for place, missed in _by_place(lake, joins, plan, own).items()}
    return [found.get((row.kept.epoch, *_place(row.place))) for row in rows]


def nearest_keys(lake: Lake, insert: Insert, rows: Sequence[KeptRow], most: int) -> list[tuple[KeptRow, MissedKey]]:
    """Up to `most` keys of quarantined rows that had no match, each with the first row that has it: once an epoch and
    reason. No further epoch is looked at than it takes."""
    found: list[tuple[KeptRow, MissedKey]] = []
    for _, group in groupby(rows, key=lambda row: row.kept.epoch):
        if len(found) >= most:
            break
        own, seen = list(group), list[MissedKey]()
        for row, missed in zip(own, nearest_of_rows(lake, insert, own), strict=True):
            if missed is not None and missed not in seen:
                seen.append(missed)
                found.append((row, missed))
    return found[:most]


def _by_place(
    lake: Lake, joins: Sequence[KeyedJoin], plan: ReleasePlan, rows: Sequence[KeptRow]
) -> dict[tuple[Any, ...], MissedKey]:
    """Of rows without a match that an epoch has quarantined: place -> the key."""
    probes = _probe_rows(lake, joins, plan, [row.place for row in rows])
    found: dict[tuple[Any, ...], MissedKey] = {}
    for join in joins:
        whys = {_place(row.place): row.kept.short for row in rows if row.kept.reason.endswith(f"@{join.alias}")}
        places = [place for place in whys if place in probes]
        keys = [
            (whys[p], {column: probes[p][name] for column, name in join.keys.items()}, probes[p]["_rowtime"])
            for p in places
        ]
        pin = next((pin for pin in plan.pins if pin.table == join.build), None)
        if keys:
            found |= dict(zip(places, _with_nearest(lake, join, pin, keys), strict=True))
    return found


def _place(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in PROBE_PLACE)


def _probe_rows(
    lake: Lake, joins: Sequence[KeyedJoin], plan: ReleasePlan, places: Sequence[Mapping[str, Any]]
) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The landed rows at these places, by place."""
    named = pa.table({name: pa.array([place[name] for place in places]) for name in PROBE_PLACE})
    found = _probe_table(lake, joins, plan, named)
    rows = [] if found is None else python_rows(found)
    return {_place(row): row for row in rows}


def _probe_table(lake: Lake, joins: Sequence[KeyedJoin], plan: ReleasePlan, places: pa.Table) -> pa.Table | None:
    """The landed rows at these places, and some others, with the columns that joins read; None where there are none,
    and where a script that has changed since then reads others."""
    table = delta_log.opened(lake.table_path(plan.probe))
    if table is None or not places.num_rows:
        return None
    epochs = places["_probe_epoch"].unique().to_pylist()
    files = delta_log.data_files(table, plan.probe_generation, min(epochs) - 1, max(epochs))
    columns = {name for join in joins for name in join.keys.values()}
    at = (
        (pc.field("_generation") == plan.probe_generation)
        & pc.field("_epoch").isin(epochs)
        & pc.field("_offset").isin(places["_offset"].unique())
    )
    there = _present(files.paths)
    if not there or not columns <= {field.name for field in table.schema().fields}:
        return None
    read = {name: pc.field(name) for name in ("_split", "_offset", "_rowtime", *sorted(columns))}
    return ds.dataset(there, format="parquet").to_table(columns={"_probe_epoch": pc.field("_epoch"), **read}, filter=at)


def _present(paths: Sequence[str]) -> list[str]:
    return [path for path in paths if Path(path).exists()]


def _with_nearest(
    lake: Lake, join: KeyedJoin, pin: Pin | None, keys: Sequence[tuple[str, dict[str, Any], Any]]
) -> list[MissedKey]:
    """Each key with its nearest version, in words."""
    if not join.keys or pin is None:
        return [MissedKey(key, why, "not looked for: the join's key is an expression") for why, key, _ in keys]
    table = delta_log.opened(lake.table_path(join.build))
    landed = sum(row.rows for row in lake.watermarks.rows(join.build, generation=pin.generation))
    if table is None or landed > LONGEST_LOOK:
        return [MissedKey(key, why, f"not looked for among {landed:,} rows of {join.build}") for why, key, _ in keys]
    files = _present(delta_log.data_files(table, pin.generation, -1, 2**62).paths)
    versions = _versions(files, join, pin.generation, [key for _, key, _ in keys])
    told = []
    for why, key, time in keys:
        own = [row for row in versions if all(row[column] == value for column, value in key.items())]
        nearest = _in_time(own, pin, time) if join.time == "event" else _latest(own, pin)
        told.append(MissedKey(key, why, nearest))
    return told


def _versions(
    files: Sequence[str], join: KeyedJoin, generation: int, keys: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """All rows of the changelog with one of these keys."""
    if not files:
        return []
    changelog = ds.dataset(list(files), format="parquet")
    chosen = (pc.field("_generation") == generation) & (pc.field("_op") != "t")
    for column in join.keys:
        kind = changelog.schema.field(column).type
        try:
            values = pa.array([key[column] for key in keys if key[column] is not None]).cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return []
        chosen &= pc.field(column).isin(values)
    columns = [*join.keys, "_op", "_seq", "_rowtime", "_epoch"]
    return python_rows(changelog.to_table(columns=columns, filter=chosen))


def _order(row: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(row["_seq"][part] or 0 for part in SEQ_PARTS)


def _latest(rows: Sequence[Mapping[str, Any]], pin: Pin) -> str:
    """By processing time: what the pin sees last of the key, else what came first after it."""
    before = [row for row in rows if row["_epoch"] <= pin.epoch]
    after = [row for row in rows if row["_epoch"] > pin.epoch]
    if before:
        return _words(max(before, key=_order))
    if after:
        return f"{_words(min(after, key=_order))}, after the pin (epoch {pin.epoch}): joining again finds it"
    return f"none up to epoch {pin.epoch}, nor since"


def _in_time(rows: Sequence[Mapping[str, Any]], pin: Pin, time: Any) -> str:
    """By event time: the last version at or before the row's time, else the first after it."""
    timed = [row for row in rows if row["_rowtime"] is not None]
    before = [row for row in timed if time is not None and row["_rowtime"] <= time]
    if before:
        return _words(max(before, key=lambda row: (row["_rowtime"], _order(row))))
    if timed:
        first = min(timed, key=lambda row: (row["_rowtime"], _order(row)))
        late = "" if time is None else f", {first['_rowtime'] - time} after the row"
        return f"{_words(first)}{late}"
    return f"none up to epoch {pin.epoch}, nor since"


def _words(row: Mapping[str, Any]) -> str:
    at = "" if row["_rowtime"] is None else f" at {row['_rowtime']:%Y-%m-%d %H:%M:%S.%f}"[:-3] + " UTC"
    return f"{_OPS.get(row['_op'], row['_op'])}{at} (epoch {row['_epoch']})"
