"""OPTIMIZE of landed rows that wait for their time: they get files apart from those that are released already.

A release finds its rows by the statistics of files (`tidegate.pipelines.lake.releasable`). Were rows that wait put
together with all that ever landed, every release would go through all of it until the last of them has left.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from tidegate.pipelines.commands import NextCommand
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import LakeError
from tidegate.pipelines.lake import Lake, delta_log
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.lake.adopt import replace, survey
from tidegate.pipelines.lake.areas import micros
from tidegate.pipelines.lake.upkeep import SMALL_FILES, compact
from tidegate.pipelines.runtime.epochs.history import newest_epochs, target_of
from tidegate.pipelines.sql.model import Insert
from tidegate.pipelines.sql.pipeline import Pipeline
from tidegate.pipelines.watermarks import MIN_TIMESTAMP

SMALL, LARGE = 64 << 20, 128 << 20
"""Bytes: a file of less is put together with others, to files of about the other."""


@dataclass(frozen=True)
class Compaction:
    """Puts the small files of one pipeline's landed tables together. The caller holds the table's lease."""

    lake: Lake
    pipeline: Pipeline
    spark: Callable[[], SparkSession]

    def of(self, table: Table) -> Callable[[Path], None]:
        """How the files of a source table are put together: waiting rows apart, where an INSERT joins them in event
        time."""
        probing = [insert for insert in self.pipeline.inserts if insert.probe == table.name and insert.time == "event"]
        return (lambda path: self._apart(path, probing)) if probing else compact

    def _apart(self, path: Path, probing: Sequence[Insert]) -> None:
        opened = delta_log.opened(path)
        if opened is None or not delta_log.plain(opened):
            compact(path)
            return
        files = delta_log.files_of(opened, "path", "size_bytes", "num_records")
        chosen = [file for file in files if file["size_bytes"] < SMALL and file["num_records"] is not None]
        if len(chosen) < SMALL_FILES:
            return
        small = {file["path"]: file["size_bytes"] for file in chosen}
        rows = lake_rows.of_files(self.spark(), opened, delta_log.paths_of(opened, list(small)))
        folder = path / f"together-{uuid.uuid4().hex[:8]}"
        apart = rows.selectExpr("*", f"coalesce({self._waits(probing)}, false) AS _waits")
        apart = apart.coalesce(max(sum(small.values()) // LARGE, 1))
        apart.write.partitionBy("_waits").parquet(str(folder))
        written, expected = survey(folder), sum(file["num_records"] for file in chosen)
        if sum(file.rows for file in written) != expected:
            raise LakeError(
                f"{expected:,} rows were to be put together, and {sum(file.rows for file in written):,} were",
                where=str(path),
                state="the table is as it was",
                next_command=NextCommand("maintain", does="tries it again"),
            )
        replace(path, folder, written, list(small), note="OPTIMIZE: waiting rows apart", same_rows=True)

    def _waits(self, probing: Sequence[Insert]) -> str:
        """SQL: whether some INSERT has not released a row yet. It says where a row is put, and nothing hangs on it but
        speed."""
        return " OR ".join(f"({self._waits_for(insert)})" for insert in probing)

    def _waits_for(self, insert: Insert) -> str:
        newest = newest_epochs(self.lake, insert.id, target_of(self.lake, self.pipeline, insert.id))
        if not newest or not newest[0].plan.in_event_time:
            return "true"
        last, plan = newest[0], newest[0].plan
        upto, reached = (plan.upto, plan.watermark) if last.published else (plan.after, plan.before)
        late = "true" if reached == MIN_TIMESTAMP else f"unix_micros(_rowtime) > {micros(reached)}L"
        return f"_generation > {plan.probe_generation} OR _epoch > {upto} OR {late}"
