"""How work that takes a while reports its progress. The CLI draws bars, Dagster logs lines, tests record; the default
shows nothing."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

EVERY_S = 5.0
"""From one line of a bar to the next, in a log."""


class Task(Protocol):
    """One bar."""

    def advance(self, amount: int = 1, note: str = "") -> None:
        """Count `amount` more units as done; `note` is shown beside the bar."""
        ...

    def total(self, total: int) -> None:
        """Say how many units there are, once it is known."""
        ...

    def note(self, note: str) -> None:
        """Show a text beside the bar."""
        ...


class Progress(Protocol):
    """Where bars come from."""

    def task(self, name: str, total: int | None = None, unit: str = "") -> Task:
        """A new bar called `name`; `total` None when it is not known yet."""
        ...


class _Silent:
    def advance(self, amount: int = 1, note: str = "") -> None: ...

    def total(self, total: int) -> None: ...

    def note(self, note: str) -> None: ...


class SilentProgress:
    """Shows nothing."""

    def task(self, name: str, total: int | None = None, unit: str = "") -> Task:
        return _Silent()


@contextmanager
def step(progress: Progress, name: str, unit: str = "") -> Iterator[Task]:
    """A bar of one step: full when the block ends without an error."""
    task = progress.task(name, 1, unit)
    yield task
    task.advance(1)


def per_second(done: int, seconds: float) -> str:
    """A rate, with a decimal where it is small."""
    rate = done / seconds
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"


@dataclass
class LoggedProgress:
    """Bars as log lines: one at the start, one every few seconds, one at the end.

    `every` seconds pass between two lines of a bar; `now` is a monotonic clock in seconds.
    """

    log: logging.Logger
    every: float = EVERY_S
    now: Callable[[], float] = time.monotonic

    def task(self, name: str, total: int | None = None, unit: str = "") -> Task:
        return _LoggedTask(name, total, unit, self)


@dataclass
class CountedTask:
    """A bar that counts; `report` shows it anew after each change. `whole`: how many units there are, where known;
    `text`: the newest note."""

    name: str
    whole: int | None
    unit: str
    done: int = field(default=0, init=False)
    text: str = field(default="", init=False)

    def report(self) -> None:
        raise NotImplementedError

    def advance(self, amount: int = 1, note: str = "") -> None:
        self.done += amount
        self.text = note or self.text
        self.report()

    def total(self, total: int) -> None:
        self.whole = total
        self.report()

    def note(self, note: str) -> None:
        self.text = note
        self.report()


@dataclass
class _LoggedTask(CountedTask):
    progress: LoggedProgress
    started: float = field(init=False)
    logged: float = field(init=False)
    finished: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.started = self.logged = self.progress.now()

    def report(self) -> None:
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
        note = f" ({self.text})" if self.text else ""
        # A single step has nothing to count.
        count = "" if self.whole == 1 and not self.unit else f"{self.done:,}{of}{unit} in "
        self.progress.log.info(f"{self.name}: {count}{seconds:,.1f} s{rate}{note}")
