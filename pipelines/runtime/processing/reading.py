"""The landed rows that an epoch of a process takes, input by input."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidegate.pipelines.frames import empty_frame
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.lake.rows import quoted
from tidegate.pipelines.runtime.plans import ReleasePlan
from tidegate.pipelines.runtime.processing.columns import record_columns
from tidegate.pipelines.runtime.processing.frames import InputRows
from tidegate.pipelines.runtime.processing.inputs import EpochSteps
from tidegate.pipelines.runtime.processing.tables import ProcessTables


@dataclass(frozen=True)
class EpochInputs:
    """The inputs of a plan's epoch, whose steps are `found`."""

    tables: ProcessTables
    spark: SparkSession
    plan: ReleasePlan
    found: EpochSteps

    def to_tasks(self) -> list[InputRows]:
        """The inputs of which each task gets its part."""
        return [self._rows(place) for place, item in enumerate(self.tables.spec.inputs) if not item.broadcast]

    def broadcast(self) -> pa.Table | None:
        """The records of the broadcast input. They go to every task anyway, so they go through the driver."""
        places = [place for place, item in enumerate(self.tables.spec.inputs) if item.broadcast]
        if not places:
            return None
        own = self._rows(places[0])
        columns = [f"{quoted(name)} AS {quoted(name)}" for name in own.columns]
        laid_out = own.rows.selectExpr(f"{own.step} AS _step", "_split", "_offset", *columns)
        return laid_out.orderBy("_step", "_split", "_offset").drop("_split", "_offset").toArrow()

    def _rows(self, place: int) -> InputRows:
        assert self.plan.process is not None
        lake, pipeline = self.tables.standing.lake, self.tables.standing.pipeline
        item, span = self.tables.spec.inputs[place], self.plan.process.inputs[place]
        table, own = pipeline.table(item.table), pipeline.process_output(item.table)
        path = lake.target_path(table) if own else lake.table_path(item.table)
        rows = lake_rows.between(self.spark, path, span.generation, span.after, span.upto) if span.rows else None
        if rows is None:
            rows = empty_frame(self.spark, lake_rows.struct_type({**lake_rows.LAKE_COLUMNS, **record_columns(table)}))
        elif own or table.watermark is None:
            # The source's own time of a change is not the time that a watermark tells of: nothing is late by it. Where
            # a generator tells the time, its extractor is asked.
            rows = rows.withColumn("_rowtime", F.lit(None).cast("timestamp"))
        return InputRows(rows, record_columns(table), item.key, span.after, self.found.of_input[place])
