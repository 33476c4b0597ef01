"""Messages that do not fit: they stop the step, or are kept apart, each once, and counted."""

from __future__ import annotations

import pytest
from rich.console import Console

from tests.cases import at_length
from tests.pipelines.runtime.crashing import dying
from tests.pipelines.sources.kafka.play import Room
from tests.pipelines.sources.kafka.topics import Topics
from tidegate.assets.metadata import of_advance
from tidegate.orchestration.console.shown import shown
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.runtime import faults
from tidegate.pipelines.runtime.status import status


def test_fail_names_the_message_and_commits_nothing(room: Room, topics: Topics) -> None:
    topic = topics.create(partitions=2)
    topics.send(topic, {"id": 1}, partition=0)
    topics.send(topic, {"id": 2}, '{"id": "}{ \\"no\\" number"}', partition=1)
    play = room.probe(room.given(topic, format="json"))
    for _ in range(2):
        with pytest.raises(SourceError) as failed:
            play.advance()
        assert f"{topic}-1, offset 1: column id:" in failed.value.what
        assert "'format.on-error' = 'quarantine'" in failed.value.next_command
        assert play.landed() == []
    assert play.log() == []


def test_quarantine_keeps_message_and_reason_and_counts(room: Room, topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, {"id": 1})
    topics.send(topic, "not json", key="k", at=1_700_000_000_000, headers=[("trace", b"42")])
    topics.send(topic, {"id": 2}, {"id": "x"})
    options = room.given(topic, format="json", format__on_error="quarantine")
    play = room.probe(options)
    done = play.advance()
    metadata = of_advance(play.lake, play.harness.pipeline.table("events"), done)
    assert metadata["details"].value["rejected messages"] == 2
    assert play.values() == [1, 2]
    first, second = play.rejected()
    assert (first["_split"], first["_offset"], first["_key"], first["_value"]) == (f"{topic}-0", 1, b"k", b"not json")
    assert first["_headers"] == [{"key": "trace", "value": b"42"}]
    assert first["_rowtime"].timestamp() == 1_700_000_000
    assert (second["_offset"], second["_value"]) == (3, b'{"id": "x"}')
    assert "column id" in second["_reason"]
    assert (play.log()[-1].rows, play.log()[-1].rejected) == (2, 2)

    topics.send(topic, {"id": 3})
    play.advance()
    assert (play.log()[-1].rows, play.log()[-1].rejected) == (1, None)
    found = status(play.lake)
    assert found.sources[0].rejected == 2
    console = Console(record=True, width=200)
    console.print(*shown(found), sep="\n")
    assert "events: 2 messages did not fit and went to its quarantine" in console.export_text()


@pytest.mark.parametrize("point", at_length([point for point in faults.POINTS if point.startswith("source.")]))
def test_an_abort_loses_no_message_and_repeats_none(room: Room, topics: Topics, point: str) -> None:
    topic = topics.create(partitions=2)
    topics.send(topic, {"id": 1}, "broken", partition=0)
    topics.send(topic, {"id": 2}, "broken too", partition=1)
    options = room.given(topic, format="json", format__on_error="quarantine")
    play = room.probe(options)

    with dying(point):
        play.advance()
    topics.send(topic, {"id": 3}, partition=0)
    play.harness.restart()
    play.advance()
    assert sorted(play.values()) == [1, 2, 3]
    assert sorted(row["_value"] for row in play.rejected()) == [b"broken", b"broken too"]
    assert [(row.epoch, row.rows, row.rejected) for row in play.log()] == [(1, 2, 2), (2, 1, None)]


POISON = (
    "", " ", "null", "[]", '[{"id": 1}]', '{"id": 1}{"id": 2}', '{"id": 1} x', '{"id": 1', '\ufeff{"id": 1}',
    b"\xff\xfe", "\x00\x00", "{" * 200_000, "[" * 50_000, '{"id": ' + '{"a": ' * 5_000 + "1" + "}" * 5_001,
    '{"id": ' + "9" * 5_000 + "}", '{"id": 1e999999999}', '{"id": 1e-999999999}', '{"id": 9223372036854775808}',
    '{"id": 1.5}', '{"id": "\\ud800x"}', '{"id": NaN}', '{"id": {"id": 1}}', '{"id": true}',
)  # fmt: skip
"""What has no id that fits. Each was a message that some reader of JSON dies of, or makes a NULL of."""


@pytest.mark.parametrize("connector", at_length(["kafka", "upsert-kafka"]))
def test_poison_is_kept_apart_byte_for_byte_and_the_rest_lands(room: Room, topics: Topics, connector: str) -> None:
    topic = topics.create()
    for number, poison in enumerate(POISON):
        topics.send(topic, {"id": number}, poison, key={"id": number})
    if connector == "kafka":
        play = room.probe(room.given(topic, format="json", format__on_error="quarantine"))
        table = "events"
    else:
        options = room.given(topic, key__format="json", value__format="json", format__on_error="quarantine")
        topics.send(topic, {"id": 1, "name": "x"}, None, key="no key")
        play, table = room.build(options), "users"
    play.advance(table)
    assert play.values(table=table) == list(range(len(POISON)))
    kept = [bytes(row["_value"]) for row in play.rejected(table) if row["_value"] and row["_key"] != b"no key"]
    assert kept == [poison if isinstance(poison, bytes) else poison.encode() for poison in POISON if poison]
    assert all(row["_reason"] for row in play.rejected(table))
    log = play.log(table)[-1]
    assert (log.rows, log.rejected) == (len(POISON), len(POISON) + (2 if connector == "upsert-kafka" else 0))
