"""A function over Arrow batches: the very values in, the very values out, and a failure that names its row."""

from __future__ import annotations

import pickle
import sys
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.pipelines.functions.test_reading import sample
from tidegate.pipelines.functions import SQL_TYPES, failure, read
from tidegate.pipelines.runtime.called import RESULTS, ArrowFunction, FunctionFailed

NOON = datetime(2024, 1, 31, 12, 0, 0, 123456)
EAST = timezone(timedelta(hours=2))


def run(name: str, *columns: pa.Array, rows: int | None = None) -> list[Any]:
    count = len(columns[0]) if columns else rows or 0
    splits, offsets = pa.array(["s"] * count), pa.array(range(100, 100 + count), pa.int64())
    result = pickle.loads(pickle.dumps(ArrowFunction(sample(name))))(splits, offsets, *columns)
    assert isinstance(result, pa.Array)
    assert result.type == RESULTS[sample(name).type].arrow
    return result.to_pylist()


@pytest.mark.parametrize(
    ("name", "columns", "expected"),
    [
        ("watermark_on_flag", [pa.array([5, 6, 7, None]), pa.array([True, False, None, True])], [5, None, None, None]),
        ("parsed", [pa.array(["7", "x", None])], [7, -1, None]),
        ("parsed", [pa.array(["7", "x"]), pa.array([1, 2])], [7, 2]),
        ("never_mind", [pa.array([None, "a"]), pa.array([None, "b"])], ["nothing", "a"]),
        ("inverse", [pa.array([4.0, None])], [0.25, None]),
        ("doubled", [pa.array([Decimal("1.5")])], [Decimal("3.000000000000000000")]),
        ("day_before", [pa.array([date(2024, 3, 1)])], [date(2024, 2, 29)]),
        ("reversed_bytes", [pa.array([b"ab", b""])], [b"ba", b""]),
        ("half_an_hour_before", [pa.array([NOON])], [NOON - timedelta(minutes=30)]),
        (
            "half_an_hour_before",
            [pa.array([NOON.replace(tzinfo=EAST)], pa.timestamp("us", "UTC"))],
            [NOON - timedelta(hours=2, minutes=30)],
        ),
    ],
)
def test_values_go_through(name: str, columns: list[pa.Array], expected: list[Any]) -> None:
    assert run(name, *columns) == expected


def test_a_function_without_arguments_has_a_value_for_every_row() -> None:
    assert run("answer", rows=3) == [42, 42, 42]
    assert run("inverse", pa.array([], pa.float64())) == []


@pytest.mark.parametrize(
    ("name", "values", "wanted"),
    [
        (
            "fails_on_13",
            [1, 2, 13],
            "function fails_on_13 failed at split s, offset 102: ValueError: 13 is unlucky (samples.py:",
        ),
        (
            "exits_on_13",
            [1, 13],
            "function exits_on_13 failed at split s, offset 101: SystemExit: 13 is unlucky (samples.py:",
        ),
        (
            "inverse",
            [1.0, 0.0],
            "function inverse failed at split s, offset 101: ZeroDivisionError: float division by zero",
        ),
        ("lies", [1], "offset 100: it returned a str, and declares BIGINT"),
        ("forgets", [1, 2], "offset 101: it returned None, and is not annotated to"),
        ("too_great", [1, 2], "offset 101: its result does not fit BIGINT"),
        ("too_many_digits", [3, 30], "offset 101: its result does not fit DECIMAL(38, 18)"),
    ],
)
def test_a_failure_names_function_split_and_offset(name: str, values: list[Any], wanted: str) -> None:
    with pytest.raises(FunctionFailed) as caught:
        run(name, pa.array(values))
    assert wanted in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_worker_that_has_not_the_module_says_so(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_alone.py").write_text("def f(a: int) -> int:\n    return a\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    function = read("f", "mine_alone.f")
    monkeypatch.delitem(sys.modules, "mine_alone")
    sys.path.remove(str(tmp_path))
    row = (pa.array(["s"]), pa.array([0]), pa.array([1]))
    with pytest.raises(
        FunctionFailed, match="function f cannot be loaded on a worker: there is no module `mine_alone`"
    ):
        ArrowFunction(function)(*row)
    assert ArrowFunction(function, (str(tmp_path),))(*row).to_pylist() == [1]


def test_what_a_function_said_is_found_in_an_engines_error() -> None:
    told = "function f failed at split 0, offset 7: KeyError: 'x' (mine.py:3)"
    error = RuntimeError(
        f"[X] An exception was thrown:\nTraceback\n  File\nruntime.called.FunctionFailed: {told}\n\tat org"
    )
    assert failure(error) == told
    assert failure(RuntimeError("out of memory")) is None


def test_every_type_that_is_read_has_its_results() -> None:
    assert set(SQL_TYPES.values()) == set(RESULTS)
