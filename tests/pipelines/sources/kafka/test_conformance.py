"""Topics pass what is asked of every connector (docs/connectors.md)."""

from __future__ import annotations

import pytest

from tests.pipelines.sources.kafka.play import given, options_sql
from tests.pipelines.sources.kafka.server import EmbeddedKafka
from tests.pipelines.sources.kafka.topics import Topics
from tidegate.pipelines.sources.kafka import CONNECTOR, UPSERT_CONNECTOR
from tidegate.pipelines.testing import connector_tests


@pytest.fixture
def topic(topics: Topics) -> str:
    return topics.create(partitions=2)


def plain(broker: EmbeddedKafka, topic: str) -> str:
    options = given(broker.bootstrap, topic, format="json", properties__sasl__password="hush-hush")
    columns = "id INT, at TIMESTAMP_LTZ(3) METADATA FROM 'timestamp'"
    return f"CREATE TABLE t ({columns}) WITH ('connector' = 'kafka', {options_sql(options)})"


def sent(arrival: int, topics: Topics, topic: str) -> None:
    topics.send(topic, {"id": arrival}, {"id": arrival + 1}, partition=0)
    topics.send(topic, {"id": -arrival}, partition=arrival % 2)


TestKafka = connector_tests(CONNECTOR, plain, sent)


def by_key(broker: EmbeddedKafka, topic: str) -> str:
    options = given(broker.bootstrap, topic, key__format="json", value__format="json")
    columns = "id INT PRIMARY KEY NOT ENFORCED, name STRING"
    return f"CREATE TABLE t ({columns}) WITH ('connector' = 'upsert-kafka', {options_sql(options)})"


def upserted(arrival: int, topics: Topics, topic: str) -> None:
    topics.send(topic, {"id": arrival, "name": "new"}, key={"id": arrival}, partition=0)
    topics.send(topic, None, key={"id": arrival - 1}, partition=0)
    topics.send(topic, {"id": 70, "name": f"changed {arrival}"}, key={"id": 70}, partition=1)


TestUpsertKafka = pytest.mark.thorough(connector_tests(UPSERT_CONNECTOR, by_key, upserted))
