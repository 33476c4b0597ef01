"""Where the first step of a table begins, and where partitions do that come later."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.kafka.cluster import Cluster, Partition
from tidegate.pipelines.sources.kafka.options import KafkaOptions


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
    there = _There(cluster, earliest, stops, table)
    if startup.mode == "group-offsets":
        return there.committed(options)
    if startup.mode == "specific-offsets":
        return there.specific(startup.offsets)
    return earliest


def earliest_offsets(cluster: Cluster, partitions: Iterable[Partition]) -> dict[Partition, int]:
    """The first offset of each partition that is still there."""
    return {partition: offset or 0 for partition, offset in cluster.offsets(partitions, "earliest").items()}


def _between(earliest: int, offset: int | None, stop: int) -> int:
    # None: no record is as late as that. A record that came after this run's ends is for the next run.
    return stop if offset is None else max(earliest, min(offset, stop))


@dataclass(frozen=True)
class _There:
    """What `table` may begin at: in each partition an offset from `earliest` to `stops`."""

    cluster: Cluster
    earliest: Mapping[Partition, int]
    stops: Mapping[Partition, int]
    table: str

    def committed(self, options: KafkaOptions) -> dict[Partition, int]:
        """Where a consumer group stands; where it does not, by 'properties.auto.offset.reset'."""
        group = options.group or ""
        found = self.cluster.group_offsets(group, self.stops)
        missing = sorted(str(partition) for partition in self.stops if partition not in found)
        if missing and options.reset == "none":
            raise self._refused(
                f"the consumer group {group} has committed no offset of {missing[0]}"
                + (f" and {len(missing) - 1} more partitions" if len(missing) > 1 else ""),
                "say where to begin then: 'properties.auto.offset.reset' = 'earliest' or 'latest'",
            )
        beginning = self.earliest if options.reset == "earliest" else self.stops
        starts = {partition: found.get(partition, beginning[partition]) for partition in self.stops}
        return self._checked(starts, f"the offset that group {group} has committed")

    def specific(self, named: Mapping[int, int]) -> dict[Partition, int]:
        """The offsets that the script names; of other partitions the earliest."""
        numbers = {partition.number for partition in self.stops}
        unknown = sorted(set(named) - numbers)
        if unknown:
            raise self._refused(
                f"'scan.startup.specific-offsets' names partition {unknown[0]}, and the topic has {len(numbers)}",
                "correct the option, and run again",
            )
        starts = {partition: named.get(partition.number, self.earliest[partition]) for partition in self.stops}
        return self._checked(starts, "the offset of 'scan.startup.specific-offsets'")

    def _checked(self, starts: dict[Partition, int], what: str) -> dict[Partition, int]:
        for partition, start in sorted(starts.items()):
            low, high = self.earliest[partition], self.stops[partition]
            if not low <= start <= high:
                raise self._refused(
                    f"{what} is {start} for {partition}, which has {low} to {high}",
                    "begin at an offset that is there ('scan.startup.mode'), and run again",
                )
        return starts

    def _refused(self, what: str, next_command: str) -> SourceError:
        return SourceError(
            f"{self.table}: {what}", where=self.cluster.where, state="nothing was read", next_command=next_command
        )
