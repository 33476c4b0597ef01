"""Watermarks of a topic: one a partition, an idle one is passed over, and the record's time can be the rowtime."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import SparkSession

from pipelines.sources.kafka.server import EmbeddedKafka
from tests.pipelines.sources.kafka.play import Play, given
from tests.pipelines.sources.kafka.topics import Topics

BY_RECORD = """id BIGINT,
at AS SYSTEM_ROWTIME(),
WATERMARK FOR at AS at - INTERVAL '1' SECOND"""


def script(options: dict[str, str]) -> str:
    given_sql = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    return f"""
CREATE TABLE events ({BY_RECORD}) WITH ('connector' = 'kafka', {given_sql});
CREATE TABLE kept (id BIGINT, at TIMESTAMP_LTZ(3)) WITH ('connector' = 'scripted');
INSERT INTO kept SELECT id, at FROM events;
"""


def test_the_slowest_partition_holds_until_it_is_idle(
    spark: SparkSession, broker: EmbeddedKafka, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create(partitions=3)
    topics.send(topic, {"id": 1}, partition=0, at=100_000)
    topics.send(topic, {"id": 2}, partition=1, at=50_000)
    options = given(broker.bootstrap, topic, format="json", scan__watermark__idle_timeout="10 s")
    play = Play(script(options), spark, tmp_path)
    play.advance()
    assert play.log()[-1].timestamp < 0
    play.now += 11_000
    topics.send(topic, {"id": 3}, partition=0, at=110_000)
    topics.send(topic, {"id": 4}, partition=1, at=60_000)
    play.advance()
    assert play.log()[-1].timestamp == 59_000
    play.now += 11_000
    topics.send(topic, {"id": 5}, partition=0, at=120_000)
    play.advance()
    assert play.log()[-1].timestamp == 119_000
    assert {split["split"]: split["idle"] for split in json.loads(json.dumps(play.log()[-1].splits))} == {
        f"{topic}-0": False,
        f"{topic}-1": True,
        f"{topic}-2": True,
    }


def test_a_topic_that_is_taken_out_holds_nothing_back(
    spark: SparkSession, broker: EmbeddedKafka, topics: Topics, tmp_path: Path
) -> None:
    stays, goes = topics.create(), topics.create()
    topics.send(stays, {"id": 1}, at=100_000)
    topics.send(goes, {"id": 2}, at=50_000)
    play = Play(script(given(broker.bootstrap, f"{stays};{goes}", format="json")), spark, tmp_path)
    play.advance()
    assert play.log()[-1].timestamp == 49_000
    topics.delete(goes)
    topics.send(stays, {"id": 3}, at=110_000)
    play.harness.runner.close()
    play = Play(script(given(broker.bootstrap, stays, format="json")), spark, tmp_path)
    play.advance()
    assert {split["split"]: split["ended"] for split in play.log()[-1].splits} == {
        f"{stays}-0": False,
        f"{goes}-0": True,
    }
    assert play.log()[-1].timestamp == 109_000


def test_a_topic_s_own_watermark_is_behind_the_greatest_record_of_each_partition(
    spark: SparkSession, broker: EmbeddedKafka, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create(partitions=2)
    for partition, at in ((0, 100_000), (0, 90_000), (1, 50_000)):
        topics.send(topic, {"id": at}, partition=partition, at=at)
    text = script(given(broker.bootstrap, topic, format="json")).replace(
        "at - INTERVAL '1' SECOND", "SYSTEM_WATERMARK()"
    )
    play = Play(text, spark, tmp_path)
    play.advance()
    row = play.log()[-1]
    assert {split["split"]: split["timestamp"] for split in row.splits} == {f"{topic}-0": 99_999, f"{topic}-1": 49_999}
    assert row.timestamp == 49_999


def test_alignment_keeps_to_the_limit_but_for_one_record_of_who_is_waited_for(
    spark: SparkSession, broker: EmbeddedKafka, topics: Topics, tmp_path: Path
) -> None:
    slow, fast = topics.create(), topics.create()
    topics.send(slow, {"id": 1}, at=1_000)
    for number in range(6):
        topics.send(fast, {"id": number}, at=number * 10_000)
    aligned = {
        "scan.watermark.alignment.group": "g",
        "scan.watermark.alignment.max-drift": "20 s",
        "format": "json",
    }
    text = "".join(
        script(given(broker.bootstrap, topic) | aligned).replace("events", name).replace("kept", f"kept_{name}")
        for name, topic in (("slow", slow), ("fast", fast))
    )
    play = Play(text, spark, tmp_path)
    found = play.harness.runner.advance_all(["slow", "fast"])
    assert play.values(table="fast") == [0, 1, 2], "its next is past the limit, and it is not the one that all wait for"
    assert [[item.split for item in advance.blocked] for advance in found] == [[], [f"{fast}-0"]]
    topics.send(slow, {"id": 2}, at=15_000)
    topics.send(slow, {"id": 3}, at=90_000)  # past any limit, but all wait for this one
    play.harness.runner.advance("slow", max_epochs=1)
    play.harness.runner.advance("fast")
    assert play.values(table="fast") == [0, 1, 2, 3]
    play.harness.runner.advance_all(["slow", "fast"])
    assert play.values(table="fast") == [0, 1, 2, 3, 4, 5]
