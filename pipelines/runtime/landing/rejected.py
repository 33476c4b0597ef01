"""What a source could not read as rows: stored in a Delta table of the source table's own, each once, and counted.

An epoch's rows are written first, which counts what is rejected; where that is not nothing, it is read once more and
committed before the rows are. So a rerun of the epoch finds it there, and rows and rejected come to all that was read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from tidegate.pipelines.connectors.protocol import StoredStep
from tidegate.pipelines.connectors.spec import REJECTED
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.lake.delta_log import committed
from tidegate.pipelines.location import Location

COLUMNS = {
    **lake_rows.LAKE_COLUMNS,
    "_reason": "STRING",
    "_key": "BINARY",
    "_value": "BINARY",
    "_headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}
"""Of the quarantine table: where it was found, why it is no row, and its bytes. `_op` is null."""


@dataclass
class Rejected:
    """The rejected part of one epoch of `table`."""

    lake: Lake
    table: Table
    step: StoredStep
    observed: Observation | None = None

    @property
    def path(self) -> Location:
        return self.lake.rejected_path(self.table.name)

    @property
    def application(self) -> str:
        return self.lake.application(self.table.name, "rejected", self.step.generation)

    def apart(self, rows: DataFrame) -> DataFrame:
        """`rows` of `Source.read` without what is rejected, which is counted while they pass by."""
        if REJECTED not in rows.columns:
            return rows
        self.observed = observed = Observation(f"rejected {self.table.name} {self.step.generation} {self.step.epoch}")
        counted = rows.observe(observed, F.expr(f"count_if({REJECTED} IS NOT NULL) AS rejected"))
        return counted.where(f"{REJECTED} IS NULL").drop(REJECTED)

    def keep(self, again: Callable[[], DataFrame]) -> int | None:
        """How many were rejected, None where none were. `again` reads the step once more.

        Called when the epoch's rows are written and before they are committed.
        """
        if self.observed is None:
            return None
        number = int(self.observed.get["rejected"])
        if number and committed(self.path, self.application) < self.step.epoch:
            lake_rows.ensure_table(self.path, COLUMNS, f"the quarantine of {self.table.name}")
            named = [f"{REJECTED}.{name[1:]} AS {name}" for name in COLUMNS if name not in lake_rows.LAKE_COLUMNS]
            found = again().where(f"{REJECTED} IS NOT NULL")
            found = found.selectExpr("CAST(NULL AS STRING) AS _op", "_seq", "_rowtime", "_split", "_offset", *named)
            generation, epoch = self.step.generation, self.step.epoch
            lake_rows.append(found, self.path, application=self.application, generation=generation, epoch=epoch)
        return number or None

    def kept(self, spark: SparkSession) -> int | None:
        """How many were rejected, by what is committed: for an epoch whose rows an earlier run has committed."""
        if committed(self.path, self.application) < self.step.epoch:
            return None
        epoch = self.step.epoch
        return lake_rows.between(spark, self.path, self.step.generation, epoch - 1, epoch).count()
