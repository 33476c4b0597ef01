"""Declared state: what may be declared, and what a cell remembers of what it was not asked for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import searched
from tidegate.pipelines.process import InvalidDeclaration, NotKeyed, StateDeclarations
from tidegate.pipelines.process.errors import BroadcastReadOnly
from tidegate.pipelines.process.state.declared import checked, column_type, state_types
from tidegate.pipelines.process.state.stores import (
    BroadcastState,
    CurrentKey,
    Known,
    ListCell,
    ListState,
    MapCell,
    MapState,
    ReducingState,
    ValueCell,
    Values,
    ValueState,
)


class Once:
    """A stored value that counts how often it is decoded."""

    def __init__(self, value: Any) -> None:
        self.value, self.reads = value, 0

    def read(self) -> Any:
        self.reads += 1
        return self.value


def values(declaration: Any) -> Values:
    return Values(declaration, state_types([declaration], "F")[declaration.name])


VALUE = values(StateDeclarations.value_state("s", "BIGINT"))
LIST = values(StateDeclarations.list_state("s", "BIGINT"))
MAP = values(StateDeclarations.map_state("s", "STRING", "BIGINT"))


def keyed(cell: Any) -> CurrentKey:
    current = CurrentKey()
    current.cells, current.key = [cell], "k"
    return current


def test_a_list_that_is_only_added_to_is_not_decoded() -> None:
    stored = Once([1, 2])
    cell = ListCell(stored)
    state = ListState(keyed(cell), 0, "clicks", LIST)
    state.add(3)
    assert (stored.reads, cell.added) == (0, [3])
    state.add_all([4, 5])
    assert state.get() == [1, 2, 3, 4, 5]
    state.add(6)
    assert state.get() == [1, 2, 3, 4, 5, 6]
    assert stored.reads == 1
    state.update((7,))
    assert state.get() == [7]
    state.clear()
    assert state.get() == []
    assert cell.empty


def test_a_value_is_decoded_when_it_is_asked_for() -> None:
    stored = Once(5)
    cell = ValueCell(stored)
    state = ValueState(keyed(cell), 0, "v", VALUE)
    assert not cell.empty
    assert (state.value(), state.value(), stored.reads) == (5, 5, 1)
    state.update(6)
    assert state.value() == 6
    state.clear()
    assert state.value() is None
    assert cell.empty
    untouched = Once(1)
    other = ValueCell(untouched)
    ValueState(keyed(other), 0, "v", VALUE).update(2)
    assert (other.get(), untouched.reads) == (2, 0)


def test_a_map_and_a_reduced_value() -> None:
    state = MapState(keyed(MapCell(Once([("a", 1)]))), 0, "m", MAP)
    state.put("b", 2)
    state.remove("a")
    state.remove("z")
    assert (list(state.items()), list(state.keys()), state.get("a", 9), state.contains("b")) == (
        [("b", 2)],
        ["b"],
        9,
        True,
    )
    state.clear()
    assert state.is_empty()
    reduced = ReducingState(keyed(ValueCell()), 0, "r", VALUE, max)
    for value in (3, 9, 4):
        reduced.add(value)
    assert reduced.get() == 9
    reduced.clear()
    assert reduced.get() is None


@pytest.mark.parametrize(
    "use",
    [
        lambda current: ValueState(current, 0, "s", VALUE).value(),
        lambda current: ListState(current, 0, "s", LIST).add(1),
        lambda current: MapState(current, 0, "s", MAP).put("a", 1),
        lambda current: ReducingState(current, 0, "s", VALUE, max).add(1),
    ],
)
def test_state_without_a_key_is_refused(use: Any) -> None:
    with pytest.raises(NotKeyed, match="state 's' needs a key"):
        use(CurrentKey())


def test_broadcast_state_is_written_in_its_own_input_alone() -> None:
    before = {"a": 1}
    state = BroadcastState("rules", MAP, before)
    with pytest.raises(BroadcastReadOnly, match="'rules'"):
        state.put("a", 2)
    state.writable = True
    state.put("b", 2)
    state.remove("a")
    assert (dict(state.items()), before) == ({"b": 2}, {"a": 1})
    state.clear()
    assert not list(state.keys())


@pytest.mark.parametrize(
    ("declarations", "expected"),
    [
        ([StateDeclarations.value_state("a", "INT"), StateDeclarations.list_state("A", "INT")], "state 'A' twice"),
        ([StateDeclarations.value_state("_a", "INT")], "called '_a'"),
        ([StateDeclarations.value_state("a b", "INT")], "called 'a b'"),
        (["a"], "no state declaration"),
        (None, "F gives None, and no collection"),
        (StateDeclarations.value_state("a", "INT"), "F gives ValueState.*, and no collection"),
        ([StateDeclarations.reducing_state("a", "INT", None)], "F reduces state 'a' by None, which is no function"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_declared(declarations: Any, expected: str) -> None:
    with pytest.raises(InvalidDeclaration, match=expected):
        checked(declarations, "F")


def test_a_state_has_a_column_of_its_type() -> None:
    made = [
        StateDeclarations.value_state("a", "ROW<x INT>"),
        StateDeclarations.list_state("b", "BIGINT"),
        StateDeclarations.map_state("c", "STRING", "INT"),
        StateDeclarations.reducing_state("d", "BIGINT", max),
        StateDeclarations.broadcast_state("e", "STRING", "INT"),
    ]
    wanted = ["ROW<x INT>", "ARRAY<BIGINT>", "MAP<STRING, INT>", "BIGINT", "MAP<STRING, INT>"]
    assert list(map(column_type, checked(made, "F"))) == wanted


keys = st.integers(0, 12)
steps = st.lists(st.tuples(st.sampled_from(["put", "remove", "clear", "ask"]), keys), max_size=30)


@searched(100)
@given(st.none() | st.dictionaries(keys, st.integers(), max_size=8), steps)
def test_the_first_key_from_another_on_is_the_one_of_a_sorted_map(
    stored: dict[int, int] | None, steps: list[tuple[str, int]]
) -> None:
    cell, plain = MapCell(None if stored is None else Known(dict(stored))), dict(stored or {})
    for number, (what, key) in enumerate(steps):
        if what == "put":
            cell.put(key, number)
            plain[key] = number
        elif what == "remove":
            cell.remove(key)
            plain.pop(key, None)
        elif what == "clear":
            cell.clear()
            plain.clear()
        else:
            assert cell.first_from(key) == min((own for own in plain if own >= key), default=None)
    assert (cell.get(), cell.empty) == (plain, not plain)
