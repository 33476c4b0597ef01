from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipelines.runtime import plays


@pytest.fixture
def play(spark: SparkSession, tmp_path: Path) -> plays.Play:
    """Orders and rates, of which nothing has come yet; the lake is in `tmp_path`."""
    return plays.Play(spark, tmp_path)
