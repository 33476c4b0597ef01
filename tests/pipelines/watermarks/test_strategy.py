from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pipelines.watermarks.tables import Recorder, cases, steps, watermark
from tidegate.pipelines.watermarks import (
    MIN_TIMESTAMP,
    AlignmentCoordinator,
    BoundedOutOfOrderness,
    ExpressionWatermarks,
    InvalidWatermark,
    NoWatermarks,
    SourceWatermarks,
    Watermark,
    WatermarkAlignment,
    WatermarkStrategy,
    WithIdleness,
)

SECOND = timedelta(seconds=1)


def rowtime(element, timestamp):
    return element["t"]


WITH = {
    "assigner": lambda strategy: strategy.with_timestamp_assigner(rowtime),
    "idleness": lambda strategy: strategy.with_idleness(5 * SECOND),
    "alignment": lambda strategy: strategy.with_watermark_alignment("orders", 30 * SECOND, 2 * SECOND),
    "emission": lambda strategy: strategy.with_emission_on_event(7),
}
FIRST = {
    "none": WatermarkStrategy.no_watermarks(),
    "bounded": WatermarkStrategy.for_bounded_out_of_orderness(SECOND),
    "monotonous": WatermarkStrategy.for_monotonous_timestamps(),
    "expression": WatermarkStrategy.for_expression("`at`"),
    "source": WatermarkStrategy.from_source(),
}


@pytest.mark.parametrize("first", FIRST.values(), ids=FIRST)
@pytest.mark.parametrize("order", permutations(WITH), ids="-".join)
def test_the_order_of_with_does_not_matter(order, first):
    strategy = first
    for name in order:
        strategy = WITH[name](strategy)
    assert strategy == replace(
        first,
        timestamp_assigner=rowtime,
        idle_timeout=5 * SECOND,
        alignment=WatermarkAlignment("orders", 30 * SECOND, 2 * SECOND),
        gap=7,
    )
    assert isinstance(strategy.create_generator(lambda: 0), WithIdleness)
    assert strategy.timestamp_assigner({"t": 7}, 3) == 7
    assert strategy.alignment.group == "orders"


@pytest.mark.parametrize("change", WITH.values(), ids=WITH)
def test_a_strategy_is_immutable(change):
    strategy = WatermarkStrategy.no_watermarks()
    assert change(strategy) != strategy
    assert strategy == WatermarkStrategy(NoWatermarks)


def test_the_last_word_counts():
    strategy = WatermarkStrategy.no_watermarks().with_idleness(SECOND).with_idleness(2 * SECOND)
    assert strategy.idle_timeout == 2 * SECOND


def test_a_row_keeps_the_timestamp_that_it_has():
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    assert strategy.timestamp_assigner("a row", 42) == 42
    assert strategy.timestamp_assigner("a row", MIN_TIMESTAMP) == MIN_TIMESTAMP
    assert strategy.alignment is None


def test_every_generator_is_new():
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(SECOND)
    first, second = strategy.create_generator(lambda: 0), strategy.create_generator(lambda: 0)
    assert isinstance(first, BoundedOutOfOrderness)
    assert first is not second


def test_a_generator_of_ones_own():
    made = []

    class Mine(NoWatermarks):
        def __init__(self):
            made.append(self)

    assert WatermarkStrategy.for_generator(Mine).create_generator(lambda: 0) is made[0]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: WatermarkStrategy.for_bounded_out_of_orderness(-SECOND),
        lambda: WatermarkStrategy.for_generator(NoWatermarks()),  # type: ignore[arg-type]
        lambda: WatermarkStrategy.no_watermarks().with_timestamp_assigner(5),  # type: ignore[arg-type]
        lambda: WatermarkStrategy.no_watermarks().with_idleness(timedelta(0)),
        lambda: WatermarkStrategy.no_watermarks().with_watermark_alignment("", SECOND, SECOND),
        lambda: WatermarkStrategy.no_watermarks().with_watermark_alignment("g", -SECOND, SECOND),
        lambda: WatermarkStrategy.no_watermarks().with_watermark_alignment("g", SECOND, timedelta(0)),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_is_said(wrong):
    with pytest.raises(InvalidWatermark):
        wrong()


