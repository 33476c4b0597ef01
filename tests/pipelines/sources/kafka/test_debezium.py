"""A topic that Debezium writes, as a build side: its snapshot's end, and what orders its changes."""

from __future__ import annotations

from typing import Any

import pytest

from tests import cases
from tests.cases import at_length
from tests.pipelines.runtime.crashing import dying
from tests.pipelines.sources.kafka.play import Play, Room
from tests.pipelines.sources.kafka.topics import Topics
from tidegate.pipelines.errors import SourceError


def change(op: str, before: Any, after: Any, snapshot: str = "false", **source: Any) -> dict[str, Any]:
    """A message of Debezium's for MySQL, without its schema."""
    at = {"connector": "mysql", "ts_ms": 1_700_000_000_000, "snapshot": snapshot, **source}
    return {"before": before, "after": after, "op": op, "ts_ms": 1_700_000_000_500, "source": at}


def row(id: int, name: str) -> dict[str, Any]:
    return {"id": id, "name": name}


def send(topics: Topics, topic: str, message: dict[str, Any], partition: int) -> None:
    kept = message["after"] or message["before"]
    topics.send(topic, message, key={"id": kept["id"]}, partition=partition)


def play_of(room: Room, topic: str, folder: str = "", **more: str) -> Play:
    return room.build(room.given(topic, format="debezium-json", **more), folder, connector="kafka")


@pytest.mark.thorough
def test_a_topic_with_snapshots_of_several_tables_never_flips_by_the_mark_of_one(room: Room, topics: Topics) -> None:
    topic = topics.create()
    send(topics, topic, change("r", None, row(1, "ann"), "last_in_data_collection", db="shop", table="users_1"), 0)
    send(topics, topic, change("r", None, row(2, "bob"), "first_in_data_collection", db="shop", table="users_2"), 0)
    play = play_of(room, topic)
    play.harness.push("clicks", [{"user_id": 1, "item": 1}])
    for _ in range(2):
        with pytest.raises(SourceError, match=r"several tables, shop\.users_1 and shop\.users_2"):
            play.advance("users")
    assert play.harness.runner.release("joined").published == ()


@pytest.mark.parametrize("before", at_length([False, True]))
def test_a_snapshot_of_another_table_that_comes_later_is_an_error_too(room: Room, before: bool, topics: Topics) -> None:
    """Before the flip, and after it: then rows may have left that would have met it."""
    topic = topics.create()
    first = "first_in_data_collection" if before else "last_in_data_collection"
    send(topics, topic, change("r", None, row(1, "ann"), first, db="shop", table="users_1"), 0)
    play = play_of(room, topic)
    assert play.advance("users").flipped is not before
    if before:
        send(topics, topic, change("r", None, row(3, "cy"), "last", db="shop", table="users_1"), 0)
    send(topics, topic, change("r", None, row(2, "bob"), "first_in_data_collection", db="shop", table="users_2"), 0)
    for _ in range(2):
        with pytest.raises(SourceError, match=r"several tables, shop\.users_1 and shop\.users_2") as refused:
            play.advance("users")
        assert ("flipped at the end of the first" in refused.value.state) is not before


def test_it_flips_past_the_ends_as_of_the_snapshots_last_row(room: Room, topics: Topics) -> None:
    topic = topics.create(partitions=2)
    send(topics, topic, change("r", None, row(1, "ann"), "first"), 0)
    play = play_of(room, topic)
    play.harness.push("clicks", [{"user_id": 1, "item": 1}, {"user_id": 2, "item": 2}])
    first = play.advance("users")
    assert [(epoch.rows, epoch.phase, epoch.flipped) for epoch in first.epochs] == [(1, "bounded", False)]
    assert play.harness.advance() == []

    send(topics, topic, change("r", None, row(2, "bob"), "last_in_data_collection"), 1)
    second = play.advance("users")
    assert [(epoch.rows, epoch.phase, epoch.flipped) for epoch in second.epochs] == [
        (1, "bounded", False),
        (0, "unbounded", True),
    ]
    send(topics, topic, change("u", row(1, "ann"), row(1, "anne")), 0)
    send(topics, topic, change("d", row(2, "bob"), None), 1)
    topics.send(topic, None, key={"id": 2}, partition=1)
    assert [(found["item"], found["name"]) for found in play.harness.advance()] == [(1, "anne")]
    landed = play.landed("users")
    assert [(found["_op"], found["id"], found["name"]) for found in landed if found["_split"].endswith("-1")] == [
        ("r", 2, "bob"),
        ("d", 2, "bob"),
    ]
    assert {found["_rowtime"].timestamp() for found in landed} == {1_700_000_000}


