"""The output of an event-time INSERT by time: one partition is one span, and Dagster's backfills make them.

Materialising a partition releases the rows of its span that have landed, in the place of those that were released
before; so history can be made ahead of the stream, in any order, and any part of it again. A partition is materialised
when all that has landed of its span is released: while a row of it waits, the run fails and says for what.
"""

# No `from __future__ import annotations` here: Dagster reads the annotations of its functions as types.

import warnings
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import dagster as dg
from dagster._core.storage.tags import BACKFILL_ID_TAG

from tidegate.assets.checks import of_verdict
from tidegate.assets.jobs import job_of
from tidegate.assets.names import VERDICT, Names, pool
from tidegate.assets.presentation import Partitions, Presentation, zone_of
from tidegate.assets.resources import runner_of
from tidegate.assets.specs import by_time_spec
from tidegate.pipelines.commands import Commands
from tidegate.pipelines.errors import GateHeld, PlanningError
from tidegate.pipelines.lake import Layout
from tidegate.pipelines.runtime.gate import GateVerdict
from tidegate.pipelines.sql.model import Insert
from tidegate.pipelines.sql.pipeline import Pipeline
from tidegate.pipelines.watermarks import MAX_TIMESTAMP
from tidegate.pipelines.watermarks.watermark import instant, milliseconds_of

if TYPE_CHECKING:
    from tidegate.pipelines.runtime.releasing import Releasing


def partitions_of(wanted: Partitions, timezone: str = "UTC") -> dg.TimeWindowPartitionsDefinition:
    """One partition an hour, day, week (from Sunday) or month of the time zone, the first being that of `wanted.start`.
    They follow one another without a gap: the day of a change of the clock has 23 or 25 hours.

    Raises PlanningError for hours of a zone whose clock changes by part of an hour: Dagster leaves half an hour out.
    """
    zone = zone_of(timezone)
    if wanted.every == "hour" and _changes_by_part_of_an_hour(zone, wanted.start.year):
        raise PlanningError(
            f"{timezone} changes its clock by part of an hour, and its hours can not be partitions",
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
    """The spans that the run's backfill asks for, low <= time < high, and when it was asked for; ms, UTC.

    Dagster starts a run for each row of neighbours among the partitions of a backfill. The first one makes all of them,
    as one plan. Where a run is of no backfill, they are its own."""
    definition = context.assets_def.partitions_def
    assert isinstance(definition, dg.TimeWindowPartitionsDefinition)
    rows, since = [context.partition_key_range], 0
    backfill = context.instance.get_backfill(context.run.tags.get(BACKFILL_ID_TAG, ""))
    if backfill is not None and backfill.asset_backfill_data is not None:
        wanted = backfill.asset_backfill_data.get_target_partitions_subset(key)
        rows += wanted.get_partition_key_ranges(definition)
        since = int(backfill.backfill_timestamp * 1000)
    windows = [(row.start, row.end) for row in rows]
    moment = definition.time_window_for_partition_key
    return [(milliseconds_of(moment(low).start), milliseconds_of(moment(high).end)) for low, high in windows], since


def by_time_asset(
    pipeline: Pipeline, insert: Insert, lake: Layout, names: Names, look: Presentation, wanted: Partitions
) -> dg.AssetsDefinition:
    """Stages, judges and publishes the rows of the partitions of a run, and of the other runs of its backfill, in one
    epoch."""
    partitions = partitions_of(wanted, look.timezone)
    spec = by_time_spec(pipeline, insert, lake, names, look, partitions)
    commands = Commands(look.script, lake.root)

    @dg.multi_asset(
        name=names.op(spec.key),
        specs=[spec],
        check_specs=[_verdict_spec(spec.key, partitions)],
        can_subset=True,
        required_resource_keys={names.resource},
        description=look.steps.description or spec.description,
        backfill_policy=look.steps.backfill_policy or dg.BackfillPolicy.single_run(),
        **look.steps.options(pool(lake, insert.id)),
    )
    @look.executed(names, "by_time")
    def fill(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult]:
        from tidegate.assets.metadata import of_published, of_waiting
        from tidegate.pipelines.runtime.plans import union
        from tidegate.pipelines.runtime.releasing import Position
        from tidegate.pipelines.runtime.runner import Released

        nothing = Position(None, None, None, 0)  # whatever was published before: a backfill has published what it did
        if spec.key not in context.selected_asset_keys:
            context.log.info(f"a partition has its check `{VERDICT}` when it is materialised; nothing was done")
            return
        low, high = map(milliseconds_of, context.partition_time_window)
        with runner_of(context, pipeline, names, commands) as runner:
            releasing = runner.releasing(insert.id)
            short = releasing.unreached([(low, high)])  # asked for first: what lands meanwhile may not be in the epoch
            spans, since = asked(context, spec.key)
            before = runner.filled(insert.id, spans, (low, high), since) if len(union(spans)) > 1 else None
            try:
                done = runner.backfill(insert.id, *spans) if before is None else Released(insert.id)
            except GateHeld:
                _judged(context, spec.key, releasing, union(spans), commands)
                raise
            told: dict[str, Any] = {}
            if before is not None:
                told["released by"] = f"epoch {before.epoch}, with the other partitions of this backfill"
            elif done.waiting is not None:
                told |= of_waiting(releasing, done.waiting)
            elif done.published:
                told |= of_published(releasing, nothing, done.published[-1:])
            told |= {"from": instant(low), "before": instant(high)}
            until = short.reached if short is not None and (short.rows or short.unflipped) else high
            _judged(context, spec.key, releasing, union(spans), commands, until)
            if short is not None and (short.rows or short.unflipped):
                for name, end in ends_of(context):
                    if end <= short.reached:  # the others of the run are not to be done again
                        context.log_event(dg.AssetMaterialization(spec.key, partition=name, metadata=told))
                released = sum(item.rows for item in done.published)
                raise dg.Failure(
                    f"{short.rows:,} rows of this span wait: {short.reason}; {released:,} were published",
                    metadata={**told, "next": "launch it again once they can be released"},
                    allow_retries=False,
                )
            if short is not None:
                told["rows may still come"] = short.reason
            yield dg.MaterializeResult(asset_key=spec.key, metadata=told)

    return fill


def _verdict_spec(key: dg.AssetKey, partitions: dg.PartitionsDefinition) -> dg.AssetCheckSpec:
    said = "The gate's verdict on the epoch that released the partition; stored once, and final."
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.PreviewWarning)  # what Dagster calls partitioned checks
        return dg.AssetCheckSpec(VERDICT, asset=key, description=said, partitions_def=partitions)


