"""How a cluster is reached: SASL, TLS, a broker that is down; secrets are never shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipelines.errors import SourceError
from pipelines.runtime import faults
from pipelines.sources.kafka.server import STORE_PASSWORD, EmbeddedKafka
from tests.pipelines.sources.kafka.conftest import PASSWORD, USER
from tests.pipelines.sources.kafka.play import Play, given
from tests.pipelines.sources.kafka.topics import Topics

LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def sasl(broker: EmbeddedKafka, topic: str, password: str) -> dict[str, str]:
    return given(broker.sasl_bootstrap, topic, format="json") | {
        "properties.security.protocol": "SASL_PLAINTEXT",
        "properties.sasl.mechanism": "PLAIN",
        "properties.sasl.jaas.config": f'{LOGIN} username="{USER}" password="{password}";',
    }


def test_sasl_and_tls(spark: SparkSession, broker: EmbeddedKafka, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create()
    topics.send(topic, {"id": 1})
    tls = given(broker.tls_bootstrap, topic, format="json") | {
        "properties.security.protocol": "SSL",
        "properties.ssl.truststore.location": str(broker.truststore),
        "properties.ssl.truststore.password": STORE_PASSWORD,
    }
    for name, options in (("sasl", sasl(broker, topic, PASSWORD)), ("tls", tls)):
        play = Play.probe(options, spark, tmp_path / name)
        play.advance()
        assert play.values() == [1]


def test_a_user_that_is_refused(spark: SparkSession, broker: EmbeddedKafka, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create()
    play = Play.probe(sasl(broker, topic, "wrong-secret"), spark, tmp_path)
    with pytest.raises(SourceError, match="refused the user") as refused:
        play.advance()
    assert "sasl.jaas.config" in refused.value.next_command
    assert "wrong-secret" not in str(refused.value)


def test_a_broker_that_is_down(spark: SparkSession, tmp_path: Path) -> None:
    options = given("127.0.0.1:9", "any", format="json", properties__default__api__timeout__ms="1500")
    play = Play.probe(options, spark, tmp_path)
    with pytest.raises(SourceError, match="the Kafka cluster does not answer") as silent:
        play.advance()
    assert silent.value.where == "Kafka at 127.0.0.1:9"
    assert play.lake.epochs.last("events") is None


def test_an_address_that_is_none(spark: SparkSession, tmp_path: Path) -> None:
    play = Play.probe(given("no.such.host.invalid:1", "any", format="json"), spark, tmp_path)
    with pytest.raises(SourceError, match=r"could not be asked.*bootstrap"):
        play.advance()


def test_a_broker_that_goes_down_between_plan_and_read(spark: SparkSession, tmp_path: Path) -> None:
    with EmbeddedKafka(tmp_path / "kafka") as own:
        topics = Topics(spark, own.bootstrap)
        topic = topics.create()
        topics.send(topic, {"id": 1})
        topics.close()
        options = given(own.bootstrap, topic, format="json", properties__default__api__timeout__ms="2000")
        play = Play.probe(options, spark, tmp_path / "lake")

        def stop(point: str) -> None:
            if point == "source.planned":
                own.stop()

        disarm = faults.arm(stop)
        try:
            with pytest.raises(SourceError, match="does not answer"):
                play.advance()
        finally:
            disarm()
        assert play.lake.epochs.last("events") is not None
        own.start()
        play.advance()
        assert play.values() == [1]
