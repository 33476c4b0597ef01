"""The output of an event-time INSERT by time: one partition is one span, and Dagster's backfills make them.

Materialising a partition releases the landed rows of its span, and replaces what was released of it before. So history
can be made ahead of the stream, in any order, and any part of it again. A partition is materialised when all that has
landed of its span is released; while a row of it waits, the run fails, and says what the row waits for. The operation
`backfill` does the same for any spans, of one INSERT or of all.
"""

# No `from __future__ import annotations` here: Dagster reads the annotations of its functions as types.

import warnings
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import dagster as dg
from pydantic import Field

from tidegate.assets.checks import of_check
from tidegate.assets.names import BACKFILL_TAG, VERDICT
from tidegate.assets.presentation import OnLake, Partitions, since, zone_of
from tidegate.assets.specs import by_time_spec
from tidegate.pipelines.commands import Commands
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.sql.model import Insert
from tidegate.pipelines.watermarks.watermark import instant, milliseconds_of

if TYPE_CHECKING:
    from tidegate.pipelines.runtime.epochs import Span
    from tidegate.pipelines.runtime.gate import GateVerdict


def partitions_of(wanted: Partitions, timezone: str = "UTC") -> dg.TimeWindowPartitionsDefinition:
    """One partition an hour, day, week (from Sunday) or month of the time zone, the first being that of `wanted.start`.
    They follow one another without a gap: the day of a change of the clock has 23 or 25 hours.

    Raises PlanningError for hours of a zone whose clock changes by part of an hour: Dagster leaves half an hour out.
    """
    zone = zone_of(timezone)
    if wanted.every == "hour" and _changes_by_part_of_an_hour(zone, wanted.start.year):
        raise PlanningError(
            f"{timezone} changes its clock by part of an hour, and its hours cannot be partitions",
            where="partitions_every",
            state="nothing was loaded",
            next_command="set partitions_every to day, or timezone to UTC",
        )
    kinds: dict[str, Any] = {
        "hour": dg.HourlyPartitionsDefinition,
        "day": dg.DailyPartitionsDefinition,
        "week": dg.WeeklyPartitionsDefinition,
        "month": dg.MonthlyPartitionsDefinition,
    }
    return kinds[wanted.every](start_date=_begin_of(wanted.start.astimezone(zone), wanted.every), timezone=timezone)


def _begin_of(moment: datetime, every: str) -> datetime:
    """When the hour, day, week or month of `moment` began, in its zone. Dagster takes the time on the wall from it."""
    begin = moment.replace(minute=0, second=0, microsecond=0)
    if every == "hour":
        return begin
    begin = begin.replace(hour=0, fold=0)  # the first of two midnights
    if every == "week":
        begin -= timedelta(days=begin.isoweekday() % 7)
    return begin.replace(day=1) if every == "month" else begin


def _changes_by_part_of_an_hour(zone: ZoneInfo, year: int) -> bool:
    """Whether it does so within the 50 years from the one before `year` on."""
    hour = timedelta(hours=1)
    times = (
        datetime(of, month, 1, tzinfo=zone) for of in range(year - 1, min(year + 50, 9999)) for month in range(1, 13)
    )
    return len({(at.utcoffset() or timedelta()) % hour for at in times}) > 1


def ends_of(context: dg.AssetExecutionContext) -> Iterator[tuple[str, int]]:
    """The partitions of a run by name, and when each ends (ms, UTC)."""
    definition = context.assets_def.partitions_def
    assert isinstance(definition, dg.TimeWindowPartitionsDefinition)
    for name in context.partition_keys:
        yield name, milliseconds_of(definition.time_window_for_partition_key(name).end)


def asked(context: dg.AssetExecutionContext, key: dg.AssetKey) -> tuple[list[tuple[int, int]], int]:
    """The spans of the run's backfill, low <= time < high, and when it was started; ms, UTC.

    Dagster starts a run for each sequence of neighbouring partitions of a backfill. The first run makes all of them, in
    one plan. A run that belongs to no backfill has its own partitions.
    """
    definition = context.assets_def.partitions_def
    assert isinstance(definition, dg.TimeWindowPartitionsDefinition)
    rows, since = [context.partition_key_range], 0
    backfill = context.instance.get_backfill(context.run.tags.get(BACKFILL_TAG, ""))
    if backfill is not None and backfill.asset_backfill_data is not None:
        wanted = backfill.asset_backfill_data.get_target_partitions_subset(key)
        rows += wanted.get_partition_key_ranges(definition)
        since = int(backfill.backfill_timestamp * 1000)
    windows = [(row.start, row.end) for row in rows]
    moment = definition.time_window_for_partition_key
    return [(milliseconds_of(moment(low).start), milliseconds_of(moment(high).end)) for low, high in windows], since


