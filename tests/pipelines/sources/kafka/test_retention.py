"""How long a topic still has what was not read: as the cluster says while an epoch lands."""

from __future__ import annotations

import pytest

from tests.pipelines.sources.kafka.play import Room
from tests.pipelines.sources.kafka.topics import Topics
from tidegate.pipelines.clock import system_clock
from tidegate.pipelines.connectors.protocol import RetainedUntil
from tidegate.pipelines.sources.kafka.checks import HALVINGS, explain, message_retention
from tidegate.pipelines.sources.kafka.cluster import Partition
from tidegate.pipelines.sources.rows import POISON

KEPT = 1_000_000
STEP = KEPT >> HALVINGS


class Made:
    """A cluster whose partitions hold records of these times (ms)."""

    def __init__(self, times: dict[Partition, list[int]], retentions: dict[str, int]) -> None:
        self.times, self._retentions = times, retentions

    def retentions(self, names: list[str]) -> dict[str, int]:
        return {name: self._retentions[name] for name in names if name in self._retentions}

    def offsets(self, partitions: dict[Partition, int], at: int) -> dict[Partition, int | None]:
        return {p: next((o for o, time in enumerate(self.times[p]) if time >= at), None) for p in partitions}


A0, A1, B0 = Partition("a", 0), Partition("a", 1), Partition("b", 0)
NOW = 10 * KEPT


@pytest.mark.parametrize(
    ("positions", "retentions", "least", "lasts"),
    [
        pytest.param({A0: 2, A1: 1}, {"a": KEPT}, NOW + KEPT, KEPT, id="all is read"),
        pytest.param({A0: 1, A1: 1}, {"a": KEPT}, NOW - 100_000 + KEPT, KEPT, id="the oldest that is not"),
        pytest.param({A0: 0, A1: 0}, {"a": KEPT}, NOW - 900_000 + KEPT, KEPT, id="of any partition"),
        pytest.param({A0: 1, A1: 0}, {"a": 100}, NOW, 100, id="it may be gone"),
        pytest.param({A0: 1, B0: 0}, {"a": KEPT, "b": 2 * KEPT}, NOW - 100_000 + KEPT, KEPT, id="the first to delete"),
    ],
)
def test_how_long_it_lasts(positions: dict[Partition, int], retentions: dict[str, int], least: int, lasts: int) -> None:
    times = {A0: [NOW - 500_000, NOW - 100_000], A1: [NOW - 900_000], B0: [NOW - 50_000]}
    ends = {partition: len(found) for partition, found in times.items()}
    found = message_retention(Made(times, retentions), positions, ends, NOW)  # type: ignore[arg-type]
    assert found is not None
    assert found.for_ms == lasts
    assert least - STEP <= found.until <= least


def test_a_topic_that_does_not_delete_says_nothing() -> None:
    assert message_retention(Made({A0: [1]}, {}), {A0: 0}, {A0: 1}, NOW) is None  # type: ignore[arg-type]


def test_it_is_in_the_log_of_what_landed(room: Room, topics: Topics) -> None:
    topic = topics.create(retention_ms=str(KEPT))
    compacted = topics.create(cleanup_policy="compact", retention_ms=str(KEPT))
    now = system_clock()
    for at in (now - 500_000, now - 100_000):
        topics.send(topic, {"id": 1}, at=at)
    options = room.given(topic, format="json", scan__max_rows_per_epoch="1")
    play = room.probe(options, "deleted")
    play.now = now
    play.advance(max_epochs=1)
    kept = play.log()[-1].kept
    assert kept is not None
    assert now + 900_000 - STEP <= kept["until"] <= now + 900_000
    play.advance()
    assert play.log()[-1].kept == vars(RetainedUntil(now + KEPT, KEPT))
    topics.send(compacted, {"id": 1}, key={"id": 1}, at=now)
    play = room.probe({**options, "topic": compacted}, "compacted")
    play.advance()
    assert play.log()[-1].kept is None


CASES = [
    (
        f'[USER_RAISED_EXCEPTION] {POISON}{{"split":"a-b-3","offset":42,"error":"column x: \'{{\' does not fit"}} '
        "SQLSTATE: P0001",
        "t: a-b-3, offset 42: column x: '{' does not fit",
        "'format.on-error' = 'quarantine'",
    ),
    (
        "Job aborted\nCaused by: org.apache.kafka.clients.consumer.OffsetOutOfRangeException: Fetch position is out",
        "t: Kafka no longer has what the plan asks for: org.apache.kafka.clients.consumer.OffsetOutOfRangeException",
        "--resnapshot t",
    ),
    (
        "x\njava.util.concurrent.TimeoutException: Cannot fetch record for offset 5 in 60000 milliseconds",
        "t: a Kafka broker did not answer in time",
        "it goes on at this epoch",
    ),
    (
        "org.apache.kafka.common.errors.SaslAuthenticationException: Authentication failed",
        "t: the Kafka cluster refused the reader",
        "check 'properties.sasl.*'",
    ),
]


@pytest.mark.parametrize(("said", "what", "next_command"), CASES)
def test_what_is_said(said: str, what: str, next_command: str) -> None:
    found = explain(Exception(said), "t", "generation 1, epoch 2: a-0:0-5; a on broker:9092")
    assert found is not None
    assert what in found.what
    assert next_command in found.next_command
    assert found.where == "generation 1, epoch 2: a-0:0-5; a on broker:9092"


def test_what_is_not_kafkas_is_left_to_spark() -> None:
    assert explain(Exception("[DIVIDE_BY_ZERO] Division by zero"), "t", "") is None
    assert explain(Exception(f"{POISON}and no JSON"), "t", "") is None
