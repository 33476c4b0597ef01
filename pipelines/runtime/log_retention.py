"""Asks a source how long it still keeps what a table has not landed yet. No Spark, no lease: nothing is changed."""

from __future__ import annotations

from collections.abc import Mapping

from pipelines.clock import Clock, system_clock
from pipelines.lake import Lake
from pipelines.runtime.plans import stored_step
from pipelines.runtime.split_store import Splits
from pipelines.sources.protocol import KeepsALog, LogRetention, SourceContext
from pipelines.sources.registry import connector
from pipelines.sql.model import Table

CONNECT_TIMEOUT = "connect.timeout"


def log_retention(
    lake: Lake,
    table: Table,
    environment: Mapping[str, str] | None = None,
    clock: Clock = system_clock,
    connect_within: str | None = None,
) -> LogRetention | None:
    """How long the log after the last landed epoch of `table` lasts; None for a source without a log that goes by age,
    and before the first epoch.

    `connect_within`: a duration in place of the script's 'connect.timeout', for who can not wait. Raises SourceError.
    """
    last = lake.watermarks.last(table.name)
    plans = lake.epochs.rows(table.name, generation=last.generation, epoch=last.epoch) if last else []
    if last is None or not plans:
        return None
    found = connector(table.connector)
    options = table.options.resolve(environment)
    if connect_within is not None and any(option.name == CONNECT_TIMEOUT for option in found.spec.options):
        options = {**options, CONNECT_TIMEOUT: connect_within}
    source = found.source(
        SourceContext(
            table=table,
            options=options,
            generation=last.generation,
            splits=Splits(lake, table.name, last.generation),
            scratch=str(lake.scratch(table.name)),
            clock=clock,
            lake=str(lake.root),
            previous=stored_step(plans[0]),
            environment=environment,
        )
    )
    try:
        return source.retention() if isinstance(source, KeepsALog) else None
    finally:
        source.close()
