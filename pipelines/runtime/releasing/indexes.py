"""The index of a build's versions (tidegate.pipelines.versions) as a pin sees it: of which runs it is made, and
what tells that none of its rows is missing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from tidegate.pipelines.errors import LakeError
from tidegate.pipelines.lake import Lake, delta_log
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.lake.ledger import rows_landed
from tidegate.pipelines.runtime.plans import Pin
from tidegate.pipelines.runtime.retention import gone
from tidegate.pipelines.sources.arrow_types import arrow_type
from tidegate.pipelines.sql.model import Table
from tidegate.pipelines.versions import IndexOf, Runs, chained


def index_of(lake: Lake, spark: SparkSession, table: Table, pin: Pin) -> IndexOf:
    """The index for the joins of a pin."""
    path = lake.table_path(table.name)
    opened = delta_log.opened(path)
    if opened is None:
        raise LakeError(
            f"the table of {table.name} is gone",
            where=str(path),
            state="nothing was staged",
            next_command=f"bring {path} back from a backup   or   tidegate run SCRIPT --resnapshot {table.name}",
        )
    removed = gone(lake, table.name, pin.generation)
    types = {column.name: arrow_type(column.spark_type) for column in table.stored_columns}
    marks = [removed, *([] if delta_log.plain(opened) else [opened.version()])]
    scratch = lake.scratch("_versions") / table.name
    runs = Runs.of(scratch, str(opened.metadata().id), pin.generation, marks, table.primary_key, types)

    def rows(after: int, upto: int) -> int:
        return rows_landed(lake, table.name, pin.generation, after, upto)

    def landed(epoch: int) -> int | None:
        found = lake.watermarks.rows(table.name, generation=pin.generation, epoch=epoch)
        return found[0].landed_at if found else None

    def files(span: tuple[int, int]) -> Sequence[str]:
        if delta_log.plain(opened):
            return delta_log.data_files(opened, pin.generation, span[0], span[1]).paths
        return _copied(spark, path, runs.folder, pin.generation, *span)

    known = runs.known(landed)
    spans = chained(known, pin.epoch, rows)
    made = [each for span in spans for each in runs.made(span, known.get(span), landed(span[1]) or 0, files(span))]
    if any(span not in known for span in spans):
        runs.tidy(made)
    held = rows(0, max(pin.epoch, spans[-1][1])) if removed.nothing and spans else None
    return IndexOf(tuple(made), pin.epoch, held)


def _copied(spark: SparkSession, path: Path, folder: Path, generation: int, after: int, upto: int) -> list[str]:
    """The rows of a table whose files alone do not tell them (deletion vectors, column mapping), as files that do."""
    copy = folder / f"{after}-{upto}.plain"
    if not (copy / "_SUCCESS").exists():
        lake_rows.between(spark, path, generation, after, upto).write.mode("overwrite").parquet(str(copy))
    return sorted(map(str, copy.glob("*.parquet")))
