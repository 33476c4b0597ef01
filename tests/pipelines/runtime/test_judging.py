"""A gate gets ready while the join runs, once a process; whatever becomes of that, it is asked as ever."""

from __future__ import annotations

import sys
import threading
from types import ModuleType

import pytest

from pipelines.runtime.judging import prepare


@pytest.mark.parametrize("fails", [False, True])
def test_a_gate_gets_ready_once_and_in_the_background(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    module, threads = ModuleType(f"a_gate_{fails}"), []

    def ready() -> None:
        threads.append(threading.current_thread())
        if fails:
            raise ImportError("no such library")

    def judge() -> None: ...

    judge.__module__ = module.__name__
    module.prepare = ready  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    prepare(judge)  # type: ignore[arg-type]
    prepare(judge)  # type: ignore[arg-type]
    for thread in threading.enumerate():
        if thread.name == "tidegate-gate-prepares":
            thread.join(10)
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()


def test_a_gate_that_needs_nothing_is_left_alone() -> None:
    def judge() -> None: ...

    prepare(judge)  # type: ignore[arg-type]
