"""A topic as the live part of a hybrid table: files first, then its messages, in their own splits and order.

And examples/news_clicks from a topic of two partitions, against plain Python.
"""

from __future__ import annotations

import datetime
import json
import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.cases import at_length
from tests.pipelines.runtime.crashing import dying
from tests.pipelines.sources.kafka.play import Play
from tests.pipelines.sources.kafka.server import EmbeddedKafka
from tests.pipelines.sources.kafka.topics import Topics
from tests.stories.test_news_clicks import DISORDER, EXAMPLE, counted, random_events, shown
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.runtime.scripts import load_script
from tidegate.pipelines.testing import Harness

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


@pytest.mark.thorough
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


SWITCH = """
CREATE TABLE history (id BIGINT, at TIMESTAMP(3)) WITH (
    'connector' = 'filesystem', 'path' = '{path}', 'format' = 'changelog-json');
CREATE TABLE live (id BIGINT, at TIMESTAMP(3)) WITH (
    'connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{servers}',
    'format' = 'changelog-json');
CREATE TABLE events (id BIGINT PRIMARY KEY NOT ENFORCED, at TIMESTAMP(3), WATERMARK FOR at AS at) WITH (
    'connector' = 'hybrid', 'hybrid.sources' = 'history, live', 'hybrid.switch' = 'rowtime'{overlap});
CREATE TABLE clicks (id BIGINT, at TIMESTAMP(3), WATERMARK FOR at AS at) WITH ('connector' = 'scripted');
CREATE TABLE kept (id BIGINT, at TIMESTAMP(3)) WITH ('connector' = 'scripted');
INSERT INTO kept SELECT c.id, e.at FROM clicks AS c JOIN events FOR SYSTEM_TIME AS OF c.at AS e ON c.id = e.id;
"""
SECOND = 1_700_000_000


def event(op: str, id: int, second: int) -> dict[str, object]:
    at = datetime.datetime.fromtimestamp(SECOND + second, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    return {"op": op, "data": {"id": id, "at": at}}


@pytest.mark.parametrize(
    ("history", "overlap", "expected"),
    at_length(
        [
            # The file is younger than all records, and it holds the delete: neither counts.
            ([event("+I", 1, 10), event("-D", 1, 10)], "", [1, 1, 13, 14]),
            ([event("+I", 1, 10)], ", 'hybrid.switch.overlap' = '4 s'", [1, 12, 13, 14]),
            ([], "", [11, 12, 13, 14]),
            ([event("+I", 1, 10**9)], "", None),
        ],
        fast=2,
    ),
)
def test_a_topic_from_where_the_history_ends(
    spark: SparkSession,
    broker: EmbeddedKafka,
    topics: Topics,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    history: list[dict[str, object]],
    overlap: str,
    expected: list[int] | None,
) -> None:
    folder = tmp_path / "history"
    folder.mkdir()
    monkeypatch.setenv("TIDEGATE_FILES_ROOT", str(folder))
    (folder / "a.json").write_text("".join(json.dumps(change) + "\n" for change in history))
    os.utime(folder / "a.json", (SECOND + 10**6, SECOND + 10**6))
    topic = topics.create(partitions=2)
    for second, partition in ((5, 0), (7, 1), (10, 0), (12, 1)):
        number = 11 + (5, 7, 10, 12).index(second)
        topics.send(topic, event("+I", number, second), partition=partition, at=(SECOND + second) * 1000)
    script = SWITCH.format(path=folder, topic=topic, servers=broker.bootstrap, overlap=overlap)
    play = Play(script, spark, tmp_path / "run", now=1_800_000_000_000)

    if expected is None:
        with pytest.raises(SourceError, match=r"reach up to 2055-07-24 .* by at, which is yet to come"):
            play.advance()
        assert play.values() == [1]
        return
    with dying("source.planned", passes=2):  # the topic's first step is planned: what it begins at stands
        play.advance()
    play.harness.restart()
    play.advance()
    assert sorted(play.values()) == expected


@pytest.mark.thorough
def test_a_topic_is_counted(
    spark: SparkSession, tmp_path: Path, broker: EmbeddedKafka, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEWS_TABLES", "kafka.sql")
    topic, events = topics.create(partitions=2), random_events(11, news=20, clicks=600)
    harness = Harness(load_script(EXAMPLE / "pipeline.py"), spark, tmp_path)
    harness.runner.environment = {"NEWS_TOPIC": topic, "KAFKA": broker.bootstrap}
    end = events[-1]
    released = []
    for part in (events[:300], events[300:-1], [end]):
        for place, (kind, news, time) in enumerate(part):
            topics.send(topic, {"type": kind, "news_id": news, "timestamp": time}, partition=place % 2)
        if part[-1] is end:  # both partitions have come to the end
            topics.send(topic, {"type": "RELEASE", "news_id": news + 1, "timestamp": time}, partition=1)
        released += shown(harness.advance())
    assert sorted(released) == counted(events, end[2] - DISORDER)
    assert len(released) == 100
