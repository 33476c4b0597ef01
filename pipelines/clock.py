"""Time comes from a clock that is handed in: a callable that returns ms since the epoch, UTC."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], int]


def system_clock() -> int:
    """The system's time in ms, UTC."""
    return time.time_ns() // 1_000_000
