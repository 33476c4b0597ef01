"""examples/files: the pipeline as its README tells it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipelines.sources import paths
from pipelines.testing import Harness

EXAMPLE = Path(__file__).parents[2] / "examples" / "files"


def test_it_runs_and_reads_only_what_is_new(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "files")
    monkeypatch.chdir(tmp_path / "files")
    monkeypatch.delenv(paths.VARIABLE, raising=False)
    harness = Harness(Path("pipeline.sql").read_text(), spark, tmp_path)
    file = "2026-01-02.json"
    shown = [(row["item_id"], row["gender"], row["file"]) for row in harness.advance()]
    assert sorted(shown) == [(10, "f", file), (11, "f", file), (12, None, file), (13, "m", file)]

    Path("changes/more.json").write_text(json.dumps({"data": {"user_id": 3, "gender": "back"}, "op": "+I"}))
    Path("clicks/more.json").write_text(json.dumps({"user_id": 3, "item_id": 14}))
    for name in ("changes/more.json", "clicks/more.json"):
        shutil.copystat(EXAMPLE / "pipeline.sql", name)  # long finished
    assert [(row["item_id"], row["gender"]) for row in harness.advance()] == [(14, "back")]
