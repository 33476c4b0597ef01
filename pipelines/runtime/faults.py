"""Named places at which a test may kill the process or raise. In production nothing is armed and a point costs nothing.

$TIDEGATE_KILL_AT=point[:n] kills the whole process group with SIGKILL when the point is passed for the n-th time.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from typing import Literal, get_args

Point = Literal[
    "source.planned",
    "source.written",
    "source.appended",
    "source.landed",
    "source.watermarked",
    "insert.planned",
    "insert.written",
    "insert.staged",
    "insert.judged",
    "insert.quarantined",
    "insert.published",
]

OfProcess = Literal["process.state"]
"""Passed by processes alone."""

POINTS: tuple[str, ...] = get_args(Point)

_handlers: list[Callable[[str], None]] = []
_passed: Counter[str] = Counter()


def point(name: Point | OfProcess) -> None:
    """Mark that a commit point was passed."""
    if wanted := os.environ.get("TIDEGATE_KILL_AT"):
        _passed[name] += 1
        where, _, times = wanted.partition(":")
        if where == name and _passed[name] == int(times or 1):
            os.killpg(os.getpgid(0), signal.SIGKILL)
    for handler in list(_handlers):
        handler(name)


def arm(handler: Callable[[str], None]) -> Callable[[], None]:
    """Call `handler` at every point; the returned function takes it away again."""
    _handlers.append(handler)
    return lambda: _handlers.remove(handler)
