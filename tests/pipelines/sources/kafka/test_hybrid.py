"""A topic as the live part of a hybrid table: files first, then its messages, in their own splits and order."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipelines.errors import SourceError
from pipelines.sources.kafka.server import EmbeddedKafka
from tests.pipelines.sources.kafka.play import Play
from tests.pipelines.sources.kafka.topics import Topics

SCRIPT = """
CREATE TABLE history (id BIGINT, name STRING) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'json');
CREATE TABLE live (id BIGINT, name STRING) WITH (
    'connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{servers}', 'format' = 'json',
    'format.on-error' = 'quarantine');
CREATE TABLE users (id BIGINT PRIMARY KEY NOT ENFORCED, name STRING) WITH (
    'connector' = 'hybrid', 'hybrid.sources' = 'history, live');
CREATE TABLE clicks (user_id BIGINT, item BIGINT, proctime AS PROCTIME()) WITH ('connector' = 'scripted');
CREATE TABLE joined (item BIGINT, name STRING) WITH ('connector' = 'scripted');
INSERT INTO joined SELECT c.item, u.name FROM clicks AS c
LEFT JOIN users FOR SYSTEM_TIME AS OF c.proctime AS u ON c.user_id = u.id;
"""


def test_history_then_a_topic(
    spark: SparkSession,
    broker: EmbeddedKafka,
    topics: Topics,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "history"
    folder.mkdir()
    monkeypatch.setenv("TIDEGATE_FILES_ROOT", str(folder))
    file = folder / "a.json"
    file.write_text("".join(json.dumps({"id": number, "name": "old"}) + "\n" for number in (1, 2)))
    os.utime(file, (1_700_000_000, 1_700_000_000))
    topic = topics.create(partitions=2)
    topics.send(topic, {"id": 1, "name": "new"}, "broken", partition=0)
    play = Play(
        SCRIPT.format(path=folder, topic=topic, servers=broker.bootstrap),
        spark,
        tmp_path / "run",
        now=1_800_000_000_000,
    )
    play.harness.push("clicks", [{"user_id": number, "item": number} for number in (1, 2)])
    assert sorted((row["item"], row["name"]) for row in play.harness.advance()) == [(1, "new"), (2, "old")]
    assert [(row["_split"], row["_offset"]) for row in play.rejected("users")] == [(f"live/{topic}-0", 1)]

    topics.send(topic, {"id": 1, "name": "elsewhere"}, partition=1)
    with pytest.raises(SourceError, match=f"came in {topic}-0 and in {topic}-1"):
        play.advance("users")
