"""Runs that die at a commit point, or that somebody comes between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest

from tidegate.pipelines.runtime import faults
from tidegate.pipelines.testing import Harness


class Abort(BaseException):
    """Stands for the death of the process: nothing of Tidegate's catches it."""


@contextmanager
def may_die(*points: str | None, owner: str | None = None, passes: int = 1) -> Iterator[list[str]]:
    """The block ends where one of `points` is passed for the `passes`th time, by `owner` or by anybody, if it comes so
    far. What it is given tells where it died."""
    died: list[str] = []
    seen = 0

    def abort(passed: str) -> None:
        nonlocal seen
        seen += passed in points
        if passed in points and seen >= passes:
            died.append(passed)
            raise Abort(passed)

    disarm = faults.arm(abort, owner)
    try:
        yield died
    except Abort:
        pass
    finally:
        disarm()


@contextmanager
def dying(*points: str, owner: str | None = None, passes: int = 1) -> Iterator[None]:
    """As `may_die`, and it has to come so far."""
    with may_die(*points, owner=owner, passes=passes) as died:
        yield
    assert died, f"nothing died at {' or '.join(points)}"


@contextmanager
def meanwhile(act: Callable[[], object], at: str, owner: str | None = None) -> Iterator[None]:
    """`act` is called whenever the point `at` is passed in the block."""

    def look(passed: str) -> None:
        if passed == at:
            act()

    disarm = faults.arm(look, owner)
    try:
        yield
    finally:
        disarm()


@contextmanager
def killed(module: ModuleType, name: str, *, before: bool) -> Iterator[None]:
    """A KeyboardInterrupt ends the block where `module` calls its `name`: `before` that has begun, or after it."""
    called = getattr(module, name)

    def interrupted(*args: Any, **more: Any) -> None:
        if not before:
            called(*args, **more)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            yield


def crash_at(harness: Harness, *points: str) -> None:
    """Advance until one of `points` is passed, die there, and let a new runner take over."""
    with dying(*points):
        harness.advance()
    harness.restart()
