"""A lake's folders: what is Tidegate's alone is its owner's alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.pipelines.runtime.handmade import HandmadeLake, pipeline
from tidegate.pipelines.lake import Lake


@pytest.mark.parametrize("umask", [0o022, 0o002])
def test_what_is_not_a_target_is_its_owners_alone(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        made = HandmadeLake(tmp_path / "lake", pipeline())
        made.planned(1, 0, 1, pin=1, flip=1)
        made.lake.target_path(made.target).mkdir(parents=True)
        Lake(tmp_path / "lake")  # opened again, it stays as it is
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "lake").iterdir()}
    own = dict.fromkeys(("_control", "_scratch", "_quality", "state", "tables"), 0o700)
    assert modes == {**own, "targets": 0o777 & ~umask}


def test_a_lake_that_is_only_read_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of an older Tidegate, which had not made all of them, on a disk that nobody may write to."""
    HandmadeLake(tmp_path, pipeline()).planned(1, 0, 1, pin=1, flip=1)
    (tmp_path / "_quality").rmdir()
    real = Path.mkdir

    def read_only(path: Path, *arguments: object, **named: object) -> None:
        if not path.exists():
            raise OSError(30, "Read-only file system")
        real(path, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "mkdir", read_only)
    assert Lake(tmp_path, create=False).exists()
