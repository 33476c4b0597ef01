from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.stories.story import EXAMPLES, Story
from tidegate.pipelines import paths
from tidegate.pipelines.runtime.scripts import load_script
from tidegate.pipelines.testing import Harness


@pytest.fixture
def story(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Story:
    """A reader in the top folder of Tidegate, with a lake of their own."""
    return Story(tmp_path, monkeypatch)


@pytest.fixture
def start(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Harness]:
    """Runs the pipeline of an example in a copy of its folder, which is the working directory from then on."""

    def started(name: str) -> Harness:
        shutil.copytree(EXAMPLES / name, tmp_path / name)
        monkeypatch.chdir(tmp_path / name)
        for variable in (paths.VARIABLE, "NEWS_TABLES"):
            monkeypatch.delenv(variable, raising=False)
        (script,) = Path().glob("pipeline.*")
        return Harness(load_script(script), spark, tmp_path)

    return started
