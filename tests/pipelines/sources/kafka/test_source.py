"""A topic becomes landed rows, each once: where reading begins, partitions, transactions, columns of a message."""

from __future__ import annotations

from datetime import datetime

import pytest
from pyspark.sql import SparkSession

from tests import cases
from tests.pipelines.runtime.crashing import meanwhile
from tests.pipelines.sources.kafka.play import PROBE, Room, options_sql
from tests.pipelines.sources.kafka.topics import Topics
from tidegate.pipelines.errors import DefinitionChanged, PlanningError, SourceError


def test_what_is_there_lands_once_then_what_comes(room: Room, topics: Topics) -> None:
    topic = topics.create(partitions=2)
    topics.send(topic, {"id": 1}, {"id": 2}, partition=0)
    topics.send(topic, {"id": 3}, partition=1)
    play = room.probe(room.given(topic, format="json"))

    first = play.advance()
    assert (first.rows, first.flipped) == (3, True)
    assert [(row["id"], row["_split"], row["_offset"], row["_op"]) for row in play.landed()] == [
        (1, f"{topic}-0", 0, "+I"),
        (2, f"{topic}-0", 1, "+I"),
        (3, f"{topic}-1", 0, "+I"),
    ]
    assert not play.advance().epochs

    topics.send(topic, {"id": 4}, partition=1)
    second = play.advance()
    assert [epoch.summary for epoch in second.epochs] == [f"{topic}-1:1-2"]
    assert sorted(play.values()) == [1, 2, 3, 4]
    assert play.log()[-1].position == f"{topic}-0:2, {topic}-1:2"


def test_a_topic_that_is_not_there_is_named(room: Room) -> None:
    play = room.probe(room.given("nowhere", format="json"))
    with pytest.raises(SourceError, match="there is no topic nowhere"):
        play.advance()


# --- where reading begins --------------------------------------------------------------------------------------------


def test_every_startup_mode(room: Room, topics: Topics) -> None:
    topic = topics.create(partitions=2)
    for number in range(4):
        topics.send(topic, {"id": number}, partition=0, at=1_000 + number)
        topics.send(topic, {"id": 10 + number}, partition=1, at=2_000 + number)
    topics.commit_offsets("readers", topic, {0: 3, 1: 2})
    topics.commit_offsets("newcomers", topic, {0: 3})
    modes = {
        "earliest": ({"scan__startup__mode": "earliest-offset"}, [0, 1, 2, 3, 10, 11, 12, 13]),
        "latest": ({"scan__startup__mode": "latest-offset"}, []),
        "group": ({"scan__startup__mode": "group-offsets", "properties__group__id": "readers"}, [3, 12, 13]),
        "reset": (
            {
                "scan__startup__mode": "group-offsets",
                "properties__group__id": "newcomers",
                "properties__auto__offset__reset": "earliest",
            },
            [3, 10, 11, 12, 13],
        ),
        "timestamp": (
            {"scan__startup__mode": "timestamp", "scan__startup__timestamp_millis": "1002"},
            [2, 3, 10, 11, 12, 13],
        ),
        "before": (
            # To a broker -1 means the end.
            {"scan__startup__mode": "timestamp", "scan__startup__timestamp_millis": "-1"},
            [0, 1, 2, 3, 10, 11, 12, 13],
        ),
        "later": ({"scan__startup__mode": "timestamp", "scan__startup__timestamp_millis": "2003"}, [13]),
        "specific": (
            {
                "scan__startup__mode": "specific-offsets",
                "scan__startup__specific_offsets": "partition:0,offset:1;partition:1,offset:4",
            },
            [1, 2, 3],
        ),
    }
    plays = {}
    for name in modes if cases.AT_LENGTH else ("latest", "group", "timestamp", "specific"):
        mode, expected = modes[name]
        plays[name] = room.probe(room.given(topic, format="json", **mode), name)
        plays[name].advance()
        assert (name, sorted(plays[name].values())) == (name, expected)
    topics.send(topic, {"id": 99}, partition=0)
    plays["latest"].advance()
    assert plays["latest"].values() == [99]