def by_time_asset(on: OnLake, insert: Insert, wanted: Partitions) -> dg.AssetsDefinition:
    """Stages, judges and publishes the rows of the partitions of a run, and of the other runs of its backfill, in one
    epoch."""
    partitions = partitions_of(wanted, on.look.timezone)
    spec = by_time_spec(on, insert, partitions)

    @dg.multi_asset(
        specs=[spec],
        check_specs=[_verdict_spec(spec.key, partitions)],
        can_subset=True,
        backfill_policy=on.look.steps.backfill_policy or dg.BackfillPolicy.single_run(),
        **on.step(on.names.op(spec.key), spec.description, insert.id),
    )
    @on.executed("by_time")
    def fill(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult]:
        from tidegate.assets.metadata import of_step
        from tidegate.quality_checks.backfills import backfill

        if spec.key not in context.selected_asset_keys:
            context.log.info(f"a partition has its check `{VERDICT}` when it is materialised; nothing was done")
            return
        low, high = map(milliseconds_of, context.partition_time_window)
        with on.runner(context) as runner:
            spans, since = asked(context, spec.key)
            done = backfill(runner, insert.id, spans, (low, high), since)
            reached = [name for name, end in ends_of(context) if end <= done.reached]
            for event in judged(spec.key, done.verdict, on.commands, reached):
                context.log_event(event)  # type: ignore[arg-type]
            metadata = of_step(done.step) if done.step else {}
            metadata |= {"from": instant(low), "before": instant(high)}
            for name in reached if done.cause and not done.is_held else ():
                # They are not to be done again with the others of the run.
                context.log_event(dg.AssetMaterialization(spec.key, partition=name, metadata=metadata))
            if done.cause is not None:
                raise done.cause
            yield dg.MaterializeResult(asset_key=spec.key, metadata=metadata)

    return fill


def _verdict_spec(key: dg.AssetKey, partitions: dg.PartitionsDefinition) -> dg.AssetCheckSpec:
    description = "The gate's verdict on the epoch that released the partition; stored once, and final."
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.PreviewWarning)  # what Dagster calls partitioned checks
        return dg.AssetCheckSpec(VERDICT, asset=key, description=description, partitions_def=partitions)


def judged(
    key: dg.AssetKey, verdict: "GateVerdict | None", commands: Commands, partitions: Iterable[str]
) -> Iterator[dg.AssetCheckEvaluation]:
    """The verdict on the epoch of a backfill as the check of these partitions; None where nothing was judged."""
    if verdict is None:
        return
    metadata = of_check(verdict.checks, verdict, commands)
    summary = metadata.pop("summary")
    found = {"asset_key": key, "check_name": VERDICT, "passed": verdict.passed, "description": summary}
    for name in partitions:
        yield dg.AssetCheckEvaluation(**found, metadata=metadata, partition=name)


class SpanConfig(dg.Config):
    """A span of time: at or after `from`, and before `to`. A day or a moment (2024-01-31, 2024-01-31T06:00+01:00), in
    the pipeline's time zone where it names none."""

    begin: str = Field(alias="from")
    end: str = Field(alias="to")


def fillable(on: OnLake) -> list[Insert]:
    """The INSERTs of a pipeline that can be released by spans of time."""
    return [insert for insert in on.parts.inserts if insert.by_spans]


def spans_of(items: Sequence[SpanConfig], timezone: str) -> "list[Span]":
    """Spans of time; ms, UTC. Raises PlanningError for what is no time, and where there is none."""
    if not items:
        raise _unread("`spans` is empty")
    return [_span(item, timezone) for item in items]


def _span(item: SpanConfig, timezone: str) -> "Span":
    """ms, UTC. Raises PlanningError for what is no time, and for a span that is empty."""
    try:
        low, high = (milliseconds_of(since(text, timezone)) for text in (item.begin, item.end))
    except ValueError as error:
        raise _unread(f"{item.begin!r} and {item.end!r} are not two moments") from error
    if low >= high:
        raise _unread(f"{item.begin} is not before {item.end}")
    return low, high


def _unread(what: str) -> PlanningError:
    return PlanningError(
        what,
        where="`spans`, in the config of the run",
        state="nothing was released",
        next_command="write them as {from: 2024-01-31, to: 2024-02-01}, or as 2024-01-31T06:00+01:00",
    )


def partitions_in(spans: "Sequence[Span]", on: OnLake) -> list[tuple[str, int]]:
    """The partitions that lie in one of the spans as a whole: their names, and when each ends (ms, UTC)."""
    if on.look.partitions is None:
        return []
    definition, found = partitions_of(on.look.partitions, on.look.timezone), []
    for low, high in spans:
        window = dg.TimeWindow(*(datetime.fromtimestamp(at / 1000, UTC) for at in (low, high)))
        for name in definition.get_partition_keys_in_time_window(window):
            own = definition.time_window_for_partition_key(name)
            if low <= milliseconds_of(own.start) and milliseconds_of(own.end) <= high:
                found.append((name, milliseconds_of(own.end)))
    return found
