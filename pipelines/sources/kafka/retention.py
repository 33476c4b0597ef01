"""How long the topics surely still have what comes after a step.

Computed while the step lands, for only the cluster knows, and a table that is held back or not run asks it no more.

A topic that deletes does so by the times of its records. How old the oldest one is that has not been read is found by
halving: the offset of a time is asked for, until it is known to a part of the retention.

Compaction removes a tombstone once it is older than `delete.retention.ms` (24 hours unless set). What had been read of
its key before then stays joined for ever, and no later message says otherwise. A tombstone is written, or first meets
compaction, after the key's last message was read; so all of those behind a partition's position are there for that long
after the partition was last seen to be read to its end, or after its first plan. Past that time the messages must at
least be without a gap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from tidegate.pipelines.connectors.protocol import Kept
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.kafka.checks import anew
from tidegate.pipelines.sources.kafka.cluster import Cluster, Partition
from tidegate.pipelines.sources.kafka.steps import Ends, KafkaStep

HALVINGS = 6


def message_retention(
    cluster: Cluster, positions: Mapping[Partition, int], ends: Mapping[Partition, int], now: int
) -> Kept | None:
    """Until when (ms, UTC) what comes after `positions` is there, of the topic that is first to delete some of it.

    `ends` are the partitions' at `now`. None where no topic deletes by age, or the user may not ask for its settings.
    Raises SourceError.
    """
    topics = sorted({partition.topic for partition in positions})
    found = []
    for topic, lasts in cluster.retentions(topics).items():
        behind = {p: at for p, at in positions.items() if p.topic == topic and ends.get(p, at) > at}
        found.append(Kept(_oldest(cluster, behind, now - lasts, now) + lasts, lasts))
    return min(found, key=lambda item: item.until, default=None)


def _oldest(cluster: Cluster, positions: Mapping[Partition, int], since: int, now: int) -> int:
    """A time from `since` to `now` (ms, UTC) that no record at or after `positions` is older than, as late as it is
    known; `since` where one may be older than that."""
    if not positions:
        return now

    def passed(at: int) -> bool:
        offsets = cluster.offsets(positions, max(at, 0))
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
"""Where the ranges of a step hold it."""


def since(previous: Mapping[str, Any] | None, first: Mapping[str, Any] | None, step: KafkaStep, ends: Ends) -> Since:
    """That of `step`, planned up to `ends`; `previous` and `first` are the ranges of those steps."""
    known = {name: times[1] for name, times in (previous or {}).get(SINCE, {}).items()}
    # A step of before this was stored says only when the ends of its run were seen.
    usual = ends.at
    if previous is not None and first is not None and SINCE not in previous:
        usual = int((previous if previous["reached"] else first)["seen_at"])
    found: Since = {}
    for partition, stop in step.stops.items():
        before = known.get(str(partition), usual)
        found[str(partition)] = [before, ends.at if stop >= ends.stops[partition] else before]
    return found


def grows_old(times: Since, lasts: Mapping[str, int], step: KafkaStep) -> bool:
    """Whether it is time to store that a partition is still read to its end, though there is nothing to read."""
    stops = step.stops
    return any(
        partition.topic in lasts and times[str(partition)][1] - times[str(partition)][0] > lasts[partition.topic] // 2
        for partition in stops
    )


def delete_retention(times: Since, lasts: Mapping[str, int], step: KafkaStep) -> Kept | None:
    """Until when the deletes behind `step` are all there, of the topic that is first to remove some."""
    found = [
        Kept(times[str(partition)][1] + lasts[partition.topic], lasts[partition.topic])
        for partition in step.stops
        if partition.topic in lasts and str(partition) in times
    ]
    return min(found, key=lambda item: item.until, default=None)


def check(
    step: KafkaStep,
    times: Since,
    cluster: Cluster,
    now: int,
    counted: Callable[[], Mapping[Partition, int]],
    table: str,
) -> None:
    """Raise SourceError where compaction may have removed deletes from what `step` reads at `now` (ms, UTC). `counted`:
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
        raise SourceError(
            f"{table}: deletes of {partition} may be gone that have not been read: it was last read to its end at "
            f"{at:%Y-%m-%d %H:%M:%S} UTC, compaction keeps tombstones for {lasts[partition.topic] / 1000:,.0f} s "
            f"(delete.retention.ms), and {missing:,} of the {read[partition].offsets:,} offsets since then are gone",
            where=cluster.where,
            state="what was read before stands; nothing after it was read",
            next_command=anew(table) + "; and make delete.retention.ms longer than the time between two runs",
        )
