"""The processing-time join recomputed from the stored plans, in plain Python over what a test knows of its
sources.

For kills at any moment: which rows a release held and what it was pinned to is read from the plans; what the target
must hold then follows from the script alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from deltalake import DeltaTable
from pyarrow import fs

from tidegate.pipelines.lake import Lake

Event = tuple[str, Sequence[Mapping[str, Any]]]
"""An op and its rows; op is empty for an event without rows."""
Pin = tuple[int, int]
"""(generation, epoch)."""
StateAt = Callable[[int, int], Mapping[Any, Mapping[str, Any]]]
"""The rows of a table by key, as of (generation, epoch)."""


def published_at_pins(
    lake: Lake, insert: str, key: str, build: tuple[str, StateAt], probe: tuple[str, Sequence[Event]]
) -> tuple[Counter[tuple[Any, ...]], int]:
    """(probe row, matched build row) of every plan that was published, as sorted items, and how many probe rows the
    published plans released in all. The build side is asked for the pins of the plans, in their order."""
    build_name, state_at = build
    probe_name, probe_events = probe
    reached = _reached(lake, probe_name)
    expected: Counter[tuple[Any, ...]] = Counter()
    released = 0
    for plan in lake.epochs.rows(f"insert {insert}"):
        pin = next(pin for pin in plan.plan["pins"] if pin["table"] == build_name)
        state = state_at(pin["generation"], pin["epoch"])
        own = plan.plan["takes"][0]
        first = reached.get((own["generation"], own["after"]), 0)
        last = reached[own["generation"], own["upto"]]
        for _, rows in probe_events[first:last]:
            for row in rows:
                released += 1
                if row[key] in state:
                    expected[_items(row), _items(state[row[key]])] += 1
    return expected, released


def scripted_state(
    lake: Lake, table: str, key: str, events: Sequence[Event], pin: Pin
) -> Mapping[Any, Mapping[str, Any]]:
    """The rows of a scripted table by key, as of a pin."""
    state: dict[Any, Mapping[str, Any]] = {}
    for op, rows in events[: _reached(lake, table)[pin]]:
        for row in rows:
            if op == "-D":
                state.pop(row[key], None)
            elif op != "-U":
                state[row[key]] = row
    return state


def rows_of(path: str) -> list[dict[str, Any]]:
    """A Delta table's rows, by delta-rs: another engine than the one that wrote them."""
    files = fs.SubTreeFileSystem(path, fs.LocalFileSystem())  # delta-rs's own may abort the end of the process
    return DeltaTable(path).to_pyarrow_table(filesystem=files).to_pylist()


def _reached(lake: Lake, table: str) -> dict[Pin, int]:
    return {(row.generation, row.epoch): row.plan["ranges"]["to"] for row in lake.epochs.rows(table)}


def _items(row: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(row.items()))