@pytest.mark.thorough
def test_rows_of_other_partitions_that_were_there_at_the_mark_are_waited_for(room: Room, topics: Topics) -> None:
    topic = topics.create(partitions=2)
    send(topics, topic, change("r", None, row(1, "ann"), "last"), 0)
    for number in range(2, 6):
        send(topics, topic, change("c", None, row(number, "x")), 1)
    play = play_of(room, topic, scan__max_rows_per_epoch="2")
    done = play.advance("users")
    assert [epoch.flipped for epoch in done.epochs][-1]
    assert not any(epoch.flipped for epoch in done.epochs[:-1])
    assert sum(epoch.rows for epoch in done.epochs) == 5


@pytest.mark.thorough  # test_source.py: a topic that was made again, and a key of one that is gone
def test_the_mark_of_a_topic_that_was_deleted_is_not_that_of_its_namesake(room: Room, topics: Topics) -> None:
    """Another table's snapshot may come in the new topic, and it is waited for."""
    one, two = "twice-a", "twice-b"
    topics.create(one)
    topics.create(two)
    send(topics, one, change("r", None, row(1, "ann"), "last_in_data_collection", db="shop", table="users_1"), 0)
    send(topics, two, change("r", None, row(11, "bob"), "first", db="shop", table="users_2"), 0)
    options = room.given(topic_pattern="twice-.*", format="debezium-json")
    play = room.build(options, connector="kafka")
    assert not play.advance("users").flipped
    topics.delete(one)
    send(topics, two, change("r", None, row(12, "bea"), "true", db="shop", table="users_2"), 0)
    assert not play.advance("users").flipped
    topics.create(one)
    send(topics, one, change("r", None, row(2, "cy"), "first", db="shop", table="users_3"), 0)
    send(topics, two, change("r", None, row(13, "bo"), "last_in_data_collection", db="shop", table="users_2"), 0)
    assert not play.advance("users").flipped
    send(topics, one, change("r", None, row(3, "dan"), "last_in_data_collection", db="shop", table="users_3"), 0)
    assert play.advance("users").flipped
    topics.delete(one)
    topics.delete(two)


@pytest.mark.parametrize("point", at_length(["source.appended", "source.landed"]))
def test_the_mark_is_found_again_after_an_abort(room: Room, topics: Topics, point: str) -> None:
    topic = topics.create()
    send(topics, topic, change("r", None, row(1, "ann"), "last"), 0)
    play = play_of(room, topic)

    with dying(point):
        play.advance("users")
    play.harness.restart()
    assert play.advance("users").flipped
    assert [found["name"] for found in play.landed("users")] == ["ann"]


def test_a_mark_in_a_message_that_is_passed_over_counts(room: Room, topics: Topics) -> None:
    topic = topics.create()
    send(topics, topic, change("r", None, row(1, "ann")), 0)
    topics.send(topic, change("r", None, {"id": "two", "name": "bob"}, "last"))
    play = play_of(room, topic, **{"debezium_json__ignore_parse_errors": "true"})
    done = play.advance("users")
    assert (done.rows, done.flipped) == (1, True)
    assert "marked" not in play.log("users")[-1].position


def test_a_table_that_was_empty_flips_by_offsets(room: Room, topics: Topics) -> None:
    topic = topics.create()
    waits = play_of(room, topic, "marker")
    assert not waits.advance("users").flipped
    assert waits.log("users")[-1].position == (
        f"{topic}-0:0; no message of {topic} has marked the end of a snapshot ('scan.snapshot.end')"
    )
    flips = play_of(room, topic, "offsets", scan__snapshot__end="offsets")
    assert flips.advance("users").flipped


def test_the_databases_own_order_holds_over_partitions(room: Room, topics: Topics) -> None:
    topic = topics.create(partitions=2)
    send(topics, topic, change("r", None, row(1, "ann"), "last", file="binlog.000009", pos=700), 1)
    send(topics, topic, change("u", row(1, "ann"), row(1, "anna"), file="binlog.000010", pos=4, row=1), 1)
    send(topics, topic, change("u", row(1, "ann"), row(1, "anne"), file="binlog.000010", pos=4, row=0), 0)
    by_offset = play_of(room, topic, "offset")
    with pytest.raises(SourceError, match="came in"):
        by_offset.advance("users")
    play = play_of(room, topic, "source", scan__changes__order="source")
    play.harness.push("clicks", [{"user_id": 1, "item": 1}])
    assert [found["name"] for found in play.harness.advance()] == ["anna"]
    assert [(found["name"], *found["_seq"].values()) for found in play.landed("users")] == [
        ("anne", 1, 0, 10, 4, 0),
        ("ann", 1, 0, 9, 700, -1),
        ("anna", 1, 0, 10, 4, 1),
    ]
    # The connector has read the table once more; a change of before comes late.
    send(topics, topic, change("r", None, row(1, "annie"), "last", file="binlog.000011", pos=4), 0)
    send(topics, topic, change("u", row(1, "anna"), row(1, "anni"), file="binlog.000010", pos=900), 1)
    play.advance("users")
    play.harness.push("clicks", [{"user_id": 1, "item": 2}])
    assert [found["name"] for found in play.harness.advance()] == ["annie"]
    send(topics, topic, change("u", row(1, "ann"), row(1, "anno"), file="", pos=0), 0)
    with pytest.raises(SourceError, match="does not say where in the database's log it stands"):
        play.advance("users")


