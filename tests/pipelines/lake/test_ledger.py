"""Sums as of any epoch, whichever rows of the log have them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tidegate.pipelines.lake import Lake, WatermarkRow
from tidegate.pipelines.lake.ledger import rows_landed, sums, with_sums

EPOCHS = 12


def landed(lake: Lake, epoch: int, summed: bool, generation: int = 1) -> None:
    row = WatermarkRow("t", generation, epoch, 1_000 * epoch, 10 * epoch, 0, False, late=epoch % 3, rejected=epoch % 2)
    row = with_sums(lake, row) if summed else row
    lake.watermarks.append([row], application=f"t/{generation}", version=epoch)


WITH_SUMS = {
    "all": set(range(1, EPOCHS + 1)),
    "none, as in an older lake": set(),
    "the later ones, since the lake was made by an older Tidegate": {7, 8, 9, 10, 11, 12},
    "some, since two versions of Tidegate took turns": {1, 4, 5, 11},
}


@pytest.mark.parametrize("with_them", WITH_SUMS.values(), ids=WITH_SUMS.keys())
def test_whichever_rows_have_sums_the_answer_is_the_same(tmp_path: Path, with_them: set[int]) -> None:
    lake = Lake(tmp_path)
    landed(lake, 1, summed=True, generation=2)
    for epoch in range(1, EPOCHS + 1):
        landed(lake, epoch, summed=epoch in with_them)
    for upto in range(EPOCHS + 1):
        found = sums(lake, "t", 1, upto)
        epochs = range(1, upto + 1)
        assert (found.epochs, found.rows) == (upto, sum(10 * epoch for epoch in epochs))
        assert (found.late, found.rejected) == (sum(e % 3 for e in epochs), sum(e % 2 for e in epochs))
        for after in range(upto):
            assert rows_landed(lake, "t", 1, after, upto) == sum(10 * epoch for epoch in range(after + 1, upto + 1))
    assert sums(lake, "t", 1).rows == 780
    assert sums(lake, "t", 2).rows == 10


def test_a_row_that_a_power_cut_has_taken_is_in_no_sum(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    for epoch in (1, 2, 3):
        landed(lake, epoch, summed=True)
    assert sums(lake, "t", 1).rows == 60
    log = lake.watermarks.path / "_delta_log"
    max(log.glob("*.json")).unlink()
    again = Lake(tmp_path)
    assert sums(again, "t", 1).rows == 30
    landed(again, 3, summed=True)
    assert sums(again, "t", 1).rows == 60


def test_one_row_is_read_where_it_has_sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(tmp_path)
    for epoch in range(1, EPOCHS + 1):
        landed(lake, epoch, summed=True)
    decoded: list[int] = []
    of = WatermarkRow.from_row.__func__  # type: ignore[attr-defined]
    monkeypatch.setattr(
        WatermarkRow, "from_row", classmethod(lambda cls, row: decoded.append(row["epoch"]) or of(cls, row))
    )
    assert sums(lake, "t", 1).rows == 780
    assert decoded == [EPOCHS]


def test_what_is_stored_is_what_is_read_back(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    landed(lake, 1, summed=True)
    row = lake.watermarks.last("t")
    assert row is not None
    assert row.sums == {"epochs": 1, "rows": 10, "late": 1, "rejected": 1}
    assert replace(row, sums=None).to_row()["sums"] == "null"
