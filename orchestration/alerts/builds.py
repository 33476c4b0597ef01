"""A build that has not flipped. Read from the lake."""

from __future__ import annotations

import dagster as dg

from tidegate.orchestration.alerts.incident import Incident
from tidegate.orchestration.alerts.options import AlertOptions, in_ms
from tidegate.orchestration.alerts.watched import WatchedTable, last_run, opened, positions
from tidegate.orchestration.text import seconds
from tidegate.pipelines.commands import NextCommand
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.runtime.accounting import newest_of, where_rows_are
from tidegate.pipelines.runtime.landing.split_store import Splits, of_a_file


def not_flipped(
    watched: WatchedTable, instance: dg.DagsterInstance, options: AlertOptions, now: int
) -> Incident | None:
    """A build whose newest generation was planned first so long ago, and is not proved complete."""
    lake = opened(watched.lake)
    newest = lake.epochs.last(watched.table) if lake and watched.build else None
    if lake is None or newest is None:
        return None
    landed = Stream(lake, watched.table).generation(newest.generation).last
    if landed is not None and landed.flip_epoch is not None:
        return None
    first = lake.epochs.rows(watched.table, generation=newest.generation, epoch=1)
    loading = now - (first[0] if first else newest).planned_at
    if loading <= in_ms(options.flip_within):
        return None
    again = newest.generation > 1
    held_back = "Readers stay on the generation before it." if again else "Rows of its probes land, and none leaves."
    return Incident(
        key=f"not-flipped {watched.subject} {newest.generation}",
        kind="not-flipped",
        title=f"{watched.name} has not flipped {seconds(loading)} after its first plan "
        f"(bound {seconds(in_ms(options.flip_within))}){_chunks(lake, watched.table, newest.generation)}.",
        pipeline=watched.pipeline,
        said=(held_back,),
        counts={"waiting for the flip": rows} if not again and (rows := _waiting(lake, watched)) else {},
        positions=positions(lake, [watched.table]),
        run=last_run(instance, watched.pipeline, options.dagster_url, watched.key),
        next=watched.commands.all([NextCommand("status"), NextCommand("run", does="goes on where it stopped")]),
        details={"table": watched.table, "generation": newest.generation, "loading_ms": loading, "lake": watched.lake},
        subject=f"the wait for the flip of {watched.name}, generation {newest.generation}",
    )


def _chunks(lake: Lake, table: str, generation: int) -> str:
    chunks = [row for row in Splits(lake, table, generation).rows() if not of_a_file(row["detail"])]
    done = sum(row["cut"] is not None for row in chunks)
    return f", with {done} of {len(chunks)} chunks read" if chunks else ""


def _waiting(lake: Lake, watched: WatchedTable) -> int:
    """Landed rows that wait for this build, over all INSERTs that join to it."""
    return sum(_waiting_for(lake, insert, probe) for insert, probe in watched.waits)


def _waiting_for(lake: Lake, insert: str, probe: str) -> int:
    _, rows = newest_of(lake, insert, None)
    return (rows or where_rows_are(lake, insert, probe, ())).waiting