def test_an_offset_that_is_not_there_is_refused(room: Room, topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, {"id": 1})
    wrong = {
        "partition:0,offset:5": f"is 5 for {topic}-0, which has 0 to 1",
        "partition:3,offset:0": "names partition 3, and the topic has 1",
    }
    for number, (offsets, said) in enumerate(wrong.items()):
        mode = {"scan__startup__mode": "specific-offsets", "scan__startup__specific_offsets": offsets}
        play = room.probe(room.given(topic, format="json", **mode), str(number))
        with pytest.raises(SourceError, match=said):
            play.advance()
    mode = {"scan__startup__mode": "group-offsets", "properties__group__id": "nobody"}
    play = room.probe(room.given(topic, format="json", **mode), "group")
    with pytest.raises(SourceError, match="the consumer group nobody has committed no offset"):
        play.advance()


# --- topics that change ----------------------------------------------------------------------------------------------


def test_partitions_and_topics_that_come_later_are_read_from_their_first_message(room: Room, topics: Topics) -> None:
    topics.create("grows-a")
    topics.send("grows-a", {"id": 1})
    options = room.given(topic_pattern="grows-.*", format="json", scan__startup__mode="latest-offset")
    play = room.probe(options)
    play.advance()
    assert play.values() == []
    topics.grow("grows-a", 2)
    topics.create("grows-b")
    topics.send("grows-a", {"id": 2}, partition=1)
    topics.send("grows-b", {"id": 3})
    play.advance()
    assert [(row["id"], row["_split"], row["_seq"]["log"]) for row in play.landed()] == [
        (2, "grows-a-1", 0),
        (3, "grows-b-0", 1),
    ]


def test_a_topic_that_is_gone_is_named_and_a_lake_s_table_keeps_its_topics(room: Room, topics: Topics) -> None:
    one, two = topics.create(), topics.create()
    topics.send(one, {"id": 1})
    topics.send(two, {"id": 2})
    both = room.given(f"{one};{two}", format="json")
    play = room.probe(both)
    play.advance()
    topics.delete(two)
    with pytest.raises(SourceError, match=f"the topic {two} is gone") as refused:
        play.advance()
    assert "on another lake" in refused.value.next_command
    topics.send(one, {"id": 3})
    play.harness.runner.close()
    fewer = room.given(one, format="json")
    play = room.probe(fewer)
    with pytest.raises(PlanningError, match="the script defines table"):
        play.advance()
    play.harness.runner.close()
    play = room.probe(fewer, "another")
    play.advance()
    assert sorted(play.values()) == [1, 3]


def test_a_topic_of_a_pattern_may_go_once_it_was_read_to_its_end(room: Room, topics: Topics) -> None:
    topics.create("daily-1")
    topics.create("daily-2")
    topics.send("daily-1", {"id": 1})
    topics.send("daily-2", {"id": 2}, {"id": 3})
    options = room.given(topic_pattern="daily-.*", format="json", scan__max_rows_per_epoch="2")
    play = room.probe(options)
    play.advance(max_epochs=1)
    topics.delete("daily-1")
    with pytest.raises(SourceError, match="the topic daily-1 is gone, and it may have had messages"):
        play.advance()
    topics.delete("daily-2")
    topics.create("daily-1")
    play = room.probe(options, "again")
    topics.send("daily-1", {"id": 4})
    play.advance()
    topics.delete("daily-1")
    topics.create("daily-3")
    topics.send("daily-3", {"id": 5})
    play.advance()
    assert play.values() == [4, 5]


@pytest.mark.thorough  # test_planning.py: a place is never given twice
@pytest.mark.parametrize("partitions", [2, 1])
def test_a_topic_of_a_pattern_that_was_made_again_comes_after_its_old_self(
    room: Room, partitions: int, topics: Topics
) -> None:
    """The order over topics never goes back to a place that was given, whichever partition a key comes in now."""
    one, two = f"again{partitions}-a", f"again{partitions}-b"
    topics.create(one)
    topics.create(two)
    topics.send(one, {"id": 100, "name": "x"})
    topics.send(two, *[{"id": number, "name": "old"} for number in range(5)])
    options = room.given(topic_pattern=f"again{partitions}-.*", format="json")
    play = room.build(options, connector="kafka")
    play.advance("users")
    topics.delete(two)
    topics.send(one, {"id": 101, "name": "y"})
    assert play.advance("users").rows == 1
    topics.create(two, partitions=partitions)
    topics.send(two, {"id": 4, "name": "NEW"}, {"id": 1, "name": "NEW"}, partition=partitions - 1)
    _, published, _ = play.joined(1, 4)
    assert published == [(1, "NEW"), (4, "NEW")]
    assert play.harness.verify("joined").problems == ()
    topics.delete(one)
    topics.delete(two)


