"""examples/files goes on: another file into a folder, and a run reads only what is new."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.stories.story import put, started


def test_another_file_is_read_alone(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = started("files", spark, tmp_path, monkeypatch)
    assert len(harness.advance()) == 4
    put("changes/more.json", [{"data": {"user_id": 3, "gender": "back"}, "op": "+I"}])
    put("clicks/more.json", [{"user_id": 3, "item_id": 14}])
    assert [(row["item_id"], row["gender"]) for row in harness.advance()] == [(14, "back")]
