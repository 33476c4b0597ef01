from __future__ import annotations

import threading

import pytest

from tidegate.orchestration.alerts.look import AT_ONCE, Unanswered, answers


def test_answers_come_in_the_order_of_the_questions_with_what_they_raised():
    found = answers([lambda number=number: 12 // number for number in range(3 * AT_ONCE)], within=60)
    with pytest.raises(ZeroDivisionError):
        found[0]()
    assert [answer() for answer in found[1:]] == [12 // number for number in range(1, 3 * AT_ONCE)]


def test_one_who_never_answers_holds_up_nobody():
    never = threading.Event()
    try:
        first, second = answers([never.wait, lambda: True], within=0.5)
        assert second()
        with pytest.raises(Unanswered, match=r"no answer within 0\.5 s"):
            first()
    finally:
        never.set()