def test_a_key_of_a_topic_that_is_gone_may_not_come_in_another(room: Room, topics: Topics) -> None:
    """Also where the other is the only partition that is left, and had its place before."""
    topics.create("moves-a")
    topics.create("moves-b")
    topics.send("moves-a", {"id": 100, "name": "x"})
    topics.send("moves-b", {"id": 4, "name": "old"})
    options = room.given(topic_pattern="moves-.*", format="json")
    play = room.build(options, connector="kafka")
    play.advance("users")
    topics.delete("moves-b")
    topics.send("moves-a", {"id": 101, "name": "y"})
    play.advance("users")
    topics.send("moves-a", {"id": 4, "name": "NEW"})
    with pytest.raises(SourceError, match=r'the key \{"id":4\} came in moves-a-0 and in moves-b-0') as refused:
        play.advance("users")
    assert "--resnapshot users" in refused.value.next_command
    assert play.advance("users", resnapshot=True).rows == 3
    topics.delete("moves-a")


def test_a_topic_that_is_gone_or_was_made_again_is_refused(room: Room, topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, {"id": 1})
    play = room.probe(room.given(topic, format="json"))
    play.advance()
    topics.delete(topic)
    with pytest.raises(SourceError, match=f"the topic {topic} is gone"):
        play.advance()
    topics.create(topic)
    topics.send(topic, {"id": 2}, {"id": 3})
    with pytest.raises(SourceError, match="was deleted and made again") as refused:
        play.advance()
    assert "--resnapshot events" in refused.value.next_command
    play.advance(resnapshot=True)
    assert play.values() == [1, 2, 3]


def test_messages_that_retention_took_before_they_were_read_are_an_error(room: Room, topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, {"id": 1}, {"id": 2})
    play = room.probe(room.given(topic, format="json"))
    play.advance()
    topics.truncate(topic, 2)
    topics.send(topic, {"id": 3}, {"id": 4}, {"id": 5})
    play.advance()
    topics.send(topic, {"id": 6}, {"id": 7})
    topics.truncate(topic, 6)
    with pytest.raises(SourceError) as lost:
        play.advance()
    assert f"1 offsets of {topic}-0 are gone" in lost.value.what
    assert "it was read up to 5, and the first that Kafka still has is 6" in lost.value.what
    assert play.values() == [1, 2, 3, 4, 5]


def test_a_plan_whose_messages_are_gone_is_an_error(room: Room, topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, {"id": 1}, {"id": 2})
    play = room.probe(room.given(topic, format="json"))

    gone = pytest.raises(SourceError, match=f"1 offsets of {topic}-0 are gone")
    with meanwhile(lambda: topics.truncate(topic, 1), "source.planned"), gone:
        play.advance()
    assert play.landed() == []
    play.advance(resnapshot=True)
    assert play.values() == [2]


# --- what is a message -----------------------------------------------------------------------------------------------


def test_aborted_and_open_transactions_are_no_rows(room: Room, topics: Topics) -> None:
    topic = topics.create()
    topics.transaction(topic, {"id": 1}, {"id": 2})
    topics.transaction(topic, {"id": 3}, commit=False)
    topics.send(topic, {"id": 4})
    topics.transaction(topic, {"id": 5}, commit=False)
    play = room.probe(room.given(topic, format="json"))
    play.advance()
    assert play.values() == [1, 2, 4]
    topics.transaction(topic, {"id": 6})
    play.advance()
    assert play.values() == [1, 2, 4, 6]
    options = room.given(topic, format="json", properties__isolation__level="read_uncommitted")
    all_of_them = room.probe(options, "all")
    all_of_them.advance()
    assert all_of_them.values() == [1, 2, 3, 4, 5, 6]


