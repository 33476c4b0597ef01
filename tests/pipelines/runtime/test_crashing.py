"""The helper that lets runs die: a test that means a crash must have one."""

from __future__ import annotations

import pytest

from tests.pipelines.runtime.crashing import dying, may_die, meanwhile
from tidegate.pipelines.runtime import faults


def test_the_block_ends_at_the_point_of_the_owner_and_at_the_pass_that_is_meant() -> None:
    passed: list[int] = []
    with dying("source.planned", owner="a", passes=2):
        for number in range(4):
            passed.append(number)
            faults.point("source.planned", "b")
            faults.point("source.landed", "a")
            faults.point("source.planned", "a")
    assert passed == [0, 1]
    faults.point("source.planned", "a")


def test_a_crash_that_does_not_come_is_no_crash() -> None:
    with pytest.raises(AssertionError, match="nothing died"), dying("source.planned"):
        faults.point("source.landed", "a")
    with may_die("source.planned", None) as died:
        faults.point("source.landed", "a")
    assert died == []


def test_what_happens_meanwhile_happens_at_its_point_alone() -> None:
    happened: list[str] = []
    with meanwhile(lambda: happened.append("once"), "source.planned", "a"):
        faults.point("source.planned", "a")
        faults.point("source.planned", "b")
        faults.point("source.landed", "a")
    faults.point("source.planned", "a")
    assert happened == ["once"]
