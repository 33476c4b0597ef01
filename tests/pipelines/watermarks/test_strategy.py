from dataclasses import replace
from datetime import timedelta
from itertools import permutations

import pytest

from tests.pipelines.watermarks.tables import Recorder
from tidegate.pipelines.watermarks import (
    MIN_TIMESTAMP,
    BoundedOutOfOrderness,
    ExpressionWatermarks,
    InvalidWatermark,
    NoWatermarks,
    SourceWatermarks,
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
