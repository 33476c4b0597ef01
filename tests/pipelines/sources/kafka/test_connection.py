"""How a cluster is reached: SASL, TLS, a broker that is down; secrets are never shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipelines.runtime.crashing import meanwhile
from tests.pipelines.sources.kafka.conftest import PASSWORD, USER
from tests.pipelines.sources.kafka.play import Room, given
from tests.pipelines.sources.kafka.server import STORE_PASSWORD, EmbeddedKafka
from tests.pipelines.sources.kafka.topics import Topics
from tests.pipelines.sources.sources_help import NoSplits
from tidegate.pipelines.connectors.protocol import PlanRequest, SourceContext, SourcePosition, StoredStep
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.kafka.source import KafkaSource

LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def sasl(broker: EmbeddedKafka, topic: str, password: str) -> dict[str, str]:
    return given(broker.sasl_bootstrap, topic, format="json") | {
        "properties.security.protocol": "SASL_PLAINTEXT",
        "properties.sasl.mechanism": "PLAIN",
        "properties.sasl.jaas.config": f'{LOGIN} username="{USER}" password="{password}";',
    }


def test_sasl_and_tls(room: Room, broker: EmbeddedKafka, topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, {"id": 1})
    tls = given(broker.tls_bootstrap, topic, format="json") | {
        "properties.security.protocol": "SSL",
        "properties.ssl.truststore.location": str(broker.truststore),
        "properties.ssl.truststore.password": STORE_PASSWORD,
    }
    for name, options in (("sasl", sasl(broker, topic, PASSWORD)), ("tls", tls)):
        play = room.probe(options, name)
        play.advance()
        assert play.values() == [1]


def test_a_plan_of_spark_shows_no_secret(
    room: Room, spark: SparkSession, broker: EmbeddedKafka, topics: Topics, tmp_path: Path
) -> None:
    """What EXPLAIN, the event log and the UI would show; and what the lake keeps."""
    topic = topics.create()
    topics.send(topic, {"id": 1})
    hidden = {
        "ssl.keystore.key": "-----BEGIN hidden-Kx1-----",
        "ssl.key.password": "hidden-Kx2",
        "sasl.oauthbearer.client.credentials.client.secret": "hidden-Kx3",
        "sasl.oauthbearer.assertion.private.key.passphrase": "hidden-Kx4",
    }
    options = sasl(broker, topic, PASSWORD) | {f"properties.{name}": value for name, value in hidden.items()}
    play = room.probe(options)
    play.advance()
    source = KafkaSource(
        SourceContext(
            play.harness.pipeline.table("events"), options, 1, NoSplits(), "", lambda: 0, spark=lambda: spark
        ),
        "kafka",
    )
    step = source.plan(PlanRequest(ends=source.ends(SourcePosition()), instant=0)).step
    assert step is not None
    plan = source.read(spark, StoredStep(step, 1, 1, 0))._jdf.queryExecution().toString()
    source.close()
    assert topic in plan
    secrets = [PASSWORD, "hidden-Kx"]
    assert [secret for secret in secrets if secret in plan] == []
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert kept
    assert [path for path in kept if any(secret.encode() in path.read_bytes() for secret in secrets)] == []


def test_a_user_that_is_refused(room: Room, broker: EmbeddedKafka, topics: Topics) -> None:
    topic = topics.create()
    play = room.probe(sasl(broker, topic, "wrong-secret"))
    with pytest.raises(SourceError, match="refused the user") as refused:
        play.advance()
    assert "sasl.jaas.config" in refused.value.next_command
    assert "wrong-secret" not in str(refused.value)


def test_a_broker_that_is_down(spark: SparkSession, tmp_path: Path) -> None:
    nobody = Room(spark, "127.0.0.1:9", tmp_path)
    play = nobody.probe(nobody.given("any", format="json", properties__default__api__timeout__ms="1500"))
    with pytest.raises(SourceError, match="the Kafka cluster does not answer") as silent:
        play.advance()
    assert silent.value.where == "Kafka at 127.0.0.1:9"
    assert play.lake.epochs.last("events") is None


def test_an_address_that_is_none(spark: SparkSession, tmp_path: Path) -> None:
    nobody = Room(spark, "no.such.host.invalid:1", tmp_path)
    play = nobody.probe(nobody.given("any", format="json"))
    with pytest.raises(SourceError, match=r"could not be asked.*bootstrap"):
        play.advance()


@pytest.mark.thorough
def test_a_broker_that_goes_down_between_plan_and_read(spark: SparkSession, tmp_path: Path) -> None:
    with EmbeddedKafka(tmp_path / "kafka") as own:
        topics = Topics(spark, own.bootstrap)
        topic = topics.create()
        topics.send(topic, {"id": 1})
        topics.close()
        room = Room(spark, own.bootstrap, tmp_path / "lake")
        play = room.probe(room.given(topic, format="json", properties__default__api__timeout__ms="2000"))

        with meanwhile(own.stop, "source.planned"), pytest.raises(SourceError, match="does not answer"):
            play.advance()
        assert play.lake.epochs.last("events") is not None
        own.start()
        play.advance()
        assert play.values() == [1]
