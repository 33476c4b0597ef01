"""Declared watermarks: what they may be, and how several become one."""

from __future__ import annotations

import pytest

from tidegate.pipelines.process import (
    EVENT_TIME_WATERMARK_DECLARATION,
    IDLE_STATUS_WATERMARK_DECLARATION,
    BoolWatermark,
    EventTimeExtension,
    InvalidDeclaration,
    LongWatermark,
    WatermarkDeclarations,
    WatermarkHandlingStrategy,
)
from tidegate.pipelines.process.contexts import WatermarkManager
from tidegate.pipelines.process.errors import UndeclaredWatermark
from tidegate.pipelines.process.watermarks.combining import WatermarkCombiner, by_identifier
from tidegate.pipelines.process.watermarks.declarations import BoolCombine, LongCombine

MIN = WatermarkDeclarations.new_builder("min").type_long().combine_function_min().build()
MAX = WatermarkDeclarations.new_builder("max").type_long().combine_function_max().build()
AND = WatermarkDeclarations.new_builder("and").type_bool().combine_function_and().build()
OR = WatermarkDeclarations.new_builder("or").type_bool().combine_function_or().build()
ALL = (
    WatermarkDeclarations.new_builder("all").type_long().combine_function_max().combine_wait_for_all_channels().build()
)


def test_event_time_and_idleness_are_what_flip_499_declares() -> None:
    assert EVENT_TIME_WATERMARK_DECLARATION.identifier == "BUILTIN_API_EVENT_TIME"
    assert EVENT_TIME_WATERMARK_DECLARATION.combine is LongCombine.MIN
    assert IDLE_STATUS_WATERMARK_DECLARATION.identifier == "BUILTIN_API_EVENT_TIME_IDLE"
    assert IDLE_STATUS_WATERMARK_DECLARATION.combine is BoolCombine.AND
    time, idle = (
        EVENT_TIME_WATERMARK_DECLARATION.new_watermark(5),
        IDLE_STATUS_WATERMARK_DECLARATION.new_watermark(True),
    )
    assert EventTimeExtension.is_event_time_watermark(time)
    assert not EventTimeExtension.is_event_time_watermark(idle)
    assert EventTimeExtension.is_idle_status_watermark(idle.identifier)
    assert not EventTimeExtension.is_idle_status_watermark(MIN.new_watermark(1))


@pytest.mark.parametrize(
    ("declaration", "expected", "handed"),
    [
        (MIN, [(0, 5), (1, 3), (0, 9), (1, 3), (1, 7)], [5, 3, 7]),
        (MAX, [(0, 5), (1, 3), (0, 9), (1, 12), (0, 2)], [5, 9, 12]),
        (AND, [(0, True), (1, False), (1, True), (0, True)], [True, False, True]),
        (OR, [(0, False), (1, True), (0, True), (1, False), (0, False)], [False, True, False]),
        (ALL, [(0, 5), (0, 6), (1, 3), (1, 8)], [6, 8]),
    ],
)
def test_channels_are_combined(declaration, expected: list, handed: list) -> None:
    combiner = WatermarkCombiner([declaration], [0, 1])
    found = [
        item.value
        for channel, value in expected
        for item in combiner.receive(channel, declaration.new_watermark(value))
    ]
    assert found == handed


def test_event_time_passes_over_idle_channels_and_never_goes_back() -> None:
    combiner = WatermarkCombiner([], ["a", "b"])
    time, idle = EVENT_TIME_WATERMARK_DECLARATION.new_watermark, IDLE_STATUS_WATERMARK_DECLARATION.new_watermark
    assert combiner.receive("a", time(7)) == []
    assert combiner.receive("b", idle(True)) == [time(7)]
    assert combiner.receive("a", idle(True)) == [idle(True)]
    assert combiner.receive("b", time(3)) == [idle(False)]  # back, behind: the time stands
    assert combiner.receive("b", time(9)) == [time(9)]
    assert combiner.receive("a", idle(False)) == []


@pytest.mark.parametrize("value", [True, 1.0, "1", None, 2**63])
def test_a_long_is_a_long(value: object) -> None:
    with pytest.raises(InvalidDeclaration, match="'min' is a long"):
        MIN.new_watermark(value)  # type: ignore[arg-type]


def test_a_bool_is_a_bool_and_names_are_texts() -> None:
    with pytest.raises(InvalidDeclaration, match="'or' is a bool"):
        OR.new_watermark(1)  # type: ignore[arg-type]
    with pytest.raises(InvalidDeclaration, match="identifier is a text"):
        WatermarkDeclarations.new_builder("")
    with pytest.raises(
        InvalidDeclaration, match=r"'min' is declared in two ways \(a long, MIN, FORWARD and a bool, AND, FORWARD\)"
    ):
        by_identifier([MIN, WatermarkDeclarations.new_builder("min").type_bool().build()])


def test_a_manager_sends_what_is_declared_and_nothing_else() -> None:
    sent: list[object] = []
    manager = WatermarkManager([MIN, OR], sent.append)
    manager.emit_watermark(MIN.new_watermark(4))
    manager.emit_watermark(OR.new_watermark(True))
    with pytest.raises(UndeclaredWatermark, match=r"'max' is not declared \(declared are min, or\)"):
        manager.emit_watermark(MAX.new_watermark(1))
    with pytest.raises(InvalidDeclaration, match="'min'"):
        manager.emit_watermark(BoolWatermark(True, "min"))
    assert sent == [LongWatermark(4, "min"), BoolWatermark(True, "or")]


def test_a_watermark_that_nobody_knows_is_refused() -> None:
    with pytest.raises(UndeclaredWatermark, match="'max' is not declared"):
        WatermarkCombiner([MIN], [0]).receive(0, MAX.new_watermark(1))
    with pytest.raises(InvalidDeclaration, match="no channel 3"):
        WatermarkCombiner([MIN], [0]).receive(3, MIN.new_watermark(1))


def test_a_declaration_says_whether_it_is_forwarded() -> None:
    builder = WatermarkDeclarations.new_builder("x").type_bool()
    assert builder.build().strategy is WatermarkHandlingStrategy.FORWARD
    assert builder.default_handling_strategy_ignore().build().strategy is WatermarkHandlingStrategy.IGNORE
