"""examples/payments: a process function over two inputs, against plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.stories.story import put, read, started

PATIENCE, DISORDER = 900_000, 10_000


def expected(orders: Sequence[dict[str, Any]], payments: Sequence[dict[str, Any]], watermark: int) -> list[tuple]:
    """What each order emits once time has come to `watermark`, where all of this landed before it moved."""
    found = []
    for order in orders:
        paid = sum(item["paid"] for item in payments if item["order_id"] == order["order_id"])
        if paid >= order["amount"]:
            found.append((order["order_id"], "paid", 0))
        elif order["time"] + PATIENCE <= watermark:
            found.append((order["order_id"], "unpaid", order["amount"] - paid))
    return sorted(found)


@pytest.mark.thorough
def test_orders_are_paid_or_not(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = started("payments", spark, tmp_path, monkeypatch)
    released = harness.advance()
    orders, payments = read("orders"), read("payments")
    come_to = min(max(row["time"] for row in rows) for rows in (orders, payments)) - DISORDER
    shown = sorted((row["order_id"], row["state"], row["open_amount"]) for row in released)
    assert shown == expected(orders, payments, come_to) == [(1, "paid", 0), (2, "paid", 0), (3, "unpaid", 40)]
    last = come_to + DISORDER
    put("payments/2.json", [{"order_id": 4, "paid": 9, "time": last + PATIENCE + DISORDER}])
    put("orders/2.json", [{"order_id": 5, "amount": 5, "time": last + PATIENCE + DISORDER}])
    released = harness.advance()
    shown = sorted((row["order_id"], row["state"], row["open_amount"]) for row in released)
    assert shown == [(4, "unpaid", 1), (5, "paid", 0)]  # of 5 the money came an epoch before
