"""A folder for every test, inside of the allowed root."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipelines.sources.filesystem.folders import Files
from tidegate.pipelines import paths


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.setenv(paths.VARIABLE, str(tmp_path))
    return Files(tmp_path / "a folder+%20é")
