"""A plan's ranges: exact offsets of every partition that a table follows; and the offsets at which the first step (and,
later, new partitions) begin."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from tidegate.pipelines.connectors.protocol import Json
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.kafka.cluster import Cluster, Partition
from tidegate.pipelines.sources.kafka.options import KafkaOptions

V = TypeVar("V")


@dataclass(frozen=True)
class Span:
    """Offsets [start, stop) of one partition."""

    start: int
    stop: int

    @property
    def offsets(self) -> int:
        """How many offsets it has: messages, and places where a transaction's markers or compacted ones were."""
        return self.stop - self.start


@dataclass(frozen=True)
class Followed:
    """One topic: its id when it was first planned, and its place among the table's topics.

    `ordinal` never changes, so the order of changes over several topics does not change, and no other topic is ever
    given it: one that was deleted and made again comes after its old self.
    """

    id: str
    ordinal: int


@dataclass(frozen=True)
class KafkaStep:
    """One step. Partitions of which nothing is read are in it with an empty span: all positions are here.

    `greatest`: the greatest ordinal that topics of this generation were given before this step, also topics that are no
    longer followed.
    """

    topics: Mapping[str, Followed]
    spans: Mapping[Partition, Span]
    greatest: int = -1

    @property
    def last_ordinal(self) -> int:
        """The greatest ordinal that a topic of this generation was ever given; -1 if none was."""
        return max([self.greatest, *(topic.ordinal for topic in self.topics.values())])

    @property
    def read(self) -> dict[Partition, Span]:
        """The spans that are not empty, in order."""
        return {partition: span for partition, span in sorted(self.spans.items(), key=_partition) if span.offsets}

    @property
    def stops(self) -> dict[Partition, int]:
        """The offset from which each partition is read next, in order."""
        return {partition: span.stop for partition, span in sorted(self.spans.items(), key=_partition)}

    def to_json(self) -> Json:
        spans = by_topic(self.spans, lambda span: [span.start, span.stop])
        return {
            name: {"id": topic.id, "ordinal": topic.ordinal, "partitions": spans.get(name, {})}
            for name, topic in sorted(self.topics.items())
        }

    def __str__(self) -> str:
        read = self.read
        if not read:
            return "no messages"
        shown = [f"{partition}:{span.start}-{span.stop}" for partition, span in list(read.items())[:_SHOWN]]
        more = f" and {len(read) - _SHOWN} more partitions" if len(read) > _SHOWN else ""
        return f"{', '.join(shown)}{more}"


_SHOWN = 4


def _partition(item: tuple[Partition, object]) -> Partition:
    return item[0]


def by_topic(values: Mapping[Partition, V], form: Callable[[V], object]) -> dict[str, dict[str, Any]]:
    """The values of partitions in JSON's form: by topic, then by number, in order."""
    found: dict[str, dict[str, Any]] = {}
    for partition, value in sorted(values.items(), key=_partition):
        found.setdefault(partition.topic, {})[str(partition.number)] = form(value)
    return found


def _by_partition(topics: Mapping[str, Any]) -> dict[Partition, Any]:
    """The same, read back."""
    return {
        Partition(name, int(number)): value
        for name, stored in topics.items()
        for number, value in stored["partitions"].items()
    }


LAST_ORDINAL = "last_ordinal"
"""Key in the ranges of a step: `KafkaStep.last_ordinal`."""


def step_of(ranges: Mapping[str, Any]) -> KafkaStep:
    """A plan's ranges, read back."""
    topics = ranges["topics"]
    followed = {name: Followed(stored["id"], stored["ordinal"]) for name, stored in topics.items()}
    return KafkaStep(
        followed,
        {partition: Span(*span) for partition, span in _by_partition(topics).items()},
        ranges[LAST_ORDINAL],
    )


