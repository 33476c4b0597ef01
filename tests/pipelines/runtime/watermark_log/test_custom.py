"""Code of one's own over a split's rows: whatever it does wrong names split and offset."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import pytest

from tidegate.pipelines.lake import SplitWatermark
from tidegate.pipelines.runtime.watermark_log.builtin import SplitsBefore
from tidegate.pipelines.runtime.watermark_log.custom import GeneratorRun
from tidegate.pipelines.watermarks import MIN_TIMESTAMP, GeneratorError, Watermark, WatermarkStrategy

MONOTONOUS = WatermarkStrategy.for_monotonous_timestamps()
FLIPPED = SplitsBefore({"a": SplitWatermark("a", 5, False)}, floor=5)


@dataclass
class Exits:
    """Calls sys.exit where its options say so."""

    where: str

    def on_event(self, event: Any, event_timestamp: int, output: Any) -> None:
        if self.where == "event":
            sys.exit("enough")

    def on_periodic_emit(self, output: Any) -> None:
        if self.where == "emit":
            sys.exit("enough")


def run(strategy: WatermarkStrategy, before: SplitsBefore) -> GeneratorRun:
    active = GeneratorRun(strategy, "a", before, 100)
    active.row({"n": 1}, 7, 10, 10)
    return active


@pytest.mark.parametrize("before", [SplitsBefore(), FLIPPED], ids=["before the flip", "after it"])
@pytest.mark.parametrize("given", [None, 1.5, True, "7"])
def test_an_assigner_that_gives_no_time_names_split_and_offset(given: Any, before: SplitsBefore) -> None:
    strategy = MONOTONOUS.with_timestamp_assigner(lambda row, at: given)
    with pytest.raises(GeneratorError, match=r"split 'a' at offset 7 .*assigner gives ms.*, not ") as caught:
        run(strategy, before)
    assert (caught.value.split, caught.value.offset) == ("a", 7)


def test_none_is_a_time_that_an_assigner_may_give_by_its_name() -> None:
    assert run(MONOTONOUS.with_timestamp_assigner(lambda row, at: MIN_TIMESTAMP), FLIPPED).end().late == 0


@pytest.mark.parametrize(("assigned", "late"), [(5, 1), (6, 0)])
def test_a_row_is_late_by_the_time_that_it_is_assigned_and_keeps_its_own(assigned: int, late: int) -> None:
    item = run(MONOTONOUS.with_timestamp_assigner(lambda row, at: assigned), FLIPPED).end()
    assert (item.late, item.rowtime) == (late, 10)


@pytest.mark.parametrize("where", ["event", "emit"])
def test_a_generator_that_exits_names_split_and_offset(where: str) -> None:
    with pytest.raises(GeneratorError, match="split 'a' at offset 7 failed: SystemExit: enough"):
        run(WatermarkStrategy.for_generator(lambda: Exits(where)), FLIPPED).end()


def test_so_does_an_assigner() -> None:
    with pytest.raises(GeneratorError, match="split 'a' at offset 7 failed: SystemExit: 3"):
        run(MONOTONOUS.with_timestamp_assigner(lambda row, at: sys.exit(3)), FLIPPED)


def test_a_row_moves_its_split_s_watermark() -> None:
    assert run(MONOTONOUS, FLIPPED).end().watermark == Watermark(9)


class Pulse:
    """Keeps no state; tells the time of the last row whenever it is asked."""

    def on_event(self, event: Any, event_timestamp: int, output: Any) -> None:
        self.last = event_timestamp

    def on_periodic_emit(self, output: Any) -> None:
        output.emit_watermark(Watermark(self.last))


def test_rows_are_counted_across_epochs_whatever_the_generator_remembers() -> None:
    strategy, before = WatermarkStrategy.for_generator(Pulse).with_emission_on_event(3), SplitsBefore()
    emitted = []
    for offset, at in enumerate((10, 20, 30, 40)):
        active = GeneratorRun(strategy, "a", before, 100)
        active.row({}, offset, at, at)
        item = active.end()
        emitted.append(item.watermark.timestamp)
        before = SplitsBefore({"a": SplitWatermark("a", emitted[-1], False, state=item.state)})
    assert emitted == [MIN_TIMESTAMP, MIN_TIMESTAMP, 30, 30]