def _judged(
    context: dg.AssetExecutionContext,
    key: dg.AssetKey,
    releasing: "Releasing",
    spans: "Sequence[tuple[int, int]]",
    commands: Commands,
    until: int = MAX_TIMESTAMP,
) -> None:
    """Record the verdict on the epoch of this backfill as the check of every partition of the run that ends by `until`
    (ms, UTC). Of an epoch that an earlier run has left, or where nothing was judged, there is none."""
    position = releasing.position()
    plan, row = position.plan, position.verdict
    if plan is None or row is None or plan.backfill is None or plan.backfill.spans != spans:
        return
    verdict = GateVerdict.of(row)
    metadata = of_verdict(verdict, None if position.state == "published" else position.state, commands)
    summary = metadata.pop("summary")
    for name, end in ends_of(context):
        if end <= until:
            found = dg.AssetCheckEvaluation(
                asset_key=key,
                check_name=VERDICT,
                passed=verdict.passed,
                metadata=metadata,
                description=summary,
                partition=name,
            )
            context.log_event(found)  # type: ignore[arg-type]


def by_time_job(inserts: Sequence[Insert], names: Names) -> dg.JobDefinition:
    """All these outputs by time, for a backfill from the Jobs page or from the command line."""
    keys = [names.by_time(item) for item in inserts]
    said = "Release spans of time anew, or ahead of the stream: one partition is one span."
    return job_of(names, f"{names.job}_backfill", keys, said)
