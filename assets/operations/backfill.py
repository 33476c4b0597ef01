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
from tidegate.assets.operations.operation import Operation, OperationConfig, Started
from tidegate.assets.presentation import OnLake, Partitions, since, zone_of
from tidegate.assets.specs import by_time_spec
from tidegate.pipelines.commands import Commands
from tidegate.pipelines.errors import GateHeld, PlanningError
from tidegate.pipelines.runtime.gate import GateVerdict
from tidegate.pipelines.sql.model import Insert
from tidegate.pipelines.watermarks import MAX_TIMESTAMP
from tidegate.pipelines.watermarks.watermark import instant, milliseconds_of

if TYPE_CHECKING:
    from tidegate.pipelines.runtime.epochs import Span
    from tidegate.pipelines.runtime.epochs.position import Waiting
    from tidegate.pipelines.runtime.releasing.insert_runner import InsertRunner
    from tidegate.pipelines.runtime.runner import Released


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
    spec, commands = by_time_spec(on, insert, partitions), on.commands

    @dg.multi_asset(
        specs=[spec],
        check_specs=[_verdict_spec(spec.key, partitions)],
        can_subset=True,
        backfill_policy=on.look.steps.backfill_policy or dg.BackfillPolicy.single_run(),
        **on.step(on.names.op(spec.key), spec.description, insert.id),
    )
    @on.executed("by_time")
    def fill(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult]:
        from tidegate.pipelines.runtime.epochs import union
        from tidegate.pipelines.runtime.runner import Released

        if spec.key not in context.selected_asset_keys:
            context.log.info(f"a partition has its check `{VERDICT}` when it is materialised; nothing was done")
            return
        low, high = map(milliseconds_of, context.partition_time_window)
        with on.runner(context) as runner:
            releasing = runner.releasing(insert.id)
            short = releasing.unreached([(low, high)])  # asked for first: what lands meanwhile may not be in the epoch
            spans, since = asked(context, spec.key)
            before = runner.filled(insert.id, spans, (low, high), since) if len(union(spans)) > 1 else None
            try:
                done = runner.backfill(insert.id, *spans) if before is None else Released(insert.id)
            except GateHeld:
                _judged(context, spec.key, releasing, union(spans), commands, ends_of(context))
                raise
            metadata: dict[str, Any] = {}
            if before is not None:
                metadata["released by"] = f"epoch {before.epoch}, with the other partitions of this backfill"
            metadata |= _metadata(releasing, done) | {"from": instant(low), "before": instant(high)}
            until = short.reached if short is not None and _waits(short) else MAX_TIMESTAMP
            done_with = [(name, end) for name, end in ends_of(context) if end <= until]
            _judged(context, spec.key, releasing, union(spans), commands, done_with)
            if short is not None and _waits(short):
                for name, _ in done_with:  # they are not to be done again with the others of the run
                    context.log_event(dg.AssetMaterialization(spec.key, partition=name, metadata=metadata))
                raise _unfinished([(short, done)], metadata)
            if short is not None:
                metadata["rows may still come"] = short.reason
            yield dg.MaterializeResult(asset_key=spec.key, metadata=metadata)

    return fill


def _verdict_spec(key: dg.AssetKey, partitions: dg.PartitionsDefinition) -> dg.AssetCheckSpec:
    description = "The gate's verdict on the epoch that released the partition; stored once, and final."
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.PreviewWarning)  # what Dagster calls partitioned checks
        return dg.AssetCheckSpec(VERDICT, asset=key, description=description, partitions_def=partitions)


def _metadata(releasing: "InsertRunner", done: "Released") -> dict[str, Any]:
    """What a backfill has released, as metadata; nothing where another run has done it."""
    from tidegate.assets.metadata import of_published, of_waiting
    from tidegate.pipelines.runtime.epochs.position import Position

    if done.waiting is not None:
        return of_waiting(releasing, done.waiting)
    nothing = Position(None, None, None, 0)  # whatever was published before: a backfill has published what it did
    if not done.published:
        return {}
    found, plan = of_published(releasing, nothing, done.published[-1:]), done.published[-1].plan
    return found | ({"rows released again": plan.rows_again} if plan.spans else {})


def _waits(short: "Waiting | None") -> bool:
    """Whether landed rows cannot be released (and not only rows that may still land)."""
    return short is not None and bool(short.rows or short.unflipped)


def _unfinished(short: "Sequence[tuple[Waiting, Released]]", metadata: dict[str, Any]) -> dg.Failure:
    """The failure of a backfill that leaves rows of its spans waiting."""
    problems = []
    for waiting, done in short:
        published = sum(item.rows for item in done.published)
        problems.append(f"{waiting.rows:,} rows of this span wait: {waiting.reason}; {published:,} were published")
    metadata = {**metadata, "next": "launch it again once they can be released"}
    return dg.Failure("; ".join(problems), metadata=metadata, allow_retries=False)


