"""Which offsets the next step reads: up to the run's ends, not too many at once, and none of a blocked partition."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tidegate.pipelines.sources.kafka.cluster import Partition
from tidegate.pipelines.sources.kafka.steps import Ends, KafkaStep, Span, TopicSpans

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
