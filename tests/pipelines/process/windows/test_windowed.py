"""SQL's windows: which windows a time is in, against the windows of Python; and how their parts are put together."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from math import nan
from typing import Any, NamedTuple

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import searched
from tidegate.pipelines.process import Arrived, EventTimeExtension, LocalRun
from tidegate.pipelines.process.windows import Windows, cumulate, hop, tumble
from tidegate.pipelines.process.windows.aggregation import MERGES, WindowAggregation
from tidegate.pipelines.process.windows.windowed import Part, WindowTable
from tidegate.pipelines.watermarks import MAX_TIMESTAMP, Watermark


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


PAIRS: list[tuple[WindowTable, Windows]] = [
    (WindowTable("TUMBLE", 10, 10), tumble(ms(10))),
    (WindowTable("TUMBLE", 10, 10, 3), tumble(ms(10), ms(3))),
    (WindowTable("TUMBLE", 10, 10, -13), tumble(ms(10), ms(-13))),
    (WindowTable("HOP", 15, 5), hop(ms(5), ms(15))),
    (WindowTable("HOP", 10, 10, 4), hop(ms(10), ms(10), ms(4))),
    (WindowTable("HOP", 15, 5, -7), hop(ms(5), ms(15), ms(-7))),
    (WindowTable("CUMULATE", 15, 5), cumulate(ms(5), ms(15))),
    (WindowTable("CUMULATE", 20, 5, -2), cumulate(ms(5), ms(20), ms(-2))),
]
MACROS = "CREATE MACRO pmod(a, b) AS ((a % b) + b) % b; CREATE MACRO sequence(a, b, c) AS generate_series(a, b, c)"
"""What Spark's functions are called in DuckDB."""


@pytest.mark.parametrize(
    ("table", "windows"), PAIRS, ids=lambda value: str(value) if type(value) is WindowTable else ""
)
def test_the_windows_of_a_time_are_those_of_the_python_functions(table: WindowTable, windows: Windows) -> None:
    ends = table.ends("t")
    asked = f"SELECT t, {ends}, {table.last_end('t')}, list_transform({ends}, lambda e: {table.start('e')})"
    engine = duckdb.connect()
    engine.execute(MACROS)
    asked = re.sub(r"\b(\d+)L\b", r"\1", asked).replace("array(", "list_value(")
    found = engine.execute(f"{asked} FROM range(-41, 42) AS _(t)").fetchall()
    assert len(found) == 83
    for time, own, last, starts in found:
        wanted = sorted(tuple(window) for window in windows.of(time))
        assert sorted(zip(starts, own, strict=True)) == wanted, time
        assert last == wanted[-1][1]


PARTS = (
    Part("rows", "sum", "", "BIGINT", "BIGINT"),
    Part("total", "sum", "", "DECIMAL(38, 2)", "DECIMAL(38, 2)"),
    Part("low", "min", "", "INT", "INT"),
    Part("high", "max", "", "STRING", "STRING"),
    Part("names", "set", "", "ARRAY<STRING>", "ARRAY<STRING>"),
)


class Added(NamedTuple):
    """What the function is handed: one record for a window, a key and a landed epoch."""

    window_end: int
    item: str
    rows: int
    total: Decimal | None
    low: int | None
    high: str | None
    names: list[str]


names = st.sampled_from(["x", "y", "z"])
added = st.builds(
    Added,
    st.sampled_from([10, 20]),
    st.sampled_from("ab"),
    st.integers(1, 5),
    st.none() | st.decimals(-(10**20), 10**20, places=2),
    st.none() | st.integers(-5, 5),
    st.none() | names,
    st.lists(names, unique=True),
)


@searched(200)
@given(st.lists(added, max_size=20), st.integers(1, 6))
def test_parts_come_together_as_if_all_had_come_at_once(found: list[Added], cut: int) -> None:
    function = EventTimeExtension.wrap_process_function(WindowAggregation(1, PARTS))
    run, emitted = LocalRun(function, lambda record: (record.window_end, record.item)), []
    for start in range(0, len(found), cut):
        emitted += run.epoch([Arrived(found[start : start + cut])])[0]
    assert emitted == []
    emitted = run.epoch([Arrived((), Watermark(10))])[0]
    assert {row[0] for row in emitted} <= {10}
    emitted += run.epoch([Arrived((), Watermark(MAX_TIMESTAMP))])[0]
    assert sorted(emitted) == expected(found)
    assert run.state == {}


def expected(found: list[Added]) -> list[tuple]:
    groups: dict[tuple, list[Added]] = defaultdict(list)
    for row in found:
        groups[row.window_end, row.item].append(row)

    def over(rows: list[Added], column: str, combine: Callable[..., Any]) -> Any:
        known = [getattr(row, column) for row in rows if getattr(row, column) is not None]
        return combine(known) if known else None

    return sorted(
        (
            *key,
            sum(row.rows for row in rows),
            over(rows, "total", sum),
            over(rows, "low", min),
            over(rows, "high", max),
            len({name for row in rows for name in row.names}),
        )
        for key, rows in groups.items()
    )


@pytest.mark.parametrize(
    ("kind", "one", "other", "wanted"),
    [
        ("min", nan, 1.0, 1.0),
        ("min", 1.0, nan, 1.0),
        ("max", 1.0, nan, nan),
        ("max", nan, 1.0, nan),
        ("sum", None, None, None),
        ("sum", Decimal("9" * 36 + ".01"), Decimal("9" * 36 + ".99"), Decimal("1" + "9" * 35 + "9.00")),
    ],
)
def test_nan_is_the_greatest_number_and_no_digit_is_lost(kind: str, one: Any, other: Any, wanted: Any) -> None:
    assert repr(MERGES[kind](one, other)) == repr(wanted)
