"""What a command does when it is asked to end: by SIGTERM, or by SIGINT (Ctrl-C)."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def asked_to_end(leave: Callable[[], None]) -> Iterator[None]:
    """Each of the signals calls `leave`; after the block they do what they did before."""

    def received(number: int, frame: FrameType | None) -> None:
        leave()

    before = {number: signal.signal(number, received) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def stopped_by_signals(stop: threading.Event) -> Iterator[None]:
    """The first signal sets `stop`; a second one ends the process at once, which is as safe as a crash."""

    def leave() -> None:
        stop.set()
        for number in ENDING:
            signal.signal(number, signal.SIG_DFL)

    with asked_to_end(leave):
        yield
