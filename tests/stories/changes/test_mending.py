"""What fails at a row can be mended: an expression, and a function whose last epoch has failed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.stories.changes.bases import PROCESS, Story, rows_of, state_of, tidegate


@pytest.mark.thorough
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


WORDS = """
CREATE TABLE words (id INT, word STRING, n AS CAST(word AS INT)) WITH (
    'connector' = 'filesystem', 'path' = 'words', 'format' = 'json');
CREATE TABLE numbers (id INT, n INT) WITH ('connector' = 'delta');
INSERT INTO numbers SELECT id, n FROM words;
"""


def put(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    os.utime(folder / name, (1e9, 1e9))


def test_an_expression_of_a_table_that_fails_at_its_first_row(spark: SparkSession, tmp_path: Path) -> None:
    """The hint says to mend it, so the mended one goes on at the epoch that is planned."""
    script, lake = tmp_path / "words.sql", tmp_path / "lake"
    script.write_text(WORDS)
    put(tmp_path / "words", "1", '{"id": 1, "word": "x"}\n')
    failed = tidegate(tmp_path, "run", script, "--lake", lake)
    assert failed.exit_code == 1, failed.output
    assert "CAST_INVALID_INPUT" in failed.stderr
    script.write_text(WORDS.replace("CAST", "TRY_CAST"))
    mended = tidegate(tmp_path, "run", script, "--lake", lake)
    assert mended.exit_code == 0, mended.output
    assert "table words changes from epoch 1 on: columns n" in mended.output
    assert rows_of(lake / "targets" / "numbers") == [(1, None)]
    assert tidegate(tmp_path, "verify", script, "--lake", lake).exit_code == 0
    before = state_of(lake)
    script.write_text(WORDS)
    refused = tidegate(tmp_path, "run", script, "--lake", lake)
    assert refused.exit_code == 1, refused.output
    assert "words" in refused.stderr
    assert state_of(lake) == before


@pytest.mark.thorough
def test_a_table_without_rows_takes_a_column_whose_place_counts(spark: SparkSession, tmp_path: Path) -> None:
    script, lake, csv = tmp_path / "words.sql", tmp_path / "lake", WORDS.replace("'json'", "'csv'")
    csv = csv.replace(", n AS CAST(word AS INT)", "").replace("id, n FROM", "id, 1 FROM")
    script.write_text(csv)
    (tmp_path / "words").mkdir()
    assert tidegate(tmp_path, "run", script, "--lake", lake).exit_code == 0
    script.write_text(csv.replace("word STRING", "n INT, word STRING").replace("id, 1 FROM", "id, n FROM"))
    put(tmp_path / "words", "1", "1,7,x\n")
    result = tidegate(tmp_path, "run", script, "--lake", lake)
    assert result.exit_code == 0, result.output
    assert "columns n" in result.output
    assert rows_of(lake / "targets" / "numbers") == [(1, 7)]
    assert tidegate(tmp_path, "verify", script, "--lake", lake).exit_code == 0
