"""An expression of a table that fails on a row: named, typed, and nothing of the epoch is committed."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.lake.delta_log import committed
from tidegate.pipelines.testing import Harness

AT = datetime(2024, 1, 31, 12)
NOW = 1_700_000_000_000
ON_EVENT = ", 'scan.watermark.emit.strategy' = 'on-event'"


def harness_of(spark: SparkSession, tmp_path: Path, columns: str, options: str) -> Harness:
    script = f"""
        CREATE TABLE events ({columns}) WITH ({options});
        CREATE TABLE sink (id INT) WITH ('connector' = 'scripted');
        INSERT INTO sink SELECT id FROM events;
    """
    return Harness(script, spark, tmp_path, clock=lambda: NOW)


@pytest.mark.parametrize(
    ("columns", "row", "what", "where"),
    [
        (
            "id INT, text STRING, m AS id * 2, n AS CAST(text AS INT)",
            {"id": 1, "text": "one"},
            "computed column n failed: [CAST_INVALID_INPUT] The value 'one' of the type \"STRING\"",
            "n AS CAST(text AS INT); generation 1, epoch 1: ",
        ),
        (
            "id INT, share AS 100 / id, half AS id / 2",
            {"id": 0},
            "computed column share failed: [DIVIDE_BY_ZERO]",
            "share AS 100 / id; ",
        ),
        (
            "id INT, text STRING, at TIMESTAMP(3), WATERMARK FOR at AS CAST(text AS TIMESTAMP(3))",
            {"id": 1, "text": "noon", "at": AT},
            "the watermark failed: [CAST_INVALID_INPUT] The value 'noon'",
            "WATERMARK FOR at AS CAST(text AS TIMESTAMP(3)); ",
        ),
    ],
)
def test_an_expression_that_fails_is_named(
    columns: str, row: dict, what: str, where: str, spark: SparkSession, tmp_path: Path
) -> None:
    harness = harness_of(spark, tmp_path, columns, "'connector' = 'scripted'")
    harness.push("events", [row])
    with pytest.raises(SourceError) as caught:
        harness.run()
    assert caught.value.what.startswith(f"events: {what}")
    assert caught.value.where.startswith(where)
    assert caught.value.state.startswith("the epoch is planned, none of its rows are committed; epochs before it stand")
    assert caught.value.next_command.startswith("mend the expression (TRY_CAST gives NULL where CAST fails)")
    assert committed(harness.lake.table_path("events"), harness.lake.application("events", "data", 1)) < 1


def test_a_watermark_that_fails_as_it_is_emitted_on_event_commits_nothing(spark: SparkSession, tmp_path: Path) -> None:
    columns = "id INT, text STRING, at TIMESTAMP(3), WATERMARK FOR at AS CAST({} AS TIMESTAMP(3))"
    options = "'connector' = 'datagen', 'number-of-rows' = '9', 'rows-at-start' = '3', 'fields.at.max-past' = '1 h'"
    harness = harness_of(spark, tmp_path, columns.format("text"), options + ON_EVENT)
    with pytest.raises(SourceError) as caught:
        harness.run()
    assert caught.value.what.startswith("events: the watermark failed: [CAST_INVALID_INPUT]")
    assert "none of its rows are committed" in caught.value.state
    assert committed(harness.lake.table_path("events"), harness.lake.application("events", "data", 1)) < 1
    harness.runner.leases.abandon()  # a run with the mended script goes on in the same lake
    harness_of(spark, tmp_path, columns.format("at"), options + ON_EVENT).run()
    landed = harness.lake.watermarks.last("events", 1)
    assert landed.rows == 3
    assert NOW - 3_600_000 <= landed.timestamp <= NOW
