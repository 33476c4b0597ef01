"""One source table as the lake has it: the rows and the log that its epochs have left."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tidegate.pipelines.connectors.protocol import StoredStep
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.lake import Lake, WatermarkRow
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.lake.delta_log import committed
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
        return self.lake.table_path(self.name)

    def application(self, generation: int) -> str:
        """Who commits a generation's rows, as the table's own log names it."""
        return self.lake.application(self.name, "data", generation)

    def last(self, generation: int) -> WatermarkRow | None:
        """The log row of the last epoch of a generation that has landed."""
        return self.lake.watermarks.last(self.name, generation)

    def holds(self, stored: StoredStep) -> bool:
        """Whether the rows of a step are committed."""
        return committed(self.path, self.application(stored.generation)) >= stored.epoch

    def rows(self, spark: SparkSession, stored: StoredStep) -> DataFrame:
        """The committed rows of a step, with the plan's instant for a watermark that names it."""
        rows = lake_rows.between(spark, self.path, stored.generation, stored.epoch - 1, stored.epoch)
        return rows.withColumn("_instant", plan_instant(stored))

    def rows_before(self, spark: SparkSession, stored: StoredStep) -> DataFrame:
        """The committed rows of the steps of its generation before `stored`."""
        return lake_rows.between(spark, self.path, stored.generation, -1, stored.epoch - 1)
