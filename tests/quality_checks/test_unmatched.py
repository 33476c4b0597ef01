"""The share of unmatched rows against its bound and its recent range, on lakes made by hand; no Spark."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.runtime.handmade import HandmadeLake, pipeline, store
from tests.pipelines.runtime.plans import asked_for
from tests.quality_checks.staged import Given, stage
from tidegate.pipelines.connectors.table import Options
from tidegate.pipelines.runtime.epochs import Asked, ReleasePlan
from tidegate.pipelines.runtime.gate import CheckResult
from tidegate.quality_checks.checks.unmatched import ratio_usual
from tidegate.quality_checks.evidence import gather

STEADY = [(1000, 10), (1000, 12), (1000, 8), (1000, 10), (1000, 11), (1000, 9)]
LOUD = [(1000, 100), (1000, 400), (1000, 250), (1000, 300), (1000, 150)]


def checked(
    root: Path,
    rows: int,
    unmatched: int,
    options: dict[str, str],
    before: list[tuple[int, int]],
    lags: tuple[int, ...] = (),
    out_of_quarantine: Collection[int] = (),
    **given: Any,
) -> CheckResult:
    """The check of an epoch with so many rows, of an INSERT whose earlier epochs were (rows, unmatched).

    `lags`: how far behind the probe was when each of its epochs landed, in ms.
    `out_of_quarantine`: numbers of epochs whose rows were there."""
    found = pipeline()
    target = replace(found.table("enriched"), options=Options({"connector": "scripted", **options}))
    staged = stage(
        root,
        Given(
            {"matched": rows - unmatched, "unmatched:key-absent@u": unmatched, "dropped:where": 7},
            pipeline=replace(found, tables={**found.tables, "enriched": target}),
            **given,
        ),
    )
    # The epochs before are of an earlier generation's numbers: their plans need not be there for the rule.
    last = len(before) + 1

    def planned(number: int) -> ReleasePlan:
        plan = replace(staged.plan, epoch=number)
        return asked_for(plan, Asked()) if number in out_of_quarantine else plan

    staged = replace(staged, plan=planned(last))
    made = HandmadeLake(root / "lake")
    for number, lag_ms in enumerate(lags, 1):
        made.landed("clicks", number, rows, lag_ms=lag_ms)
    for number, (all_rows, lost) in enumerate(before, 1):
        plan = planned(number)
        if number in out_of_quarantine:
            store(made.lake, plan.row())
        made.staged(plan, matched=all_rows - lost, unmatched_key_absent_u=lost)
        made.judged(plan)
    return ratio_usual(gather(staged))


@pytest.mark.parametrize(
    ("rows", "unmatched", "options", "before", "passed"),
    [
        (1000, 900, {}, STEADY, True),
        (1000, 51, {"max": "0.05"}, [], False),
        (1000, 50, {"max": "0.05"}, [], True),
        (99, 99, {"max": "0.05"}, [], True),
        (99, 99, {"max": "0.05", "min-rows": "1"}, [], False),
        (1000, 29, {"window": "30"}, STEADY, True),
        (1000, 31, {"window": "30"}, STEADY, False),
        (1000, 0, {"window": "30"}, STEADY, True),
        (1000, 900, {"window": "30"}, STEADY[:4], True),
        (1000, 840, {"window": "30"}, LOUD, True),
        (1000, 860, {"window": "30"}, LOUD, False),
        (1000, 800, {"window": "5"}, [*STEADY, *LOUD], True),
        (1000, 900, {"window": "5"}, [*LOUD, *STEADY], False),
        (1000, 31, {"window": "30"}, [*STEADY, (9, 9), (9, 9), (9, 9), (9, 9), (9, 9), (9, 9), (9, 9)], False),
    ],
)
def test_the_rule(
    tmp_path: Path, rows: int, unmatched: int, options: dict[str, str], before: list[tuple[int, int]], passed: bool
) -> None:
    named = {f"gate.unmatched-ratio.{name}": value for name, value in options.items()}
    found = checked(tmp_path, rows, unmatched, named, before)
    assert found.passed is passed, found.detail
    assert found.observed["unmatched_ratio"] == round(unmatched / rows, 6)
    assert found.observed["rows"] == rows


def test_a_held_epoch_says_what_is_usual(tmp_path: Path) -> None:
    found = checked(tmp_path, 1000, 200, {"gate.unmatched-ratio.window": "30"}, STEADY)
    assert found.expected == {"recent": 0.03, "epochs": 6}
    for words in ("20.00% of 1,000 rows found no match (200 key-absent@u)", "median 1.00%", "at most 3.00% is usual"):
        assert words in found.detail


def test_a_discard_is_never_held_for_it(tmp_path: Path) -> None:
    options = {"gate.unmatched-ratio.max": "0.0", "gate.unmatched-ratio.min-rows": "0"}
    assert checked(tmp_path, 10, 4, options, [], kind="discard").passed


@pytest.mark.parametrize(("options", "passed"), [({}, True), ({"gate.unmatched-ratio.max": "0.15"}, False)])
def test_a_held_epoch_that_is_released_is_asked_for_the_fixed_bound_alone(
    tmp_path: Path, options: dict[str, str], passed: bool
) -> None:
    options = {"gate.unmatched-ratio.window": "30", **options}
    found = checked(tmp_path, 1000, 200, options, STEADY, kind="re-release")
    assert found.passed is passed, found.detail
    assert "recent" not in found.expected


def test_what_is_released_out_of_quarantine_is_asked_for_neither_bound(tmp_path: Path) -> None:
    options = {"gate.unmatched-ratio.max": "0.05", "gate.unmatched-ratio.window": "30"}
    found = checked(tmp_path, 1000, 900, options, STEADY, out_of_quarantine=[7])
    assert (found.passed, found.expected, found.observed["unmatched_ratio"]) == (True, {}, 0.9)


def test_what_was_released_out_of_quarantine_is_not_remembered(tmp_path: Path) -> None:
    before = [*STEADY, *[(1000, 900)] * 7]
    found = checked(tmp_path, 1000, 31, {"gate.unmatched-ratio.window": "30"}, before, out_of_quarantine=range(7, 14))
    assert (found.passed, found.expected) == (False, {"recent": 0.03, "epochs": 6})


def test_a_share_that_has_changed_for_good_becomes_usual_by_what_is_released(tmp_path: Path) -> None:
    """Releases pass and are remembered like any epoch, so the median follows them."""
    released = [*STEADY, *[(1000, 200)] * 7]
    assert checked(tmp_path, 1000, 210, {"gate.unmatched-ratio.window": "30"}, released).passed


def test_the_statistics_of_an_epoch_are_kept(tmp_path: Path) -> None:
    found = checked(tmp_path, 200, 50, {}, [], (700, 900, 1200), facts={"late@c": 3})
    assert found.observed == {
        "rows": 200,
        "unmatched": {"key-absent@u": 50},
        "late": 3,
        "null_rates": {"id": 0.0, "n": 0.0, "name": 0.0},
        "lag_ms": 1200,
        "matched_ratio": 0.75,
        "unmatched_ratio": 0.25,
    }
