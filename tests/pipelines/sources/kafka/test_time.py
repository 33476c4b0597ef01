"""A topic in event time: a watermark a partition, an idle one is passed over, and the record's time as the rowtime.

What alignment lets a topic's plan read, by the times that the broker reports of records; the broker is made up.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any, cast

import pytest

from tests.oracle.event_time import Build, Join, Probe
from tests.pipelines.sources.kafka.play import Play, Room, options_sql
from tests.pipelines.sources.kafka.topics import Topics
from tidegate.pipelines.connectors.protocol import PlanRequest, SourceContext, Step, StoredStep
from tidegate.pipelines.connectors.registry import connector
from tidegate.pipelines.runtime.status import status
from tidegate.pipelines.sources.kafka.cluster import Partition
from tidegate.pipelines.sources.kafka.source import KafkaSource
from tidegate.pipelines.sql import compile_script

BY_RECORD = """id BIGINT,
at AS SYSTEM_ROWTIME(),
WATERMARK FOR at AS SYSTEM_WATERMARK() - INTERVAL '1' SECOND"""


def script(options: dict[str, str]) -> str:
    given_sql = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    return f"""
CREATE TABLE events ({BY_RECORD}) WITH ('connector' = 'kafka', {given_sql});
CREATE TABLE kept (id BIGINT, at TIMESTAMP_LTZ(3)) WITH ('connector' = 'scripted');
INSERT INTO kept SELECT id, at FROM events;
"""


def test_the_slowest_partition_holds_until_it_is_idle(room: Room, topics: Topics) -> None:
    topic = topics.create(partitions=3)
    topics.send(topic, {"id": 1}, partition=0, at=100_000)
    topics.send(topic, {"id": 2}, partition=1, at=50_000)
    options = room.given(topic, format="json", scan__watermark__idle_timeout="10 s")
    play = room.play(script(options))
    play.advance()
    assert play.log()[-1].timestamp < 0
    play.now += 11_000
    topics.send(topic, {"id": 3}, partition=0, at=110_000)
    topics.send(topic, {"id": 4}, partition=1, at=60_000)
    play.advance()
    assert play.log()[-1].timestamp == 58_999
    play.now += 11_000
    topics.send(topic, {"id": 5}, partition=0, at=120_000)
    play.advance()
    assert play.log()[-1].timestamp == 118_999
    assert {split["split"]: split["idle"] for split in json.loads(json.dumps(play.log()[-1].splits))} == {
        f"{topic}-0": False,
        f"{topic}-1": True,
        f"{topic}-2": True,
    }


def test_a_topic_s_own_watermark_is_behind_the_greatest_record_of_each_partition(room: Room, topics: Topics) -> None:
    topic = topics.create(partitions=2)
    for partition, at in ((0, 100_000), (0, 90_000), (1, 50_000)):
        topics.send(topic, {"id": at}, partition=partition, at=at)
    text = script(room.given(topic, format="json")).replace(" - INTERVAL '1' SECOND", "")
    play = room.play(text)
    play.advance()
    row = play.log()[-1]
    assert {split["split"]: split["timestamp"] for split in row.splits} == {f"{topic}-0": 99_999, f"{topic}-1": 49_999}
    assert row.timestamp == 49_999


def at_limit(play: Play) -> dict[str, list[tuple[str, int | None]]]:
    """What `tidegate status` tells of every table's blocked splits: which, and the time of the next row."""
    found = status(play.lake, play.harness.pipeline, lambda: play.now).sources
    return {source.table: [(item.split, item.next_rowtime) for item in source.blocked] for source in found}


@pytest.mark.thorough  # below: where a plan stops
def test_alignment_keeps_to_the_limit_but_for_one_record_of_who_is_waited_for(room: Room, topics: Topics) -> None:
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
        script(room.given(topic) | aligned).replace("events", name).replace("kept", f"kept_{name}")
        for name, topic in (("slow", slow), ("fast", fast))
    )
    play = room.play(text)
    found = play.harness.runner.advance_all(["slow", "fast"])
    assert play.values(table="fast") == [0, 1, 2], "its next is past the limit, and it is not the one that all wait for"
    assert [[item.split for item in advance.blocked] for advance in found] == [[], [f"{fast}-0"]]
    assert at_limit(play) == {"slow": [], "fast": [(f"{fast}-0", 30_000)]}
    topics.send(slow, {"id": 2}, at=15_000)
    topics.send(slow, {"id": 3}, at=90_000)  # past any limit, but all wait for this one
    play.harness.runner.advance("slow", max_epochs=1)
    play.harness.runner.advance("fast")
    assert play.values(table="fast") == [0, 1, 2, 3]
    play.harness.runner.advance_all(["slow", "fast"])
    assert play.values(table="fast") == [0, 1, 2, 3, 4, 5]
    topics.send(fast, {"id": 6}, at=80_000)
    play.harness.runner.advance("fast")
    topics.send(slow, {"id": 4}, at=200_000)
    (epoch,) = play.harness.runner.advance("slow").epochs
    assert (epoch.rows, epoch.summary) == (0, "no rows: at the limit of its group")
    assert play.harness.runner.advance("slow").epochs == (), "the log knows it"
    assert at_limit(play) == {"slow": [(f"{slow}-0", 200_000)], "fast": []}


