"""500 epochs of an event-time join: what an epoch takes, and what the disk holds, at the start and at the end.

The keys stay the same, each epoch changes all of them once and brings as many probe rows, some of which wait for long;
the changelog has a retention, and upkeep runs every 50 epochs. Rows without a match are published: in quarantine they
would keep every version that came after them.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.measure import Figure, seconds
from tidegate.pipelines.runtime.session import start_session
from tidegate.pipelines.testing import Harness

SCRIPT = """
CREATE TABLE rates (currency INT, rate INT, valid_from TIMESTAMP(3), WATERMARK FOR valid_from AS valid_from,
    PRIMARY KEY (currency) NOT ENFORCED) WITH ('connector' = 'scripted', 'changelog.retention' = '20 s');
CREATE TABLE orders (id INT, currency INT, at TIMESTAMP(3), WATERMARK FOR at AS at) WITH ('connector' = 'scripted');
CREATE TABLE converted (id INT, rate INT) WITH ('connector' = 'scripted', 'gate.on-unmatched' = 'publish');
INSERT INTO converted SELECT o.id, r.rate FROM orders AS o
LEFT JOIN rates FOR SYSTEM_TIME AS OF o.at AS r ON o.currency = r.currency
"""
START = datetime(2026, 1, 1)
ROWS, UPKEEP, WINDOW = 2_000, 50, 40


def measure(epochs: int = int(os.environ.get("TIDEGATE_EPOCHS") or 500)) -> list[Figure]:
    """The median epoch and the changelog's size: the last ones beside the first, once all is warm."""
    spark, chance = start_session(), np.random.default_rng(7)
    took: list[float] = []
    landed: list[float] = []
    changelog: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        harness = Harness(SCRIPT, spark, folder)
        for epoch in range(epochs):
            _push(harness, epoch, chance)
            landed.append(seconds(lambda: [harness.runner.advance(table) for table in ("rates", "orders")]))
            took.append(seconds(lambda: harness.runner.release("converted")))
            if epoch % UPKEEP == UPKEEP - 1:
                harness.runner.maintenance(timedelta(0)).run()
                changelog.append(_size(Path(harness.lake.table_path("rates"))))
                print(
                    f"epoch {epoch + 1}: {statistics.median(took[-WINDOW:]):.2f} s, {changelog[-1]:,} bytes", flush=True
                )
    return [
        *(
            Figure(f"{what} after {epochs} epochs", statistics.median(values[-WINDOW:]),
                   peer=statistics.median(values[UPKEEP : UPKEEP + WINDOW]), peer_name=f"after {UPKEEP}",
                   aim="1, so it does not grow")
            for what, values in (("a release", took), ("landing both tables", landed))
        ),
        Figure(f"the changelog on disk after {epochs} epochs", changelog[-1] / 1e6, "MB", changelog[0] / 1e6,
               f"after {UPKEEP}", aim="1, so it stays flat"),
    ]  # fmt: skip


def _push(harness: Harness, epoch: int, chance: np.random.Generator) -> None:
    now = START + timedelta(seconds=epoch)
    numbers = np.arange(ROWS)
    moments = pa.array([now + timedelta(milliseconds=int(ms)) for ms in chance.integers(1, 1000, ROWS)])
    harness.push("rates", pa.table({"currency": numbers, "rate": numbers + epoch, "valid_from": moments}))
    # One in a hundred lies up to a minute ahead, and waits.
    ahead = np.where(chance.random(ROWS) < 0.01, chance.integers(1000, 60_000, ROWS), chance.integers(1, 1000, ROWS))
    times = pa.array([now + timedelta(milliseconds=int(ms)) for ms in ahead])
    harness.push("orders", pa.table({"id": numbers + epoch * ROWS, "currency": numbers, "at": times}))
    for table in ("rates", "orders"):
        harness.watermark(table, int((now - datetime(1970, 1, 1)).total_seconds() * 1000) + 1000)


def _size(path: Path) -> int:
    """Of all data files that are there, whether the table still names them or not. Its log grows for as long as
    `delta.logRetentionDuration` says, in days of the clock."""
    return sum(file.stat().st_size for file in path.glob("**/*.parquet") if "_delta_log" not in file.parts)
