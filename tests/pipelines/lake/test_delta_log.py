"""Files are chosen by their statistics, wherever the lake lies."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from tidegate.pipelines.lake.delta_log import data_files, opened


@pytest.mark.parametrize("folder", ["lake", "a lake of 100% ünïcode"])
def test_files_of_a_pin(tmp_path: Path, folder: str) -> None:
    path = tmp_path / folder / "t"
    for generation, epoch in [(1, 1), (1, 2), (2, 1)]:
        rows = {"_generation": pa.array([generation], pa.int32()), "_epoch": pa.array([epoch], pa.int64())}
        write_deltalake(str(path), pa.table(rows), mode="append")
    both = {"_generation": pa.array([1, 1], pa.int32()), "_epoch": pa.array([3, 4], pa.int64())}
    write_deltalake(str(path), pa.table(both), mode="append")
    table = opened(path)
    assert table is not None

    def found(generation: int, after: int, upto: int) -> tuple[list[list[int]], bool]:
        files = data_files(table, generation, after, upto)
        paths = table.paths(files.files)
        return sorted(pq.ParquetFile(name).read()["_epoch"].to_pylist() for name in paths), files.exact

    assert found(1, 0, 1) == ([[1]], True)
    assert found(1, -1, 2) == ([[1], [2]], True)
    assert found(1, 1, 3) == ([[2], [3, 4]], False)
    assert found(2, 0, 9) == ([[1]], True)
    assert found(3, 0, 9) == ([], True)


def test_another_table_in_the_place_of_one_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "t"
    assert opened(path) is None
    for number in (1, 2):
        write_deltalake(path, pa.table({"a": [number]}))
        table = opened(path)
        assert table is not None
        assert opened(path) is table
        assert (table.version, table.metadata.id) == (0, str(DeltaTable(path).metadata().id))
        shutil.rmtree(path)
        assert opened(path) is None
