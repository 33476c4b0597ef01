"""Questions that somebody else answers, asked in threads: one who never answers holds up nobody.

A sensor's tick that takes longer than Dagster waits for it is lost with all that it has sent, and sent again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NoReturn, TypeVar

T = TypeVar("T")

AT_ONCE = 8
"""Questions that are under way at the same time."""


class Unanswered(Exception):
    """Nobody has answered so far."""


def answers(questions: Sequence[Callable[[], T]], within: float) -> list[Callable[[], T]]:
    """Ask all of them, AT_ONCE at the same time, and wait `within` s in all. Each answer is a function that gives it,
    or raises what the question raised, or Unanswered.

    The thread of a question without an answer stays until it has one, and cannot keep the process alive.
    """
    end = time.monotonic() + within
    open_ones = list(enumerate(questions))[::-1]
    given: dict[int, Callable[[], T]] = {}

    def ask() -> None:
        while time.monotonic() < end:
            try:
                number, question = open_ones.pop()
            except IndexError:
                return
            given[number] = _answered(question)

    threads = [threading.Thread(target=ask, name="tidegate-asks", daemon=True) for _ in questions[:AT_ONCE]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    silent = Unanswered(f"no answer within {within:g} s")
    return [given.get(number) or partial(_raise, silent) for number in range(len(questions))]


def _answered(question: Callable[[], T]) -> Callable[[], T]:
    try:
        answer = question()
    except Exception as error:  # noqa: BLE001 it is handed to whoever asked
        return partial(_raise, error)
    return lambda: answer


def _raise(error: Exception) -> NoReturn:
    raise error
