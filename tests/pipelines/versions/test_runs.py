"""Which runs an index is made of, while a build grows tick by tick."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.pipelines.versions import chained, merged, run
from tidegate.pipelines.versions.runs import FEW, MERGED_FROM, MOST, SHARE, Span

GROWTH = st.lists(st.sampled_from([0, 0, 1, 10, 1_000, 60_000, 500_000]), min_size=1, max_size=120)


def counted(epochs: list[int]) -> Callable[[int, int], int]:
    return lambda after, upto: sum(epochs[after:upto])


def follow(runs: list[Span], upto: int, rows: Callable[[int, int], int]) -> None:
    """All rows are in one of them."""
    assert runs[0][0] == 0
    assert all(one[1] == two[0] for one, two in pairwise(runs))
    assert rows(runs[-1][1], upto) == 0


@settings(deadline=None)
@given(GROWTH)
def test_a_tick_adds_a_run_and_upkeep_alone_puts_them_together(epochs: list[int]) -> None:
    """No tick makes a row's run anew, and upkeep makes no more than a few times the rows."""
    known: set[Span] = set()
    rows, by_ticks, by_upkeep = counted(epochs), 0, 0
    for upto in range(1, len(epochs) + 1):
        found = chained(known, upto, rows)
        follow(found, upto, rows)
        assert len(found) <= MOST
        by_ticks += sum(rows(*span) for span in found if span not in known)
        known = set(found)
        if upto % 3 == 0:
            together = merged(known, upto, rows)
            follow(together, upto, rows)
            assert len(together) <= MERGED_FROM + 2
            assert rows(together[0][1], upto) <= max(rows(*together[0]) // SHARE, FEW)
            by_upkeep += sum(rows(*span) for span in together if span not in known)
            known = set(together)
    assert by_ticks <= rows(0, len(epochs))
    assert by_upkeep <= (rows(0, len(epochs)) + FEW) * 20


@settings(deadline=None)
@given(GROWTH)
def test_without_upkeep_a_tick_puts_small_runs_together_at_last(epochs: list[int]) -> None:
    """The base is never made anew, and each row a few times."""
    known: set[Span] = set()
    rows, made, merges = counted(epochs), 0, 0
    for upto in range(1, len(epochs) + 1):
        found = chained(known, upto, rows)
        follow(found, upto, rows)
        assert len(found) <= MOST + 1
        new = [span for span in found if span not in known]
        assert not known or min(known) in found
        made += sum(rows(*span) for span in new)
        merges += any(span[0] < max(end for _, end in known) for span in new if known)
        known = set(found)
    assert made <= rows(0, len(epochs)) * 8
    assert merges <= len(epochs) // 4


@pytest.mark.parametrize("known", [{(0, 1)}, {(0, 1), *((n, n + 1) for n in range(1, MERGED_FROM))}])
def test_upkeep_leaves_a_few_small_runs_alone(known: set[Span]) -> None:
    assert merged(known, 99, lambda after, upto: upto - after) == sorted(known)


def test_upkeep_puts_together_what_ticks_have_made_and_no_more() -> None:
    """Whatever has landed since the last of them."""
    known = {(n, n + 1) for n in range(12)}
    assert merged(known, 99, lambda after, upto: upto - after) == [(0, 1), (1, 12)]
    assert merged(known, 99, lambda after, upto: (upto - after) * FEW) == [(0, 12)]


def test_a_run_that_goes_further_serves_a_pin_of_the_past() -> None:
    rows = counted([1] * 99)
    assert chained({(0, 9)}, 5, rows) == [(0, 9)]
    assert chained({(0, 4), (0, 9)}, 5, rows) == [(0, 4), (4, 5)]
    assert chained({(0, 4), (4, 9)}, 7, rows) == [(0, 4), (4, 9)], "upkeep has put small runs together meanwhile"
    assert chained({(0, 99)}, 5, rows) == [(0, 5)], "a view of a large run costs more than a small run"


def test_nothing_is_made_for_epochs_without_rows() -> None:
    assert chained({(0, 4)}, 9, lambda after, upto: min(upto, 4) - min(after, 4)) == [(0, 4)]


def test_few_runs_stay_mapped_those_that_were_asked_for_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has ten open files."""
    monkeypatch.setattr(run, "Run", lambda folder: object())
    monkeypatch.setattr(run, "_OPEN", {})
    folders = [tmp_path / str(number) for number in range(run.MAPPED + 1)]
    for folder in folders:
        folder.mkdir()
        (folder / "run.json").touch()
    first, second, *more, last = map(str, folders)
    found = {name: run.opened(name) for name in (first, second, *more)}
    assert run.opened(first) is found[first]
    run.opened(last)
    assert len(run._OPEN) == run.MAPPED
    assert run.opened(first) is found[first]
    assert run.opened(second) is not found[second]
