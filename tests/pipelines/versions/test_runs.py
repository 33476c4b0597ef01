"""Which runs an index is made of, while a build grows tick by tick."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tidegate.pipelines.versions import chained
from tidegate.pipelines.versions.runs import FEW, SHARE, Span


@given(st.lists(st.sampled_from([0, 0, 1, 10, 1_000, 60_000, 500_000]), min_size=1, max_size=60))
def test_runs_follow_one_another_and_stay_few(epochs: list[int]) -> None:
    """Each tick knows the runs that ticks before it have made: all rows are in one of them, and the work of making runs
    is no more than a few times the rows."""
    known: set[Span] = set()
    made = 0

    def rows(after: int, upto: int) -> int:
        return sum(epochs[after:upto])

    for upto in range(1, len(epochs) + 1):
        found = chained(known, upto, rows)
        assert found[0][0] == 0
        assert all(one[1] == two[0] for one, two in pairwise(found))
        assert rows(found[-1][1], upto) == 0
        assert len(found) <= 24
        assert rows(found[0][1], upto) <= max(rows(*found[0]) // SHARE, FEW)
        made += sum(rows(*span) for span in found if span not in known)
        known = set(found)
    assert made <= (rows(0, len(epochs)) + FEW) * 30


def test_a_run_that_goes_further_serves_a_pin_of_the_past() -> None:
    assert chained({(0, 9)}, 5, lambda after, upto: upto - after) == [(0, 9)]
    assert chained({(0, 4), (0, 9)}, 5, lambda after, upto: upto - after) == [(0, 4), (4, 5)]


def test_nothing_is_made_for_epochs_without_rows() -> None:
    assert chained({(0, 4)}, 9, lambda after, upto: min(upto, 4) - min(after, 4)) == [(0, 4)]
