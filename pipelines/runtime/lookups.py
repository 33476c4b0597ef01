"""'changelog.lookup': which files of a build have a copy to look rows up in (pipelines.joins.lookup), and their upkeep.

    <table>/_lookup/<name>/copy.json    what it is a copy of: a data file, keys, types of columns
    <table>/_lookup/<name>/*.arrow      its rows

A copy is whole, or its folder has another name; VACUUM passes over all of them. One is right for as long as its data
file is there, so nothing has to be kept in step: files without one are scanned, as all are without the option.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from pipelines.joins import Lookup
from pipelines.joins.columnar import compares
from pipelines.joins.lookup import Copying, copy, looking_up
from pipelines.lake import Lake, delta_log
from pipelines.lake.rows import LAKE_COLUMNS, quoted
from pipelines.runtime.plans import Pin
from pipelines.runtime.tasks import each
from pipelines.sources.arrow_types import arrow_type
from pipelines.sql.model import Insert, Table
from pipelines.sql.pipeline import Pipeline

FEWEST_ROWS = 1_000_000
"""A file of fewer rows is scanned in no time."""

FOLDER, MAKING, TOLD = "_lookup", ".making", "copy.json"

OWN = ("_generation", "_epoch", "_op", "_seq", "_rowtime")
"""What is copied of a row beside the table's columns."""


@dataclass(frozen=True)
class Copies:
    """What maintenance did: copies that were made, those that went, and the bytes that all of them have now."""

    made: int
    removed: int
    size: int


@dataclass(frozen=True)
class Lookups:
    """The copies of one pipeline's builds."""

    lake: Lake
    pipeline: Pipeline
    environment: Mapping[str, str] | None = None

    def asked(self, table: Table) -> bool:
        """Whether the script asks for copies of a table, and its columns can be copied."""
        asked = table.options.one("changelog.lookup", self.environment) == "true"
        return asked and table.role == "build" and bool(table.primary_key) and _types(table) is not None

    def keep(self, spark: Callable[[], SparkSession], table: Table) -> Copies | None:
        """Make the copies that are missing, and remove those that are of no use; None where none are kept. The caller
        holds the table's lease. Raises OSError."""
        path = self.lake.table_path(table.name)
        folder, opened = path / FOLDER, delta_log.opened(path)
        if opened is None or not self.asked(table) or not delta_log.plain(opened):
            removed = len(_kept(folder))
            shutil.rmtree(folder, ignore_errors=True)
            return Copies(0, removed, 0) if removed else None
        actions = pa.table(opened.get_add_actions()).select(["path", "num_records"]).to_pylist()
        large = [file["path"] for file in actions if (file["num_records"] or 0) >= FEWEST_ROWS]
        wanted = {_name(path, data, table): data for data in delta_log.paths_of(opened, large)}
        gone = [kept for kept in _kept(folder) if kept.name not in wanted and not _may_be_read(kept, wanted.values())]
        for kept in (*gone, folder / MAKING):
            shutil.rmtree(kept, ignore_errors=True)
        missing = {name: data for name, data in wanted.items() if not (folder / name).exists()}
        if missing:
            self._make(spark(), table, folder, missing)
        sizes = [file.stat().st_size for kept in _kept(folder) for file in kept.iterdir()]
        return Copies(len(missing), len(gone), sum(sizes))

    def _make(self, spark: SparkSession, table: Table, folder: Path, missing: Mapping[str, str]) -> None:
        types = _types(table)
        assert types is not None
        work = [Copying(data, str(folder / MAKING), table.primary_key, types) for data in missing.values()]
        for (name, data), paths in zip(missing.items(), each(spark, copy, work), strict=True):
            made = folder / MAKING / name
            made.mkdir(parents=True)
            for path in map(Path, paths):
                os.replace(path, made / path.name)
            told = {
                "file": os.path.relpath(data, folder.parent),
                "size": Path(data).stat().st_size,
                "runs": [Path(path).name for path in paths],
            }
            (made / TOLD).write_text(json.dumps(told))
            os.replace(made, folder / name)
        shutil.rmtree(folder / MAKING, ignore_errors=True)

    def of(self, insert: Insert, table: Table, pin: Pin) -> dict[str, list[str]]:
        """The copies that an INSERT may read in the place of data files: their files, by the data file's path."""
        joins = [join for join in insert.joins if join.build == table.name]
        if not self.asked(table) or not all(self._fits(insert, table, join) for join in joins):
            return {}
        path = self.lake.table_path(table.name)
        folder, opened = path / FOLDER, delta_log.opened(path)
        if opened is None or not delta_log.plain(opened) or not folder.exists():
            return {}
        found: dict[str, list[str]] = {}
        for data in delta_log.data_files(opened, pin.generation, -1, pin.epoch).paths:
            runs = _runs(str(folder / _name(path, data, table)), data)
            if runs is not None:
                found[data] = list(runs)
        return found

    def _fits(self, insert: Insert, table: Table, join: Any) -> bool:
        same = sorted(key.column for key in join.keys) == sorted(table.primary_key)
        return same and compares(insert, join, self.pipeline.tables)


def registered(spark: SparkSession, insert: Insert, table: Table, files: Sequence[str], pin: Pin) -> Lookup:
    """Let the session know how to look rows up in these files of copies, as of a pin."""
    from pyspark.sql.functions import arrow_udf

    types = _types(table)
    assert types is not None
    fields = ", ".join(f"{quoted(name)}: {kind}" for name, kind in _spark_types(table).items())
    name = "tidegate_lookup_" + hashlib.sha256(f"{insert.id} {table.name}".encode()).hexdigest()[:12]
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
    of = [os.path.relpath(data, path), list(table.primary_key), _spark_types(table)]
    return hashlib.sha256(json.dumps(of).encode()).hexdigest()[:24]


def _kept(folder: Path) -> list[Path]:
    return [kept for kept in folder.glob("*") if kept.name != MAKING] if folder.exists() else []


def _may_be_read(kept: Path, live: Collection[str]) -> bool:
    """Whether somebody may read a copy still, though it is none of a `live` file as the script has it now: OPTIMIZE has
    replaced its data file, and VACUUM has not removed that."""
    try:
        data = os.path.join(kept.parent.parent, json.loads((kept / TOLD).read_text())["file"])
    except (OSError, ValueError, KeyError):
        return False
    return data not in live and os.path.exists(data)


@lru_cache(maxsize=4096)
def _runs_of(folder: str) -> tuple[int, tuple[str, ...]]:
    told = json.loads((Path(folder) / TOLD).read_text())
    return told["size"], tuple(str(Path(folder) / name) for name in told["runs"])


def _runs(folder: str, data: str) -> tuple[str, ...] | None:
    """The files of a whole copy; None where there is none."""
    try:
        size, runs = _runs_of(folder)
        return runs if Path(data).stat().st_size == size and all(map(os.path.exists, runs)) else None
    except FileNotFoundError:
        return None
