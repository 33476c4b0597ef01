from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.pipelines.runtime.handmade import HandmadeLake
from tests.pipelines.runtime.plans import STATE, asked_for, release, shifted, taken
from tidegate.pipelines.runtime.epochs import Asked, Bounds, ReleasePlan, Taken
from tidegate.pipelines.runtime.epochs.history import ReleasedEpoch, history_of
from tidegate.pipelines.runtime.ledger import WhereRowsAre, left_waiting, where_rows_are


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
    made.released(1, 0, 1, publish=False, matched=5, unmatched_deleted_u=1, unmatched_key_null_u=2, dropped_where=2)
    made.released(2, 1, 2, on_unmatched="publish", matched=6, unmatched_deleted_u=3, dropped_where=1)
    rows = _rows(made)
    assert (rows.matched, rows.null_extended, rows.published) == (11, {"deleted@u": 3}, 14)
    assert rows.quarantined == {"deleted@u": 1, "key-null@u": 2}
    assert (rows.dropped, rows.waiting, rows.balanced) == ({"where": 3}, 10, True)


def test_a_held_epoch_that_was_superseded_counts_once(made: HandmadeLake) -> None:
    made.released(1, 0, 1, "2 rows found no match", on_unmatched="block", matched=8, unmatched_key_absent_u=2)
    made.released(2, 0, 1, on_unmatched="block", kind="re-release", supersedes=1, matched=10)
    assert [epoch.state for epoch in history_of(made.lake, made.pipeline, made.insert)] == ["superseded", "published"]
    rows = _rows(made)
    assert (rows.matched, rows.waiting, rows.held, rows.balanced) == (10, 20, 0, True)


def test_discarded_rows_are_quarantined(made: HandmadeLake) -> None:
    made.released(1, 0, 1, "2 rows found no match", on_unmatched="block", matched=8, unmatched_key_absent_u=2)
    made.released(2, 0, 1, on_unmatched="block", kind="discard", supersedes=1, discarded=10)
    rows = _rows(made)
    assert (rows.published, rows.quarantined, rows.waiting, rows.balanced) == (0, {"discarded": 10}, 20, True)


def test_a_row_that_is_nowhere_is_seen(made: HandmadeLake) -> None:
    made.released(1, 0, 1, matched=9)
    rows = _rows(made)
    assert (rows.landed, rows.accounted, rows.balanced) == (30, 29, False)


PLAN = release("e", 1, taken("clicks", 0, 2, 21), instant=3500)
"""Planned between the third and the fourth landed epoch; it takes the first two."""
HELD_ANEW = replace(PLAN, epoch=2, kind="re-release", instant=4500, supersedes=1)
FAST_CLOCK = replace(PLAN, instant=500)
OUT_OF_QUARANTINE = asked_for(PLAN, Asked())


def in_time(earlier: int, rows: int) -> ReleasePlan:
    return release("e", 1, taken("clicks", 0, 2, rows, earlier), bounds=Bounds(0, 9), instant=3500)


def of_process(*takes: Taken) -> ReleasePlan:
    return replace(PLAN, takes=takes, state=STATE)


@pytest.mark.parametrize(
    ("plan", "left"),
    [
        pytest.param(PLAN, 300, id="landed after what it takes, before it was planned"),
        pytest.param(HELD_ANEW, 300 + 4000, id="in the place of a held one, planned again later"),
        pytest.param(FAST_CLOCK, 0, id="what it takes had landed, whatever the clocks say"),
        pytest.param(OUT_OF_QUARANTINE, 300, id="rows out of quarantine did not wait"),
        pytest.param(in_time(12, 7), 321 - 19, id="in event time all that no release took"),
        pytest.param(in_time(300, 22), None, id="more than has landed"),
        pytest.param(shifted(PLAN, upto=9), None, id="an epoch that the log does not tell of"),
        pytest.param(shifted(PLAN, table="torn"), None, id="a log without an epoch"),
        pytest.param(replace(shifted(PLAN, upto=0, table="torn"), instant=0), None, id="whatever the plan takes of it"),
        pytest.param(
            of_process(taken("clicks", 0, 2, 21), taken("users", 0, 0, 0), taken("new", 0, 0, 0)),
            300 + 5,
            id="of a process, of all inputs",
        ),
        pytest.param(of_process(taken("clicks", 0, 2, 21), taken("torn", 0, 1, 1)), None, id="one is not known"),
    ],
)
def test_what_an_epoch_has_left_waiting(tmp_path: Path, plan: ReleasePlan, left: int | None) -> None:
    made = HandmadeLake(tmp_path / "lake")
    made.landed("users", 1, 5)
    for epoch, rows in enumerate((1, 20, 300, 4000), start=1):
        made.landed("clicks", epoch, rows)
    for epoch in (1, 3):
        made.landed("torn", epoch, 1)
    assert left_waiting(made.lake, [ReleasedEpoch(plan, None, None, published=True, superseded=False)]) == [left]


def test_what_is_left_after_the_last_epoch_is_what_waits_now(made: HandmadeLake) -> None:
    plan = made.released(1, 0, 1, matched=10)
    late = replace(plan, instant=9000)
    epochs = history_of(made.lake, made.pipeline, made.insert)
    assert left_waiting(made.lake, [replace(epochs[0], plan=late)]) == [_rows(made).waiting] == [20]
