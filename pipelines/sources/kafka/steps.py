"""A plan's ranges as this connector writes and reads them: exact offsets of every partition that it follows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tidegate.pipelines.connectors.protocol import Json
from tidegate.pipelines.sources.kafka.cluster import Partition


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
class TopicSpans:
    """One topic: its id when it was first planned, its place among the table's topics, and a span per partition.

    `ordinal` never changes, so that the order of changes over several topics does not either; nor is that of a topic
    which is not followed any more given to another, while one that came after it is.
    """

    id: str
    ordinal: int
    spans: Mapping[int, Span]


@dataclass(frozen=True)
class KafkaStep:
    """One step. Partitions of which nothing is read are in it with an empty span: all positions are here."""

    topics: Mapping[str, TopicSpans]

    def spans(self) -> Iterator[tuple[Partition, Span]]:
        """Every partition with its span, in order."""
        for name, topic in sorted(self.topics.items()):
            for number, span in sorted(topic.spans.items()):
                yield Partition(name, number), span

    @property
    def read(self) -> dict[Partition, Span]:
        """The spans that are not empty."""
        return {partition: span for partition, span in self.spans() if span.offsets}

    @property
    def stops(self) -> dict[Partition, int]:
        """Where each partition is read on."""
        return {partition: span.stop for partition, span in self.spans()}

    def to_json(self) -> Json:
        return {
            name: {
                "id": topic.id,
                "ordinal": topic.ordinal,
                "partitions": {str(number): [span.start, span.stop] for number, span in sorted(topic.spans.items())},
            }
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


def step_of(ranges: Mapping[str, Any]) -> KafkaStep:
    """A plan's ranges, read back."""
    return KafkaStep(
        {
            name: TopicSpans(
                told["id"],
                int(told["ordinal"]),
                {int(number): Span(int(span[0]), int(span[1])) for number, span in told["partitions"].items()},
            )
            for name, told in ranges["topics"].items()
        }
    )


@dataclass(frozen=True)
class Ends:
    """Where every partition ended at `at` (ms, UTC). `left`: topics that were followed and are not any more."""

    ids: Mapping[str, str]
    stops: Mapping[Partition, int]
    at: int
    left: tuple[str, ...] = ()

    def over(self, step: KafkaStep | None) -> Ends:
        """These ends, and the positions of what `step` follows and they do not know: they are as of a run's start."""
        if step is None:
            return self
        ids = {name: topic.id for name, topic in step.topics.items() if name not in self.left}
        stops = {partition: stop for partition, stop in step.stops.items() if partition.topic in ids}
        return replace(self, ids={**ids, **self.ids}, stops={**stops, **self.stops})

    def to_json(self) -> Json:
        topics: dict[str, Any] = {name: {"id": told, "partitions": {}} for name, told in sorted(self.ids.items())}
        for partition, stop in sorted(self.stops.items()):
            topics[partition.topic]["partitions"][str(partition.number)] = stop
        return {"topics": topics, "at": self.at, **({"left": list(self.left)} if self.left else {})}


def ends_of(ends: Mapping[str, Any]) -> Ends:
    """`Source.ends`, read back."""
    topics = ends["topics"]
    return Ends(
        {name: told["id"] for name, told in topics.items()},
        {
            Partition(name, int(number)): int(stop)
            for name, told in topics.items()
            for number, stop in told["partitions"].items()
        },
        int(ends["at"]),
        tuple(ends.get("left", ())),
    )


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
    topics: dict[str, TopicSpans] = {}
    known = before.topics if before else {}
    unused = 1 + max((topic.ordinal for topic in known.values()), default=-1)
    fresh = [name for name in sorted(ends.ids) if name not in known]
    for name, identity in ends.ids.items():
        ordinal = known[name].ordinal if name in known else unused + fresh.index(name)
        spans = {
            partition.number: Span(starts[partition], stop)
            for partition, stop in stops.items()
            if partition.topic == name
        }
        topics[name] = TopicSpans(identity, ordinal, spans)
    return KafkaStep(topics)


def _shared(starts: Mapping[Partition, int], goals: Mapping[Partition, int], most: int) -> dict[Partition, int]:
    """Where each partition stops, so that all of them come forward evenly."""
    behind = {partition: goals[partition] - starts[partition] for partition in goals}
    total = sum(behind.values())
    if total <= most:
        return dict(goals)
    return {partition: starts[partition] + min(lag, max(lag * most // total, 1)) for partition, lag in behind.items()}
