"""Work in threads of its own, which is left alone where it does not end in time."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

AT_ONCE = 8


def work(jobs: Sequence[Callable[[], None]], seconds: float, name: str) -> set[int]:
    """Run the jobs, AT_ONCE at a time; returns the numbers of those that have ended within `seconds`."""
    waiting, ended, end = deque(enumerate(jobs)), set[int](), time.monotonic() + seconds

    def thread() -> None:
        while waiting and time.monotonic() < end:
            try:
                number, job = waiting.popleft()
            except IndexError:
                return
            job()
            ended.add(number)

    threads = [threading.Thread(target=thread, name=name, daemon=True) for _ in jobs[:AT_ONCE]]
    for each in threads:
        each.start()
    for each in threads:
        each.join(max(0.0, end - time.monotonic()))
    return {*ended}
