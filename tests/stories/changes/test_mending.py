"""What fails at a row can be mended: an expression, and a function whose last epoch has failed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.stories.changes.bases import PROCESS, Story


@pytest.mark.xdist_group("changes of clicks")
def test_an_expression_that_fails_at_a_row(stories: Callable[[str], Story], tmp_path: Path) -> None:
    story = stories("clicks")
    with story.on_a_copy(tmp_path / "lake"):
        story.write({"clicks.sql": [["SELECT id, price FROM", "SELECT id, CAST(item AS INT) FROM"]]})
        failed = story.run()
        assert failed.exit_code == 1, failed.output
        assert "CAST_INVALID_INPUT" in failed.stderr
        assert story.targets()["sold"] == [(1, 2), (2, 5)]
        story.write({"clicks.sql": [["SELECT id, price FROM", "SELECT id, price + 1 FROM"]]})
        mended = story.run()
        assert mended.exit_code == 0, mended.output
        assert story.targets()["sold"] == [(1, 2), (2, 5), (3, 4), (4, 8)]
        assert story.targets()["items"] == story.wanted()["items"]
        assert story.run(command="verify").exit_code == 0


@pytest.mark.thorough
def test_a_process_function_that_fails_at_a_record(spark: SparkSession, tmp_path: Path) -> None:
    story = Story(PROCESS, tmp_path)
    story.put("clicks", 3, [{"id": 4, "item": None, "shop": "a", "at": 31_000}])
    failed = story.run()
    assert failed.exit_code == 1, failed.output
    assert "strip" in failed.stderr
    story.write({"process.py": [["record.item.strip()", "(record.item or '').strip()"]]})
    mended = story.run()
    assert mended.exit_code == 0, mended.output
    assert "counts" in mended.output
    assert story.targets()["counts"] == [(1, "pen", 1), (2, "pen", 2), (3, "pen", 3), (4, "", 1)]
