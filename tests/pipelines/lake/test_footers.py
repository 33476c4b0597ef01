"""The bounds of a column over the footers of several files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.lake.footers import Times, bounds_of_files, bounds_of_groups, times_of_groups


def footer(path: Path, values: list[Any], **more: Any) -> pq.FileMetaData:
    pq.write_table(pa.table({"s": pa.array(values, pa.string()), "n": list(range(len(values)))}), path, **more)
    return pq.read_metadata(path)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([], (None, None)),
        ([[]], (None, None)),
        ([["b"], []], ("b", "b")),
        ([["b", "c"], ["a" * 300]], ("a" * 300, "c")),
        ([["b"], ["b", None]], None),
        ([["b"], [None]], None),
    ],
)
def test_bounds(files: list[list[Any]], expected: Any, tmp_path: Path) -> None:
    footers = [footer(tmp_path / f"{n}.parquet", values, row_group_size=1) for n, values in enumerate(files)]
    assert bounds_of_files(footers, "s") == expected


def test_no_bounds_without_statistics(tmp_path: Path) -> None:
    assert bounds_of_files([footer(tmp_path / "a.parquet", ["a"], write_statistics=False)], "s") is None
    assert bounds_of_files([footer(tmp_path / "b.parquet", ["a"])], "another") is None


def test_bounds_of_each_row_group(tmp_path: Path) -> None:
    footers = [footer(tmp_path / "a.parquet", ["x", "y", "z"], row_group_size=2), footer(tmp_path / "b.parquet", [])]
    assert bounds_of_groups(footers, "n") == [(2, 0, 1), (1, 2, 2)]
    assert bounds_of_groups(footers, "s") == [(2, "x", "y"), (1, "z", "z")]
    assert bounds_of_groups([footer(tmp_path / "c.parquet", ["x", None])], "s") is None
    assert bounds_of_groups([footer(tmp_path / "d.parquet", ["x"], write_statistics=False)], "n") is None
    assert bounds_of_groups(footers, "another") is None


def timed(path: Path, column: pa.Array, **more: Any) -> pq.FileMetaData:
    pq.write_table(pa.table({"at": column}), path, **more)
    return pq.read_metadata(path)


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_times_are_numbers_whatever_year_they_are_of(tmp_path: Path, zone: str | None) -> None:
    micros = [2**62, -(2**62), None, None, None, 5]
    column = pa.array(micros, pa.timestamp("us", zone))
    assert times_of_groups(timed(tmp_path / "a.parquet", column, row_group_size=2), "at") == [
        Times(0, -(2**62), 2**62),
        Times(2, None, None),
        Times(1, 5, 5),
    ]
    assert times_of_groups(timed(tmp_path / "b.parquet", column.slice(0, 0)), "at") == [Times(0, None, None)]


def test_times_of_a_nested_column(tmp_path: Path) -> None:
    nested = pa.array([{"at": 3}, None, {"at": None}], pa.struct([("at", pa.timestamp("us"))]))
    found = timed(tmp_path / "a.parquet", nested)
    assert times_of_groups(found, "at.at") == [Times(2, 3, 3)]
    assert times_of_groups(found, "at") is None


@pytest.mark.parametrize("of", [pa.int64(), pa.timestamp("ms"), pa.timestamp("ns"), pa.date32(), pa.time64("us")])
def test_other_columns_tell_no_times(tmp_path: Path, of: pa.DataType) -> None:
    assert times_of_groups(timed(tmp_path / "a.parquet", pa.array([1], of)), "at") is None


def test_no_times_without_statistics(tmp_path: Path) -> None:
    at = pa.array([1], pa.timestamp("us"))
    assert times_of_groups(timed(tmp_path / "a.parquet", at, write_statistics=False), "at") is None