def test_an_expression_is_a_strategy_like_any_other():
    strategy = WatermarkStrategy.for_expression("at - INTERVAL 5 SECOND", "TIMESTAMP(3)")
    generator = strategy.create_generator(lambda: 0)
    assert isinstance(generator, ExpressionWatermarks)
    assert (generator.expression, generator.type) == ("at - INTERVAL 5 SECOND", "TIMESTAMP(3)")
    recorder = Recorder()
    for value in (7, None, 5):
        generator.on_event(value, 0, recorder)
    generator.on_periodic_emit(recorder)
    assert recorder.take() == ["7"]
    assert generator.state() == {"greatest": 7}


def test_the_source_s_own_watermarks_are_added_to_by_nobody():
    generator = WatermarkStrategy.from_source().create_generator(lambda: 0)
    recorder = Recorder()
    generator.on_event({"t": 7}, 7, recorder)
    generator.on_periodic_emit(recorder)
    assert (type(generator), recorder.take()) == (SourceWatermarks, [])


def test_emission_on_event_is_by_a_number_of_rows():
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    assert strategy.gap is None
    assert strategy.with_emission_on_event().gap == 1
    assert strategy.with_emission_on_event(5).gap == 5
    for wrong in (0, -1, True, 1.5):
        with pytest.raises(InvalidWatermark, match="number of rows"):
            strategy.with_emission_on_event(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("case", cases("alignment"))
def test_alignment(case):
    coordinator = AlignmentCoordinator("group", timedelta(milliseconds=case["drift_ms"]))
    for who, word, expected, step in steps(case):
        source, split = who.split("/")
        if word == "gone":
            coordinator.withdraw(source, split)
        else:
            coordinator.report(source, split, watermark(word))
        assert coordinator.blocked() == {tuple(pair.split("/")) for pair in expected}, step


def test_a_number_is_a_watermark_in_event_time():
    coordinator = AlignmentCoordinator("group", timedelta(seconds=1))
    coordinator.report("s", 0, 0)
    coordinator.report("s", 1, 1001)
    assert coordinator.blocked() == {("s", 1)}


def test_nobody_is_held_by_what_it_has_emitted_itself():
    coordinator = AlignmentCoordinator("group", timedelta(milliseconds=10))
    assert coordinator.reach("a", 0) is None
    coordinator.report("a", 0, 5)
    assert coordinator.reach("a", 0) is None
    coordinator.report("b", 0, 100)
    coordinator.report("a", 1, 50)
    assert [coordinator.reach(*pair) for pair in (("a", 0), ("a", 1), ("b", 0), ("c", 0))] == [60, 15, 15, 15]
    coordinator.withdraw("a", 0)
    assert [coordinator.reach(*pair) for pair in (("a", 1), ("b", 0))] == [110, 60]


def test_what_makes_no_sense_is_refused():
    with pytest.raises(InvalidWatermark, match="needs a name"):
        AlignmentCoordinator("", timedelta(0))
    with pytest.raises(InvalidWatermark, match="drift"):
        AlignmentCoordinator("group", timedelta(seconds=-1))


@given(st.integers(0, 50), st.lists(st.tuples(st.integers(0, 4), st.integers(-100, 100)), min_size=1))
def test_the_slowest_split_is_never_blocked(drift, reports):
    coordinator = AlignmentCoordinator("group", timedelta(milliseconds=drift))
    last = {}
    for split, timestamp in reports:
        coordinator.report("s", split, Watermark(timestamp))
        last[split] = timestamp
    slowest = min(last, key=lambda split: last[split])
    assert ("s", slowest) not in coordinator.blocked()
    assert {split for _, split in coordinator.blocked()} == {
        split for split, timestamp in last.items() if timestamp > last[slowest] + drift
    }
