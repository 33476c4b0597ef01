"""The state of a lake, shown anew until somebody has seen enough."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

from rich.console import Group
from rich.live import Live
from rich.text import Text

from tidegate.orchestration.console.lake_state import lake_state
from tidegate.orchestration.console.screen import Screen
from tidegate.pipelines.errors import LakeError
from tidegate.pipelines.runtime.status import LakeStatus


def watch(screen: Screen, look: Callable[[], LakeStatus], every: float, stop: threading.Event) -> None:
    """Show what `look` gives every so many seconds until `stop` is set: in place in a terminal, one look below the
    other elsewhere, a line of JSON each where a program reads it.

    A lake that comes to be while we look is waited for.
    """
    if screen.as_json or not screen.out.is_terminal:
        while not stop.is_set():
            _print(screen, look)
            stop.wait(every)
        return
    with Live(console=screen.out, auto_refresh=False, screen=True, vertical_overflow="crop") as live:
        while not stop.is_set():
            live.update(_shown(screen, look, every), refresh=True)
            stop.wait(every)


def _shown(screen: Screen, look: Callable[[], LakeStatus], every: float) -> Group:
    end = Text(f"\nevery {every:g} s; Ctrl-C ends it", style="dim")
    try:
        return Group(*lake_state(look(), screen.commands), end)
    except LakeError as error:
        return Group(Text(f"{error.what}: {error.where}"), end)


def _print(screen: Screen, look: Callable[[], LakeStatus]) -> None:
    try:
        found = look()
    except LakeError as error:
        screen.line(f"{error.what}: {error.where}", error=error.what, where=error.where)
        return
    if screen.as_json:
        screen.out.file.write(json.dumps(found.to_json(screen.commands), ensure_ascii=False, default=str) + "\n")
        screen.out.file.flush()
        return
    for item in lake_state(found, screen.commands):
        screen.out.print(item)
    screen.out.print("")
