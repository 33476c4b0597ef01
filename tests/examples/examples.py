"""Running an example of examples/ in a folder of its own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.runtime.scripts import load_script
from pipelines.sources import paths
from pipelines.testing import Harness

EXAMPLES = Path(__file__).parents[2] / "examples"


def started(name: str, spark: SparkSession, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Harness:
    """The pipeline of an example, in a copy of its folder, which is the working directory from here on."""
    shutil.copytree(EXAMPLES / name, directory / name)
    monkeypatch.chdir(directory / name)
    monkeypatch.delenv(paths.VARIABLE, raising=False)
    return Harness(load_script(Path("pipeline.py")), spark, directory)


def read(folder: str) -> list[dict[str, Any]]:
    """The lines of an example's files, in order."""
    return [json.loads(line) for file in sorted(Path(folder).glob("*.json")) for line in file.read_text().splitlines()]


def put(path: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Another file of an example, finished long ago."""
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows))
    shutil.copystat(EXAMPLES / "limits" / "pipeline.py", path)
