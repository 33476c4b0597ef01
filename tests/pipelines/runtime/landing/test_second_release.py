"""A probe whose rows are released is not read anew, and no error says so: its rows would be published twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipelines.runtime.handmade import HandmadeLake
from tidegate.pipelines.commands import Advised, both, or_else, resnapshot, then
from tidegate.pipelines.errors import PlanningError, SourceError
from tidegate.pipelines.runtime.landing.failures import own_way_out, refuse_second_release


@pytest.fixture
def hand(tmp_path: Path) -> HandmadeLake:
    hand = HandmadeLake(tmp_path)
    hand.landed("users", 1, rows=1, flip=1)
    hand.landed("clicks", 1, rows=1)
    refuse_second_release(hand.lake, "clicks")  # nothing is released yet
    hand.planned(1, 0, 1)
    return hand


def test_a_released_probe_keeps_its_generation(hand: HandmadeLake) -> None:
    refuse_second_release(hand.lake, "users")
    with pytest.raises(PlanningError, match="rows of clicks are released by enriched") as caught:
        refuse_second_release(hand.lake, "clicks")
    assert "give clicks and what enriched writes to new names" in caught.value.next_command


@pytest.mark.parametrize(
    ("advised", "mend"),
    [
        (
            or_else("put the old file back", resnapshot("clicks", "reads all")),
            "put the old file back, then",
        ),
        (then("correct the rows", resnapshot("clicks")), "correct the rows, then run"),
        (both("bring it back", resnapshot("clicks")), "bring it back, then run"),
        (resnapshot("clicks", "a new generation"), "bring back what is missing at the source, then"),
    ],
)
def test_an_error_of_a_released_probe_says_another_way(hand: HandmadeLake, advised: Advised, mend: str) -> None:
    def told(table: str) -> str:
        with pytest.raises(SourceError) as caught, own_way_out(hand.lake, table):
            raise SourceError("it changed", next_command=advised)
        assert str(caught.value).endswith(caught.value.next_command)
        return caught.value.next_command

    assert told("clicks").startswith(mend)
    assert "--resnapshot" not in told("clicks")
    assert told("users") == str(advised)
