"""A run that dies at a commit point."""

from __future__ import annotations

import pytest

from pipelines.runtime import faults
from pipelines.testing import Harness


def crash_at(harness: Harness, *points: str) -> None:
    """Advance until one of `points` is passed, die there, and let a new runner take over."""

    def crash(passed: str) -> None:
        if passed in points:
            raise KeyboardInterrupt(passed)

    disarm = faults.arm(crash)
    try:
        with pytest.raises(KeyboardInterrupt):
            harness.advance()
    finally:
        disarm()
    harness.restart()