def test_metadata_columns_and_the_record_time(room: Room, spark: SparkSession, topics: Topics) -> None:
    topic = topics.create(partitions=2)
    columns = """id BIGINT,
    sent TIMESTAMP_LTZ(3) METADATA FROM 'timestamp',
    kind STRING METADATA FROM 'timestamp-type',
    topic STRING METADATA,
    part INT METADATA FROM 'partition',
    place BIGINT METADATA FROM 'offset',
    headers MAP<STRING, BYTES> METADATA,
    raw BYTES METADATA FROM 'key',
    stamped TIMESTAMP(3) METADATA FROM 'timestamp',
    stamp STRING METADATA FROM 'timestamp',
    parts BIGINT METADATA FROM 'partition',
    digit CHAR(2) METADATA FROM 'partition',
    begins VARCHAR(5) METADATA FROM 'topic'"""
    topics.send(
        topic, {"id": 1}, partition=1, at=1_700_000_000_123, key="k", headers=[("a", b"1"), ("b", b"2"), ("a", b"3")]
    )
    topics.send(topic, {"id": 2}, partition=1, at=1_700_000_000_124)
    play = room.probe(room.given(topic, format="json"), columns=columns)
    play.advance()
    rows = spark.read.format("delta").load(str(play.lake.table_path("events"))).orderBy("place")
    found = rows.selectExpr("*", "unix_millis(sent) AS ms", "unix_millis(_rowtime) AS row_ms").collect()
    assert [(row["ms"], row["row_ms"], row["kind"]) for row in found] == [
        (1_700_000_000_123, 1_700_000_000_123, "CreateTime"),
        (1_700_000_000_124, 1_700_000_000_124, "CreateTime"),
    ]
    assert [(row["topic"], row["part"], row["place"]) for row in found] == [(topic, 1, 0), (topic, 1, 1)]
    assert [row["headers"] for row in found] == [{"a": b"3", "b": b"2"}, {}]
    assert [row["raw"] for row in found] == [b"k", None]
    assert found[0]["stamped"] == datetime(2023, 11, 14, 22, 13, 20, 123_000)
    assert [row["stamp"] for row in found] == ["2023-11-14 22:13:20.123", "2023-11-14 22:13:20.124"]
    assert [(row["parts"], row["digit"], row["begins"]) for row in found] == [(1, "1 ", "topic"), (1, "1 ", "topic")]
    assert dict(rows.dtypes)["stamped"] == "timestamp_ntz"


def test_key_fields(room: Room, topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, {"name": "ann"}, key={"id": 1, "city": "oslo"})
    topics.send(topic, {"name": "bob"})
    options = room.given(
        topic,
        key__format="json",
        key__fields="k_id;k_city",
        key__fields_prefix="k_",
        value__format="json",
        value__fields_include="EXCEPT_KEY",
    )
    play = room.probe(options, columns="k_id BIGINT,\nk_city STRING,\nname STRING")
    play.advance()
    assert [(row["k_id"], row["k_city"], row["name"]) for row in play.landed()] == [
        (1, "oslo", "ann"),
        (None, None, "bob"),
    ]


@pytest.mark.thorough  # test_planning.py: where each partition stops
def test_a_step_takes_its_share_of_every_partition(room: Room, topics: Topics) -> None:
    topic = topics.create(partitions=2)
    topics.send(topic, *[{"id": number} for number in range(8)], partition=0)
    topics.send(topic, *[{"id": 100 + number} for number in range(4)], partition=1)
    options = room.given(topic, format="json", scan__max_rows_per_epoch="6")
    play = room.probe(options)
    done = play.advance()
    assert [(epoch.rows, epoch.flipped) for epoch in done.epochs] == [(6, False), (6, True)]
    assert sorted(play.values()) == [*range(8), *range(100, 104)]


def test_a_probe_of_several_partitions_is_not_joined_later(room: Room, topics: Topics) -> None:
    """Nobody has looked whether a key came in two of them: it has no watermark, so that its log names no partition."""
    topic = topics.create(partitions=2)
    for partition in (0, 1):
        topics.send(topic, {"id": 1}, partition=partition)
    options = room.given(topic, format="json")
    probe = room.probe(options)
    assert probe.advance().rows == 2
    probe.harness.runner.close()
    joined = PROBE.format(
        columns="id BIGINT, PRIMARY KEY (id) NOT ENFORCED", kept="id BIGINT", names="id", options=options_sql(options)
    ) + (
        "CREATE TABLE clicks (id BIGINT, p AS PROCTIME()) WITH ('connector' = 'scripted');"
        "CREATE TABLE met (id BIGINT) WITH ('connector' = 'scripted');"
        "INSERT INTO met SELECT e.id FROM clicks AS c JOIN events FOR SYSTEM_TIME AS OF c.p AS e ON e.id = c.id;"
    )
    with pytest.raises(DefinitionChanged, match="it has rows of several splits"):
        room.play(joined).harness.run()
