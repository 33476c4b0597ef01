"""Rows of one key within an epoch are counted, as PRIMARY KEY of a target is not enforced."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidegate.pipelines.location import Location
from tidegate.pipelines.runtime.releasing.doubled import KEY_TWICE, doubled


@pytest.mark.parametrize(
    ("files", "key", "twice"),
    [
        ([], ["k"], 0),
        ([[("+I", 1, "a")]], ["k"], 0),
        ([[("+I", 1, "a"), ("+I", 1, "b")], [("+I", 1, "c"), ("+I", 2, "a")]], ["k"], 2),
        ([[("+I", 1, "a"), ("+I", 1, "b"), ("+I", 2, "a")]], ["k", "v"], 0),
        ([[("+I", None, "a"), ("+I", None, "b")]], ["k"], 1),
        ([[("+I", 1, "a"), ("-U", 1, "a"), ("+U", 1, "b"), ("-D", 1, "b")]], ["k"], 0),
    ],
)  # fmt: skip
def test_rows_of_one_key(
    files: list[list[tuple[str, int | None, str]]], key: list[str], twice: int, tmp_path: Path
) -> None:
    paths = []
    for number, rows in enumerate(files):
        op, k, v = zip(*rows, strict=True)
        pq.write_table(pa.table({"_op": op, "k": pa.array(k, pa.int64()), "v": v}), tmp_path / f"{number}.parquet")
        paths.append(Location(str(tmp_path)) / f"{number}.parquet")
    assert doubled(paths, key) == {KEY_TWICE: twice}
    assert doubled(paths, []) == {}
