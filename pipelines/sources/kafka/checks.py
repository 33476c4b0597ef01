"""What must be true of a topic, with an error that says what is lost; what Spark's own errors mean; and how long topics
surely still have what comes after a step.

A topic must still be the one that was read, and have what is not read yet. A build side's key must lie in one partition
only: Kafka has no order between partitions, so "latest" would be a guess. That is checked after every epoch: within it,
and against the partitions in which its keys came before, those of topics that are no longer followed too. Only a topic
that was deleted and made again is known to come after its old self, in whichever partition a key is now.

Retention is computed while the step lands, as only the cluster knows it, and a table that is held back or not run does
not ask the cluster. A topic that deletes does so by the times of its records. The age of the oldest unread record is
found by bisection, asking for the offset of a time until it is known to a fraction of the retention.

Compaction removes a tombstone once it is older than `delete.retention.ms` (24 hours unless set). What had been read of
its key before then would stay joined for ever, as no later message says otherwise. A tombstone is written, or first
meets compaction, after the key's last message was read; so all tombstones behind a partition's position are there for
that long after the partition was last seen to be read to its end, or after its first plan. Past that time the messages
must at least be without a gap.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from tidegate.pipelines.commands import Advised, NextCommand, both, resnapshot
from tidegate.pipelines.connectors.options import flag
from tidegate.pipelines.connectors.protocol import RetainedUntil, SourceContext, StoredStep
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.kafka.cluster import Cluster, Partition, Topic
from tidegate.pipelines.sources.kafka.options import APPEND_FORMATS, KEY_CHECK_OPTION, value_format
from tidegate.pipelines.sources.kafka.steps import Ends, KafkaStep
from tidegate.pipelines.sources.rows import NOTHING_AFTER, misfit, misfit_error
from tidegate.pipelines.syntax.types import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def anew(table: str) -> NextCommand:
    """The command that reads a table again from its startup mode."""
    return resnapshot(table, "reads the topic as it is now, as a new generation")


@dataclass(frozen=True)
class TopicChecks:
    """Whether topics still have what comes after a step. Each raises SourceError. `table`, and `where` its topics are:
    for errors."""

    table: str
    where: str

    def same(self, step: KafkaStep, topics: Mapping[str, Topic], left: Collection[str] = ()) -> None:
        """Every topic that was read is there, under its id, with its partitions; except for those in `left`."""
        for name, before in sorted(step.topics.items()):
            if name in left:
                continue
            now = topics.get(name)
            if now is None:
                raise self.lost(
                    f"the topic {name} is gone, and it may have had messages that were not read",
                    both("bring it back", anew(self.table)) + "; or read the topics that are left on another lake "
                    "(--lake DIR): a lake's table keeps its topics",
                )
            if now.id != before.id:
                raise self.lost(
                    f"the topic {name} is another one than was read: it was deleted and made again",
                    anew(self.table),
                    where=f"{self.where}: topic id {now.id}, it was {before.id}",
                )

    def available(self, positions: Mapping[Partition, int], earliest: Mapping[Partition, int]) -> None:
        """Retention has not removed what has not been read yet."""
        for partition, position in sorted(positions.items()):
            first = earliest[partition]
            if first > position:
                raise self.lost(
                    f"{first - position} offsets of {partition} are gone that have not been read: it was read up "
                    f"to {position}, and the first that Kafka still has is {first}",
                    both("raise the topic's retention.ms or retention.bytes", anew(self.table)),
                )

    def ends(self, positions: Mapping[Partition, int], stops: Mapping[Partition, int]) -> None:
        """No partition ends before what was read of it."""
        for partition, position in sorted(positions.items()):
            stop = stops.get(partition)
            if stop is None:
                what = f"the topic has no partition {partition.number} any more ({partition})"
                raise self.lost(what, anew(self.table))
            if stop < position:
                raise self.lost(
                    f"{partition} ends at {stop}, and it was read up to {position}: the broker has lost messages",
                    anew(self.table),
                )

    def lost(self, what: str, next_command: Advised, where: str = "") -> SourceError:
        """The error of messages that nobody can read any more."""
        return SourceError(
            f"{self.table}: {what}",
            where=where or self.where,
            state=NOTHING_AFTER,
            next_command=next_command,
        )


UNCONFIRMED = "the epoch's rows are committed and its watermark is not, so nothing reads them; epochs before it stand"


def check_keys(context: SourceContext, stored: StoredStep, rows: DataFrame, step: KafkaStep) -> None:
    """Raise SourceError when some key of the epoch has come in two partitions whose order is not known. `rows` are its
    committed rows."""
    table = context.table
    checked = flag(context.options, KEY_CHECK_OPTION.name, "true")
    # A partition alone may have had others beside it, of topics that are no longer followed.
    if table.role != "build" or (len(step.stops) < 2 and step.last_ordinal < 1):
        return
    _no_truncate(context, stored, rows)
    if not table.primary_key or not checked:
        return
    keys = [quoted(name) for name in table.primary_key]
    columns = [*keys, f"{_TOPIC} AS _topic", "_seq.log AS _log", "_split"]
    changes = rows.where("_op <> 't'")
    seen = changes.selectExpr(*columns)
    if stored.epoch > 1 and context.latest_rows is not None:
        # Of the earlier rows the last of each key is enough: those before it were held against it when it came.
        seen = seen.unionAll(context.latest_rows(stored, changes).selectExpr(*columns))
    # By the ordinal first: within one, every partition is another; over several, every topic.
    by_ordinal = seen.groupBy(*keys, "_topic", "_log").agg(F.min("_split").alias("_one"), F.max("_split").alias("_two"))
    twice = by_ordinal.groupBy(*keys).agg(
        F.expr("min(named_struct('topic', _topic, 'split', _one)) AS _first"),
        F.expr("max(named_struct('topic', _topic, 'split', _two)) AS _last"),
        F.expr("max(named_struct('twice', _one <> _two, 'one', _one, 'two', _two)) AS _same"),
    )
    twice = twice.where("_same.twice OR _first.topic <> _last.topic").selectExpr(
        "IF(_same.twice, _same.one, _first.split) AS _one",
        "IF(_same.twice, _same.two, _last.split) AS _two",
        f"to_json(struct({', '.join(keys)})) AS _key",
    )
    found = twice.limit(1).collect()  # one row
    if not found:
        return
    raise SourceError(
        f"{table.name}: the key {found[0]['_key']} came in {found[0]['_one']} and in {found[0]['_two']}: "
        "which of the two is its latest cannot be known",
        where=stored.place,
        state=UNCONFIRMED,
        next_command=both(
            "write each key to one partition only (a topic whose partitions were added needs a new topic)",
            anew(table.name),
        ),
    )


_TOPIC = "regexp_replace(_split, '-[0-9]+$', '')"
"""SQL of the topic of a partition."""


def _no_truncate(context: SourceContext, stored: StoredStep, rows: DataFrame) -> None:
    if value_format(context.options) in APPEND_FORMATS:
        return
    found = rows.where("_op = 't'").select("_split", "_offset").limit(1).collect()  # one row
    if found:
        raise SourceError(
            f"{context.table.name}: {found[0]['_split']} holds a truncate of the whole table, and what it comes after "
            "in the other partitions cannot be known",
            where=stored.place,
            state=UNCONFIRMED,
            next_command=both(
                "write 'scan.changes.order' = 'source', or use a topic of one partition", anew(context.table.name)
            ),
        )


_LOST = re.compile(
    r"OffsetOutOfRange|data may have been (lost|missed)|Cannot fetch offset|KAFKA_DATA_LOSS|"
    r"may have been aged out|Partition[^\n]{0,80} (gone|missing)|UnknownTopicOrPartition",
    re.IGNORECASE,
)
_SILENT = re.compile(r"TimeoutException|Timeout of \d+|timed out|Cannot fetch record", re.IGNORECASE)
_REFUSED = re.compile(r"(Sasl|Ssl)?AuthenticationException|AuthorizationException|Not authorized")

_PLANNED = "the epoch is planned, none of its rows are committed; epochs before it stand"


def explain(error: BaseException, table: str, where: str) -> SourceError | None:
    """The typed error for `error`, raised while a step was read; None if Spark's own message is best. `where`: the step
    and its topics."""
    if (found := misfit(error)) is not None:
        what = f"{table}: {found['split']}, offset {found['offset']}: {found['error']}"
        return misfit_error(what, where, "messages")
    text = str(error)
    known: list[tuple[re.Pattern[str], str, Advised]] = [
        (_LOST, "Kafka no longer has what the plan asks for", anew(table)),
        (
            _REFUSED,
            "the Kafka cluster refused the reader",
            "check 'properties.sasl.*', 'properties.ssl.*' and the user's rights, then run again",
        ),
        (
            _SILENT,
            "a Kafka broker did not answer in time",
            "check that the brokers run, then run the same command again: it goes on at this epoch",
        ),
    ]
    for pattern, what, next_command in known:
        if pattern.search(text):
            sentence = f"{table}: {what}: {_line(text, pattern)}"
            return SourceError(sentence, where=where, state=_PLANNED, next_command=next_command)
    return None


def _line(text: str, pattern: re.Pattern[str]) -> str:
    """The line of the message that names the problem."""
    line = next((line.strip() for line in text.splitlines() if pattern.search(line)), text.strip())
    return line.removeprefix("Caused by: ")[:300]


HALVINGS = 6


def message_retention(
    cluster: Cluster, positions: Mapping[Partition, int], ends: Mapping[Partition, int], now: int
) -> RetainedUntil | None:
    """Until when (ms, UTC) what comes after `positions` is there, for the topic that is first to delete some of it.

    `ends` are the partitions' at `now`. None if no topic deletes by age, or the user may not read its settings. Raises
    SourceError.
    """
    topics = sorted({partition.topic for partition in positions})
    found = []
    for topic, lasts in cluster.retentions(topics).items():
        behind = {p: at for p, at in positions.items() if p.topic == topic and ends.get(p, at) > at}
        found.append(RetainedUntil(_oldest(cluster, behind, now - lasts, now) + lasts, lasts))
    return min(found, key=lambda item: item.until, default=None)


def _oldest(cluster: Cluster, positions: Mapping[Partition, int], since: int, now: int) -> int:
    """The latest known time from `since` to `now` (ms, UTC) such that no record at or after `positions` is older;
    `since` if one may be older than that."""
    if not positions:
        return now

    def passed(at: int) -> bool:
        offsets = cluster.offsets(positions, at)
        return all(offset is not None and offset <= positions[partition] for partition, offset in offsets.items())

    low, high = since, now
    if not passed(low):
        return low
    for _ in range(HALVINGS):
        middle = (low + high) // 2
        low, high = (middle, high) if passed(middle) else (low, middle)
    return low


Since = dict[str, list[int]]
"""By partition, before and after a step: the time (ms, UTC) as of which nothing behind its position had been written,
or nothing of the partition had been read."""

SINCE = "since"
"""Key in the ranges of a step."""


def since(previous: Mapping[str, Any] | None, step: KafkaStep, ends: Ends) -> Since:
    """The Since of `step`, planned up to `ends`; `previous`: the ranges of the step before."""
    known = {name: times[1] for name, times in (previous or {}).get(SINCE, {}).items()}
    found: Since = {}
    for partition, stop in step.stops.items():
        before = known.get(str(partition), ends.at)
        found[str(partition)] = [before, ends.at if stop >= ends.stops[partition] else before]
    return found


def grows_old(times: Since, lasts: Mapping[str, int], step: KafkaStep) -> bool:
    """Whether to store again that a partition is read to its end, though there is nothing to read."""
    stops = step.stops
    return any(
        partition.topic in lasts and times[str(partition)][1] - times[str(partition)][0] > lasts[partition.topic] // 2
        for partition in stops
    )


def delete_retention(times: Since, lasts: Mapping[str, int], step: KafkaStep) -> RetainedUntil | None:
    """Until when the deletes behind `step` are all there, for the topic that is first to remove some."""
    found = [
        RetainedUntil(times[str(partition)][1] + lasts[partition.topic], lasts[partition.topic])
        for partition in step.stops
        if partition.topic in lasts and str(partition) in times
    ]
    return min(found, key=lambda item: item.until, default=None)


def check_deletes(
    step: KafkaStep,
    times: Since,
    cluster: Cluster,
    now: int,
    counted: Callable[[], Mapping[Partition, int]],
    table: str,
) -> None:
    """Raise SourceError if compaction may have removed deletes from what `step` reads at `now` (ms, UTC). `counted`:
    how many messages there are of each partition."""
    read = step.read
    lasts = cluster.tombstones({partition.topic for partition in read})
    late = [
        partition
        for partition in read
        if partition.topic in lasts
        and str(partition) in times
        and now > times[str(partition)][0] + lasts[partition.topic]
    ]
    there = counted() if late else {}
    for partition in late:
        missing = read[partition].offsets - there.get(partition, 0)
        if not missing:
            continue
        at = datetime.fromtimestamp(times[str(partition)][0] / 1000, UTC)
        raise TopicChecks(table, cluster.where).lost(
            f"deletes of {partition} may be gone that have not been read: it was last read to its end at "
            f"{at:%Y-%m-%d %H:%M:%S} UTC, compaction keeps tombstones for {lasts[partition.topic] / 1000:,.0f} s "
            f"(delete.retention.ms), and {missing:,} of the {read[partition].offsets:,} offsets since then are gone",
            anew(table) + "; and make delete.retention.ms longer than the time between two runs",
        )
