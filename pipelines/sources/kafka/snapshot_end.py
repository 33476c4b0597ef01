"""The end of a Debezium snapshot in a topic: its mark, and then the ends of all partitions as of when it was seen.

Debezium marks the last row of a table's snapshot (`last_in_data_collection`, or `last` for the last of all tables).
Rows of other partitions may have been written before the mark and be read after it, so the phase is over once every
partition has been read past the end that it had when the mark landed. Both are stored in the `splits` table.

The mark of one table says nothing of another table in the same topic, so a topic with snapshots of several tables is
refused, even if the other's rows come long after the first snapshot has ended. Nor does the mark of a topic that was
deleted say anything of one that has its name now: a topic is known by its name and its ordinal, which is never given
twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tidegate.pipelines.commands import both, resnapshot
from tidegate.pipelines.connectors.protocol import SourceContext, StoredStep
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.formats.debezium import OF
from tidegate.pipelines.sources.kafka.cluster import Partition
from tidegate.pipelines.sources.kafka.options import value_format
from tidegate.pipelines.sources.kafka.steps import KafkaStep

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

MARKED_FORMATS = ("debezium-json",)
LAST = ("last", "last_in_data_collection")
_NAME = "snapshot of "


def waits_for_marker(table: Table, options: Mapping[str, str]) -> bool:
    """Whether this table's flip waits for a mark in the topic."""
    return table.role == "build" and marks_its_snapshot(options)


def marks_its_snapshot(options: Mapping[str, str]) -> bool:
    """Whether the messages say when the snapshot is over, and the table's options do not say otherwise."""
    return value_format(options) in MARKED_FORMATS and options.get("scan.snapshot.end", "marker") == "marker"


class SnapshotEnd:
    """What is known of the snapshot's end of one table and generation."""

    def __init__(self, context: SourceContext) -> None:
        self._context = context
        self._watched: tuple[int, Observation] | None = None

    def _cuts(self, step: KafkaStep) -> dict[str, dict[Partition, int]]:
        """By topic of `step` whose mark has landed: where its partitions ended then."""
        return {
            topic: {Partition(topic, int(number)): int(stop) for number, stop in row["cut"]["offsets"].items()}
            for topic, row in self._marked(step)
            if row["cut"] is not None
        }

    def _marked(self, step: KafkaStep) -> list[tuple[str, dict[str, Any]]]:
        """The topics of `step` whose mark has landed, each with its row of `splits`."""
        by_ordinal = {topic.ordinal: name for name, topic in step.topics.items()}
        return [
            (by_ordinal[row["ordinal"]], row)
            for row in self._context.splits.rows()
            if row["split"].startswith(_NAME) and row["ordinal"] in by_ordinal
        ]

    def passed(self, step: KafkaStep) -> bool:
        """Whether every topic's snapshot is over once `step` has landed."""
        cuts, stops = self._cuts(step), step.stops
        return all(
            name in cuts and all(stops.get(partition, 0) >= stop for partition, stop in cuts[name].items())
            for name in step.topics
        )

    def unmarked(self, step: KafkaStep) -> list[str]:
        """The topics whose mark has not landed."""
        cuts = self._cuts(step)
        return [name for name in step.topics if name not in cuts]

    def watched(self, rows: DataFrame, step: KafkaStep, epoch: int) -> DataFrame:
        """`rows`, whose marks are seen while they are written."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        observed = Observation(f"marks {self._context.table.name} {self._context.generation} {epoch}")
        self._watched = (epoch, observed)
        return rows.observe(observed, *[F.expr(sql) for sql in _marks(step)])

    def landed(
        self,
        stored: StoredStep,
        step: KafkaStep,
        again: Callable[[KafkaStep], DataFrame],
        ends: Callable[[Iterable[Partition]], dict[Partition, int]],
    ) -> None:
        """Store the mark of every topic that has one, its table, and where its partitions end now.

        `again` reads the step's rows once more, for a run that has not written them itself.
        """
        if not step.read:
            return
        missing = self.unmarked(step)
        marks, ended = self._marks(stored, step, again), self._ended(step)
        for name in step.topics:
            tables = {marks.get(_alias(step, name, "first")), marks.get(_alias(step, name, "other")), ended.get(name)}
            self._check_tables(name, sorted(tables - {None}), flipped=had_flipped(stored))
        for name in missing:
            if marks.get(_alias(step, name, "ended")):
                stops = ends([partition for partition in step.spans if partition.topic == name])
                detail = {"topic": name, "table": marks.get(_alias(step, name, "first"))}
                ordinal = step.topics[name].ordinal
                split = {"split": f"{_NAME}{name} ({ordinal})", "ordinal": ordinal, "detail": detail}
                self._context.splits.add([split])
                self._context.splits.cut(
                    {split["split"]: {"offsets": {str(p.number): stop for p, stop in stops.items()}}}
                )

    def _ended(self, step: KafkaStep) -> dict[str, str]:
        """By topic of `step` whose mark has landed: the table whose snapshot it has ended."""
        return {topic: row["detail"]["table"] for topic, row in self._marked(step) if row["detail"].get("table")}

    def _check_tables(self, topic: str, tables: list[str | None], *, flipped: bool) -> None:
        if len(tables) < 2:
            return
        state = "the table has not flipped, and nothing that joins to it was released"
        if flipped:
            state = (
                "the table flipped at the end of the first, so rows that joined to it since may have left without a "
                "match; these rows are committed, and nothing reads them"
            )
        own = (
            "give each table a topic of its own; or say 'scan.snapshot.end' = 'offsets' once the topic has all of them"
        )
        raise SourceError(
            f"{self._context.table.name}: the topic {topic} has snapshots of several tables, {tables[0]} and "
            f"{tables[1]}: where the first of them ends says nothing of the others",
            where=f"topic {topic}",
            state=state,
            next_command=both(own, resnapshot(self._context.table.name)) if flipped else own,
        )

    def _marks(self, stored: StoredStep, step: KafkaStep, again: Callable[[KafkaStep], DataFrame]) -> dict[str, Any]:
        if self._watched is not None and self._watched[0] == stored.epoch:
            return self._watched[1].get
        from pyspark.sql import functions as F

        found = again(step).agg(*[F.expr(sql) for sql in _marks(step)]).collect()[0].asDict()  # one row
        return found


def had_flipped(step: StoredStep) -> bool:
    """Whether a table with a snapshot had flipped before `step`: until then its steps are bounded, but the one that
    flips it."""
    return step.step.phase == "unbounded" and not step.step.flips


def _alias(step: KafkaStep, topic: str, what: str) -> str:
    return f"{what}_{step.topics[topic].ordinal}"


def _marks(step: KafkaStep) -> list[str]:
    """Aggregates over a step's rows: whether a topic's snapshot has ended, and the first and the last by name of the
    tables that it has snapshots of."""
    last = ", ".join(f"'{mark}'" for mark in LAST)
    found = []
    for name, topic in step.topics.items():
        read = f"IF(_op = 'r' AND _topic = {topic.ordinal}, get(split(_marks, '{OF}', 2), 1), NULL)"
        found += [
            f"coalesce(max(substring_index(_marks, '{OF}', 1) IN ({last}) AND _topic = {topic.ordinal}), false) "
            f"AS {_alias(step, name, 'ended')}",
            f"min({read}) AS {_alias(step, name, 'first')}",
            f"max({read}) AS {_alias(step, name, 'other')}",
        ]
    return found
