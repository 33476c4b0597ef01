"""Reads topics: exact offset ranges of every partition, planned up to the ends as of the run's start.

A table without phases flips once every partition is past its end as of the first plan. A build side in Debezium's
format may have a snapshot first (snapshot_end.py).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tidegate.pipelines.connectors.protocol import (
    FieldsSeen,
    Json,
    Landed,
    Planned,
    PlanRequest,
    RetainedUntil,
    Source,
    SourceContext,
    SourcePosition,
    Step,
    StoredStep,
)
from tidegate.pipelines.connectors.spec import REJECTED, REJECTED_TYPE
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources import planning
from tidegate.pipelines.sources.formats import format_named
from tidegate.pipelines.sources.formats.fields import RECORDS, fields_of, together
from tidegate.pipelines.sources.kafka.checks import (
    SINCE,
    Since,
    TopicChecks,
    check_deletes,
    check_keys,
    delete_retention,
    explain,
    grows_old,
    message_retention,
    since,
)
from tidegate.pipelines.sources.kafka.cluster import Cluster, Partition, Topic
from tidegate.pipelines.sources.kafka.options import Kind, Startup, layout, parse
from tidegate.pipelines.sources.kafka.places import check_places
from tidegate.pipelines.sources.kafka.reading import BESIDE, SUB_BITS, Reader, ignore_name
from tidegate.pipelines.sources.kafka.snapshot_end import SnapshotEnd, had_flipped, waits_for_marker
from tidegate.pipelines.sources.kafka.steps import (
    LAST_ORDINAL,
    Ends,
    KafkaStep,
    ends_of,
    first_offsets,
    next_step,
    step_of,
)
from tidegate.pipelines.sources.rows import no_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class KafkaSource(Source):
    """One table. Connects when it is first needed."""

    def __init__(self, context: SourceContext, kind: Kind) -> None:
        self._context = context
        self._table = context.table
        self._upserts = kind == "upsert-kafka"
        self._options = parse(context.options, context.table.name)
        self._checks = TopicChecks(self._table.name, self._options.where)
        self._cluster = Cluster(self._session, self._options.client, self._table.name)
        self._snapshot = SnapshotEnd(context) if waits_for_marker(self._table, context.options) else None
        planned = layout(self._table, context.options, kind)
        # The last message of a snapshot may be one that is passed over.
        ignores = planned.value.wanted.flag(ignore_name(planned))
        self._reader = Reader(
            self._table,
            self._options,
            context.options,
            planned,
            self._cluster.isolation,
            keeps_misfits=ignores and self._snapshot is not None,
        )
        self._found: tuple[dict[str, Topic], tuple[str, ...]] | None = None

    def _session(self) -> SparkSession:
        if self._context.spark is None:
            raise SourceError(f"{self._table.name}: Kafka is asked through Spark's JVM, and there is no session")
        return self._context.spark()

    # --- before a run --------------------------------------------------------------------------------------------

    def preflight(self, position: SourcePosition) -> None:
        """The cluster answers, and has the topics."""
        self._found = self._topics(position)

    def _topics(self, position: SourcePosition) -> tuple[dict[str, Topic], tuple[str, ...]]:
        """All topics of the table as they are now, checked against those that were read; and those of them that are no
        longer followed."""
        before = step_of(position.previous.step.ranges) if position.previous else None
        reached = position.previous is not None and bool(position.previous.step.ranges["reached"])
        pattern = self._options.pattern
        names = self._options.topics if pattern is None else self._cluster.matching(pattern)
        topics = self._cluster.topics([*names, *(before.topics if before else ())])
        left: tuple[str, ...] = ()
        if before is not None:
            left = tuple(name for name in sorted(before.topics) if self._let_go(name, names, topics, reached=reached))
            self._checks.same(before, topics, left)
            topics = {name: topic for name, topic in topics.items() if name not in left}
        missing = [name for name in names if name not in topics]
        if missing or not topics:
            what = f"there is no topic {missing[0]}" if missing else f"no topic fits 'topic-pattern' = '{pattern}'"
            raise SourceError(
                f"{self._table.name}: {what}",
                where=self._options.where,
                state="nothing was read by this run; what was read before stands",
                next_command="make the topic, or correct its name, and run again",
            )
        return topics, left

    def _let_go(self, name: str, names: Collection[str], topics: Mapping[str, Topic], *, reached: bool) -> bool:
        """Whether a topic that was read no longer belongs to the table: the script does not name it, or its pattern
        matches one that was read to its end (`reached`) before it was deleted."""
        if self._options.pattern is None or name in topics:
            return name not in names
        return reached

    def ends(self, position: SourcePosition) -> Json:
        """Where every partition of every topic ends now: committed messages only, unless the script says otherwise."""
        (topics, left), self._found = self._found or self._topics(position), None
        at = self._context.clock()
        partitions = [partition for topic in topics.values() for partition in topic.partitions]
        stops = self._cluster.ends(partitions)
        if position.previous is not None:
            positions = step_of(position.previous.step.ranges).stops
            present = {partition: stop for partition, stop in positions.items() if partition.topic not in left}
            self._checks.ends(present, stops)
        return Ends({name: topic.id for name, topic in topics.items()}, stops, at, left).to_json()

    # --- a step --------------------------------------------------------------------------------------------------

    def plan(self, request: PlanRequest) -> Planned:
        """The next offsets of every partition. See `protocol.Source.plan`."""
        before = step_of(request.previous.step.ranges) if request.previous else None
        limit = ends_of(request.ends).over(before)
        starts = self._starts(before, limit, request.start_at)
        late = self._late(starts, limit, request)
        step = next_step(
            before,
            starts,
            limit,
            blocked=request.blocked,
            max_rows=request.max_rows,
            caps=_caps(starts, late, request.ahead),
        )
        held = {str(partition): at for partition, (offset, at) in late.items() if step.stops[partition] == offset}
        flips = not request.flipped and self._flips(step, request)
        times = self._since(step, limit, request)
        lasts = self._cluster.tombstones(step.topics) if before is not None and self._upserts else {}
        if before is not None and not step.read and not flips and not grows_old(times, lasts, step):
            return Planned(held=held)
        if before is not None:
            self._check_deletes(step, times)
        bounded = self._snapshot is not None and not request.flipped and not flips
        own: dict[str, Any] = {
            "topics": step.to_json(),
            LAST_ORDINAL: step.last_ordinal,
            "seen_at": limit.at,
            "reached": step.stops == limit.stops,
        }
        if before is not None and limit.left:
            own["left"] = [str(partition) for partition in before.stops if partition.topic in limit.left]
        if times:
            own[SINCE] = times
        ranges = planning.ranges(request, limit.to_json(), **own)
        return Planned(Step(ranges, "bounded" if bounded else "unbounded", flips, str(step)), held)

    def _since(self, step: KafkaStep, limit: Ends, position: SourcePosition) -> Since:
        """`checks.since`, for a table whose tombstones are deletes."""
        if not self._upserts:
            return {}
        return since(position.previous and position.previous.step.ranges, step, limit)

    def _check_deletes(self, step: KafkaStep, times: Since) -> None:
        if times and step.read:
            check_deletes(
                step, times, self._cluster, self._context.clock(), lambda: self._counted(step), self._table.name
            )

    def _counted(self, step: KafkaStep) -> dict[Partition, int]:
        """How many messages of `step` there are, by partition."""
        found = self._reader.messages(self._session(), step).groupBy("topic", "partition").count().collect()
        return {Partition(row["topic"], row["partition"]): row["count"] for row in found}

    def _starts(self, before: KafkaStep | None, ends: Ends, at: int | None) -> dict[Partition, int]:
        """Where each partition goes on; before the first step `at` that time (ms, UTC), if given. A partition that came
        after the first plan is read from its first message."""
        if before is None:
            options = self._options
            if at is not None:
                options = replace(options, startup=Startup("timestamp", at))
            return first_offsets(self._cluster, options, ends.stops, self._table.name)
        earliest = self._cluster.earliest(ends.stops)
        followed = {partition: stop for partition, stop in before.stops.items() if partition in earliest}
        self._checks.available(followed, earliest)
        return {partition: before.stops.get(partition, earliest[partition]) for partition in ends.stops}

    def _late(self, starts: dict[Partition, int], ends: Ends, request: PlanRequest) -> dict[Partition, tuple[int, int]]:
        """The offset and the time of each partition's first record that alignment holds back, as far as the broker
        knows it by record times.

        The broker knows the first such record of the whole partition. If that was read already (it gave no row: a
        message in quarantine, say) nothing is known of the next one, and the partition is read like one whose times are
        not known.
        """
        if request.limit is None or not self._record_time_is_rowtime:
            return {}
        going = {partition: stop for partition, stop in ends.stops.items() if str(partition) not in request.blocked}
        behind = [partition for partition, stop in going.items() if stop > starts[partition]]
        found = self._cluster.first_after(behind, request.limit)
        return {partition: record for partition, record in found.items() if record[0] >= starts[partition]}

    @property
    def _record_time_is_rowtime(self) -> bool:
        column = planning.rowtime_column(self._table)
        # A changelog's own time is the database's.
        changelog = column is not None and column.source_time and self._reader.layout.changelog
        return not changelog and planning.is_rowtime(self._table, "timestamp")

    def _flips(self, step: KafkaStep, request: PlanRequest) -> bool:
        if self._snapshot is not None:
            return self._snapshot.passed(step)
        first = ends_of(planning.first_ends(request))
        stops = step.stops
        return all(stops[partition] >= stop for partition, stop in first.stops.items() if partition in stops)

    def read(self, spark: SparkSession, step: StoredStep) -> DataFrame:
        """The step's rows; Spark reads them when they are written."""
        ranges = step_of(step.step.ranges)
        if not ranges.read:
            return no_rows(spark, self._table, {REJECTED: REJECTED_TYPE} if self._reader.quarantines else None)
        self._check(ranges)
        if not planning.is_first(step.step.ranges):
            self._check_deletes(ranges, step.step.ranges.get(SINCE, {}))
        rows = self._reader.decoded(self._reader.messages(spark, ranges), ranges)
        if self._snapshot is not None:
            rows = self._snapshot.watched(rows, ranges, step.epoch)
        if self._reader.keeps_misfits:
            rows = rows.where("_misfit IS NULL")
        return rows.drop(*BESIDE)

    def _check(self, step: KafkaStep) -> None:
        """The stored plan can still be read: its topics have neither been replaced nor removed."""
        self._checks.same(step, self._cluster.topics(step.topics))
        starts = {partition: span.start for partition, span in step.read.items()}
        self._checks.available(starts, self._cluster.earliest(step.read))

    # --- after its commit ----------------------------------------------------------------------------------------

    def landed(self, step: StoredStep, rows: DataFrame | None) -> Landed:
        """Check that the order of each key's changes is known, find the end of the snapshot, and report the lag."""
        ranges = step_of(step.step.ranges)
        if rows is not None and self._reader.by_source:
            check_places(self._context, step, rows, ranges, SUB_BITS)
        elif rows is not None:
            check_keys(self._context, step, rows, ranges)
        if self._snapshot is not None:
            self._snapshot.landed(step, ranges, self._marks_again, self._cluster.ends)
        stops = ranges.stops
        ends = self._cluster.ends(stops)
        behind = sum(stop - stops[partition] for partition, stop in ends.items())
        waited = max(self._context.clock() - int(step.step.ranges["seen_at"]), 0)
        # A step that reached the ends of its run has all that there was when they were queried.
        lag = 0 if behind <= 0 else waited if step.step.ranges["reached"] else None
        return Landed(
            lag_ms=lag,
            position=_position(ranges, behind) + self._waiting(step, ranges),
            splits=frozenset(str(partition) for partition in ranges.stops),
            ended=frozenset(step.step.ranges.get("left", ())),
            kept=self._kept(step, ranges, ends),
        )

    def fields(self, spark: SparkSession, step: StoredStep) -> FieldsSeen:
        """`protocol.ShowsFields`: of the first messages of the step, of their keys too where columns are in these."""
        found = self._reader.messages(spark, step_of(step.step.ranges)).select("key", "value").limit(RECORDS)
        messages, own = found.collect(), self._reader.layout  # few rows
        parts = [(own.value, "value", {}), *([] if own.key is None else [(own.key, "key", own.from_key)])]
        seen = []
        for part, name, declared in parts:
            fields = fields_of(format_named(part.format), [row[name] for row in messages], part.wanted)
            names = {inside: column for column, inside in declared.items()}
            seen.append(replace(fields, columns=frozenset(names.get(each, each) for each in fields.columns)))
        return together(seen)

    def _kept(self, step: StoredStep, ranges: KafkaStep, ends: Mapping[Partition, int]) -> RetainedUntil | None:
        """How long the next messages are there: none deleted by age, and no delete removed by compaction."""
        found = [message_retention(self._cluster, ranges.stops, ends, self._context.clock())]
        if times := step.step.ranges.get(SINCE):
            found.append(delete_retention(times, self._cluster.tombstones(ranges.topics), ranges))
        return min(filter(None, found), key=lambda item: item.until, default=None)

    def _waiting(self, step: StoredStep, ranges: KafkaStep) -> str:
        """What the flip still waits for, if everything there was has been read."""
        if self._snapshot is None or had_flipped(step) or not step.step.ranges["reached"]:
            return ""
        unmarked = self._snapshot.unmarked(ranges)
        return (
            f"; no message of {unmarked[0]} has marked the end of a snapshot ('scan.snapshot.end')" if unmarked else ""
        )

    def _marks_again(self, ranges: KafkaStep) -> DataFrame:
        """The step's rows with their marks, read anew: a crash has lost what was seen of them."""
        return self._reader.decoded(self._reader.messages(self._session(), ranges), ranges)

    # --- the rest ------------------------------------------------------------------------------------------------

    def explain(self, error: BaseException, step: StoredStep) -> SourceError | None:
        """`protocol.ExplainsFailures`: what a failed read of `step` means."""
        return explain(error, self._table.name, f"{step.place}; {self._options.where}")

    def close(self) -> None:
        """Let go of the connections."""
        self._cluster.close()


def _position(step: KafkaStep, behind: int) -> str:
    stops = list(step.stops.items())
    shown = ", ".join(f"{partition}:{stop}" for partition, stop in stops[:4])
    more = f" and {len(stops) - 4} more partitions" if len(stops) > 4 else ""
    return f"{shown}{more}" + (f"; {behind:,} offsets behind" if behind > 0 else "")


def _caps(
    starts: Mapping[Partition, int], late: Mapping[Partition, tuple[int, int]], ahead: Collection[str]
) -> dict[Partition, int]:
    """Where the partitions are to stop. Partitions that nobody is behind get at least one message: the slowest of the
    group may be this one, and its next message past the limit."""
    least = {partition: 0 if str(partition) in ahead else 1 for partition in late}
    return {partition: max(offset, starts[partition] + least[partition]) for partition, (offset, _) in late.items()}