def _judged(
    context: dg.AssetExecutionContext | dg.OpExecutionContext,
    key: dg.AssetKey,
    releasing: "InsertRunner",
    spans: "Sequence[Span]",
    commands: Commands,
    partitions: Iterable[tuple[str, int]],
) -> None:
    """Record the verdict on the epoch of this backfill as the check of these partitions (name, end). Of an epoch that
    an earlier run has left, or where nothing was judged, there is none."""
    position = releasing.position()
    plan, row = position.plan, position.verdict
    if plan is None or row is None or plan.spans != spans:
        return
    verdict = GateVerdict.of(row)
    metadata = of_check(verdict.checks, verdict, commands)
    summary = metadata.pop("summary")
    for name, _ in partitions:
        found = dg.AssetCheckEvaluation(
            asset_key=key,
            check_name=VERDICT,
            passed=verdict.passed,
            metadata=metadata,
            description=summary,
            partition=name,
        )
        context.log_event(found)  # type: ignore[arg-type]


class SpanConfig(dg.Config):
    """A span of time: at or after `from`, and before `to`. A day or a moment (2024-01-31, 2024-01-31T06:00+01:00), in
    the pipeline's time zone where it names none."""

    begin: str = Field(alias="from")
    end: str = Field(alias="to")


class BackfillConfig(OperationConfig):
    """What is released (in the launchpad).

    Attributes:
        spans: The spans of time, in one epoch of each INSERT.
        target: The INSERT: its target's name, or the target's 'insert.id'. All event-time INSERTs when empty.
    """

    spans: list[SpanConfig]
    target: str = ""


def fillable(on: OnLake) -> list[Insert]:
    """The INSERTs of a pipeline that can be released by spans of time."""
    return [insert for insert in on.parts.inserts if insert.time == "event"]


def _backfill(started: Started, config: BackfillConfig) -> Iterator[Any]:
    """One INSERT after another; one that the gate holds, or whose rows wait, fails the step at its end."""
    from tidegate.pipelines.runtime.epochs import union

    context, on, runner = started.context, started.on, started.runner
    known = {insert.id: insert for insert in fillable(on)}
    if config.target and config.target not in known:
        raise PlanningError(
            f"{on.pipeline.name} has no event-time INSERT {config.target}",
            where="the config of the run",
            state="nothing was released",
            next_command=f"set `target` to one of {', '.join(known)}",
        )
    if not config.spans:
        raise _unread("`spans` is empty")
    spans = union([_span(item, on.look.timezone) for item in config.spans])
    metadata: dict[str, Any] = {}
    short: list[tuple[Waiting, Released]] = []
    rows, held = 0, None
    for insert in [known[config.target]] if config.target else known.values():
        releasing, partitions = runner.releasing(insert.id), _partitions_in(spans, on)
        waits = releasing.unreached(spans)  # asked for first: what lands meanwhile may not be in the epoch
        if _is_done(started, insert, spans):
            context.log.info(f"{insert.id}: released by this run, before it was tried again")
            continue
        commands = on.commands
        try:
            done = runner.backfill(insert.id, *spans)
        except GateHeld as error:
            _judged(context, on.names.by_time(insert), releasing, spans, commands, partitions)
            held = held or error
            continue
        of_insert, until = _metadata(releasing, done), MAX_TIMESTAMP
        if waits is not None and _waits(waits):
            short.append((waits, done))
            until = waits.reached
        elif waits is not None:
            of_insert["rows may still come"] = waits.reason
        rows += sum(item.rows for item in done.published)
        metadata |= {f"{insert.id}: {name}" if len(known) > 1 else name: value for name, value in of_insert.items()}
        reached = [(name, end) for name, end in partitions if end <= until]
        _judged(context, on.names.by_time(insert), releasing, spans, commands, reached)
        for name, _ in reached:
            yield dg.AssetMaterialization(on.names.by_time(insert), partition=name, metadata=of_insert)
        if done.published and on.look.partitions is None:
            description = "Spans of time were released anew, or ahead of the stream."
            yield dg.AssetMaterialization(on.names.published(insert), description=description, metadata=of_insert)
    if held is not None:
        raise held
    if short:
        raise _unfinished(short, metadata)
    yield dg.Output(rows, metadata=metadata)


def _is_done(started: Started, insert: Insert, spans: "Sequence[Span]") -> bool:
    """Whether this run has released the spans, before its step was tried again."""
    record = started.context.instance.get_run_record_by_id(started.context.run.run_id)
    if not started.context.retry_number or record is None:
        return False
    began = int((record.start_time or record.create_timestamp.timestamp()) * 1000)
    return all(started.runner.filled(insert.id, spans, span, began) is not None for span in spans)


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


def _partitions_in(spans: "Sequence[Span]", on: OnLake) -> list[tuple[str, int]]:
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


BACKFILL = Operation(
    name="backfill",
    title="Release spans of time again, or ahead of the stream. Choose them in the launchpad.",
    step="release_spans",
    description="Releases what has landed of these spans, through the gate, and replaces what was released of them "
    "before. If rows of them wait, it fails and names what they wait for.",
    gives="Rows that were published.",
    config=BackfillConfig,
    run=_backfill,
)
"""Offered where a pipeline of the code location has an INSERT in event time."""
