"""The rows of a planned step into the table: written where no commit names them yet, then adopted by one; each once."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F

from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.lake.adopt import adopt, footers_of, surveyed
from tidegate.pipelines.runtime import faults
from tidegate.pipelines.runtime.landing.computed import computed, stored_as_delivered
from tidegate.pipelines.runtime.landing.rejected import Rejected
from tidegate.pipelines.runtime.landing.source_table import SourceTable
from tidegate.pipelines.runtime.landing.user_functions import plan_instant
from tidegate.pipelines.runtime.watermarking import EpochTime
from tidegate.pipelines.runtime.watermarking.builtin import ends_of_files, ends_of_rows
from tidegate.pipelines.sources.protocol import Source, StoredStep, WritesFiles

TALLY = ("count(1) AS rows", "count_if(_op = 't') AS truncates")
"""Counted while an epoch is appended; counted again from its committed rows when a crash has lost the first count."""


@dataclass(frozen=True)
class Counted:
    """What was counted of an epoch's rows: `tally` by name, with `rows` and `truncates`; and how many were `rejected`,
    None for none."""

    tally: Mapping[str, Any]
    rejected: int | None = None

    @property
    def rows(self) -> int:
        return int(self.tally["rows"])


@dataclass(frozen=True)
class Written:
    """Files of an epoch in a folder of the table that no commit names yet, with their footers by name."""

    folder: Path
    footers: Mapping[str, pq.FileMetaData]
    counted: Counted


@dataclass(frozen=True)
class EpochWriter:
    """Commits the rows of one step of one table. `time` says what to count of them."""

    own: SourceTable
    stored: StoredStep
    time: EpochTime
    spark: SparkSession

    def commit(self, source: Source) -> Counted:
        """Commit the step's rows, unless an earlier run has; what there is of them."""
        rejected = Rejected(self.own.lake, self.own.table, self.stored)
        if self.own.holds(self.stored):
            return self._counted_again(rejected)
        written = self._by_source(source) or self._by_spark(source, rejected)
        faults.point("source.written", self.own.name)
        files = surveyed(written.folder, written.footers)
        adopt(self.own.path, written.folder, files, application=self._application, epoch=self.stored.epoch)
        faults.point("source.appended", self.own.name)
        return written.counted

    @property
    def _application(self) -> str:
        return self.own.application(self.stored.generation)

    def _by_spark(self, source: Source, rejected: Rejected) -> Written:
        """Read as a frame: what is rejected is kept apart, columns are computed, and all is counted on the way."""
        generation, epoch = self.stored.generation, self.stored.epoch
        observed = Observation(f"landed {self.own.name} {generation} {epoch}")
        rows = computed(rejected.apart(source.read(self.spark, self.stored)), self.own.table, self.stored)
        seen, counts = self.time.counted(rows.withColumn("_instant", plan_instant(self.stored)))
        seen = seen.observe(observed, *map(F.expr, TALLY), *counts)
        seen = seen.select(*map(lake_rows.quoted, rows.columns))
        folder = lake_rows.write(seen, self.own.path, application=self._application, generation=generation, epoch=epoch)
        footers = footers_of(folder)
        tally = {**observed.get, **ends_of_files(list(footers.values()))}
        kept_out = rejected.keep(lambda: source.read(self.spark, self.stored))
        return Written(folder, footers, Counted(tally, kept_out))

    def _by_source(self, source: Source) -> Written | None:
        """The files of a step that its source writes itself; None where it does not, or where Spark has to look at
        each row: to compute a column of it, or its watermark."""
        plain = stored_as_delivered(self.own.table) and self.time.processing_time
        if not plain or not isinstance(source, WritesFiles):
            return None
        generation, epoch = self.stored.generation, self.stored.epoch
        folder = lake_rows.folder_of(self.own.path, application=self._application, generation=generation, epoch=epoch)
        folder.mkdir()
        names: Sequence[str] | None = ()
        try:
            names = source.write(self.spark, self.stored, str(folder))
        finally:
            if not names:  # what other tasks had written when one failed goes too
                shutil.rmtree(folder, ignore_errors=True)
        if names is None:
            return None
        footers = footers_of(folder, names)
        rows = sum(footer.num_rows for footer in footers.values())
        return Written(folder, footers, Counted({"rows": rows, "truncates": 0}))

    def _counted_again(self, rejected: Rejected) -> Counted:
        """Of rows that an earlier run has committed."""
        kept_out = rejected.kept(self.spark)
        rows, counts = self.time.counted(self.own.rows(self.spark, self.stored))
        tally = rows.agg(*map(F.expr, TALLY), *counts, *ends_of_rows()).collect()[0].asDict()
        return Counted(tally, kept_out)
