"""Whether the places that messages name are of one log of the database: rows of each case, epoch by epoch."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tidegate.pipelines.connectors.protocol import Step, StoredStep
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.kafka.cluster import Partition
from tidegate.pipelines.sources.kafka.places import check_places
from tidegate.pipelines.sources.kafka.steps import Followed, KafkaStep, Span

BITS = 20
COLUMNS = SimpleNamespace(name="id"), SimpleNamespace(name="name")
TABLE: Any = SimpleNamespace(name="users", primary_key=("id",), message_columns=COLUMNS)
STEP = KafkaStep({"t": Followed("", 0)}, {Partition("t", number): Span(0, 9) for number in range(2)})
SCHEMA = (
    "id BIGINT, name STRING, _op STRING, _rowtime TIMESTAMP, _split STRING, _offset BIGINT, "
    "_seq STRUCT<phase: INT, log: INT, file: BIGINT, position: BIGINT, row: INT>, _epoch INT"
)


@dataclass(frozen=True)
class Message:
    """A change of `key` at a place (file, position), `at` a time (s) by the database's clock. `later`: of the second
    epoch."""

    op: str
    key: int | None
    file: int
    position: int
    at: int
    partition: int = 0
    later: bool = False
    name: str = "x"


M = Message


def frame(spark: SparkSession, messages: list[Message]) -> DataFrame:
    rows = [
        (
            message.key,
            message.name,
            message.op,
            datetime.fromtimestamp(message.at, UTC),
            f"t-{message.partition}",
            offset << BITS,
            (1, 0, message.file, message.position, -1 if message.op == "r" else 0),
            1 + message.later,
        )
        for offset, message in enumerate(messages)
    ]
    return spark.createDataFrame(rows, SCHEMA)


def check(spark: SparkSession, messages: list[Message]) -> None:
    rows = frame(spark, messages)
    for epoch in sorted({1 + message.later for message in messages}):
        earlier = lambda step: rows.where(f"_epoch < {step.epoch}")  # noqa: E731
        context: Any = SimpleNamespace(table=TABLE, earlier_rows=earlier)
        check_places(context, StoredStep(Step({}), 1, epoch, 0), rows.where(f"_epoch = {epoch}"), STEP, BITS)


GOES_ON = {
    "the log goes on in another file": [M("r", 1, 9, 700, 50), M("u", 1, 10, 4, 60), M("d", 1, 10, 80, 70, later=True)],
    "the connector writes once more what it wrote, over epochs": [
        M("u", 1, 9, 800, 50),
        M("u", 1, 9, 900, 51),
        M("u", 1, 10, 4, 52),
        M("u", 1, 9, 900, 51, later=True),
        M("u", 1, 10, 4, 52, later=True),
        M("u", 1, 10, 90, 53, later=True),
    ],
    "transactions of other keys overlap in PostgreSQL's log": [
        M("u", 2, 0, 200, 50),
        M("u", 1, 0, 100, 51),
        M("u", 1, 0, 300, 52, later=True),
        M("u", 2, 0, 250, 53, later=True),
    ],
    "a key moved to a partition that came, and is read there first": [
        M("u", 1, 10, 4, 60, partition=1),
        M("u", 1, 9, 900, 50, partition=0, later=True),
    ],
    "a snapshot at the place of the last change": [
        M("u", 1, 9, 700, 50),
        M("r", 1, 9, 700, 60, later=True),
    ],
    "and at its own, as nothing had changed": [M("r", 1, 9, 700, 50), M("r", 1, 9, 700, 60, later=True)],
    "a late change of another partition was read by the snapshot": [
        M("r", 1, 11, 4, 60, partition=0),
        M("u", 1, 10, 900, 50, partition=1),
    ],
    "a truncate, and rows before and after it": [
        M("u", 1, 9, 700, 50),
        M("t", None, 9, 800, 51),
        M("c", 1, 9, 900, 52, later=True),
        M("c", 2, 10, 900, 40, partition=1, later=True),
    ],
}

REFUSED = {
    "another server's log, in one epoch": [M("r", 1, 12, 400, 50), M("u", 1, 3, 700, 60)],
    "another server's log, an epoch later": [M("u", 1, 12, 900, 50), M("d", 1, 3, 900, 60, later=True)],
    "whose clock is behind": [M("u", 1, 12, 900, 50), M("u", 1, 3, 900, 40, later=True)],
    "a new log that has caught up since": [
        M("u", 1, 12, 900, 50),
        M("u", 1, 3, 900, 60, later=True),
        M("u", 1, 13, 4, 70, later=True),
    ],
    "a snapshot of the new log": [M("r", 1, 12, 400, 50), M("r", 1, 3, 700, 60, later=True)],
    "RESET MASTER, and the same place once more": [M("u", 1, 1, 400, 50), M("u", 1, 1, 400, 60, later=True)],
    "a new database's snapshot at the place of the old one's": [
        M("r", 1, 1, 157, 50, name="old"),
        M("r", 1, 1, 157, 60, name="new", later=True),
    ],
    "a message of the new log after one that is written once more": [
        M("u", 1, 12, 800, 50),
        M("u", 1, 12, 900, 51),
        M("u", 1, 12, 800, 50),
        M("u", 1, 12, 850, 60, later=True),
    ],
    "PostgreSQL that was restored": [M("r", 1, 0, 5000, 50), M("u", 1, 0, 70, 60, later=True)],
    "a key that moved to a partition that came": [
        M("r", 1, 12, 400, 50, partition=0),
        M("u", 1, 3, 700, 60, partition=1, later=True),
    ],
    "a truncate of the new log": [M("u", 1, 12, 900, 50), M("t", None, 3, 700, 60, later=True)],
    "a row of the new log after the old one's truncate": [
        M("t", None, 12, 900, 50),
        M("c", 1, 3, 700, 60, later=True),
    ],
}


def _chosen(found: dict[str, list[Message]], *others: str) -> list[Any]:
    """The cases; `others` stand for kinds that the rest has too, and run in `make test-all`."""
    assert set(others) <= set(found)
    return [
        pytest.param(messages, id=name, marks=(pytest.mark.thorough,) if name in others else ())
        for name, messages in found.items()
    ]


@pytest.mark.parametrize(
    "messages",
    _chosen(
        GOES_ON,
        "the log goes on in another file",
        "a snapshot at the place of the last change",
        "a late change of another partition was read by the snapshot",
    ),
)
def test_places_of_one_log_go_on(messages: list[Message], spark: SparkSession) -> None:
    check(spark, messages)


@pytest.mark.parametrize(
    "messages",
    _chosen(
        REFUSED,
        "another server's log, in one epoch",
        "whose clock is behind",
        "a new log that has caught up since",
        "a snapshot of the new log",
        "a key that moved to a partition that came",
        "a row of the new log after the old one's truncate",
    ),
)
def test_places_of_two_logs_are_refused(messages: list[Message], spark: SparkSession) -> None:
    with pytest.raises(SourceError, match="these are two logs"):
        check(spark, messages)


def test_both_messages_are_named(spark: SparkSession) -> None:
    with pytest.raises(SourceError) as refused:
        check(spark, [M("u", 1, 12, 900, 50), M("u", 7, 12, 950, 51), M("u", 7, 3, 700, 60, later=True)])
    assert (
        't-0, offset 2: the change of the key {"id":7} stands at file 3, position 700 of the database\'s log, '
        "and what came before it (t-0, offset 1) at file 12, position 950"
    ) in refused.value.what
    assert "generation 1, epoch 2" in refused.value.where
    assert "nothing reads them" in refused.value.state
    assert "delete the topic t, make it again" in str(refused.value.next_command)


def test_a_place_of_postgresql_is_called_by_its_name(spark: SparkSession) -> None:
    with pytest.raises(SourceError, match="stands at LSN 70 of the database's log"):
        check(spark, [M("u", 1, 0, 5000, 50), M("u", 1, 0, 70, 60)])
