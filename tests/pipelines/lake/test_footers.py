"""The bounds of a column over the footers of several files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidegate.pipelines.lake.footers import bounds_of_files


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
