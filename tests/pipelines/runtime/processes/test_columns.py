"""The table of a process's state: made, grown, and refused where a type is another."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.pipelines.runtime.processes import functions as fn
from tests.pipelines.runtime.processes.test_processes import SCRIPT, wrapped
from tidegate.pipelines.errors import LakeError, PlanningError
from tidegate.pipelines.process.engine.bucket import StateColumns
from tidegate.pipelines.runtime.processes.columns import ensure_state, key_columns, output_types, state_columns
from tidegate.pipelines.runtime.processes.state import FACT, StateBefore, StateFiles, check_unchanged
from tidegate.pipelines.sql import compile_script

KEY = (("_key_k", pa.string()),)
ROW = pa.struct([("a", pa.int64())])
WIDE = pa.struct([("a", pa.int64()), ("b", pa.map_(pa.string(), ROW))])


def columns(**states: pa.DataType) -> StateColumns:
    return StateColumns(KEY, tuple(states.items()))


def stored(path: Path) -> dict[str, str]:
    schema = pa.schema(DeltaTable(str(path)).schema().to_arrow())
    return {field.name: str(field.type) for field in schema if not field.name.startswith("_")}


def test_a_table_grows_with_what_is_declared(tmp_path: Path) -> None:
    path = tmp_path / "state"
    ensure_state(path, columns(one=pa.int64(), row=ROW), "p")
    version = DeltaTable(str(path)).version()
    ensure_state(path, columns(one=pa.int64(), row=ROW), "p")
    assert DeltaTable(str(path)).version() == version
    ensure_state(path, columns(one=pa.int64(), row=WIDE, more=pa.list_(pa.string())), "p")
    assert list(stored(path)) == ["one", "row", "more"]
    assert "b" in stored(path)["row"]
    ensure_state(path, columns(more=pa.list_(pa.string())), "p")  # one less is no difference
    assert list(stored(path)) == ["one", "row", "more"]
    for kind, said in ((pa.string(), "int64, and declared as string"), (pa.list_(pa.int64()), "int64")):
        with pytest.raises(LakeError, match=f"state 'one' of p is stored as {said}"):
            ensure_state(path, columns(one=kind), "p")


@pytest.mark.parametrize("within", [lambda kind: kind, pa.list_, lambda kind: pa.map_(pa.string(), kind)])
def test_a_field_alone_is_added_and_then_known(tmp_path: Path, within: Any) -> None:
    """Else a reader would not see it, and it could change its type."""
    path = tmp_path / "state"
    ensure_state(path, columns(row=within(ROW)), "p")
    ensure_state(path, columns(row=within(WIDE)), "p")
    version, kind = DeltaTable(str(path)).version(), stored(path)["row"]
    assert kind.count("b: map<string") == 1
    ensure_state(path, columns(row=within(ROW)), "p")  # one less is no difference
    assert (DeltaTable(str(path)).version(), stored(path)["row"]) == (version, kind)
    with pytest.raises(LakeError, match="state 'row' of p"):
        ensure_state(path, columns(row=within(pa.struct([("a", pa.int64()), ("b", pa.string())]))), "p")


def test_the_tasks_know_the_types_as_they_are_declared() -> None:
    script = "CREATE TABLE t (a VARCHAR(3), b TIMESTAMP(3), c ROW<x INT NOT NULL>) WITH ('connector' = 'delta')"
    found = list(map(str, output_types(compile_script(script).table("t"))))
    assert found == ["VARCHAR(3)", "TIMESTAMP(3)", "ROW<`x` INT NOT NULL>"]


def key_of(*key: str) -> tuple[tuple[str, str], ...]:
    pipeline = compile_script(SCRIPT).process("timed", "events", key, wrapped(fn.Timed()), fn.TIMED_COLUMNS)
    return key_columns(state_columns(pipeline, pipeline.processes[0].process))


def before(key: Any, buckets: int = 4) -> StateBefore:
    """The state that an epoch finds, through the row that says what the one before has staged."""
    written = StateFiles("g1-e1-x", (), {0: (None, 1)}, buckets, key)
    row: Any = SimpleNamespace(facts={FACT: written.fact()})
    assert StateFiles.of(row) == written
    return StateBefore(Path("state"), (StateFiles.of(row),))


def test_the_same_key_goes_on() -> None:
    assert key_of("k", "number") == (("k", "string"), ("number", "int64"))
    check_unchanged("timed", StateBefore(Path("state")), 4, key_of("k"))
    check_unchanged("timed", before(key_of("k", "number")), 4, key_of("k", "number"))
    check_unchanged("timed", before(None), 4, key_of("k"))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (["k"], ["name"], "has stored its state by k string, and is now given name string"),
        (["k", "number"], ["number", "k"], "by k string, number int64, and is now given number int64, k string"),
        (["k"], ["k", "name"], "by k string, and is now given k string, name string"),
    ],
)
def test_another_key_is_refused(old: list[str], new: list[str], expected: str) -> None:
    with pytest.raises(PlanningError, match=expected):
        check_unchanged("timed", before(key_of(*old)), 4, key_of(*new))


def test_another_number_of_buckets_is_refused() -> None:
    with pytest.raises(PlanningError, match="has put its keys into 4 buckets, and is now given 5"):
        check_unchanged("timed", before(key_of("k")), 5, key_of("k"))
