"""'changelog.lookup': which files of a build have a copy to look rows up in (pipelines.joins.lookup), and their upkeep.

    <table>/_lookup/<name>/copy.json    whose copy it is, and what belongs to it
    <table>/_lookup/<name>/*.arrow      its rows

A copy is whole, or its folder has another name; VACUUM passes over all of them. One is right for as long as its data
file is there, so nothing has to be kept in step: files without one are scanned, as all are without the option.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from pipelines.joins import Lookup
from pipelines.joins.columnar import compares
from pipelines.joins.lookup import Copying, copy, looking_up
from pipelines.lake import Lake, delta_log
from pipelines.lake.rows import LAKE_COLUMNS, quoted
from pipelines.runtime.failures import explained
from pipelines.runtime.plans import Pin
from pipelines.runtime.tasks import each
from pipelines.sources.arrow_types import arrow_type
from pipelines.sql.model import Insert, Table
from pipelines.sql.pipeline import Pipeline

FEWEST_ROWS = 1_000_000
"""A file of fewer rows is scanned in no time."""

FOLDER, MAKING, TOLD = "_lookup", ".making", "copy.json"

LAYOUT = 1
"""Of a copy's files: others are none of this one's."""

OWN = ("_generation", "_epoch", "_op", "_seq", "_rowtime")
"""What is copied of a row beside the table's columns."""

MOST_FOUND = 1_000_000
"""Rows that one call may find beyond one a key, at most: they are in memory. Files with more are scanned."""


@dataclass(frozen=True)
class Copies:
    """What maintenance did: copies that were made, those that went, and the bytes that all of them have now. `reason`:
    why none are kept, though the script asks for them."""

    made: int
    removed: int
    size: int
    reason: str = ""


@dataclass(frozen=True)
class Lookups:
    """The copies of one pipeline's builds."""

    lake: Lake
    pipeline: Pipeline
    environment: Mapping[str, str] | None = None

    def _asked(self, table: Table) -> bool:
        return (table.options.one("changelog.lookup", self.environment) or "").lower() == "true"

    def _useless(self, table: Table) -> str:
        """Why nobody would read copies of a table."""
        joins = [
            (insert, join) for insert in self.pipeline.inserts for join in insert.joins if join.build == table.name
        ]
        if _types(table) is None:
            return "a column's type can not be copied"
        if not any(compares(insert, join, self.pipeline.tables) for insert, join in joins):
            return "no INSERT joins it by columns as they are"
        landed = self.lake.watermarks.last(table.name)
        return "it was truncated" if landed is not None and landed.truncated else ""

    def keep(self, spark: Callable[[], SparkSession], table: Table, keep: timedelta) -> Copies | None:
        """Make the copies that are missing, and remove those whose data file is gone; where none are to be read any
        more, all that are older than `keep`. None where there are none, nor asked for. The caller holds the table's
        lease. Raises StepFailed."""
        path = self.lake.table_path(table.name)
        folder, opened, asked = path / FOLDER, delta_log.opened(path), self._asked(table)
        reason = self._useless(table) if asked else ""
        where = f"{self.lake.root}: {FOLDER} of {table.name}"
        with explained(table.name, where, "the table is as it was; releases scan files that have no copy"):
            wanted: dict[str, str] = {}
            if asked and not reason and opened is not None and delta_log.plain(opened):
                actions = pa.table(opened.get_add_actions()).select(["path", "num_records"]).to_pylist()
                large = [file["path"] for file in actions if (file["num_records"] or 0) >= FEWEST_ROWS]
                wanted = {_name(path, data, table): data for data in delta_log.paths_of(opened, large)}
            oldest = time.time() - keep.total_seconds()
            gone = [kept for kept in _kept(folder) if kept.name not in wanted and _may_go(kept, oldest)]
            for kept in (*gone, folder / MAKING):
                shutil.rmtree(kept, ignore_errors=True)
            missing = {name: data for name, data in wanted.items() if _told(folder / name, data) is None}
            if missing:
                self._make(spark(), table, folder, missing)
            sizes = [file.stat().st_size for kept in _kept(folder) for file in kept.iterdir()]
            if folder.exists() and not sizes:
                shutil.rmtree(folder, ignore_errors=True)
        return Copies(len(missing), len(gone), sum(sizes), reason) if asked or gone or sizes else None

    def _make(self, spark: SparkSession, table: Table, folder: Path, missing: Mapping[str, str]) -> None:
        types = _types(table)
        assert types is not None
        work = [Copying(data, str(folder / MAKING), table.primary_key, types) for data in missing.values()]
        try:
            for (name, data), (paths, crowd) in zip(missing.items(), each(spark, copy, work), strict=True):
                made = folder / MAKING / name
                made.mkdir(parents=True)
                if crowd > MOST_FOUND:  # it would not be read
                    paths = []
                for path in map(Path, paths):
                    os.replace(path, made / path.name)
                told = {
                    "file": os.path.relpath(data, folder.parent),
                    "size": Path(data).stat().st_size,
                    "crowd": crowd,
                    "files": {Path(path).name: (made / Path(path).name).stat().st_size for path in paths},
                }
                (made / TOLD).write_text(json.dumps(told))
                shutil.rmtree(folder / name, ignore_errors=True)  # one that was not whole
                os.replace(made, folder / name)
        finally:
            shutil.rmtree(folder / MAKING, ignore_errors=True)

    def of(self, insert: Insert, table: Table, pin: Pin) -> dict[str, list[str]]:
        """The copies that an INSERT may read in the place of data files: their files, by the data file's path."""
        joins = [join for join in insert.joins if join.build == table.name]
        path = self.lake.table_path(table.name)
        folder = path / FOLDER
        if not self._asked(table) or _types(table) is None or not folder.exists():
            return {}
        opened = delta_log.opened(path)
        fits = all(compares(insert, join, self.pipeline.tables) for join in joins)
        if opened is None or not fits or not delta_log.plain(opened):
            return {}
        found: dict[str, list[str]] = {}
        crowd = 0
        for data in delta_log.data_files(opened, pin.generation, -1, pin.epoch).paths:
            kept = folder / _name(path, data, table)
            told = _told(kept, data)
            if told is not None and crowd + told["crowd"] <= MOST_FOUND:
                crowd += told["crowd"]
                found[data] = [str(kept / name) for name in told["files"]]
        return found


