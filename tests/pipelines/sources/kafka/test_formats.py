"""Avro in a topic: values and keys that an independent library wrote, tombstones, and messages that are no records.

Every format without a test of its own here, by messages of a real topic.
"""

from __future__ import annotations

import datetime
from decimal import Decimal

import pytest

from tests.pipelines.sources.formats.format_tables import written
from tests.pipelines.sources.kafka.play import Room, options_sql
from tests.pipelines.sources.kafka.topics import Topics

KEY = ["long"]
VALUE = [
    ["null", "string"],
    ["null", {"type": "long", "logicalType": "timestamp-millis"}],
    ["null", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}],
]
EVENTS = """
CREATE TABLE events (
    id BIGINT NOT NULL, name STRING, at TIMESTAMP(3), amount DECIMAL(10, 2), twice AS id * 2,
    sent TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', place BIGINT METADATA FROM 'offset',
    WATERMARK FOR at AS at - INTERVAL '1' SECOND
) WITH ('connector' = 'kafka', {options});
CREATE TABLE kept (id BIGINT, name STRING, at TIMESTAMP(3), amount DECIMAL(10, 2), twice BIGINT, place BIGINT)
WITH ('connector' = 'scripted');
INSERT INTO kept SELECT id, name, at, amount, twice, place FROM events;
"""
AT = datetime.datetime(2026, 1, 31, 12, 0, 0, 250_000)


def value(name: str | None, at: datetime.datetime | None = AT, amount: Decimal | None = None) -> bytes:
    return written(VALUE, (name, at and at.replace(tzinfo=datetime.UTC), amount))


def test_keys_values_times_and_what_is_broken(room: Room, topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, value("ann", amount=Decimal("-1.50")), key=written(KEY, (1,)), at=1_700_000_000_000)
    whole = value("bob")
    poison = [b"", whole[:-1], whole + b"\0", b"\0\0\0\0\1" + whole, b'{"name": "x"}', b"\2\xfe\xff\xff\xff\x0f"]
    topics.send(topic, *poison, key=written(KEY, (2,)))
    topics.send(topic, None, key=written(KEY, (3,)))
    topics.send(topic, value(None, AT + datetime.timedelta(seconds=5)), key=written(KEY, (4,)))
    topics.send(topic, whole, key=b"\2\2")
    options = room.given(topic, key__format="avro", key__fields="id", value__format="avro",
        value__fields_include="EXCEPT_KEY", format__on_error="quarantine",
    )  # fmt: skip
    play = room.play(EVENTS.format(options=options_sql(options)))
    play.harness.advance()
    first, last = play.landed()
    assert (first["id"], first["name"], first["at"], first["amount"]) == (1, "ann", AT, Decimal("-1.50"))
    assert (first["sent"].timestamp(), first["place"]) == (1_700_000_000, 0)
    assert (last["id"], last["name"], last["amount"], last["place"]) == (4, None, None, 8)
    assert [(row["_split"], row["_offset"], row["_value"]) for row in play.rejected()] == [
        *((f"{topic}-0", 1 + number, message) for number, message in enumerate(poison)),
        (f"{topic}-0", 9, whole),
    ]
    reasons = [row["_reason"] for row in play.rejected()]
    assert "empty" in reasons[0]
    assert "left over" in reasons[2]
    assert reasons[-1].startswith("in the key: bytes are left over")
    assert all("no record of 3 columns" in reason or "left over" in reason for reason in reasons[1:-1])
    log = play.log()[-1]
    assert (log.rows, log.rejected) == (2, len(poison) + 1)
    watermark = int((AT + datetime.timedelta(seconds=4)).replace(tzinfo=datetime.UTC).timestamp() * 1000)
    assert log.timestamp == watermark
    published = sorted(play.harness.published("kept"), key=lambda row: row["id"])
    assert [(row["id"], row["twice"], row["place"]) for row in published] == [(1, 2, 0), (4, 8, 8)]


@pytest.mark.thorough
def test_updates_and_tombstones_of_a_build_side(room: Room, topics: Topics) -> None:
    """The key's columns are NOT NULL in the value too, as Flink has it for a PRIMARY KEY."""
    topic = topics.create(cleanup_policy="compact")
    user = ["long", ["null", "string"]]
    for number, name in ((1, "ann"), (1, "anne"), (2, "bob"), (3, None)):
        topics.send(topic, written(user, (number, name)), key=written(KEY, (number,)))
    topics.send(topic, None, key=written(KEY, (2,)))
    play = room.build(room.given(topic, key__format="avro", value__format="avro"))
    landed, published, quarantined = play.joined(1, 2, 3)
    assert landed == [
        ("u", 1, "ann"),
        ("u", 1, "anne"),
        ("u", 2, "bob"),
        ("u", 3, None),
        ("d", 2, None),
    ]
    assert published == [(1, "anne"), (3, None)]
    assert quarantined == ["unmatched:deleted@u"]


@pytest.mark.thorough  # formats/test_changes.py: csv; test_rejected.py: what does not fit
def test_csv(room: Room, topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, '1;"ann; or so"', "2;NULL", "three;cleo", "4;dora")
    more = {"csv.field-delimiter": ";", "csv.null-literal": "NULL", "format.on-error": "quarantine"}
    options = {**room.given(topic, format="csv"), **more}
    play = room.probe(options, columns="id BIGINT,\nname STRING")
    play.advance()
    assert [(row["_offset"], row["id"], row["name"]) for row in play.landed()] == [
        (0, 1, "ann; or so"),
        (1, 2, None),
        (3, 4, "dora"),
    ]
    assert [row["_offset"] for row in play.rejected()] == [2]


def test_raw(room: Room, topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, b"\x00\xff", b"")
    play = room.probe(room.given(topic, format="raw"), columns="body BYTES")
    play.advance()
    assert [(row["_offset"], row["body"]) for row in play.landed()] == [(0, b"\x00\xff"), (1, b"")]


@pytest.mark.thorough  # formats/test_changes.py: canal-json; test_debezium.py: changes as a build
def test_canal_json_as_a_build(room: Room, topics: Topics) -> None:
    topic = topics.create()
    common = {"database": "shop", "table": "users", "isDdl": False, "es": 1_700_000_000_000, "ts": 1_700_000_000_500}
    topics.send(
        topic,
        {**common, "type": "INSERT", "data": [{"id": "1", "name": "ann"}, {"id": "2", "name": "bob"}], "old": None},
        {**common, "type": "UPDATE", "data": [{"id": "1", "name": "anne"}], "old": [{"name": "ann"}]},
        {**common, "type": "DELETE", "data": [{"id": "2", "name": "bob"}], "old": None},
    )
    play = room.build(room.given(topic, format="canal-json"), connector="kafka")
    landed, published, reasons = play.joined(1, 2, 3)
    assert sorted({key for _, key, _ in landed}) == [1, 2]
    assert published == [(1, "anne")]
    assert reasons == ["unmatched:deleted@u", "unmatched:key-absent@u"]
