"""Processes on tables: planned, staged, judged and published, with their state, whatever comes between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.lake import rows as lake_rows
from pipelines.process import EventTimeExtension
from pipelines.runtime import faults
from pipelines.sql import compile_script
from pipelines.sql.model import Pipeline
from pipelines.testing import Harness
from pipelines.watermarks import MAX_TIMESTAMP
from tests.pipelines.runtime.processing import functions as fn

SCRIPT = """
CREATE TABLE events (k STRING, number BIGINT, name STRING, at TIMESTAMP(3), WATERMARK FOR at AS at)
    WITH ('connector' = 'scripted');
CREATE TABLE rules (k STRING, rule BIGINT, at TIMESTAMP(3), WATERMARK FOR at AS at) WITH ('connector' = 'scripted');
"""


def wrapped(function: Any) -> Any:
    return EventTimeExtension.wrap_process_function(function)


def timed(script: str = SCRIPT, function: Any = None, **more: Any) -> Pipeline:
    more = {"schema": fn.TIMED_COLUMNS, "buckets": 4, **more}
    return compile_script(script).process("told", "events", "k", wrapped(function or fn.Timed()), **more)


def event(k: str | None, number: int, name: str = "n") -> dict[str, Any]:
    return {"k": k, "number": number, "name": name}


def told(rows: list[dict[str, Any]]) -> list[tuple]:
    return sorted(
        ((row["k"], row["at"], row["seen"], row["total"], row["last"], row["names"]) for row in rows), key=str
    )


EPOCHS: list[tuple[list[dict[str, Any]], int | None]] = [
    ([event("a", 5), event("b", 7), event(None, 9)], None),
    ([event("a", 4, "m")], 4),
    ([], 6),
    ([event("a", 2, "late"), event("c", 100)], 8),
    ([event("c", 50)], MAX_TIMESTAMP),
]
PUBLISHED = [
    [],
    [("a", 4, "5,4", 9, "m=4", "m:4 n:5")],
    [("a", 5, "5,4", 9, "m=4", "m:4 n:5")],
    [("a", 2, "5,4,2", 11, "late=2", "late:2 m:4 n:5"), ("b", 7, "7", 7, "n=7", "n:7")],
    [
        ("c", 50, "100,50", 150, "n=50", "n:50"),
        ("c", 100, "100,50", 150, "n=50", "n:50"),
        (None, 9, "9", 9, "n=9", "n:9"),
    ],
]


def play(harness: Harness, epoch: tuple[list[dict[str, Any]], int | None]) -> None:
    rows, watermark = epoch
    if rows:
        harness.push("events", rows)
    if watermark is not None:
        harness.watermark("events", watermark)


def test_state_and_timers_go_from_epoch_to_epoch(spark: SparkSession, tmp_path: Path) -> None:
    harness = Harness(timed(), spark, tmp_path)
    for number, (epoch, published) in enumerate(zip(EPOCHS, PUBLISHED, strict=True)):
        play(harness, epoch)
        assert told(harness.advance()) == sorted(published, key=str), number
        harness.restart()
    assert harness.advance() == []
    staged = harness.lake.staged.rows("insert told")
    assert [row.late for row in staged] == [0, 0, 0, 0, 0]  # scripted rows have no rowtime here
    log = harness.lake.watermarks.rows("told")
    assert [(row.rows, row.timestamp) for row in log][1:] == [(1, 4), (1, 6), (2, 8), (3, MAX_TIMESTAMP)]
    state = lake_rows.read(spark, harness.lake.state_path(harness.pipeline.insert("told")))
    newest = state.where("_epoch = 2 AND _live").select("_key_k", "seen", "total", "last", "_timers").collect()
    assert [tuple(row) for row in newest] == [("a", [5, 4], 9, (4, "m"), [5])]


def test_all_at_once_is_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """Landed in one epoch each, and processed in one: the steps are the log's."""
    harness = Harness(timed(), spark, tmp_path)
    for epoch in EPOCHS:
        play(harness, epoch)
        harness.runner.advance("events")
    assert told(harness.advance()) == sorted([row for rows in PUBLISHED for row in rows], key=str)
    assert len(harness.lake.epochs.rows("insert told")) == 1


@pytest.mark.parametrize(
    "point",
    ["insert.planned", "insert.written", "insert.staged", "insert.judged", "insert.quarantined", "process.state",
     "insert.published"],
)  # fmt: skip
def test_a_crash_anywhere_is_made_good(spark: SparkSession, tmp_path: Path, point: str) -> None:
    harness = Harness(timed(), spark, tmp_path)
    play(harness, EPOCHS[0])
    harness.advance()
    play(harness, EPOCHS[1])
    disarm = faults.arm(lambda name: (_ for _ in ()).throw(KeyboardInterrupt(name)) if name == point else None)
    try:
        with pytest.raises(KeyboardInterrupt):
            harness.advance()
    finally:
        disarm()
    harness.restart()
    play(harness, EPOCHS[2])
    harness.advance()
    published = PUBLISHED[1] + PUBLISHED[2]
    assert told(harness.published("told")) == sorted(published, key=str)
    assert [row.epoch for row in harness.lake.watermarks.rows("told")] == sorted(
        row.epoch for row in harness.lake.epochs.rows("insert told")
    )
