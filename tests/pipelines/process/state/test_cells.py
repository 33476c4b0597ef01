"""Cells, which know what is stored and what has changed since."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.cases import searched
from tidegate.pipelines.process.state.cells import Known, MapCell

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
