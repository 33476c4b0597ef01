"""One broker for all tests of this room, and a way to write to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipelines.sources.kafka.play import Room
from tests.pipelines.sources.kafka.server import EmbeddedKafka
from tests.pipelines.sources.kafka.topics import Topics

USER, PASSWORD = "reader", "reader-secret"


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """Tests that stop a broker start one of their own."""
    with EmbeddedKafka(tmp_path_factory.mktemp("kafka"), users={USER: PASSWORD}, tls=True) as made:
        yield made


@pytest.fixture
def room(spark: SparkSession, broker: EmbeddedKafka, tmp_path: Path) -> Room:
    return Room(spark, broker.bootstrap, tmp_path)


@pytest.fixture(scope="session")
def topics(spark: SparkSession, broker: EmbeddedKafka) -> Iterator[Topics]:
    made = Topics(spark, broker.bootstrap)
    yield made
    made.close()