def registered(spark: SparkSession, lake: Lake, insert: Insert, table: Table, files: Sequence[str], pin: Pin) -> Lookup:
    """Let the session know how to look rows up in these files of copies, as of a pin."""
    from pyspark.sql.functions import arrow_udf

    types = _types(table)
    assert types is not None
    fields = ", ".join(f"{quoted(name)}: {kind}" for name, kind in _spark_types(table).items())
    name = "tidegate_lookup_" + hashlib.sha256(f"{lake.root} {insert.id} {table.name}".encode()).hexdigest()[:12]
    function = looking_up(files, table.primary_key, types, pin.generation, pin.epoch)
    spark.udf.register(name, arrow_udf(f"ARRAY<STRUCT<{fields}>>")(function))  # type: ignore[call-overload]
    return Lookup(name, table.primary_key)


def _spark_types(table: Table) -> dict[str, str]:
    own = {name: LAKE_COLUMNS[name] for name in OWN}
    return {**own, **{column.name: column.spark_type for column in table.stored_columns}}


def _types(table: Table) -> dict[str, pa.DataType] | None:
    """The Arrow types of a copy's columns; None where one has none."""
    with suppress(ValueError):
        return {name: arrow_type(kind) for name, kind in _spark_types(table).items()}
    return None


def _name(path: Path, data: str, table: Table) -> str:
    """The name of a data file's copy: of the same keys and columns, wherever the lake lies."""
    of = [LAYOUT, os.path.relpath(data, path), list(table.primary_key), sorted(_spark_types(table).items())]
    return hashlib.sha256(json.dumps(of).encode()).hexdigest()[:24]


def _kept(folder: Path) -> list[Path]:
    return [kept for kept in folder.glob("*") if kept.name != MAKING] if folder.exists() else []


def _may_go(kept: Path, oldest: float) -> bool:
    """Whether nobody reads a copy: its data file is gone, or it was made (s, UTC) before `oldest`. Before that, another
    script with other columns may read it, or a release that has begun."""
    try:
        told = json.loads((kept / TOLD).read_text())
        return not os.path.exists(kept.parent.parent / told["file"]) or (kept / TOLD).stat().st_mtime < oldest
    except (OSError, ValueError, KeyError):
        return True


def _told(folder: Path, data: str) -> dict[str, Any] | None:
    """What is told of a whole copy of a data file; None where there is none."""
    try:
        told = json.loads((folder / TOLD).read_text())
        whole = all((folder / name).stat().st_size == size for name, size in told["files"].items())
        return told if whole and Path(data).stat().st_size == told["size"] else None
    except (OSError, ValueError, KeyError):
        return None
