"""upsert-kafka as a build side: the newest message of a key is its row, a tombstone ends it."""

from __future__ import annotations

import shutil

import pytest

from tests.cases import at_length
from tests.pipelines.runtime.crashing import dying
from tests.pipelines.sources.kafka.play import Room
from tests.pipelines.sources.kafka.topics import Topics
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.runtime.indexes import INDEXES

JSON = {"key__format": "json", "value__format": "json"}


def test_updates_and_tombstones_join_as_they_stand(room: Room, topics: Topics) -> None:
    topic = topics.create(cleanup_policy="compact")
    topics.send(topic, {"_id": 1, "a.b": "ann"}, {"_id": 1, "a.b": "anne"}, key={"_id": 1})
    topics.send(topic, {"_id": 2, "a.b": "bob"}, None, key={"_id": 2})
    topics.send(topic, {"_id": 3, "a.b": "cy"}, key={"_id": 3})
    fields = {"fields.id.name": "_id", "fields.name.name": "a.b"}
    columns = "id BIGINT, name STRING, nick STRING"
    play = room.build({**room.given(topic, **JSON), **fields}, columns=columns)
    landed, published, quarantined = play.joined(1, 2, 3)
    assert landed == [
        ("u", 1, "ann"),
        ("u", 1, "anne"),
        ("u", 2, "bob"),
        ("d", 2, None),
        ("u", 3, "cy"),
    ]
    missing = play.lake.watermarks.last("users").missing
    assert (missing["columns"], set(missing["seen"])) == ({"nick": "nick"}, {"_id", "a.b"})
    assert published == [(1, "anne"), (3, "cy")]
    assert quarantined == ["unmatched:deleted@u"]

    topics.send(topic, {"_id": 1, "a.b": "annie"}, key={"_id": 1})
    play.harness.push("clicks", [{"user_id": 1, "item": 4}])
    assert [row["name"] for row in play.harness.advance()] == ["annie"]


@pytest.mark.thorough  # test_planning.py: no step goes past the ends
def test_it_flips_past_its_ends_as_of_the_first_plan(room: Room, topics: Topics) -> None:
    topic = topics.create(partitions=2)
    for number in range(4):
        topics.send(topic, {"id": number, "name": "a"}, key={"id": number}, partition=number % 2)
    play = room.build(room.given(topic, scan__max_rows_per_epoch="2", **JSON))
    first = play.advance("users", max_epochs=1)
    assert (first.rows, first.flipped) == (2, False)
    topics.send(topic, {"id": 9, "name": "late"}, key={"id": 9}, partition=0)
    second = play.advance("users", max_epochs=1)
    assert [(epoch.rows, epoch.flipped) for epoch in second.epochs] == [(2, True)]
    assert play.advance("users").rows == 1
    assert play.log("users")[-1].flip_epoch == 2


def test_an_empty_topic_has_flipped_when_that_is_known(room: Room, topics: Topics) -> None:
    topic = topics.create()
    play = room.build(room.given(topic, **JSON))
    done = play.advance("users")
    assert (done.rows, done.flipped) == (0, True)


DAY = 24 * 60 * 60 * 1000


