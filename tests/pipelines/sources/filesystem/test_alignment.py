"""A folder in an alignment group waits for the others, a file at a time."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipelines.sources.filesystem.folders import Files
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.sql import compile_script

TABLE = """
CREATE TABLE {name} (n BIGINT, at AS TO_TIMESTAMP_LTZ(n, 3), WATERMARK FOR at AS at) WITH (
    'connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv', 'scan.max-rows-per-epoch' = '1',
    'scan.watermark.alignment.group' = 'g', 'scan.watermark.alignment.max-drift' = '15 ms');
CREATE TABLE kept_{name} (n BIGINT) WITH ('connector' = 'delta');
INSERT INTO kept_{name} SELECT n FROM {name};
"""


@pytest.mark.thorough
def test_it_goes_on_when_the_group_has_caught_up(spark: SparkSession, files: Files, tmp_path: Path) -> None:
    one, two = Files(tmp_path / "one"), Files(tmp_path / "two")
    for number in range(6):
        one.write(f"{number}.csv", f"{10 * number}\n")
    two.write("0.csv", "0\n")
    script = "".join(TABLE.format(name=folder.path.name, path=folder.path) for folder in (one, two))
    lake = Lake(tmp_path / "lake")
    with Runner(compile_script(script), lake, spark=lambda: spark, clock=lambda: 0, environment={}) as runner:
        advance = runner.advance_all(["one", "two"])[0]
        assert [item.split for item in advance.blocked] == ["0"]
        assert sum(row.rows for row in lake.watermarks.rows("one")) == 3
        two.write("1.csv", "40\n")
        assert runner.advance_all(["one", "two"])[0].blocked == ()
        assert sum(row.rows for row in lake.watermarks.rows("one")) == 6
