"""Every format without a test of its own here, by messages of a real topic."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tests.pipelines.sources.kafka.play import Play, given
from tests.pipelines.sources.kafka.server import EmbeddedKafka
from tests.pipelines.sources.kafka.topics import Topics


def test_csv(spark: SparkSession, broker: EmbeddedKafka, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create()
    topics.send(topic, '1;"ann; or so"', "2;NULL", "three;cleo", "4;dora")
    more = {"csv.field-delimiter": ";", "csv.null-literal": "NULL", "format.on-error": "quarantine"}
    options = {**given(broker.bootstrap, topic, format="csv"), **more}
    play = Play.probe(options, spark, tmp_path, "id BIGINT,\nname STRING")
    play.advance()
    assert [(row["_offset"], row["id"], row["name"]) for row in play.landed()] == [
        (0, 1, "ann; or so"),
        (1, 2, None),
        (3, 4, "dora"),
    ]
    assert [row["_offset"] for row in play.rejected()] == [2]


def test_raw(spark: SparkSession, broker: EmbeddedKafka, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create()
    topics.send(topic, b"\x00\xff", b"")
    play = Play.probe(given(broker.bootstrap, topic, format="raw"), spark, tmp_path, "body BYTES")
    play.advance()
    assert [(row["_offset"], row["body"]) for row in play.landed()] == [(0, b"\x00\xff"), (1, b"")]


def test_canal_json_as_a_build(spark: SparkSession, broker: EmbeddedKafka, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create()
    told = {"database": "shop", "table": "users", "isDdl": False, "es": 1_700_000_000_000, "ts": 1_700_000_000_500}
    topics.send(
        topic,
        {**told, "type": "INSERT", "data": [{"id": "1", "name": "ann"}, {"id": "2", "name": "bob"}], "old": None},
        {**told, "type": "UPDATE", "data": [{"id": "1", "name": "anne"}], "old": [{"name": "ann"}]},
        {**told, "type": "DELETE", "data": [{"id": "2", "name": "bob"}], "old": None},
    )
    play = Play.build(given(broker.bootstrap, topic, format="canal-json"), spark, tmp_path, connector="kafka")
    landed, published, reasons = play.joined(1, 2, 3)
    assert sorted({key for _, key, _ in landed}) == [1, 2]
    assert published == [(1, "anne")]
    assert reasons == ["unmatched:deleted@u", "unmatched:key-absent@u"]
