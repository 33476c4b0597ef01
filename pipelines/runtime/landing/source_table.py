"""One source table as the lake has it: the rows and the log that its epochs have left."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tidegate.pipelines.connectors.protocol import StoredStep
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.lake.stream import Generation, Stream
from tidegate.pipelines.runtime.landing.computed import plan_instant


@dataclass(frozen=True)
class SourceTable:
    """What is committed of `table` in `lake`."""

    lake: Lake
    table: Table

    @property
    def name(self) -> str:
        return self.table.name

    @property
    def path(self) -> Path:
        return Stream(self.lake, self.name).path

    def generation(self, number: int) -> Generation:
        return Stream(self.lake, self.name).generation(number)

    def holds(self, stored: StoredStep) -> bool:
        """Whether the rows of a step are committed."""
        return self.generation(stored.generation).committed >= stored.epoch

    def rows(self, spark: SparkSession, stored: StoredStep) -> DataFrame:
        """The committed rows of a step, with the plan's instant for a watermark that names it."""
        rows = self.generation(stored.generation).rows(spark, stored.epoch - 1, stored.epoch)
        return rows.withColumn("_instant", plan_instant(stored))
