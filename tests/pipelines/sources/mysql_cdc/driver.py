"""Runs a source's steps as the runtime does (plan, read, append, landed), with Parquet folders in place of the lake."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.conftest import Database
from tidegate.pipelines.clock import Clock, system_clock
from tidegate.pipelines.connectors.protocol import (
    Json,
    Landed,
    PlanRequest,
    Source,
    SourceContext,
    SourcePosition,
    StoredStep,
    WritesFiles,
)
from tidegate.pipelines.connectors.table import Column, Options, Table
from tidegate.pipelines.lake.rows import LAKE_COLUMNS, struct_type
from tidegate.pipelines.progress import Progress, SilentProgress
from tidegate.pipelines.sources.mysql_cdc import CONNECTOR

SPARK_TYPES = {
    "TIMESTAMP(3)": "TIMESTAMP_NTZ", "TIMESTAMP(6)": "TIMESTAMP_NTZ", "TIMESTAMP_LTZ(6)": "TIMESTAMP", "BYTES": "BINARY"
}  # fmt: skip
FLINK_TYPES = {"TIMESTAMP_NTZ": "TIMESTAMP(6)", "TIMESTAMP": "TIMESTAMP_LTZ(6)", "BINARY": "BYTES"}


def declare(
    options: Mapping[str, str],
    columns: Mapping[str, str],
    key: Sequence[str] = (),
    name: str = "build",
    types: Mapping[str, str] | None = None,
) -> Table:
    """A CREATE TABLE as the compiler would give it: `columns` are name -> Flink type."""
    spark_types = {**SPARK_TYPES, **(types or {})}
    return Table(
        name=name,
        columns=tuple(Column(column, kind, spark_types.get(kind, kind)) for column, kind in columns.items()),
        options=Options(options),
        primary_key=tuple(key),
        role="build",
    )


class MemorySplits:
    """A SplitStore that stores JSON, so that what cannot be stored is found out."""

    prefix = ""

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, Any]] = {}

    def rows(self) -> list[dict[str, Any]]:
        return sorted((json.loads(json.dumps(row)) for row in self._rows.values()), key=lambda row: row["ordinal"])

    def add(self, splits: Sequence[Json]) -> None:
        for split in splits:
            self._rows.setdefault(split["split"], {**split, "cut": None})

    def restate(self, splits: Sequence[Json]) -> None:
        raise AssertionError("no chunk is stated anew")

    def cut(self, cuts: Mapping[str, Json]) -> None:
        for name, cut in cuts.items():
            if self._rows[name]["cut"] is None:
                self._rows[name]["cut"] = dict(cut)


def context_of(table: Table, folder: Path | str = "") -> SourceContext:
    """What the runtime hands to a new source of `table`, of which nothing is stored yet."""
    return SourceContext(
        table=table,
        options=table.options.resolve({}),
        generation=1,
        splits=MemorySplits(),
        scratch=str(folder),
        clock=system_clock,
    )


CHUNK = "scan.incremental.snapshot.chunk.size"


def small(database: Database, rows: int = 40, name: str = "user_info", **more: str) -> Table:
    """`t` with `rows` rows, declared as `name` in chunks of 10. `more`: options, with `_` for `-`."""
    database.execute("CREATE TABLE t (k INT PRIMARY KEY, v INT)", f"INSERT INTO t SELECT seq, 0 FROM seq_1_to_{rows}")
    return declare(database.options("t", **{CHUNK: "10"}, **more), {"k": "INT", "v": "INT"}, ["k"], name=name)


def on_server(database: Database) -> dict[tuple[int], tuple[int, int]]:
    """The rows of `t` by key."""
    return {(row[0],): (row[0], row[1]) for row in database.execute("SELECT k, v FROM t")}


class Crash(Exception):
    """The driver stops here."""


class Driver:
    """One table of one generation. `steps` are what an `epochs` table would hold."""

    def __init__(
        self,
        spark: SparkSession,
        directory: Path,
        table: Table,
        *,
        clock: Clock = system_clock,
        progress: Progress | None = None,
        peers: Sequence[Table] = (),
        files: bool = True,
    ) -> None:
        self.peers = peers
        self.files = files
        """Whether the source may write files itself; else all is read as frames."""
        self.limit: int | None = None
        self.max_rows: int | None = None
        self.ahead: frozenset[str] = frozenset()
        self.held: dict[str, int] = {}
        self.spark = spark
        self.directory = directory
        self.table = table
        self.clock = clock
        self.progress = progress or SilentProgress()
        self.splits = MemorySplits()
        self.steps: list[StoredStep] = []
        self.landed: list[Landed] = []
        self.emitted: list[int] = []
        """Epochs at whose landing the source emitted its watermark."""

    def context(self) -> SourceContext:
        return SourceContext(
            table=self.table,
            options=self.table.options.resolve({}),
            generation=1,
            splits=self.splits,
            scratch=str(self.directory.parent / "scratch" / self.table.name),
            peers=self.peers,
            clock=self.clock,
            progress=self.progress,
            spark=lambda: self.spark,
            earlier_rows=lambda step: self.rows(step.epoch - 1),
        )

    @property
    def position(self) -> SourcePosition:
        flipped = any(stored.step.flips for stored in self.steps[: len(self.landed)])
        first, last = (self.steps[0], self.steps[-1]) if self.steps else (None, None)
        return SourcePosition(previous=last, first=first, flipped=flipped)

    def request(self, ends: Json, instant: int) -> PlanRequest:
        return PlanRequest(
            **vars(self.position),
            ends=ends,
            instant=instant,
            max_rows=self.max_rows,
            limit=self.limit,
            ahead=self.ahead,
        )

    def run(
        self,
        *,
        max_steps: int | None = None,
        crash: Callable[[str, StoredStep], bool] = lambda point, step: False,
        preflight: bool = True,
    ) -> list[StoredStep]:
        """A bounded run. `crash` is asked at the points planned, appended, landed; True raises Crash there."""
        source = CONNECTOR.source(self.context())
        done: list[StoredStep] = []
        try:
            if len(self.landed) < len(self.steps):
                self._land(source, self.steps[-1], crash)
                done.append(self.steps[-1])
            elif preflight:
                source.preflight(self.position)
            ends = json.loads(json.dumps(source.ends(self.position)))
            while max_steps is None or len(done) < max_steps:
                instant = self.clock()
                planned = source.plan(self.request(ends, instant))
                step, self.held = planned.step, dict(planned.held)
                if step is None:
                    return done
                stored = StoredStep(
                    replace(step, ranges=json.loads(json.dumps(step.ranges))), 1, len(self.steps) + 1, instant
                )
                self.steps.append(stored)
                self._point(crash, "planned", stored)
                self._land(source, stored, crash)
                done.append(stored)
            return done
        finally:
            source.close()

    def _land(self, source: Source, stored: StoredStep, crash: Callable[[str, StoredStep], bool]) -> None:
        assert source.delegate_watermark_periodic_emit(lambda: self.emitted.append(stored.epoch))
        folder = self.directory / f"epoch={stored.epoch}"
        if not folder.exists():
            temporary = self.directory / f"_{stored.epoch}"
            temporary.mkdir(parents=True, exist_ok=True)
            assert isinstance(source, WritesFiles)
            if not self.files or source.write(self.spark, stored, str(temporary)) is None:
                source.read(self.spark, stored).write.mode("overwrite").parquet(str(temporary))
            temporary.rename(folder)
        self._point(crash, "appended", stored)
        rows = self._read(str(folder))
        self.landed.append(source.landed(stored, None if rows.isEmpty() else rows))
        self._point(crash, "landed", stored)

    def _point(self, crash: Callable[[str, StoredStep], bool], name: str, stored: StoredStep) -> None:
        if crash(name, stored):
            raise Crash(name)

    @property
    def flip_epoch(self) -> int | None:
        flips = [stored.epoch for stored in self.steps if stored.step.flips]
        assert len(flips) <= 1, "one step of a generation flips at most"
        return flips[0] if flips else None

    def rows(self, upto: int | None = None) -> DataFrame:
        """All rows of the epochs up to `upto`."""
        folders = [
            str(self.directory / f"epoch={step.epoch}") for step in self.steps if upto is None or step.epoch <= upto
        ]
        return self._read(*folders)

    def _read(self, *folders: str) -> DataFrame:
        """With its schema given, as the lake has it: a step without rows may have no file."""
        columns = {**LAKE_COLUMNS, **{column.name: column.spark_type for column in self.table.physical_columns}}
        return self.spark.read.schema(struct_type(columns)).parquet(*folders)

    def state(self, upto: int | None = None) -> dict[tuple[Any, ...], tuple[Any, ...]]:
        """The table as its changelog says: per key the latest row by `_seq`, unless it is a delete."""
        names = [column.name for column in self.table.physical_columns]
        key = F.struct(*[F.col(name) for name in self.table.primary_key])
        latest = (
            self.rows(upto).groupBy(key.alias("key")).agg(F.max_by(F.struct("_op", *names), F.col("_seq")).alias("row"))
        )
        return {
            tuple(row["key"]): tuple(row["row"][name] for name in names)
            for row in latest.collect()
            if row["row"]["_op"] != "d"
        }
