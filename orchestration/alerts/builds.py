"""Sources that are late: a build that has not flipped, and one that is too far behind. Read from the lake."""

from __future__ import annotations

import dagster as dg

from orchestration.alerts.incident import Incident
from orchestration.alerts.options import AlertOptions, in_ms
from orchestration.alerts.watched import WatchedTable, last_run, opened, positions
from orchestration.words import moment, seconds
from pipelines.lake import Lake
from pipelines.runtime.accounting import where_rows_are
from pipelines.runtime.history import history
from pipelines.runtime.landing.split_store import Splits, of_a_file


def not_flipped(
    watched: WatchedTable, instance: dg.DagsterInstance, options: AlertOptions, now: int
) -> Incident | None:
    """A build whose newest generation was planned first so long ago, and is not proved complete."""
    lake = opened(watched.lake)
    newest = lake.epochs.last(watched.table) if lake and watched.build else None
    if lake is None or newest is None:
        return None
    landed = lake.watermarks.last(watched.table, newest.generation)
    if landed is not None and landed.flip_epoch is not None:
        return None
    first = lake.epochs.rows(watched.table, generation=newest.generation, epoch=1)
    loading = now - (first[0] if first else newest).planned_at
    if loading <= in_ms(options.flip_within):
        return None
    again = newest.generation > 1
    held_back = "Readers stay on the generation before it." if again else "Rows of its probes land, and none leaves."
    return Incident(
        key=f"not-flipped {watched.lake} {watched.table} {newest.generation}",
        kind="not-flipped",
        title=f"{watched.name} has not flipped {seconds(loading)} after its first plan "
        f"(bound {seconds(in_ms(options.flip_within))}){_chunks(lake, watched.table, newest.generation)}.",
        pipeline=watched.pipeline,
        said=(held_back,),
        counts={"waiting for the flip": rows} if not again and (rows := _waiting(lake, watched)) else {},
        positions=positions(lake, [watched.table]),
        run=last_run(instance, watched.pipeline, options.dagster_url, watched.key),
        next=(
            f"tidegate status {watched.script or 'SCRIPT'} --lake {watched.lake}",
            f"tidegate run {watched.script or 'SCRIPT'} --lake {watched.lake}   (goes on where it stopped)",
        ),
        details={"table": watched.table, "generation": newest.generation, "loading_ms": loading, "lake": watched.lake},
    )


def _chunks(lake: Lake, table: str, generation: int) -> str:
    chunks = [row for row in Splits(lake, table, generation).rows() if not of_a_file(row["detail"])]
    done = sum(row["cut"] is not None for row in chunks)
    return f", with {done} of {len(chunks)} chunks read" if chunks else ""


def _waiting(lake: Lake, watched: WatchedTable) -> int:
    """Landed rows that wait for this build, over all INSERTs that join to it."""
    return sum(
        where_rows_are(lake, insert, probe, history(lake, insert, None)).waiting for insert, probe in watched.waits
    )


def lagging(watched: WatchedTable, instance: dg.DagsterInstance, options: AlertOptions, now: int) -> Incident | None:
    """A source that was too far behind when its newest epoch landed, or whose next one has been under way for so
    long."""
    lake = opened(watched.lake)
    plan = lake.epochs.last(watched.table) if lake else None
    if lake is None or plan is None:
        return None
    log = lake.watermarks.last(watched.table, plan.generation)
    if log is None or (watched.build and log.flip_epoch is None):
        return None  # while it loads, not_flipped speaks
    told = log.lag_ms or 0
    under_way = now - plan.planned_at if plan.epoch > log.epoch else 0
    lag = max(told, under_way)
    if lag <= in_ms(options.max_lag):
        return None
    how = (
        f"epoch {plan.epoch} has been under way for {seconds(under_way)}"
        if under_way >= told
        else f"it was {seconds(told)} behind when epoch {log.epoch} landed ({moment(log.landed_at)} UTC)"
    )
    return Incident(
        key=f"lag {watched.lake} {watched.table} {plan.generation}",
        kind="lag",
        title=f"{watched.name} is behind its source: {how}; the bound is {seconds(in_ms(options.max_lag))}.",
        pipeline=watched.pipeline,
        said=("What has landed stands, and nothing is lost; what is published is older than you asked for.",),
        positions=positions(lake, [watched.table]),
        run=last_run(instance, watched.pipeline, options.dagster_url, watched.key),
        next=(
            f"tidegate status {watched.script or 'SCRIPT'} --lake {watched.lake}",
            f"tidegate run {watched.script or 'SCRIPT'} --lake {watched.lake}   (or turn its schedule on)",
        ),
        details={"table": watched.table, "lag_ms": lag, "lake": watched.lake},
    )
