"""For quarantined rows that are shown: the key of each that found no match, and the version that comes nearest."""

from __future__ import annotations

from collections.abc import Sequence

import dagster as dg

from assets.specs import joins_of
from orchestration.alerts.incident import MissedKey
from orchestration.alerts.nearest import nearest_by_place
from orchestration.alerts.watched import WatchedInsert, WatchedJoin
from pipelines.lake import Lake
from pipelines.runtime.quarantine.rows import PROBE_PLACE, KeptRow
from pipelines.sql.model import Insert
from pipelines.sql.pipeline import Pipeline


def nearest_of_rows(lake: Lake, pipeline: Pipeline, insert: Insert, rows: Sequence[KeptRow]) -> list[MissedKey | None]:
    """One for each row; None where it had a match, or its key can not be told."""
    watched = WatchedInsert(
        pipeline=pipeline.name,
        insert=insert.id,
        lake=str(lake.root),
        script="",
        staged=dg.AssetKey([pipeline.name, insert.id]),
        staged_at=lake.staged_path(pipeline.table(insert.target), insert),
        joins=tuple(WatchedJoin(**join) for join in joins_of(insert)),
    )
    found: dict[tuple[object, ...], MissedKey] = {}
    for plan in {row.kept.epoch: row.kept.plan for row in rows}.values():
        own = [{**row.place, "_reason": row.kept.reason} for row in rows if row.kept.epoch == plan.epoch]
        told = nearest_by_place(lake, watched, plan, own)
        found |= {(plan.epoch, *place): missed for place, missed in told.items()}
    return [found.get((row.kept.epoch, *(row.place[name] for name in PROBE_PLACE))) for row in rows]
