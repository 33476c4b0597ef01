"""A lake's folders: what is Tidegate's alone is its owner's alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.pipelines.runtime.handmade import HandmadeLake, pipeline
from tidegate.pipelines.errors import LakeError
from tidegate.pipelines.lake import Lake


@pytest.mark.parametrize("umask", [0o022, 0o002])
def test_what_is_not_a_target_is_its_owners_alone(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        made = HandmadeLake(tmp_path / "lake", pipeline())
        made.planned(1, 0, 1, pin=1, flip=1)
        Path(made.lake.target_path(made.target)).mkdir(parents=True)
        Lake(tmp_path / "lake")  # opened again, it stays as it is
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "lake").iterdir()}
    own = dict.fromkeys(("_control", "_scratch", "_quality", "state", "tables"), 0o700)
    assert modes == {**own, "targets": 0o777 & ~umask}


def test_a_folder_that_cannot_be_looked_into_is_not_taken_for_one_without_a_lake(tmp_path: Path) -> None:
    assert Lake.found(tmp_path / "none") is None
    with pytest.raises(LakeError, match="the lake's folder cannot be read: File name too long") as failed:
        Lake.found(tmp_path / ("x" * 300))
    assert failed.value.state == "nothing was changed"


def test_a_lake_that_is_only_read_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of an older Tidegate, which had not made all of them, on a disk that nobody may write to."""
    HandmadeLake(tmp_path, pipeline()).planned(1, 0, 1, pin=1, flip=1)
    (tmp_path / "_quality").rmdir()

    def read_only(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "mkdir", read_only)
    assert Lake(tmp_path, create=False).exists()


def test_vacuum_takes_no_staged_rows(tmp_path: Path) -> None:
    made = HandmadeLake(tmp_path, pipeline())
    lake, target, insert = made.lake, made.target, made.insert
    path = lake.target_path(target)
    folders = lake.new_attempt(target, insert, "g1-e1-x")
    assert folders["publish"] == path / "_data" / "enriched" / "g1-e1-x"
    for disposition, folder in folders.items():
        Path(folder / f"_disposition={disposition}").mkdir(parents=True)
        Path(folder / f"_disposition={disposition}" / "part-0.parquet").touch()
    DeltaTable.create(str(path), pa.schema([("id", pa.int64())]))
    found = DeltaTable(str(path)).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert found == []
