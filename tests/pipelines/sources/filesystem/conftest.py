"""A folder for every test, inside of the allowed root."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipelines.sources.filesystem.folders import Files


@pytest.fixture
def files(files_root: Path) -> Files:
    return Files(files_root / "a folder+%20é")
