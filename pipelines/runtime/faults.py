"""Named places at which a test may kill the process or raise. In production nothing is armed and a point costs nothing.

$TIDEGATE_KILL_AT=point[@owner] kills the whole process group with SIGKILL when the point is passed; by that source
table or INSERT.
"""

from __future__ import annotations

import os
import signal
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

OfProcess = Literal["process.second-quarantined", "process.second", "process.state"]
"""Points that only processes pass."""

OfSwap = Literal["swap.decided", "swap.closed", "swap.made"]
"""Points that the swap of a statement's generations passes."""

POINTS: tuple[str, ...] = get_args(Point)

_handlers: list[tuple[Callable[[str], None], str | None]] = []


def point(name: Point | OfProcess | OfSwap, owner: str) -> None:
    """Mark that `owner`, a source table or an INSERT's id, has passed a commit point."""
    if os.environ.get("TIDEGATE_KILL_AT") in (name, f"{name}@{owner}"):
        os.killpg(os.getpgid(0), signal.SIGKILL)
    for handler, of in list(_handlers):
        if of in (None, owner):
            handler(name)


def arm(handler: Callable[[str], None], owner: str | None = None) -> Callable[[], None]:
    """Call `handler` at every point, or at every one of `owner`; the returned function removes it again."""
    _handlers.append((handler, owner))
    return lambda: _handlers.remove((handler, owner))
