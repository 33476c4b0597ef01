"""What Spark throws becomes an error that a person can act on."""

from __future__ import annotations

import pytest

from tidegate.pipelines.sources.kafka.failures import explain
from tidegate.pipelines.sources.kafka.reading import POISON

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
    found = explain(Exception(said), "t", "generation 1, epoch 2: a-0:0-5", "a on broker:9092")
    assert found is not None
    assert what in found.what
    assert next_command in found.next_command
    assert found.where == "generation 1, epoch 2: a-0:0-5; a on broker:9092"


def test_what_is_not_kafkas_is_left_to_spark() -> None:
    assert explain(Exception("[DIVIDE_BY_ZERO] Division by zero"), "t", "", "") is None
    assert explain(Exception(f"{POISON}and no JSON"), "t", "", "") is None
