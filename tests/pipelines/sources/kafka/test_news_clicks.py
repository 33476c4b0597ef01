"""examples/news_clicks from a topic of two partitions, against plain Python."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipelines.sources.kafka.server import EmbeddedKafka
from tests.pipelines.sources.kafka.topics import Topics
from tests.stories.test_news_clicks import DISORDER, EXAMPLE, counted, random_events, shown
from tidegate.pipelines.runtime.scripts import load_script
from tidegate.pipelines.testing import Harness


@pytest.mark.thorough
def test_a_topic_is_counted(
    spark: SparkSession, tmp_path: Path, broker: EmbeddedKafka, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEWS_TABLES", "kafka.sql")
    topic, events = topics.create(partitions=2), random_events(11, news=20, clicks=600)
    harness = Harness(load_script(EXAMPLE / "pipeline.py"), spark, tmp_path)
    harness.runner.environment = {"NEWS_TOPIC": topic, "KAFKA": broker.bootstrap}
    end = events[-1]
    told = []
    for part in (events[:300], events[300:-1], [end]):
        for place, (kind, news, time) in enumerate(part):
            topics.send(topic, {"type": kind, "news_id": news, "timestamp": time}, partition=place % 2)
        if part[-1] is end:  # both partitions have come to the end
            topics.send(topic, {"type": "RELEASE", "news_id": news + 1, "timestamp": time}, partition=1)
        told += shown(harness.advance())
    assert sorted(told) == counted(events, end[2] - DISORDER)
    assert len(told) == 100
