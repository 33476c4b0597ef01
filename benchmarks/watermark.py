"""Ingest with WATERMARK FOR beside the same ingest without: what a built-in strategy costs."""

from __future__ import annotations

import statistics
import tempfile
from collections import deque
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.measure import Figure, seconds
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.runtime.session import start_session
from tidegate.pipelines.sql import compile_script

SCRIPT = """
CREATE TABLE clicks (user_id BIGINT, item_id BIGINT, at TIMESTAMP_LTZ(3){watermark}) WITH (
    'connector' = 'datagen', 'rows-at-start' = '1', 'rows-per-second' = '{rows}',
    'fields.user_id.min' = '1', 'fields.user_id.max' = '1000000', 'fields.at.max-past' = '1 min'{options});
CREATE TABLE kept (user_id BIGINT) WITH ('connector' = 'delta');
INSERT INTO kept SELECT user_id FROM clicks
"""
WATERMARK = ", WATERMARK FOR at AS at - INTERVAL '5' SECOND"
NONE_LATE = ", WATERMARK FOR at AS at - INTERVAL '2' MINUTE"
PUNCTUATED = ", 'scan.watermark.emit.strategy' = 'on-event'"
LARGE, SMALL = 5_000_000, 10_000
START = 1_800_000_000_000


def measure(runs: int = 8) -> list[Figure]:
    """The median of `runs` ingests of each kind, taken in turns after one that does not count, each turn begun by
    another kind: what one leaves to the disk and the collector is the next one's. Of one large epoch and a small one.
    """
    spark = start_session()
    kinds = {
        "without": ("", ""),
        "": (WATERMARK, ""),
        " on-event, no row late": (NONE_LATE, PUNCTUATED),
        " on-event, nearly all rows late": (WATERMARK, PUNCTUATED),
    }
    figures: list[Figure] = []
    for rows in (LARGE, SMALL):
        took: dict[str, list[float]] = {kind: [] for kind in kinds}
        for number in range(runs + 1):
            order = deque(kinds.items())
            order.rotate(number)
            for kind, (watermark, options) in order:
                value = _ingest(spark, SCRIPT.format(watermark=watermark, options=options, rows=rows))
                if number:
                    took[kind].append(value)
        median = {kind: statistics.median(values) for kind, values in took.items()}
        without = median.pop("without")
        for kind, value in median.items():
            figures.append(
                Figure(f"ingest {rows:,} rows, WATERMARK FOR{kind}", value, "s", without, "without", "under 1.10")
            )
    return figures


def _ingest(spark: SparkSession, script: str) -> float:
    """Seconds to land the rows of one second of `clicks` in a new lake, after a row with which it flips: before its
    flip nothing is late."""
    now = [START]
    with (
        tempfile.TemporaryDirectory() as folder,
        Runner(
            compile_script(script), Lake(Path(folder) / "lake"), spark=lambda: spark, clock=lambda: now[0]
        ) as runner,
    ):
        runner.advance("clicks")
        now[0] += 1000
        return seconds(lambda: runner.advance("clicks"))
