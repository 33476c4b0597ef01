"""How long work tells how far it is. The CLI draws bars, Dagster logs lines, tests record; the default is silent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


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
