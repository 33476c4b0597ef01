"""examples/rates goes on: later rates let orders out, each at the rate of its own time."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.stories.story import put, started


@pytest.mark.thorough
def test_each_order_at_the_rate_of_its_own_time(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = started("rates", spark, tmp_path, monkeypatch)
    assert {row["order_id"]: row["dollars"] for row in harness.advance()} == {1: Decimal(110), 2: Decimal(120)}
    assert [(row["order_id"], row["_reason"]) for row in harness.quarantined("converted_order")] == [
        (3, "unmatched:before-first@r")
    ]

    def later(currency: str, rate: float, valid_from: str) -> None:
        data = {"currency": currency, "rate": rate, "valid_from": valid_from}
        put(f"rates/{valid_from[-8:-6]}.json", [{"data": data, "op": "+U"}])

    later("GBP", 1.5, "2026-01-02 11:00:00")
    assert {row["order_id"]: row["dollars"] for row in harness.advance()} == {4: Decimal(65)}
    later("EUR", 1.25, "2026-01-02 13:00:00")
    assert harness.advance() == [], "orders are known up to 12:00 less 5 s"
    put("orders/more.json", [{"order_id": 6, "currency": "GBP", "amount": 2.0, "order_time": "2026-01-02 12:30:00"}])
    assert {row["order_id"]: row["dollars"] for row in harness.advance()} == {5: Decimal(12)}
    assert harness.verify("converted_order").passed
