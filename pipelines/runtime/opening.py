"""A source opened for one generation of its table, and how far that generation has come; or asked outside of its runs:
how long it keeps its log, how much has not landed. Needs neither Spark nor a lease.

`Mask` keeps the values of `${VAR}` in WITH options out of errors, which show the variable's name instead.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace

from tidegate.pipelines.clock import Clock, system_clock
from tidegate.pipelines.connectors.options import resolve_options
from tidegate.pipelines.connectors.protocol import (
    KeepsALog,
    KnowsItsEnd,
    LogRetention,
    Source,
    SourceContext,
    SourcePosition,
    StoredStep,
    Unread,
)
from tidegate.pipelines.connectors.registry import connector
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import TidegateError
from tidegate.pipelines.lake import Lake, WatermarkRow
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.progress import Progress, SilentProgress
from tidegate.pipelines.runtime.epochs import stored_step
from tidegate.pipelines.runtime.splits import Splits
from tidegate.pipelines.syntax.durations import parse_duration

LEAST = 4
"""A value of at least so many characters is masked wherever it stands; a shorter one (`1`) only where it is in
quotes."""


class MaskedCause(Exception):
    """Stands for the cause of a typed error whose own text held a value of the environment."""


@dataclass(frozen=True)
class Mask:
    """Puts `${VAR}` in place of the values of variables."""

    values: Mapping[str, str]

    @classmethod
    def of(cls, tables: Iterable[Table], environment: Mapping[str, str] | None = None) -> Mask:
        """For the variables that the WITH options of `tables` name."""
        known = os.environ if environment is None else environment
        names = sorted({name for table in tables for name in table.options.variables()})
        return cls({name: known[name] for name in names if known.get(name)})

    def text(self, text: str) -> str:
        """`text` without the values."""
        for name, value in sorted(self.values.items(), key=lambda item: -len(item[1])):
            edge = ("'", "'") if len(value) < LEAST else (r"(?<!\w)", r"(?!\w)")
            named = f"'${{{name}}}'" if len(value) < LEAST else f"${{{name}}}"
            text = re.sub(f"{edge[0]}{re.escape(value)}{edge[1]}", lambda _, named=named: named, text)
        return text

    @contextmanager
    def over(self) -> Iterator[None]:
        """Mask every typed error raised in the block, and the text of its cause."""
        try:
            yield
        except TidegateError as error:
            error.reword(self.text)
            cause = error.__cause__ or error.__context__
            if cause is not None and any(self.text(each) != each for each in _chain(cause)):
                shown = " <- ".join(self.text(each) for each in _chain(cause))
                raise error from MaskedCause(shown).with_traceback(cause.__traceback__)
            raise


def _chain(error: BaseException | None) -> Iterator[str]:
    while error is not None:
        yield f"{type(error).__name__}: {error}"
        error = error.__cause__ or error.__context__


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
        table=table.delivered,
        options=resolve_options(table, connector(table.connector).spec, environment),
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
    """The source of a context; closed at the end of the block."""
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
    """The step that is planned and has not landed, left by a crash; None if there is none. `landed`: the last landed
    epoch."""
    if position.previous is None or (landed and landed.epoch >= position.previous.epoch):
        return None
    return position.previous


CONNECT_TIMEOUT = "connect.timeout"
MAY_BE_GONE_S = 1.0
"""The seconds reported when the log may be gone: 0 would say that it is."""


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
    """The source of `table`, with its position after a landed epoch; closed at the end of the block. `answer_within`:
    replaces the script's 'connect.timeout', for callers that cannot wait. Each answer of the server may take so long,
    also of one that accepts the connection and then sends nothing."""
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


def log_retention(lake: Lake, table: Table, answer_within: str) -> LogRetention | None:
    """How long the source keeps its log after the last landed epoch of `table`; None for a source whose log does not
    expire, and before the first epoch. Of a source that can be asked only while it is read (Kafka, by Spark's JVM) it
    is the lower bound that it gave then: after that time the log may be gone. Raises SourceError."""
    last = Stream(lake, table.name).newest
    if last is None:
        return None
    if last.kept is not None:
        left = max((last.kept["until"] - system_clock()) / 1000, MAY_BE_GONE_S)
        return LogRetention(left, last.kept["for_ms"] / 1000, last.position)
    with source_after(lake, table, last, answer_within=answer_within) as (source, position):
        return source.retention(position) if isinstance(source, KeepsALog) else None


def unread(lake: Lake, table: Table, last: WatermarkRow, answer_within: str) -> Unread | None:
    """How much the source of `table` has beyond the landed epoch `last`; None if only reading it would show that.
    Raises SourceError."""
    with source_after(lake, table, last, answer_within=answer_within) as (source, position):
        return source.unread(position) if isinstance(source, KnowsItsEnd) else None
