"""The time of one epoch of one table: by its strategy, over its rows, computed in the cheapest way that is exact."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame

from tidegate.pipelines.connectors.options import SOURCE_OPTIONS, check_resolved
from tidegate.pipelines.connectors.protocol import Landed, StoredStep
from tidegate.pipelines.connectors.registry import connector
from tidegate.pipelines.connectors.table import Options, Table
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.lake import WatermarkRow
from tidegate.pipelines.runtime.splits import stored_splits
from tidegate.pipelines.runtime.watermark_log import builtin, custom
from tidegate.pipelines.runtime.watermark_log.builtin import SplitPass, SplitsBefore
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.syntax.durations import parse_duration
from tidegate.pipelines.watermarks import (
    MIN_TIMESTAMP,
    BoundedOutOfOrderness,
    ExpressionWatermarks,
    GeneratorError,
    NoWatermarks,
    SourceWatermarks,
    WatermarkStrategy,
)
from tidegate.pipelines.watermarks.strategy import keep_timestamp


@dataclass(frozen=True)
class EpochTime:
    """One epoch's rows under a strategy.

    Attributes:
        before: The log row of the epoch before; where this one goes on.
        now: The epoch's time in ms, UTC: that of its plan, so that a rerun comes to the same.
    """

    table: Table
    strategy: WatermarkStrategy
    before: WatermarkRow | None
    now: int

    @property
    def splits_before(self) -> SplitsBefore:
        """The splits as the epoch before left them; nothing is late before the first watermark, or in processing
        time."""
        row = self.before
        floor = None if row is None or row.use_processing_time or row.timestamp == MIN_TIMESTAMP else row.timestamp
        return SplitsBefore({split.split: split for split in stored_splits(row)}, floor)

    @property
    def shows_before_flip(self) -> bool:
        """Whether the table's watermark is visible from its first epoch on: only without a snapshot, whose rows come in
        the order of keys, so that their times prove nothing while it is read."""
        return not self.processing_time and not connector(self.table.connector).spec.phases(self.table.options)

    @property
    def processing_time(self) -> bool:
        """Whether the table emits (MIN, true) and nothing else."""
        return type(self._generator) is NoWatermarks

    @property
    def _generator(self) -> object:
        return self.strategy.generator_factory()

    def with_own_watermarks(self, landed: Landed) -> Landed:
        """`landed` with the source's own watermarks, delayed as declared, if the table uses them (FLIP-66: by
        SYSTEM_WATERMARK(); or by WatermarkStrategy.from_source()). Otherwise without them, unless only its connector
        can give its time."""
        if landed.watermarks is None:
            return landed
        generator = self._generator
        if type(generator) is SourceWatermarks:
            own = [(split, generator.delayed(watermark)) for split, watermark in landed.watermarks]
            return replace(landed, watermarks=own)
        tables = (self.table, *self.table.parts)
        if any(connector(table.connector).spec.tells_time for table in tables):
            return landed
        return replace(landed, watermarks=None)

    @property
    def _built_in(self) -> builtin.BuiltIn | None:
        """The generator, if its watermarks are those of a SQL expression; not with an assigner, which is Python and
        sees every row."""
        generator = self._generator
        if type(generator) is ExpressionWatermarks or type(generator) is SourceWatermarks:
            return generator
        if type(generator) is BoundedOutOfOrderness and self.strategy.timestamp_assigner is keep_timestamp:
            return generator
        return None

    def counted(self, rows: DataFrame) -> tuple[DataFrame, list[Column]]:
        """`rows` (of the source, or committed) and the aggregates to count over them; see `passes`. Rows of one split
        then need no second pass, except with a gap above 1. The frame may have one column more than `rows`. Every value
        is computed, even where the counts are not enough: an expression that fails must fail before rows are
        committed."""
        if self._built_in is None:
            return rows, []
        return self.valued(rows), builtin.tally(self.splits_before, self.strategy.gap)

    def valued(self, rows: DataFrame) -> DataFrame:
        """`rows` with the value of each, if there is one to be computed."""
        generator = self._built_in
        return rows if generator is None else builtin.valued(rows, generator)

    @property
    def tally(self) -> builtin.Tally:
        """The same over `valued` rows, for callers that count batches of them (`builtin.merged`)."""
        gap = self.strategy.gap
        return builtin.Tally(self.splits_before.floor, self._built_in is not None and (gap is None or gap <= 1))

    @property
    def expression(self) -> str | None:
        """The Spark SQL of each row's watermark; None if the strategy has none."""
        generator = self._generator
        if type(generator) is ExpressionWatermarks or type(generator) is SourceWatermarks:
            return generator.expression
        return None

    def passes(
        self, rows: Callable[[], DataFrame | None], tally: Mapping[str, Any], step: StoredStep, *, emitted: bool = False
    ) -> list[SplitPass]:
        """The pass of the epoch's rows for each split that has any.

        Args:
            rows: Gives its committed rows, None if there are none; called only if the counts do not suffice.
            tally: The counts, by name.
            emitted: The source itself has emitted the watermarks; only rows and late rows are counted.

        Raises SourceError that names split and offset if a user's generator failed.
        """
        if self.processing_time:
            return []
        generator = SourceWatermarks() if emitted else self._built_in
        if generator is None:
            columns = [column.name for column in self.table.stored_columns]
            try:
                return custom.scan(rows(), self.strategy, self.splits_before, self.now, columns)
            except (GeneratorError, PySparkException) as error:
                raise SourceError(
                    f"{self.table.name}: {_what(error)}",
                    where=step.place,
                    state="the epoch's rows are committed and its watermark is not, so nothing reads them yet",
                    next_command="mend the generator, then run the same command again: it goes on at this epoch",
                ) from error
        gap = None if emitted else self.strategy.gap
        counted = builtin.counted(tally, gap, self.splits_before)
        return builtin.scan(rows(), generator, gap, self.splits_before) if counted is None else counted


