"""How long the topics surely still have what comes after a step: told while the step lands, for it is the cluster that
knows, and a table that is held back or not run asks it no more.

A topic that deletes does so by the times of its records. How old the oldest one is that has not been read is found by
halving: the offset of a time is asked for, until it is known to a part of the retention.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.pipelines.connectors.protocol import Kept
from tidegate.pipelines.sources.kafka.cluster import Cluster, Partition

HALVINGS = 6


def kept(cluster: Cluster, positions: Mapping[Partition, int], ends: Mapping[Partition, int], now: int) -> Kept | None:
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
        told = cluster.offsets(positions, max(at, 0))
        return all(offset is not None and offset <= positions[partition] for partition, offset in told.items())

    low, high = since, now
    if not passed(low):
        return low
    for _ in range(HALVINGS):
        middle = (low + high) // 2
        low, high = (middle, high) if passed(middle) else (low, middle)
    return low
