"""FLIP-499's builder: the same watermarks from its function, and from its strategy in a table's epochs."""

from __future__ import annotations

from collections import namedtuple
from datetime import timedelta

import pytest

from tidegate.pipelines.process import Arrived, EventTimeExtension, FunctionRaised, InvalidDeclaration, LocalRun
from tidegate.pipelines.process.engine.binding import Binding
from tidegate.pipelines.process.errors import NoEventTime
from tidegate.pipelines.process.generator import WatermarkGeneratorBuilder
from tidegate.pipelines.watermarks import MIN_TIMESTAMP, InvalidWatermark, Watermark

Click = namedtuple("Click", ["item", "timestamp"])
TIME, IDLE = "BUILTIN_API_EVENT_TIME", "BUILTIN_API_EVENT_TIME_IDLE"


def builder() -> WatermarkGeneratorBuilder:
    return EventTimeExtension.new_watermark_generator_builder(lambda click: click.timestamp)


class Output:
    """What a strategy's generator says."""

    def __init__(self) -> None:
        self.said: list[object] = []

    def emit_watermark(self, watermark: Watermark) -> None:
        self.said.append(watermark.timestamp)

    def mark_idle(self) -> None:
        self.said.append("idle")

    def mark_active(self) -> None:
        self.said.append("active")


def run(made: WatermarkGeneratorBuilder, times: list[int]) -> tuple[list, dict]:
    local = LocalRun(made.build_as_process_function(clock=lambda: 0), key=lambda _: "split")
    (records,) = local.epoch([Arrived([Click(1, time) for time in times])])
    return records, local.emitted


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (builder(), 9),
        (builder().with_max_out_of_order_time(timedelta(milliseconds=4)), 5),
        (builder().with_max_out_of_order_time(timedelta(milliseconds=4)).per_event_watermark(), 5),
        (builder().per_event_watermark(), 9),
    ],
)
def test_the_greatest_time_less_the_delay_exactly(made: WatermarkGeneratorBuilder, expected: int) -> None:
    records, emitted = run(made, [3, 9, 7])
    assert [record.timestamp for record in records] == [3, 9, 7]
    assert emitted == {TIME: expected}
    output, strategy = Output(), made.build_as_process_function().strategy
    generator = strategy.create_generator(lambda: 0)
    for time in (3, 9, 7):
        generator.on_event(None, strategy.timestamp_assigner({"item": 1, "timestamp": time}, MIN_TIMESTAMP), output)
    generator.on_periodic_emit(output)
    assert output.said[-1] == expected


def test_no_watermark_and_no_record_emit_nothing() -> None:
    assert run(builder().no_watermark(), [3])[1] == {}
    assert run(builder(), []) == ([], {})


def test_watermarks_come_at_their_interval() -> None:
    now, emitted = [0], []
    function = builder().periodic_watermark(timedelta(milliseconds=10)).build_as_process_function(clock=lambda: now[0])
    binding = Binding(function, {}, emitted.append, lambda watermark: emitted.append(watermark.value), [None])
    binding.current.cells = []
    for moment, time in [(3, 100), (9, 101), (10, 102), (15, 103), (21, 104)]:
        now[0] = moment
        function.process_record(Click(1, time), binding.collectors[0], binding.partitioned)
    assert emitted == [102, 104]
    assert builder().periodic_watermark().interval == timedelta(milliseconds=200)


def test_a_generator_goes_on_in_the_next_epoch() -> None:
    local = LocalRun(builder().build_as_process_function(clock=lambda: 0), key=lambda _: "split")
    emitted = []
    for times in ([100], [50], [70, 120]):
        local.epoch([Arrived([Click(1, time) for time in times])])
        emitted.append(local.emitted)
    assert emitted == [{TIME: 100}, {}, {TIME: 120}]


@pytest.mark.parametrize(
    ("made", "expected"),
    [(builder().no_watermark(), []), (builder().per_event_watermark(), [5, 6]), (builder(), [5, 6])],
)
def test_idleness_is_emitted_however_watermarks_are(made: WatermarkGeneratorBuilder, expected: list[int]) -> None:
    """As a function: the input falls silent after 5, and comes back with 6."""
    now, said = [0], []
    made = made.with_idleness(timedelta(seconds=30))
    local = LocalRun(made.build_as_process_function(clock=lambda: now[0]), key=lambda _: "split")
    for moment, times in [(0, [5]), (40_000, []), (40_001, [6])]:
        now[0] = moment
        local.epoch([Arrived([Click(1, time) for time in times])])
        said.append(local.emitted)
    assert [item[IDLE] for item in said if IDLE in item] == [True, False]
    assert [item[TIME] for item in said if TIME in item] == expected
    strategy = made.build_as_process_function().strategy
    assert strategy.idle_timeout == timedelta(seconds=30)


def test_a_record_without_an_event_time_moves_nothing() -> None:
    assert run(builder(), [3, None, 2])[1] == {TIME: 3}  # type: ignore[list-item]
    assert run(builder(), [None])[1] == {}  # type: ignore[list-item]
    assign = builder().build_as_process_function().strategy.timestamp_assigner
    assert assign({"item": 1, "timestamp": None}, 77) == MIN_TIMESTAMP


@pytest.mark.parametrize(("time", "why"), [("soon", "not 'soon'"), (1.5, "not 1.5"), (True, "not True")])
def test_a_time_that_is_none_is_reported_with_its_record(time: object, why: str) -> None:
    assign = builder().build_as_process_function().strategy.timestamp_assigner
    with pytest.raises(NoEventTime, match=rf"event time of Record\(item=1, timestamp=.*\) cannot be found: .* {why}"):
        assign({"item": 1, "timestamp": time}, MIN_TIMESTAMP)
    with pytest.raises(FunctionRaised, match=rf"at key 'split', record Click\(.*NoEventTime: .* {why}"):
        run(builder(), [time])  # type: ignore[list-item]
    with pytest.raises(NoEventTime, match="of Record\(item=1\) cannot be found: AttributeError"):
        assign({"item": 1}, MIN_TIMESTAMP)


def test_idleness_is_emitted_and_ends() -> None:
    now, output = [0], Output()
    strategy = builder().with_idleness(timedelta(seconds=30)).build_as_process_function().strategy
    generator = strategy.create_generator(lambda: now[0])
    generator.on_event(None, 5, output)
    now[0] = 30_000
    generator.on_periodic_emit(output)
    generator.on_event(None, 6, output)
    assert output.said == ["idle", "active"]
    assert strategy.idle_timeout == timedelta(seconds=30)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidDeclaration, match="extractor"):
        EventTimeExtension.new_watermark_generator_builder("timestamp")  # type: ignore[arg-type]
    with pytest.raises(InvalidWatermark):
        builder().with_max_out_of_order_time(timedelta(seconds=-1))
    with pytest.raises(InvalidWatermark):
        builder().with_idleness(timedelta(0))
    with pytest.raises(InvalidWatermark):
        builder().periodic_watermark(timedelta(0))
