"""A source opened for work on one generation of its table, and what it is told of how far that has come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy

from tidegate.pipelines.clock import Clock
from tidegate.pipelines.connectors.protocol import Source, SourceContext, StoredStep
from tidegate.pipelines.connectors.registry import connector
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.lake import Lake, WatermarkRow
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
    """What the source of `table` may use, with its options resolved; told of no step yet. Raises SourceError."""
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


def refresh(context: SourceContext, lake: Lake) -> None:
    """Tell the source how far its generation has come: what is planned of it, and whether it has flipped."""
    name, generation = context.table.name, context.generation
    plans = lake.epochs.last(name, generation)
    landed = lake.watermarks.last(name, generation)
    context.previous = stored_step(plans) if plans else None
    first = lake.epochs.first(name, generation)
    context.first = stored_step(deepcopy(first)) if first else None
    context.flipped = landed is not None and landed.flip_epoch is not None
    if isinstance(context.splits, Splits):
        context.splits.epoch = plans.epoch if plans else 0


def unfinished(context: SourceContext, landed: WatermarkRow | None) -> StoredStep | None:
    """The step that is planned and has not landed, where a crash has left one. `landed`: the last that has."""
    if context.previous is None or (landed and landed.epoch >= context.previous.epoch):
        return None
    return context.previous