def test_deletes_that_compaction_may_have_removed_are_not_read_past(room: Room, topics: Topics) -> None:
    topic = topics.create(cleanup_policy="compact")
    topics.send(topic, {"id": 1, "name": "ann"}, key={"id": 1})
    play = room.build(room.given(topic, **JSON))
    began = play.now
    play.advance("users")
    assert play.log("users")[-1].kept == {"until": began + DAY, "for_ms": DAY}

    play.now = began + 3 * DAY
    topics.send(topic, {"id": 2, "name": "bob"}, key={"id": 2})
    assert play.advance("users").rows == 1, "no offset is missing, so nothing was removed"
    play.now += DAY // 2
    assert not play.advance("users").epochs
    play.now += DAY // 2
    assert [epoch.rows for epoch in play.advance("users").epochs] == [0], (
        "it is still read to its end, and that is stored"
    )
    assert play.log("users")[-1].kept == {"until": play.now + DAY, "for_ms": DAY}

    topics.transaction(topic, {"id": 3, "name": "cy"}, key={"id": 3}, commit=False)  # leaves offsets without a message
    topics.send(topic, {"id": 4, "name": "dee"}, key={"id": 4})
    assert play.advance("users").rows == 1, "in time gaps are harmless"
    topics.transaction(topic, {"id": 3, "name": "cy"}, key={"id": 3}, commit=False)
    topics.send(topic, {"id": 5, "name": "eve"}, key={"id": 5})
    play.now += DAY + 1
    epochs = play.lake.epochs.last("users")
    with pytest.raises(
        SourceError, match=rf"deletes of {topic}-0 may be gone .* 2 of the 3 offsets since then"
    ) as raised:
        play.advance("users")
    assert "--resnapshot users" in raised.value.next_command
    assert play.lake.epochs.last("users") == epochs, "nothing is planned"
    topics.send(topic, *[{"id": number, "name": "x"} for number in (1, 2, 4, 5)], key={"id": 9})
    assert play.advance("users", resnapshot=True).rows > 0


def test_a_stored_plan_is_held_against_the_time_it_is_read_at(room: Room, topics: Topics) -> None:
    topic = topics.create(cleanup_policy="compact")
    topics.send(topic, {"id": 1, "name": "ann"}, key={"id": 1})
    play = room.build(room.given(topic, **JSON))
    play.advance("users")
    topics.transaction(topic, {"id": 3, "name": "cy"}, key={"id": 3}, commit=False)
    topics.send(topic, {"id": 5, "name": "eve"}, key={"id": 5})
    with dying("source.planned", owner="users"):
        play.harness.run()
    play.harness.restart()
    play.now += DAY + 1
    with pytest.raises(SourceError, match="may be gone that have not been read"):
        play.advance("users")


def test_the_key_decides_and_may_be_its_own_column_only(room: Room, topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, {"name": "ann"}, key=(7).to_bytes(8, "little"))
    options = room.given(topic, key__format="raw", value__format="json", value__fields_include="EXCEPT_KEY")
    play = room.build({**options, "key.raw.endianness": "little-endian"})
    play.advance("users")
    assert [(row["id"], row["name"]) for row in play.landed("users")] == [(7, "ann")]


@pytest.mark.parametrize("value", at_length([{"id": 1, "name": "ann"}, None]), ids=["row", "tombstone"])
def test_a_message_without_a_key_is_an_error(room: Room, topics: Topics, value: object) -> None:
    topic = topics.create()
    topics.send(topic, value)
    play = room.build(room.given(topic, **JSON))
    with pytest.raises(SourceError, match=f"{topic}-0, offset 0: the message has no key"):
        play.advance("users")
    assert play.landed("users") == []


def test_a_key_in_two_partitions_is_an_error(room: Room, topics: Topics) -> None:
    topic = topics.create(partitions=3)
    topics.send(topic, {"id": 1, "name": "ann"}, key={"id": 1}, partition=0)
    topics.send(topic, {"id": 2, "name": "bob"}, key={"id": 2}, partition=1)
    play = room.build(room.given(topic, **JSON), "checked")
    play.advance("users")
    topics.send(topic, {"id": 3, "name": "cy"}, {"id": 3, "name": "cyd"}, key={"id": 3}, partition=1)
    topics.send(topic, None, key={"id": 1}, partition=0)
    play.advance("users")
    topics.send(topic, {"id": 1, "name": "anne"}, key={"id": 1}, partition=2)
    for _ in range(2):
        with pytest.raises(SourceError) as refused:
            play.advance("users")
        assert f'the key {{"id":1}} came in {topic}-0 and in {topic}-2' in refused.value.what
        assert play.log("users")[-1].epoch == 2
        shutil.rmtree(play.harness.lake.scratch(INDEXES))  # it may go at any time

    options = room.given(topic, scan__key_partitions__check="false", **JSON)
    trusted = room.build(options, "trusted")
    assert trusted.advance("users").rows == 6