JOINED = """
CREATE TABLE clicks (item INT, user_id BIGINT, city STRING, at TIMESTAMP_LTZ(3) METADATA FROM 'timestamp',
    WATERMARK FOR at AS at - INTERVAL '5' SECOND) WITH ({clicks});
CREATE TABLE users (id BIGINT, name STRING, changed AS SYSTEM_ROWTIME(), PRIMARY KEY (id) NOT ENFORCED,
    WATERMARK FOR changed AS SYSTEM_WATERMARK() - INTERVAL '1' SECOND) WITH ({users});
CREATE TABLE cities (city STRING, mayor STRING, since TIMESTAMP_LTZ(3), PRIMARY KEY (city) NOT ENFORCED,
    WATERMARK FOR since AS since) WITH ({cities});
CREATE TABLE joined (item INT, name STRING, mayor STRING)
    WITH ('connector' = 'scripted', 'gate.on-unmatched' = 'publish');
INSERT INTO joined SELECT c.item, u.name, m.mayor FROM clicks AS c
LEFT JOIN users FOR SYSTEM_TIME AS OF c.at AS u ON c.user_id = u.id
LEFT JOIN cities FOR SYSTEM_TIME AS OF c.at AS m ON c.city = m.city;
"""
BASE = 1_700_000_000_000


