"""The processing-time join recomputed from the stored plans, in plain Python over what a test has told its sources.

For kills at any moment: which rows a release held and what it was pinned to is read from the plans; what the target
must hold then follows from the script alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from deltalake import DeltaTable

from pipelines.lake import Lake

Event = tuple[str, Sequence[Mapping[str, Any]]]
"""An op and its rows; op is empty for an event without rows."""


def published_at_pins(
    lake: Lake, insert: str, key: str, build: tuple[str, Sequence[Event]], probe: tuple[str, Sequence[Event]]
) -> tuple[Counter[tuple[Any, ...]], int]:
    """(probe row, matched build row) of every plan that was published, as sorted items, and how many probe rows the
    published plans released in all."""
    build_name, build_events = build
    probe_name, probe_events = probe
    reached = {name: _reached(lake, name) for name in (build_name, probe_name)}
    expected: Counter[tuple[Any, ...]] = Counter()
    released = 0
    for plan in lake.epochs.rows(f"insert {insert}"):
        pin = next(pin for pin in plan.plan["pins"] if pin["table"] == build_name)
        state: dict[Any, Mapping[str, Any]] = {}
        for op, rows in build_events[: reached[build_name][pin["generation"], pin["epoch"]]]:
            for row in rows:
                if op == "-D":
                    state.pop(row[key], None)
                elif op != "-U":
                    state[row[key]] = row
        generation = plan.plan["probe_generation"]
        first = reached[probe_name].get((generation, plan.plan["after"]), 0)
        last = reached[probe_name][generation, plan.plan["upto"]]
        for _, rows in probe_events[first:last]:
            for row in rows:
                released += 1
                if row[key] in state:
                    expected[_items(row), _items(state[row[key]])] += 1
    return expected, released


def rows_of(path: str) -> list[dict[str, Any]]:
    """A Delta table's rows, by delta-rs: another engine than the one that wrote them."""
    return DeltaTable(path).to_pyarrow_table().to_pylist()


def _reached(lake: Lake, table: str) -> dict[tuple[int, int], int]:
    return {(row.generation, row.epoch): row.plan["ranges"]["to"] for row in lake.epochs.rows(table)}


def _items(row: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(row.items()))
