"""`tidegate status --watch`: the state of a lake again and again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.orchestration.console.screen import Screen
from tidegate.orchestration.console.shown import shown
from tidegate.pipelines.errors import LakeError
from tidegate.pipelines.runtime.status import LakeStatus

if TYPE_CHECKING:
    from rich.console import Group


def watch(screen: Screen, look: Callable[[], LakeStatus], every: float, stop: threading.Event) -> None:
    """Show what `look` returns every so many seconds until `stop` is set: in place in a terminal, one look below the
    other elsewhere, as lines of JSON for a program.

    A lake that does not exist yet is waited for.
    """
    if screen.as_json or not screen.out.is_terminal:
        while not stop.is_set():
            _print(screen, look)
            stop.wait(every)
        return
    from rich.live import Live

    with Live(console=screen.out, auto_refresh=False, screen=True, vertical_overflow="crop") as live:
        while not stop.is_set():
            live.update(_shown(screen, look, every), refresh=True)
            stop.wait(every)


def _shown(screen: Screen, look: Callable[[], LakeStatus], every: float) -> Group:
    from rich.console import Group
    from rich.text import Text

    end = Text(f"\nevery {every:g} s; Ctrl-C ends it", style="dim")
    try:
        return Group(*shown(look(), screen.commands), end)
    except LakeError as error:
        return Group(Text(NotThere(error.what, error.where).line), end)


def _print(screen: Screen, look: Callable[[], LakeStatus]) -> None:
    try:
        found = look()
    except LakeError as error:
        screen.line(NotThere(error.what, error.where))
        return
    if screen.as_json:
        screen.line(found)
        return
    screen.result(found)
    screen.out.print("")


@dataclass(frozen=True)
class NotThere:
    """A lake that cannot be looked at yet."""

    error: str
    where: str

    @property
    def line(self) -> str:
        return f"{self.error}: {self.where}"
