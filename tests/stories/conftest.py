from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.stories.story import Story


@pytest.fixture
def story(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Story:
    """A reader in the top folder of Tidegate, with a lake of their own."""
    return Story(tmp_path, monkeypatch)
