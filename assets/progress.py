"""How far a step is, in its log.

`shown_by` sends the bars of steps that run in this process elsewhere, for a command that draws them itself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tidegate.pipelines.progress import LoggedProgress, Progress

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
