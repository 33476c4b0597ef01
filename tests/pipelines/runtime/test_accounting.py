from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.runtime.accounting import WhereRowsAre, where_rows_are
from pipelines.runtime.history import history_of
from tests.pipelines.runtime.handmade import HandmadeLake


@pytest.fixture
def made(tmp_path: Path) -> HandmadeLake:
    made = HandmadeLake(tmp_path / "lake")
    made.landed("users", 1, 5, flip=1)
    for epoch in (1, 2, 3):
        made.landed("clicks", epoch, 10)
    return made


def _rows(made: HandmadeLake) -> WhereRowsAre:
    epochs = history_of(made.lake, made.pipeline, made.insert)
    return where_rows_are(made.lake, made.insert.id, made.insert.probe, epochs)


def test_before_the_first_epoch_every_row_waits(made: HandmadeLake) -> None:
    rows = _rows(made)
    assert (rows.landed, rows.waiting, rows.held, rows.balanced) == (30, 30, 0, True)


def test_every_place_is_counted_by_reason(made: HandmadeLake) -> None:
    first = made.planned(1, 0, 1)
    made.staged(first, matched=5, unmatched_deleted_u=1, unmatched_key_null_u=2, dropped_where=2)
    made.judged(first)
    second = made.planned(2, 1, 2, on_unmatched="publish")
    made.staged(second, matched=6, unmatched_deleted_u=3, dropped_where=1)
    made.judged(second)
    made.published(second)
    rows = _rows(made)
    assert (rows.matched, rows.null_extended, rows.published) == (11, {"deleted@u": 3}, 14)
    assert rows.quarantined == {"deleted@u": 1, "key-null@u": 2}
    assert (rows.dropped, rows.waiting, rows.balanced) == ({"where": 3}, 10, True)


def test_a_held_epoch_that_was_superseded_counts_once(made: HandmadeLake) -> None:
    held = made.planned(1, 0, 1, on_unmatched="block")
    made.staged(held, matched=8, unmatched_key_absent_u=2)
    made.judged(held, "2 rows found no match")
    again = made.planned(2, 0, 1, on_unmatched="block", kind="re-release", supersedes=1)
    made.staged(again, matched=10)
    made.judged(again)
    made.published(again)
    assert [epoch.state for epoch in history_of(made.lake, made.pipeline, made.insert)] == ["superseded", "published"]
    rows = _rows(made)
    assert (rows.matched, rows.waiting, rows.held, rows.balanced) == (10, 20, 0, True)


def test_discarded_rows_are_quarantined(made: HandmadeLake) -> None:
    held = made.planned(1, 0, 1, on_unmatched="block")
    made.staged(held, matched=8, unmatched_key_absent_u=2)
    made.judged(held, "2 rows found no match")
    discard = made.planned(2, 0, 1, on_unmatched="block", kind="discard", supersedes=1)
    made.staged(discard, discarded=10)
    made.judged(discard)
    made.published(discard)
    rows = _rows(made)
    assert (rows.published, rows.quarantined, rows.waiting, rows.balanced) == (0, {"discarded": 10}, 20, True)


def test_a_row_that_is_nowhere_is_seen(made: HandmadeLake) -> None:
    plan = made.planned(1, 0, 1)
    made.staged(plan, matched=9)
    made.judged(plan)
    made.published(plan)
    rows = _rows(made)
    assert (rows.landed, rows.accounted, rows.balanced) == (30, 29, False)