def _what(error: Exception) -> str:
    """The generator's own error, taken out of what Spark makes of a worker's."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    marker = f"{GeneratorError.__name__}: "
    cause = next((line.partition(marker)[2] for line in reversed(lines) if marker in line), None)
    return cause or (lines[0] if lines else type(error).__name__)


PREFIX = "scan.watermark."


def strategy_of(
    pipeline: Pipeline,
    table: Table,
    environment: Mapping[str, str] | None = None,
    auto_watermark_interval: timedelta | None = None,
) -> WatermarkStrategy:
    """The strategy of a source table: the one given to `Pipeline.with_strategy`, else the DDL's.

    An `auto_watermark_interval` of 0 is Flink's `pipeline.auto-watermark-interval` = 0: punctuated, for every table;
    None leaves it to what the script has SET. Raises PlanningError for an environment without its `${VAR}`, or with one
    whose value is wrong.
    """
    given = pipeline.strategies.get(table.name)
    strategy = declared(table, environment) if given is None else given
    interval = pipeline.auto_watermark_interval if auto_watermark_interval is None else auto_watermark_interval
    if interval == timedelta(0) and strategy.gap is None:
        return strategy.with_emission_on_event()
    return strategy


def declared(table: Table, environment: Mapping[str, str] | None = None) -> WatermarkStrategy:
    """The DDL's strategy; `environment` is where `${VAR}` of the watermark's own options is looked up."""
    strategy = _emits(table)
    # No others: a password that is not set here is no matter of a table's time.
    named = {name: value for name, value in table.options.items() if name.startswith(PREFIX)}
    resolved = Options(named).resolve(environment, table.name)
    check_resolved(table, resolved, SOURCE_OPTIONS)
    own = {name.removeprefix(PREFIX): value for name, value in resolved.items()}
    if own.get("emit.strategy") == "on-event":
        strategy = strategy.with_emission_on_event(int(own.get("emit.on-event.gap", "1")))
    if timeout := own.get("idle-timeout"):
        strategy = strategy.with_idleness(parse_duration(timeout))
    if group := own.get("alignment.group"):
        drift, interval = own["alignment.max-drift"], own.get("alignment.update-interval", "1 s")
        strategy = strategy.with_watermark_alignment(group, parse_duration(drift), parse_duration(interval))
    return strategy


def _emits(table: Table) -> WatermarkStrategy:
    """A table without WATERMARK FOR is in processing time."""
    spec = table.watermark
    if spec is None:
        return WatermarkStrategy.no_watermarks()
    if spec.source:
        return WatermarkStrategy.from_source(spec.expression, spec.type, spec.delay)
    return WatermarkStrategy.for_expression(spec.expression, spec.type)
