"""What an epoch of a process finds of the state before it: read back, or refused where it cannot be found again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.pipelines.runtime.processes import functions as fn
from tests.pipelines.runtime.processes.test_processes import SCRIPT, wrapped
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.runtime.processes.columns import key_columns, state_columns
from tidegate.pipelines.runtime.processes.state import FACT, StateBefore, StateFiles, check_unchanged
from tidegate.pipelines.sql import compile_script


def key_of(*key: str) -> tuple[tuple[str, str], ...]:
    pipeline = compile_script(SCRIPT).process("told", "events", key, wrapped(fn.Timed()), fn.TIMED_COLUMNS)
    spec = pipeline.insert("told").process
    assert spec is not None
    return key_columns(state_columns(pipeline, spec))


def before(key: Any, buckets: int = 4) -> StateBefore:
    """The state that an epoch finds, through the row that says what the one before has staged."""
    written = StateFiles("g1-e1-x", (), {0: (None, 1)}, buckets, key)
    row: Any = SimpleNamespace(facts={FACT: written.fact()})
    assert StateFiles.of(row) == written
    return StateBefore(Path("state"), (StateFiles.of(row),))


def test_the_same_key_goes_on() -> None:
    assert key_of("k", "number") == (("k", "string"), ("number", "int64"))
    check_unchanged("told", StateBefore(Path("state")), 4, key_of("k"))
    check_unchanged("told", before(key_of("k", "number")), 4, key_of("k", "number"))
    check_unchanged("told", before(None), 4, key_of("k"))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (["k"], ["name"], "has stored its state by k string, and is now given name string"),
        (["k", "number"], ["number", "k"], "by k string, number int64, and is now given number int64, k string"),
        (["k"], ["k", "name"], "by k string, and is now given k string, name string"),
    ],
)
def test_another_key_is_refused(old: list[str], new: list[str], told: str) -> None:
    with pytest.raises(PlanningError, match=told):
        check_unchanged("told", before(key_of(*old)), 4, key_of(*new))


def test_another_number_of_buckets_is_refused() -> None:
    with pytest.raises(PlanningError, match="has put its keys into 4 buckets, and is now given 5"):
        check_unchanged("told", before(key_of("k")), 5, key_of("k"))
