"""One mechanism, two doors: what WATERMARK FOR and its options say, as the same object that a Python pipeline gives."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from tidegate.pipelines.connectors.table import Options, Table
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.sql.options import SOURCE_OPTIONS, check_resolved
from tidegate.pipelines.syntax.durations import parse_duration
from tidegate.pipelines.watermarks import WatermarkStrategy

PREFIX = "scan.watermark."


def strategy_of(
    pipeline: Pipeline,
    table: Table,
    environment: Mapping[str, str] | None = None,
    auto_watermark_interval: timedelta | None = None,
) -> WatermarkStrategy:
    """The strategy of a source table: what `Pipeline.with_strategy` gave, else what its DDL says.

    An `auto_watermark_interval` of 0 is Flink's `pipeline.auto-watermark-interval` = 0: punctuated, for every table;
    None leaves it to what the script has SET.
    Raises PlanningError for an environment without its `${VAR}`, or with one that makes no sense.
    """
    given = pipeline.strategies.get(table.name)
    strategy = declared(table, environment) if given is None else given
    interval = pipeline.auto_watermark_interval if auto_watermark_interval is None else auto_watermark_interval
    if interval == timedelta(0) and strategy.gap is None:
        return strategy.with_emission_on_event()
    return strategy


def declared(table: Table, environment: Mapping[str, str] | None = None) -> WatermarkStrategy:
    """What the DDL says; `environment` is where `${VAR}` of the watermark's own options is looked up."""
    strategy = _emits(table)
    # No others: a password that is not set here is no matter of a table's time.
    named = {name: value for name, value in table.options.items() if name.startswith(PREFIX)}
    resolved = Options(named).resolve(environment)
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
