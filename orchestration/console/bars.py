"""Progress bars: drawn in a terminal, written as lines where the output goes into a file."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from tidegate.pipelines.progress import CountedTask, LoggedProgress, Task, per_second
from tidegate.pipelines.progress import Progress as Shown


class Bars:
    """Use it as a context; inside, `task` makes a bar. A bar that is full becomes a line and makes room.

    `console` is written to; bars are drawn only if it is a terminal.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live: Progress | None = None
        self._lines: Shown | None = None
        self._open: list[_Bar] = []
        if console.is_terminal:
            self._live = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(bar_width=28),
                TextColumn("{task.fields[count]}"),
                TimeElapsedColumn(),
                TextColumn("[dim]{task.fields[note]}"),
                console=console,
                transient=True,
                refresh_per_second=8,
            )

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def task(self, name: str, total: int | None = None, unit: str = "") -> Task:
        """A new bar (tidegate.pipelines.progress.Progress)."""
        if self._live is not None:
            bar = _Bar(name, total, unit, self._live)
            self._open.append(bar)
            return bar
        if self._lines is None:
            self._lines = _lines(self.console)
        return self._lines.task(name, total, unit)

    def line(self, name: str) -> Task:
        """A bar without a total: it shows its note."""
        return self.task(name) if self._live is not None else _Notes(self.console, name)

    def clear(self) -> None:
        """Remove bars that nobody will fill any more."""
        for bar in self._open:
            bar.leave()
        self._open.clear()


@dataclass
class _Bar(CountedTask):
    live: Progress
    started: float = field(default_factory=time.monotonic, init=False)
    id: TaskID | None = field(init=False)

    def __post_init__(self) -> None:
        self.id = self.live.add_task(escape(self.name), total=self.whole, count="", note="")

    def leave(self) -> None:
        """Remove the bar; later notes are not shown."""
        if self.id is not None:
            self.live.remove_task(self.id)
            self.id = None

    def report(self) -> None:
        if self.id is None:
            return
        if self.whole is not None and self.done >= self.whole:
            self.leave()
            seconds = time.monotonic() - self.started
            count = f"  {self._count(seconds)}" if self.unit else ""
            note = f"  [dim]{escape(self.text)}[/]" if self.text else ""
            self.live.console.print(f"[green]✓[/] {escape(self.name)}{count}  [dim]{seconds:,.1f} s[/]{note}")
            return
        seconds = time.monotonic() - self.started
        self.live.update(
            self.id, completed=self.done, total=self.whole, count=self._count(seconds), note=escape(self.text)
        )

    def _count(self, seconds: float) -> str:
        if not self.unit:
            return ""
        whole = f"/{self.whole:,}" if self.whole is not None and self.done < self.whole else ""
        rate = f", {per_second(self.done, seconds)}/s" if seconds > 0.5 and self.done else ""
        return f"{self.done:,}{whole} {self.unit}{rate}"


@dataclass
class _Notes:
    """A note now and then, if it has changed."""

    console: Console
    name: str
    every: float = 5.0
    last: str = ""
    written: float = field(default_factory=time.monotonic)

    def advance(self, amount: int = 1, note: str = "") -> None:
        self.note(note)

    def total(self, total: int) -> None:
        """Does nothing: a note has no total."""

    def note(self, note: str) -> None:
        now = time.monotonic()
        if note and note != self.last and now - self.written >= self.every:
            self.last, self.written = note, now
            self.console.print(escape(f"{self.name}: {note}"), soft_wrap=True)


def _lines(console: Console) -> Shown:
    log = logging.Logger("tidegate.progress", logging.INFO)
    handler = logging.StreamHandler(console.file)
    handler.setFormatter(logging.Formatter("%(message)s"))
    log.addHandler(handler)
    return LoggedProgress(log)