class Topical:
    """The three topics of JOINED, of two partitions each, and the oracle that hears of every message."""

    def __init__(self, room: Room, topics: Topics) -> None:
        self.topics, self.random, self.items = topics, Random(22), 0
        self.clicks, self.users, self.cities = (topics.create(partitions=2, retention_ms="-1") for _ in range(3))
        self.names: dict[int, str] = {}
        split = ("0", "1")
        self.probe = Probe(split, 5_000)
        self.users_build, self.cities_build = Build(split, 1_001, flipped=False), Build(split, 0)
        self.join = Join(self.probe, {"users": self.users_build, "cities": self.cities_build})
        upsert = {"connector": "upsert-kafka", "key.format": "json", "value.format": "json"}
        tables = {
            "clicks": room.given(self.clicks, connector="kafka", format="json"),
            "users": room.given(self.users, connector="kafka", format="debezium-json"),
            "cities": room.given(self.cities) | upsert,
        }
        self.script = JOINED.format(**{name: options_sql(options) for name, options in tables.items()})

    def click(self, partition: int, at: int, user: int, city: str) -> None:
        self.items += 1
        message = {"item": self.items, "user_id": user, "city": city}
        self.topics.send(self.clicks, message, partition=partition, at=BASE + at)
        self.probe.add(str(partition), self.items, BASE + at, users=user, cities=city)

    def user(self, id: int, at: int, name: str | None, snapshot: str = "false") -> None:
        """What Debezium writes as the row of `id` becomes `name`, or goes; a snapshot's mark where it is one's row."""
        before, after = ({"id": id, "name": known} if known else None for known in (self.names.get(id), name))
        op = "r" if snapshot != "false" else "d" if after is None else "u" if before else "c"
        source = {"ts_ms": BASE + at, "snapshot": snapshot, "db": "shop", "table": "users"}
        message = {"before": None if op == "r" else before, "after": after, "op": op, "source": source}
        self.topics.send(self.users, message, key={"id": id}, partition=id % 2)
        if op == "d":
            self.topics.send(self.users, None, key={"id": id}, partition=id % 2)
        self.names = {key: text for key, text in {**self.names, id: name}.items() if text is not None}
        self.users_build.change(str(id % 2), id, BASE + at, name)

    def city(self, name: str, at: int, mayor: str | None) -> None:
        """A city's row, whose time is a column; its tombstone, whose time is the record's and tells no watermark."""
        since = datetime.fromtimestamp((BASE + at) / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        message = None if mayor is None else {"city": name, "mayor": mayor, "since": f"{since}Z"}
        partition = len(name) % 2
        self.topics.send(self.cities, message, key={"city": name}, partition=partition, at=BASE + at)
        self.cities_build.change(str(partition), name, BASE + at, mayor, tells=mayor is not None)

    def round(self, begin: int, *, users: bool = True) -> None:
        """Ten seconds of every topic, each message up to nine seconds out of order."""
        for number in range(12):
            at = begin + number * 800 + self.random.randrange(-9_000, 9_000)
            self.click(number % 2, at, self.random.randrange(1, 5), self.random.choice(("Bonn", "Ulm", "Kiel")))
        for number in range(6):
            at, id = begin + number * 1_600 + self.random.randrange(-9_000, 9_000), number % 3 + 1
            gone = id in self.names and self.random.random() < 0.3
            if users:
                self.user(id, at, None if gone else f"{id} at {at}")
            city = ("Bonn", "Ulm", "Kiel")[number // 2]
            self.city(city, at + 1, None if self.random.random() < 0.3 else f"{city} at {at}")


@pytest.mark.thorough
def test_rows_meet_the_versions_of_their_own_time_over_epochs_and_a_restart(room: Room, topics: Topics) -> None:
    """A topic probes by its records' times a debezium-json and an upsert-kafka table."""
    topical = Topical(room, topics)
    play = room.play(topical.script)

    def released() -> list[tuple[Any, ...]]:
        return sorted((row["item"], row["name"], row["mayor"]) for row in play.harness.advance())

    topical.user(1, 0, "one", snapshot="first")
    topical.user(2, 0, "two", snapshot="true")
    topical.round(10_000, users=False)
    assert (released(), topical.join.release()) == ([], []), "no mark has marked the end of the snapshot"
    topical.user(3, 0, "three", snapshot="last")
    topical.users_build.land()
    topical.users_build.flipped = True
    everything: list[tuple[Any, ...]] = []
    for number in range(1, 4):
        topical.round(10_000 + number * 10_000)
        found = released()
        assert found == topical.join.release(), f"round {number}"
        everything += found
        if number == 2:
            play.harness.restart()
    assert len(everything) > 30
    assert any(name is None for _, name, _ in everything)
    assert any(mayor is None for _, _, mayor in everything)
    for name, part in {"clicks": topical.probe, **topical.join.builds}.items():
        assert sum(row.late or 0 for row in play.log(name)) == part.late, name
        assert play.log(name)[-1].timestamp == part.watermark, name
    assert topical.users_build.late > 0


SCRIPT = """
CREATE TABLE fast (id BIGINT, at TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', WATERMARK FOR at AS at) WITH (
    'connector' = 'kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'nowhere:1', 'format' = 'json',
    'format.on-error' = 'quarantine', 'scan.startup.mode' = 'earliest-offset');
CREATE TABLE copied (id BIGINT, at TIMESTAMP_LTZ(3)) WITH ('connector' = 'delta');
INSERT INTO copied SELECT id, at FROM fast;
"""
READ = 2
"""Messages that earlier epochs have read."""


@dataclass
class MadeUp:
    """One partition with a message at each of `times`."""

    times: list[int]
    isolation: str = field(default="read_committed")

    def earliest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(partitions, 0)

    def first_after(self, partitions: Iterable[Partition], time: int) -> dict[Partition, tuple[int, int]]:
        """As the broker answers: of the whole partition, whatever was read of it."""
        offset = next((place for place, at in enumerate(self.times) if at > time), None)
        return {} if offset is None else dict.fromkeys(partitions, (offset, self.times[offset]))


@pytest.mark.parametrize("ahead", [True, False], ids=["others are behind", "the slowest"])
@pytest.mark.parametrize(
    ("times", "stop", "held"),
    [
        pytest.param([10, 20, 30, 90, 40], 3, {"t-0": 90}, id="the next one past the limit is not read yet"),
        # The one at 900 is in quarantine, so nobody has counted its time. Those behind it are within the limit.
        pytest.param([10, 900, 20, 30], 4, {}, id="one past the limit was read and gave no row"),
        pytest.param([10, 20, 30, 40], 4, {}, id="all within the limit"),
    ],
)
def test_a_plan_stops_at_the_first_unread_record_past_the_limit(
    times: list[int], stop: int, held: dict[str, int], ahead: bool
) -> None:
    context = SourceContext(
        table=compile_script(SCRIPT).table("fast"),
        options=dict(compile_script(SCRIPT).table("fast").options),
        generation=1,
        splits=cast(Any, None),
        scratch="",
        clock=lambda: 0,
    )
    source = connector("kafka").source(context)
    assert isinstance(source, KafkaSource)
    source._cluster = cast(Any, MadeUp(times))
    ends = {"topics": {"t": {"id": "I", "partitions": {"0": len(times)}}}, "at": 0}
    topics = {"t": {"id": "I", "ordinal": 0, "partitions": {"0": [0, READ]}}}
    read = {"topics": topics, "last_ordinal": 0, "ends": ends, "seen_at": 0}
    before = StoredStep(Step({**read, "reached": False}), 1, 1, 0)
    planned = source.plan(
        PlanRequest(
            previous=before, first=before, flipped=True, ends=ends, instant=0, max_rows=100, limit=60,
            ahead=frozenset({"t-0"}) if ahead else frozenset(),
        )
    )  # fmt: skip
    assert planned.step is not None
    assert planned.step.ranges["topics"]["t"]["partitions"] == {"0": [READ, stop]}
    assert planned.held == held
