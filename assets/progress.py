"""How far a step is, in its log: a line at the start, one every few seconds, one at the end.

`shown_by` sends the bars of steps that run in this process elsewhere, for a command that draws them itself.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from tidegate.pipelines.progress import Progress, Task, per_second

EVERY_S = 5.0

_elsewhere: ContextVar[Progress | None] = ContextVar("tidegate_progress", default=None)


@contextmanager
def shown_by(progress: Progress | None) -> Iterator[None]:
    """Let `progress` show what steps do that this thread runs inside the block; None leaves it to their logs."""
    token = _elsewhere.set(progress)
    try:
        yield
    finally:
        _elsewhere.reset(token)


def step_progress(log: logging.Logger) -> Progress:
    """The progress of a step whose log is `log`."""
    return _elsewhere.get() or LoggedProgress(log)


@dataclass
class LoggedProgress:
    """Bars as log lines. `every` seconds pass between two lines of a bar; `now` is a monotonic clock in seconds."""

    log: logging.Logger
    every: float = EVERY_S
    now: Callable[[], float] = time.monotonic

    def task(self, name: str, total: int | None = None, unit: str = "") -> Task:
        return _LoggedTask(self, name, total, unit)


@dataclass
class _LoggedTask:
    progress: LoggedProgress
    name: str
    whole: int | None
    unit: str
    done: int = 0
    said: str = ""
    started: float = field(init=False)
    logged: float = field(init=False)
    finished: bool = False

    def __post_init__(self) -> None:
        self.started = self.logged = self.progress.now()

    def advance(self, amount: int = 1, note: str = "") -> None:
        self.done += amount
        self.said = note or self.said
        self._tell()

    def total(self, total: int) -> None:
        self.whole = total
        self._tell()

    def note(self, note: str) -> None:
        self.said = note
        self._tell()

    def _tell(self) -> None:
        now = self.progress.now()
        full = self.whole is not None and self.done >= self.whole
        if self.finished or (not full and now - self.logged < self.progress.every):
            return
        self.logged = now
        self.finished = full
        seconds = max(now - self.started, 1e-9)
        of = f" of {self.whole:,}" if self.whole is not None else ""
        unit = f" {self.unit}" if self.unit else ""
        rate = f", {per_second(self.done, seconds)}{unit}/s" if self.unit and seconds >= 0.1 else ""
        said = f" ({self.said})" if self.said else ""
        # A single step has nothing to count.
        count = "" if self.whole == 1 and not self.unit else f"{self.done:,}{of}{unit} in "
        self.progress.log.info(f"{self.name}: {count}{seconds:,.1f} s{rate}{said}")
