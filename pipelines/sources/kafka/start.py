"""Where the first step of a table begins, and where partitions do that come later."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pipelines.errors import SourceError
from pipelines.sources.kafka.cluster import Cluster, Partition
from pipelines.sources.kafka.options import KafkaOptions


def first_offsets(
    cluster: Cluster, options: KafkaOptions, stops: Mapping[Partition, int], table: str
) -> dict[Partition, int]:
    """The offset that each partition of `stops` (its end, as of this run) is read from, by 'scan.startup.mode'.

    Raises SourceError: an offset that is not there, or a group that has not committed one.
    """
    startup = options.startup
    if startup.mode == "latest-offset":
        return dict(stops)
    earliest = earliest_offsets(cluster, stops)
    if startup.mode == "timestamp":
        # Below 0 a time has other meanings to a broker (-1 is the end), and no record is older.
        found = cluster.offsets(stops, max(startup.timestamp or 0, 0))
        return {
            partition: _between(earliest[partition], offset, stops[partition]) for partition, offset in found.items()
        }
    if startup.mode == "group-offsets":
        return _committed(cluster, options, stops, earliest, table)
    if startup.mode == "specific-offsets":
        return _specific(cluster, options, stops, earliest, table)
    return earliest


def earliest_offsets(cluster: Cluster, partitions: Iterable[Partition]) -> dict[Partition, int]:
    """The first offset of each partition that is still there."""
    return {partition: offset or 0 for partition, offset in cluster.offsets(partitions, "earliest").items()}


def _between(earliest: int, offset: int | None, stop: int) -> int:
    # None: no record is as late as that. A record that came after this run's ends is for the next run.
    return stop if offset is None else max(earliest, min(offset, stop))


def _committed(
    cluster: Cluster,
    options: KafkaOptions,
    stops: Mapping[Partition, int],
    earliest: Mapping[Partition, int],
    table: str,
) -> dict[Partition, int]:
    group = options.group or ""
    found = cluster.group_offsets(group, stops)
    missing = sorted(str(partition) for partition in stops if partition not in found)
    if missing and options.reset == "none":
        raise SourceError(
            f"{table}: the consumer group {group} has committed no offset of {missing[0]}"
            + (f" and {len(missing) - 1} more partitions" if len(missing) > 1 else ""),
            where=cluster.where,
            state="nothing was read",
            next_command="say where to begin then: 'properties.auto.offset.reset' = 'earliest' or 'latest'",
        )
    beginning = earliest if options.reset == "earliest" else stops
    starts = {partition: found.get(partition, beginning[partition]) for partition in stops}
    _check(starts, earliest, stops, f"the offset that group {group} has committed", cluster, table)
    return starts


def _specific(
    cluster: Cluster,
    options: KafkaOptions,
    stops: Mapping[Partition, int],
    earliest: Mapping[Partition, int],
    table: str,
) -> dict[Partition, int]:
    named = options.startup.offsets
    there = {partition.number for partition in stops}
    unknown = sorted(set(named) - there)
    if unknown:
        raise SourceError(
            f"{table}: 'scan.startup.specific-offsets' names partition {unknown[0]}, and the topic has {len(there)}",
            where=cluster.where,
            state="nothing was read",
            next_command="correct the option, and run again",
        )
    starts = {partition: named.get(partition.number, earliest[partition]) for partition in stops}
    _check(starts, earliest, stops, "the offset of 'scan.startup.specific-offsets'", cluster, table)
    return starts


def _check(
    starts: Mapping[Partition, int],
    earliest: Mapping[Partition, int],
    stops: Mapping[Partition, int],
    what: str,
    cluster: Cluster,
    table: str,
) -> None:
    for partition, start in sorted(starts.items()):
        if not earliest[partition] <= start <= stops[partition]:
            raise SourceError(
                f"{table}: {what} is {start} for {partition}, which has {earliest[partition]} to {stops[partition]}",
                where=cluster.where,
                state="nothing was read",
                next_command="begin at an offset that is there ('scan.startup.mode'), and run again",
            )
