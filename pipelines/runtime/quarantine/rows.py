"""Quarantined rows themselves, a few of them: read by Arrow from the table's own files, without Spark or a JVM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc
import pyarrow.dataset as ds

from pipelines.errors import LakeError
from pipelines.lake import Lake, delta_log
from pipelines.parquet import python_rows
from pipelines.runtime.quarantine.kept import Kept
from pipelines.sql.model import Insert
from pipelines.sql.pipeline import Pipeline

PROBE_PLACE = ("_probe_epoch", "_split", "_offset")


@dataclass(frozen=True)
class KeptRow:
    """One row: what was kept of it (`values`, by the target's columns), its op, and which probe row it is (`place`, by
    PROBE_PLACE)."""

    kept: Kept
    op: str
    place: Mapping[str, Any]
    values: Mapping[str, Any]


def rows_of(lake: Lake, pipeline: Pipeline, insert: Insert, wanted: Sequence[Kept], most: int) -> list[KeptRow]:
    """Up to `most` rows of what is wanted, in its order. Raises LakeError where the files do not tell the rows."""
    target = pipeline.table(insert.target)
    path = lake.quarantine_path(target, insert)
    table = delta_log.opened(path)
    if table is None:
        return []
    if not delta_log.plain(table):
        raise LakeError(
            "the quarantine's files are not plain Parquet any more (deletion vectors or column mapping)",
            where=str(path),
            state="nothing was changed",
            next_command="read it with Spark",
        )
    names = [column.name for column in target.stored_columns]
    found: list[KeptRow] = []
    for kept in wanted:
        if len(found) >= most:
            break
        files = delta_log.data_files(table, kept.plan.generation, kept.epoch - 1, kept.epoch).paths
        if not files:
            continue
        own = (
            (pc.field("_generation") == kept.plan.generation)
            & (pc.field("_epoch") == kept.epoch)
            & (pc.field("_reason") == kept.reason)
        )
        rows = ds.dataset(files, format="parquet").head(
            most - len(found), columns=[*names, "_op", *PROBE_PLACE], filter=own
        )
        for row in python_rows(rows):
            place = {name: row[name] for name in PROBE_PLACE}
            found.append(KeptRow(kept, row["_op"], place, {name: row[name] for name in names}))
    return found
