"""A source opened for work on one generation of its table, and how far that has come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy

from tidegate.pipelines.clock import Clock
from tidegate.pipelines.connectors.protocol import Source, SourceContext, SourcePosition, StoredStep
from tidegate.pipelines.connectors.registry import connector
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.lake import Lake, WatermarkRow
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.progress import Progress
from tidegate.pipelines.runtime.epochs import stored_step
from tidegate.pipelines.runtime.landing.split_store import Splits
from tidegate.pipelines.sql.options import resolve_options
from tidegate.pipelines.sql.tables.metadata import as_delivered


def context_of(
    lake: Lake,
    table: Table,
    generation: int,
    environment: Mapping[str, str] | None,
    clock: Clock,
    progress: Progress,
) -> SourceContext:
    """What the source of `table` may use, with its options resolved. Raises SourceError."""
    return SourceContext(
        table=as_delivered(table),
        options=resolve_options(table, connector(table.connector).spec, environment, defaults=False),
        generation=generation,
        splits=Splits(lake, table.name, generation),
        scratch=str(lake.scratch(table.name)),
        clock=clock,
        lake=str(lake.root),
        environment=environment,
        progress=progress,
    )


@contextmanager
def opened(context: SourceContext) -> Iterator[Source]:
    """The source of a context; it is closed in the end."""
    source = connector(context.table.connector).source(context)
    try:
        yield source
    finally:
        source.close()


def position_of(context: SourceContext, lake: Lake) -> SourcePosition:
    """How far the source's generation has come by now: what is planned of it, and whether it has flipped."""
    name, generation = context.table.name, context.generation
    plans = lake.epochs.last(name, generation)
    landed = Stream(lake, name).generation(generation).last
    first = lake.epochs.first(name, generation)
    return SourcePosition(
        previous=stored_step(plans) if plans else None,
        first=stored_step(deepcopy(first)) if first else None,
        flipped=landed is not None and landed.flip_epoch is not None,
    )


def unfinished(position: SourcePosition, landed: WatermarkRow | None) -> StoredStep | None:
    """The step that is planned and has not landed, where a crash has left one. `landed`: the last that has."""
    if position.previous is None or (landed and landed.epoch >= position.previous.epoch):
        return None
    return position.previous
