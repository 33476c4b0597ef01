"""Quarantined rows themselves, a few of them: read by Arrow from the table's own files, without Spark or a JVM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc

from tidegate.pipelines.errors import LakeError
from tidegate.pipelines.lake import Lake, delta_log
from tidegate.pipelines.location import Location
from tidegate.pipelines.parquet import python_rows
from tidegate.pipelines.runtime.quarantine.quarantined import QuarantinedRows
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.sql.model import Insert

PROBE = "_probe"
"""The column that holds the probe's own columns of a quarantined row, as a STRUCT."""

PROBE_PLACE = ("_probe_epoch", "_split", "_offset")


@dataclass(frozen=True)
class QuarantinedRow:
    """One quarantined row of a `group`: its columns (`values`, by the target's columns), its op, which probe row it is
    (`place`, by PROBE_PLACE), and that row's own columns (`probe`; None of rows that were quarantined before these were
    stored, and of a process's)."""

    group: QuarantinedRows
    op: str
    place: Mapping[str, Any]
    values: Mapping[str, Any]
    probe: Mapping[str, Any] | None = None


def rows_of(
    lake: Lake, pipeline: Pipeline, insert: Insert, wanted: Sequence[QuarantinedRows], most: int
) -> list[QuarantinedRow]:
    """Up to `most` rows of what is wanted, in its order. Raises LakeError where the files do not give the rows."""
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
    found: list[QuarantinedRow] = []
    for group in wanted:
        if len(found) >= most:
            break
        files = delta_log.data_files(table, group.plan.generation, group.epoch - 1, group.epoch).paths
        own = (
            (pc.field("_generation") == group.plan.generation)
            & (pc.field("_epoch") == group.epoch)
            & (pc.field("_reason") == group.reason)
        )
        for path in files:
            file = Location(path).dataset()
            there = [name for name in (*names, "_op", *PROBE_PLACE, PROBE) if name in file.schema.names]
            for row in python_rows(file.head(most - len(found), columns=there, filter=own)):
                place, values = ({name: row.get(name) for name in of} for of in (PROBE_PLACE, names))
                probe = row.get(PROBE)
                found.append(
                    QuarantinedRow(group, row["_op"], place, values, probe if isinstance(probe, dict) else None)
                )
    return found
