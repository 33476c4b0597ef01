"""The bases of `bases.py`, each with its history: made when first asked for, once a worker."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from pyspark.sql import SparkSession

from tests.stories.changes.bases import BASES, Story


@pytest.fixture(scope="session")
def stories(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Story]:
    return cache(lambda script: Story(BASES[script], tmp_path_factory.mktemp(script)))
