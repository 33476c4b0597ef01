"""A topic is still the one that was read, and has what is not read yet; else an error that says what is lost."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tidegate.pipelines.commands import NextCommand, both, resnapshot
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.kafka.cluster import Partition, Topic
from tidegate.pipelines.sources.kafka.steps import KafkaStep

_KEPT = "what was read before stands; nothing after it was read"


def anew(table: str) -> NextCommand:
    """The command that reads a table from its startup mode once more."""
    return resnapshot(table, "reads the topic as it is now, as a new generation")


def check_topics(
    step: KafkaStep, topics: Mapping[str, Topic], table: str, where: str, left: Collection[str] = ()
) -> None:
    """Every topic that was read is there, under its id, with its partitions; but for those in `left`."""
    for name, before in sorted(step.topics.items()):
        if name in left:
            continue
        now = topics.get(name)
        if now is None:
            raise SourceError(
                f"{table}: the topic {name} is gone, and it may have had messages that were not read",
                where=where,
                state=_KEPT,
                next_command=both("bring it back", anew(table))
                + "; or read the topics that are left on another lake (--lake DIR): a lake's table keeps its topics",
            )
        if now.id != before.id:
            raise SourceError(
                f"{table}: the topic {name} is another one than was read: it was deleted and made again",
                where=f"{where}: topic id {now.id}, it was {before.id}",
                state=_KEPT,
                next_command=anew(table),
            )


def check_available(
    positions: Mapping[Partition, int], earliest: Mapping[Partition, int], table: str, where: str
) -> None:
    """Retention has not taken what has not been read yet."""
    for partition, position in sorted(positions.items()):
        first = earliest[partition]
        if first > position:
            raise SourceError(
                f"{table}: {first - position} offsets of {partition} are gone that have not been read: it was read up "
                f"to {position}, and the first that Kafka still has is {first}",
                where=where,
                state=_KEPT,
                next_command=both("raise the topic's retention.ms or retention.bytes", anew(table)),
            )


def check_ends(positions: Mapping[Partition, int], stops: Mapping[Partition, int], table: str, where: str) -> None:
    """No partition ends before what was read of it."""
    for partition, position in sorted(positions.items()):
        stop = stops.get(partition)
        if stop is None:
            raise SourceError(
                f"{table}: the topic has no partition {partition.number} any more ({partition})",
                where=where,
                state=_KEPT,
                next_command=anew(table),
            )
        if stop < position:
            raise SourceError(
                f"{table}: {partition} ends at {stop}, and it was read up to {position}: the broker has lost messages",
                where=where,
                state=_KEPT,
                next_command=anew(table),
            )
