"""A source asked beside its runs, of what it knows itself: how long it keeps its log, and how much of it has not
landed. No Spark, no lease: nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from tidegate.pipelines.clock import Clock, system_clock
from tidegate.pipelines.connectors.protocol import KeepsALog, KnowsItsEnd, LogRetention, Source, SourcePosition, Unread
from tidegate.pipelines.connectors.registry import connector
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.lake import Lake, WatermarkRow
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.progress import Progress, SilentProgress
from tidegate.pipelines.runtime.epochs import stored_step
from tidegate.pipelines.runtime.landing.opening import context_of, opened
from tidegate.pipelines.runtime.masking import Mask
from tidegate.pipelines.syntax.durations import parse_duration

CONNECT_TIMEOUT = "connect.timeout"
MAY_BE_GONE_S = 1.0
"""What is left where nobody knows whether there is: 0 says that it is gone."""


@contextmanager
def source_after(
    lake: Lake,
    table: Table,
    landed: WatermarkRow,
    environment: Mapping[str, str] | None = None,
    clock: Clock = system_clock,
    progress: Progress | None = None,
    answer_within: str | None = None,
) -> Iterator[tuple[Source, SourcePosition]]:
    """The source of `table`, and its position after a landed epoch; it is closed in the end.

    `answer_within`: a duration in place of the script's 'connect.timeout', for who cannot wait; each later answer of
    the server may take as long. One that takes the connection and says nothing is bounded by it as well.
    """
    with Mask.of([table], environment).over():
        plans = lake.epochs.rows(table.name, generation=landed.generation, epoch=landed.epoch)
        context = context_of(lake, table, landed.generation, environment, clock, progress or SilentProgress())
        previous = stored_step(plans[0]) if plans else None
        if answer_within is not None:
            options = context.options
            if any(option.name == CONNECT_TIMEOUT for option in connector(table.connector).spec.options):
                options = {**options, CONNECT_TIMEOUT: answer_within}
            within = parse_duration(answer_within).total_seconds()
            context = replace(context, options=options, answer_within=within)
        with opened(context) as source:
            yield source, SourcePosition(previous=previous, flipped=landed.flip_epoch is not None)


def log_retention(
    lake: Lake,
    table: Table,
    environment: Mapping[str, str] | None = None,
    clock: Clock = system_clock,
    answer_within: str | None = None,
) -> LogRetention | None:
    """How long the log after the last landed epoch of `table` lasts; None for a source without a log that goes by age,
    and before the first epoch. A source that can only be asked while it is read (Kafka, by Spark's JVM) has told it
    then, at the least: what is past that time may be gone, and is not known to be. Raises SourceError."""
    last = Stream(lake, table.name).newest
    if last is None:
        return None
    if last.kept is not None:
        left = max((last.kept["until"] - clock()) / 1000, MAY_BE_GONE_S)
        return LogRetention(left, last.kept["for_ms"] / 1000, last.position)
    with source_after(lake, table, last, environment, clock, answer_within=answer_within) as (source, position):
        return source.retention(position) if isinstance(source, KeepsALog) else None


def unread(
    lake: Lake,
    table: Table,
    last: WatermarkRow,
    environment: Mapping[str, str] | None = None,
    clock: Clock = system_clock,
    answer_within: str | None = None,
) -> Unread | None:
    """What the source of `table` has beyond the landed epoch `last`; None where it cannot be asked without being read.
    Raises SourceError."""
    with source_after(lake, table, last, environment, clock, answer_within=answer_within) as (source, position):
        return source.unread(position) if isinstance(source, KnowsItsEnd) else None