def test_the_log_of_another_server_is_refused_and_both_ways_out_work(room: Room, topics: Topics) -> None:
    """After a failover places begin anew below the old ones, and every old row would win."""
    topic = topics.create()
    old = {"server_id": 1, "file": "binlog.000012"}
    new = {"server_id": 2, "file": "binlog.000003"}
    send(topics, topic, change("r", None, row(1, "ann"), "first", **old, pos=400), 0)
    send(topics, topic, change("r", None, row(2, "bob"), "last", **old, pos=400), 0)
    for _ in range(2):  # the connector starts again, and writes its last message once more
        send(topics, topic, change("u", row(1, "ann"), row(1, "old"), **old, pos=900, row=0), 0)
    play = play_of(room, topic, "source", scan__changes__order="source")
    assert play.joined(1, 2)[1] == [(1, "old"), (2, "bob")]
    send(topics, topic, change("u", row(1, "old"), row(1, "NEW"), **new, pos=700, row=0), 0)
    send(topics, topic, change("d", row(2, "bob"), None, **new, pos=900, row=0), 0)
    for resnapshot in (False, True)[not cases.AT_LENGTH :]:  # the topic has both logs, from wherever it is read
        with pytest.raises(SourceError, match=f"{topic}-0, offset [45]: .* file 3, .* file 12, .* two logs") as refused:
            play.advance("users", resnapshot=resnapshot)
    way = str(refused.value.next_command)
    assert f"delete the topic {topic}, make it again" in way
    assert "--resnapshot users" in way

    by_offset = play_of(room, topic, "offset")
    _, published, quarantined = by_offset.joined(1, 2)
    assert (published, quarantined) == ([(1, "NEW")], ["unmatched:deleted@u"])

    topics.delete(topic)
    topics.create(topic)
    send(topics, topic, change("r", None, row(1, "NEWER"), "last", **new, pos=1200), 0)
    play.advance("users", resnapshot=True)
    send(topics, topic, change("u", row(1, "NEWER"), row(1, "NEWEST"), **new, pos=1300, row=0), 0)
    play.harness.push("clicks", [{"user_id": 1, "item": 9}])
    assert [found["name"] for found in play.harness.advance()] == ["NEWEST"]


def test_a_truncate_among_partitions_is_an_error(room: Room, topics: Topics) -> None:
    topic = topics.create(partitions=2)
    send(topics, topic, change("r", None, row(1, "ann"), "last"), 0)
    topics.send(topic, change("t", None, None), partition=1)
    play = play_of(room, topic)
    with pytest.raises(SourceError, match=f"{topic}-1 holds a truncate"):
        play.advance("users")


def test_a_probe_with_updates_keeps_its_order(room: Room, topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, change("c", None, row(1, "a")), change("u", row(1, "a"), row(1, "b")))
    text = """
CREATE TABLE users (id BIGINT PRIMARY KEY NOT ENFORCED, name STRING, at AS SYSTEM_ROWTIME(),
    WATERMARK FOR at AS SYSTEM_WATERMARK())
WITH ('connector' = 'datagen', 'number-of-rows' = '0');
CREATE TABLE events (id BIGINT, name STRING, at AS SYSTEM_ROWTIME(), WATERMARK FOR at AS SYSTEM_WATERMARK())
WITH ('connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{servers}',
    'format' = 'debezium-json');
CREATE TABLE joined (id BIGINT, name STRING) WITH ('connector' = 'scripted');
INSERT INTO joined SELECT e.id, e.name FROM events AS e LEFT JOIN users FOR SYSTEM_TIME AS OF e.at AS u ON e.id = u.id;
"""
    play = room.play(text.format(topic=topic, servers=room.bootstrap))
    play.advance("events")
    assert [(found["_op"], found["name"], found["_offset"]) for found in play.landed()] == [
        ("+I", "a", 0),
        ("-U", "a", 2**20),
        ("+U", "b", 2**20 + 1),
    ]


def test_what_a_message_says_beside_its_row(room: Room, topics: Topics) -> None:
    """With the format's own option name, and with the value's; beside a column of Kafka's own."""
    columns = (
        "id BIGINT, name STRING, place BIGINT METADATA FROM 'offset', origin STRING METADATA FROM 'value.source.table',"
        " at TIMESTAMP_LTZ(3) METADATA FROM 'value.source.timestamp'"
    )
    topic = topics.create()
    topics.send(topic, change("c", None, row(1, "ann"), table="users"))
    for number, option in enumerate(("format", "value.format")):
        options = {**room.given(topic), option: "debezium-json"}
        play = room.build(options, str(number), columns=columns, connector="kafka")
        play.advance("users")
        (landed,) = play.landed("users")
        assert (landed["id"], landed["place"], landed["origin"]) == (1, 0, "users")
        assert landed["at"].timestamp() == 1_700_000_000
