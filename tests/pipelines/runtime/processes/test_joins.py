"""Joins of two streams on tables: state and timers over epochs and a restart, NULL keys, outer rows."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tidegate.pipelines.process import EventTimeExtension
from tidegate.pipelines.process.joins import IntervalJoin, Side, WindowJoin
from tidegate.pipelines.process.windows import tumble
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.testing import Harness
from tidegate.pipelines.watermarks import MAX_TIMESTAMP

SCRIPT = """
CREATE TABLE orders (id BIGINT, item STRING, price DECIMAL(10, 2), `time` BIGINT, at AS TO_TIMESTAMP_LTZ(`time`, 3),
    WATERMARK FOR at AS at) WITH ('connector' = 'scripted');
CREATE TABLE payments (id BIGINT, paid DECIMAL(10, 2), `time` BIGINT, at AS TO_TIMESTAMP_LTZ(`time`, 3),
    WATERMARK FOR at AS at) WITH ('connector' = 'scripted');
"""
ORDER = Side(
    "id BIGINT, item STRING, price DECIMAL(10, 2), `time` BIGINT, at TIMESTAMP_LTZ(3)", time=lambda row: row.time
)
PAYMENT = Side("id BIGINT, paid DECIMAL(10, 2), `time` BIGINT, at TIMESTAMP_LTZ(3)", time=lambda row: row.time)


def paired(order: Any, payment: Any) -> tuple:
    return order.id, order.item, payment and payment.paid


@pytest.mark.thorough
def test_joins_go_on_from_epoch_to_epoch(spark: SparkSession, tmp_path: Path) -> None:
    ten = timedelta(milliseconds=10)
    pipeline = compile_script(SCRIPT)
    for name, function in {
        "paid": IntervalJoin(ten, timedelta(0), ORDER, PAYMENT, paired, outer=True),
        "at_once": WindowJoin(tumble(ten), ORDER, PAYMENT, paired),
    }.items():
        wrapped = EventTimeExtension.wrap_process_function(function)
        schema = "id BIGINT, item STRING, paid DECIMAL(10, 2)"
        pipeline = pipeline.process(name, ["orders", "payments"], "id", wrapped, schema, buckets=2)
    harness = Harness(pipeline, spark, tmp_path)

    def epoch(orders: list[tuple], payments: list[tuple], watermark: int) -> dict[str, list[tuple]]:
        ordered = [{"id": id, "item": item, "price": Decimal(1), "time": time} for id, item, time in orders]
        paid = [{"id": id, "paid": Decimal(paid), "time": time} for id, paid, time in payments]
        for table, rows in (("orders", ordered), ("payments", paid)):
            if rows:
                harness.push(table, rows)
            harness.watermark(table, watermark)
        found = harness.advance()
        return {
            name: sorted(
                ((row["id"], row["item"], row["paid"] and int(row["paid"])) for row in found if row["_target"] == name),
                key=str,
            )
            for name in ("paid", "at_once")
        }

    first = epoch([(1, "tea", 5), (2, "cup", 8), (None, "pot", 6)], [(1, 10, 9), (None, 7, 6)], 9)
    assert first == {"paid": [(1, "tea", 10), (None, "pot", None)], "at_once": []}
    harness.restart()
    second = epoch([(3, "pan", 20)], [(1, 11, 15), (2, 20, 19)], 20)
    assert second == {"paid": [(1, "tea", 11), (2, "cup", None)], "at_once": [(1, "tea", 10)]}
    third = epoch([], [(3, 30, 29), (3, 31, 31)], MAX_TIMESTAMP)
    assert third == {"paid": [(3, "pan", 30)], "at_once": [(3, "pan", 30)]}
