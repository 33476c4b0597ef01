"""A build that is ten times the driver's heap on disk: the event-time join still finishes, and is right.

The heap is $TIDEGATE_DRIVER_MEMORY, 1g unless it is given: less than what anybody would run with. A build row has a
kilobyte that no codec makes smaller; every probe row finds one, and the sum of what they found is known beforehand.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks.measure import Figure, seconds
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.lake.adopt import there
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.runtime.session import start_session
from tidegate.pipelines.sql import compile_script

SCRIPT = """
CREATE TABLE items (item BIGINT, price INT, valid_from TIMESTAMP(3), note AS CONCAT({note}),
    WATERMARK FOR valid_from AS valid_from, PRIMARY KEY (item) NOT ENFORCED
) WITH ('connector' = 'delta', 'path' = '{folder}/items');
CREATE TABLE sales (id BIGINT, item BIGINT, at TIMESTAMP(3), WATERMARK FOR at AS at)
WITH ('connector' = 'delta', 'path' = '{folder}/sales');
CREATE TABLE priced (id BIGINT, price INT, note STRING) WITH ('connector' = 'delta');
INSERT INTO priced SELECT s.id, i.price, i.note FROM sales AS s
LEFT JOIN items FOR SYSTEM_TIME AS OF s.at AS i ON s.item = i.item
"""
TIMES, PROBES = 10, 200_000
UNITS = {"g": 1 << 30, "m": 1 << 20}


@dataclass(frozen=True)
class _Took:
    """Bytes of a build of `rows` rows in the lake, and the seconds for landing it and for the release."""

    rows: int
    size: int
    landed: float
    released: float


def measure() -> list[Figure]:
    """How long landing and the release take, a build row beside one of a tenth of the heap, and the build's size."""
    memory = os.environ.setdefault("TIDEGATE_DRIVER_MEMORY", "1g")
    heap = int(memory[:-1]) * UNITS[memory[-1].lower()]
    spark = start_session()
    _joined(spark, 1000)  # what a process pays once
    small = _joined(spark, heap // TIMES // 1024)
    large = _joined(spark, TIMES * heap // 1024)
    beside = f"of {small.rows:,} rows"
    landed, small_landed = (1000 * each.landed / each.rows for each in (large, small))
    released, small_released = (1000 * each.released / (each.rows + PROBES) for each in (large, small))
    joined = f"… released to {PROBES:,} probes with a heap of {memory}: 1,000 rows of both"
    finishes = "10, and it finishes"
    return [
        Figure(f"a build of {large.size / 1e9:.1f} GB, landed: 1,000 rows", landed, "s", small_landed, beside, "2"),
        Figure(joined, released, "s", small_released, beside, "2"),
        Figure("… the build on disk beside the heap", large.size / 1e9, "GB", heap / 1e9, "heap", finishes),
    ]


def _joined(spark: SparkSession, rows: int) -> _Took:
    note = ", ".join(f"SHA2(CONCAT(CAST(item AS STRING), '{part}'), 512)" for part in range(8))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        moment = "CAST(timestamp_millis(1767225600000L + {}) AS TIMESTAMP_NTZ)"
        valid = f"IF(id = {rows - 1}, 1000, id % 500)"  # after the last one nothing older is to come
        items = ("id AS item", "CAST(id % 1000 AS INT) AS price", f"{moment.format(valid)} AS valid_from")
        spark.range(rows).selectExpr(*items).write.format("delta").save(f"{folder}/items")
        sales = ("id", f"(id * 7919) % {rows} AS item", f"{moment.format('500 + id % 500')} AS at")
        spark.range(PROBES).selectExpr(*sales).write.format("delta").save(f"{folder}/sales")
        with Runner(
            compile_script(SCRIPT.format(folder=folder, note=note)), Lake(folder / "lake"), spark=lambda: spark
        ) as runner:
            landed = seconds(lambda: [runner.advance(table) for table in ("items", "sales")])
            shutil.rmtree(folder / "items")
            size = sum(file.size for file in there(runner.lake.table_path("items")).files.values())
            print(f"landed {size:,} bytes in {landed:.0f} s", flush=True)
            released = seconds(lambda: runner.release("priced"))
            target = runner.lake.target_path(runner.pipeline.table("priced"))
            wrong = f"price IS NULL OR price <> ((id * 7919) % {rows}) % 1000 OR length(note) <> 1024"
            found = lake_rows.read(spark, target).agg(F.count(F.lit(1)), F.count_if(F.expr(wrong))).collect()[0]
    assert found[0] > PROBES * 0.99, found
    assert found[1] == 0, found
    return _Took(rows, size, landed, released)
