"""Small files are put together, and what a reader skips them by stays right."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from pipelines.lake.upkeep import SMALL_FILES, live_files, tidy


def test_numbers_that_may_be_nan_get_no_bounds(tmp_path: Path) -> None:
    for number in range(SMALL_FILES):
        rows = pa.table({"x": [number, float("nan")], "near": pa.array([1.5, 2.5], pa.float32()), "n": [number, 7]})
        write_deltalake(tmp_path, rows, mode="append")
    tidied = tidy(tmp_path, keep=timedelta(0))
    assert tidied is not None
    assert tidied.files_after == 1
    actions = pa.table(DeltaTable(tmp_path).get_add_actions(flatten=True)).to_pylist()[0]
    assert (actions["min.n"], actions["max.n"]) == (0, SMALL_FILES - 1)
    assert [actions.get(name) for name in ("max.x", "min.x", "max.near")] == [None, None, None]
    assert pq.read_table(live_files(tmp_path).pop()).num_rows == 2 * SMALL_FILES
