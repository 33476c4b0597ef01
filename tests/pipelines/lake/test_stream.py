"""A table that statements read: its log, its sums as of any epoch, where it lies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tidegate.pipelines.lake import Lake, WatermarkRow
from tidegate.pipelines.lake.records import Sums
from tidegate.pipelines.lake.stream import Stream

EPOCHS = 12


def landed(lake: Lake, epoch: int, generation: int = 1) -> None:
    row = WatermarkRow("t", generation, epoch, 1_000 * epoch, 10 * epoch, 0, False, late=epoch % 3, rejected=epoch % 2)
    Stream(lake, "t").generation(generation).log_epoch(row)


def test_the_sums_are_known_as_of_any_epoch(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    landed(lake, 1, generation=2)
    for epoch in range(1, EPOCHS + 1):
        landed(lake, epoch)
    own = Stream(lake, "t").generation(1)
    for upto in range(EPOCHS + 1):
        found = own.sums(upto)
        epochs = range(1, upto + 1)
        assert (found.epochs, found.rows) == (upto, sum(10 * epoch for epoch in epochs))
        assert (found.late, found.rejected) == (sum(e % 3 for e in epochs), sum(e % 2 for e in epochs))
        for after in range(upto):
            assert Stream(lake, "t").generation(1).landed(after, upto) == sum(
                10 * epoch for epoch in range(after + 1, upto + 1)
            )
    assert Stream(lake, "t").generation(1).sums().rows == 780
    assert Stream(lake, "t").generation(2).sums().rows == 10
    assert Stream(lake, "t").landed == 790


def test_a_row_that_a_power_cut_has_taken_is_in_no_sum(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    for epoch in (1, 2, 3):
        landed(lake, epoch)
    assert Stream(lake, "t").generation(1).sums().rows == 60
    log = lake.logs.of("t").path / "_delta_log"
    log.files(".json")[-1].delete()
    again = Lake(tmp_path)
    assert Stream(again, "t").generation(1).sums().rows == 30
    landed(again, 3)
    assert Stream(again, "t").generation(1).sums().rows == 60


def test_one_row_is_read_for_the_sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(tmp_path)
    for epoch in range(1, EPOCHS + 1):
        landed(lake, epoch)
    decoded: list[int] = []
    of = WatermarkRow.from_row.__func__  # type: ignore[attr-defined]
    monkeypatch.setattr(
        WatermarkRow,
        "from_row",
        classmethod(lambda *given: decoded.append(given[2]["epoch"]) or of(*given)),
    )
    assert Stream(lake, "t").generation(1).sums().rows == 780
    assert decoded == [EPOCHS]
    assert Stream(lake, "t").landed == 780
    assert decoded == [EPOCHS] * 3


def test_what_is_stored_is_what_is_read_back(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    landed(lake, 1)
    row = lake.watermarks.last("t")
    assert row.sums == Sums(1, 10, 1, 1)
    assert "sums" not in replace(row, sums=Sums()).to_row()["record"]


def test_an_epoch_is_logged_once_with_its_sums(tmp_path: Path) -> None:
    own = Stream(Lake(tmp_path), "t").generation(1)
    for epoch, rows in ((1, 10), (2, 5), (2, 7)):  # the last is the same epoch, repeated after a crash
        own.log_epoch(WatermarkRow("t", 1, epoch, 0, rows, 0, False))
    assert [(row.epoch, row.rows) for row in own.log()] == [(1, 10), (2, 5)]
    assert (own.landed(0, 2), own.landed(1, 2), own.landed(2, 2)) == (15, 5, 0)
    missing = own.epoch(3)
    assert missing is None
    assert own.committed == -1


def test_the_flipped_generations_come_newest_first(tmp_path: Path) -> None:
    stream = Stream(Lake(tmp_path), "t")
    assert list(stream.flipped) == []
    assert stream.newest is None
    for generation, epoch, flip in ((1, 1, None), (1, 2, 2), (2, 1, None), (3, 1, 1), (4, 1, None)):
        stream.generation(generation).log_epoch(WatermarkRow("t", generation, epoch, 0, 1, 0, True, flip_epoch=flip))
    assert [(row.generation, row.epoch) for row in stream.flipped] == [(3, 1), (1, 2)]
    assert stream.newest.generation == 4


def test_a_table_without_rows_answers_too(tmp_path: Path) -> None:
    stream = Stream(Lake(tmp_path), "never landed")
    own = stream.generation(1)
    assert (stream.table, stream.kind, stream.log(), stream.landed) == (None, None, [], 0)
    assert (own.last, own.there(), own.sums().rows, own.landed_before(1_000)) == (None, 0, 0, 0)
    assert own.removed.nothing


def test_no_other_module_puts_the_path_of_a_landed_table_together() -> None:
    """Who reads one asks for its Stream. `specs.py` shows a person where the table lies, of a lake that is not open."""
    root = Path(__file__).parents[3]
    folders = ("pipelines", "quality_checks", "assets", "orchestration")
    files = [file for folder in folders for file in (root / folder).rglob("*.py")]
    using = {file.relative_to(root).as_posix() for file in files if ".table_path(" in file.read_text()}
    assert len(files) > 300
    assert using == {"pipelines/lake/layout.py", "pipelines/lake/stream.py", "assets/specs.py"}
