"""Which offsets a step reads, without a broker."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.pipelines.sources.kafka.cluster import Partition
from tidegate.pipelines.sources.kafka.steps import (
    LAST_ORDINAL,
    Ends,
    Followed,
    KafkaStep,
    Span,
    ends_of,
    next_step,
    step_of,
)

A, B = Partition("a", 0), Partition("a", 1)


def ends(stops: dict[Partition, int]) -> Ends:
    return Ends({partition.topic: f"id of {partition.topic}" for partition in stops}, stops, 7)


@pytest.mark.parametrize(
    ("starts", "stops", "settings", "expected"),
    [
        ({A: 0, B: 0}, {A: 5, B: 3}, {}, {A: 5, B: 3}),
        ({A: 5, B: 1}, {A: 5, B: 3}, {}, {A: 5, B: 3}),
        ({A: 0, B: 0}, {A: 90, B: 10}, {"max_rows": 10}, {A: 9, B: 1}),
        ({A: 0, B: 0}, {A: 1000, B: 1}, {"max_rows": 10}, {A: 9, B: 1}),
        ({A: 0, B: 0}, {A: 5, B: 3}, {"blocked": {"a-1"}}, {A: 5, B: 0}),
        ({A: 0, B: 2}, {A: 5, B: 9}, {"caps": {A: 3, B: 1}}, {A: 3, B: 2}),
    ],
)
def test_where_each_partition_stops(starts, stops, settings, expected) -> None:
    assert next_step(None, starts, ends(stops), **settings).stops == expected


def test_a_topic_keeps_its_place_when_others_come() -> None:
    first = next_step(None, {Partition("m", 0): 0}, ends({Partition("m", 0): 1}))
    stops = {Partition("m", 0): 1, Partition("b", 0): 1, Partition("z", 0): 1}
    second = next_step(first, dict.fromkeys(stops, 0), ends(stops))
    assert {name: topic.ordinal for name, topic in second.topics.items()} == {"m": 0, "b": 1, "z": 2}


@given(
    st.dictionaries(
        st.builds(Partition, st.sampled_from("abc"), st.integers(0, 3)),
        st.tuples(st.integers(0, 50), st.integers(0, 50)),
        min_size=1,
    ),
    st.integers(1, 40),
)
def test_steps_come_to_the_ends_and_none_goes_past_them(found, most) -> None:
    starts = {partition: start for partition, (start, _) in found.items()}
    goal = ends({partition: start + more for partition, (start, more) in found.items()})
    step: KafkaStep | None = None
    for _ in range(2000):
        step = next_step(step, step.stops if step else starts, goal, max_rows=most)
        assert step == step_of(json.loads(json.dumps({"topics": step.to_json(), LAST_ORDINAL: step.last_ordinal})))
        assert sum(span.offsets for span in step.spans.values()) < most + len(found)
        if not step.read:
            break
    assert step.stops == goal.stops


def test_ends_are_read_back() -> None:
    stored = ends({A: 5, B: 3, Partition("z", 11): 0})
    assert ends_of(json.loads(json.dumps(stored.to_json()))) == stored


def test_ends_of_before_a_partition_came_leave_it_where_it_is() -> None:
    step = KafkaStep({"a": Followed("id of a", 0)}, {A: Span(0, 5), B: Span(0, 3)})
    assert ends({A: 7}).over(step) == ends({A: 7, B: 3})
    assert ends({A: 7}).over(None) == ends({A: 7})


def test_a_topic_that_is_followed_no_more_leaves_its_place_empty() -> None:
    topics = {name: Followed(f"id of {name}", place) for place, name in enumerate("abc")}
    step = KafkaStep(topics, {Partition(name, 0): Span(0, 5) for name in topics})
    stored = replace(ends({Partition("b", 0): 7, Partition("d", 0): 1}), left=("a",))
    assert ends_of(json.loads(json.dumps(stored.to_json()))) == stored
    over = stored.over(step)
    assert over.stops == {Partition("b", 0): 7, Partition("c", 0): 5, Partition("d", 0): 1}
    after = next_step(step, {partition: 0 for partition in over.stops}, over)
    assert {name: topic.ordinal for name, topic in after.topics.items()} == {"b": 1, "c": 2, "d": 3}


def test_a_place_is_never_given_twice() -> None:
    step = next_step(None, {Partition(name, 0): 0 for name in "ab"}, ends({Partition(name, 0): 5 for name in "ab"}))
    for expected in (2, 3):
        gone = replace(ends({}), left=("b",)).over(step)
        step = next_step(step, dict.fromkeys(gone.stops, 0), gone)
        assert set(step.topics) == {"a"}
        step = step_of(json.loads(json.dumps({"topics": step.to_json(), LAST_ORDINAL: step.last_ordinal})))
        again = ends({Partition("b", 0): 3}).over(step)
        step = next_step(step, dict.fromkeys(again.stops, 0), again)
        assert step.topics["b"].ordinal == step.last_ordinal == expected


def test_a_step_in_words() -> None:
    topics = {"a": Followed("", 0)}
    spans = {Partition("a", number): Span(0, number) for number in range(7)}
    assert str(KafkaStep(topics, spans)) == "a-1:0-1, a-2:0-2, a-3:0-3, a-4:0-4 and 2 more partitions"
    assert str(KafkaStep(topics, {A: Span(4, 4)})) == "no messages"