@dataclass(frozen=True)
class Ends:
    """Where every partition ended at `at` (ms, UTC). `left`: topics that were followed and are not any more."""

    ids: Mapping[str, str]
    stops: Mapping[Partition, int]
    at: int
    left: tuple[str, ...] = ()

    def over(self, step: KafkaStep | None) -> Ends:
        """These ends, plus the positions of partitions that `step` follows and they lack, as they are as of a run's
        start."""
        if step is None:
            return self
        ids = {name: topic.id for name, topic in step.topics.items() if name not in self.left}
        stops = {partition: stop for partition, stop in step.stops.items() if partition.topic in ids}
        return replace(self, ids={**ids, **self.ids}, stops={**stops, **self.stops})

    def to_json(self) -> Json:
        stops = by_topic(self.stops, int)
        topics = {name: {"id": of, "partitions": stops.get(name, {})} for name, of in sorted(self.ids.items())}
        return {"topics": topics, "at": self.at, **({"left": list(self.left)} if self.left else {})}


def ends_of(ends: Mapping[str, Any]) -> Ends:
    """`Source.ends`, read back."""
    topics = ends["topics"]
    ids = {name: topic["id"] for name, topic in topics.items()}
    return Ends(ids, _by_partition(topics), ends["at"], tuple(ends.get("left", ())))


MAX_STEP_ROWS = 5_000_000
"""Messages of one step, so that a table with much to make up for shows progress and is resumed in between."""


def next_step(
    before: KafkaStep | None,
    starts: Mapping[Partition, int],
    ends: Ends,
    *,
    blocked: Collection[str] = (),
    max_rows: int | None = None,
    caps: Mapping[Partition, int] | None = None,
) -> KafkaStep:
    """The step after `before`.

    Args:
        starts: Where every partition of `ends` is read on, or from.
        ends: Where the run stops.
        blocked: The splits that get no range.
        max_rows: About how many messages it may have; every partition that has some gets its share, at least one.
        caps: Where a partition is not read past in this step, whatever its end.
    """
    goals = {}
    for partition, stop in ends.stops.items():
        capped = min(stop, (caps or {}).get(partition, stop))
        goals[partition] = starts[partition] if str(partition) in blocked else max(capped, starts[partition])
    stops = _shared(starts, goals, max_rows or MAX_STEP_ROWS)
    known = before.topics if before else {}
    unused = 1 + (before.last_ordinal if before else -1)
    fresh = [name for name in sorted(ends.ids) if name not in known]
    topics = {
        name: Followed(identity, known[name].ordinal if name in known else unused + fresh.index(name))
        for name, identity in ends.ids.items()
    }
    spans = {partition: Span(starts[partition], stop) for partition, stop in stops.items()}
    return KafkaStep(topics, spans, unused + len(fresh) - 1)


def _shared(starts: Mapping[Partition, int], goals: Mapping[Partition, int], most: int) -> dict[Partition, int]:
    """Where each partition stops, so that all of them advance evenly."""
    behind = {partition: goals[partition] - starts[partition] for partition in goals}
    total = sum(behind.values())
    if total <= most:
        return dict(goals)
    return {partition: starts[partition] + min(lag, max(lag * most // total, 1)) for partition, lag in behind.items()}


def first_offsets(
    cluster: Cluster, options: KafkaOptions, stops: Mapping[Partition, int], table: str
) -> dict[Partition, int]:
    """The offset that each partition of `stops` (its end, as of this run) is read from, by 'scan.startup.mode'.

    Raises SourceError: an offset that is not there, or a group that has not committed one.
    """
    startup = options.startup
    if startup.mode == "latest-offset":
        return dict(stops)
    earliest = cluster.earliest(stops)
    if startup.mode == "timestamp":
        found = cluster.offsets(stops, startup.timestamp or 0)
        return {
            partition: _between(earliest[partition], offset, stops[partition]) for partition, offset in found.items()
        }
    there = _There(cluster, earliest, stops, table)
    if startup.mode == "group-offsets":
        return there.committed(options)
    if startup.mode == "specific-offsets":
        return there.specific(startup.offsets)
    return earliest


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
        """The committed offsets of a consumer group; where there is none, by 'properties.auto.offset.reset'."""
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
