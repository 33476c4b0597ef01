"""examples/rates: an event-time join over folders, as its README tells it."""

from __future__ import annotations

import json
import shutil
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipelines.sources import paths
from pipelines.testing import Harness

EXAMPLE = Path(__file__).parents[2] / "examples" / "rates"


def test_each_order_at_the_rate_of_its_own_time(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "rates")
    monkeypatch.chdir(tmp_path / "rates")
    monkeypatch.delenv(paths.VARIABLE, raising=False)
    harness = Harness(Path("pipeline.sql").read_text(), spark, tmp_path)
    assert {row["order_id"]: row["dollars"] for row in harness.advance()} == {1: Decimal(110), 2: Decimal(120)}
    assert [(row["order_id"], row["_reason"]) for row in harness.quarantined("converted_order")] == [
        (3, "unmatched:before-first@r")
    ]

    def later(currency: str, rate: float, valid_from: str) -> None:
        data = {"currency": currency, "rate": rate, "valid_from": valid_from}
        file = Path("rates") / f"{valid_from[-8:-6]}.json"
        file.write_text(json.dumps({"data": data, "op": "+U"}))
        shutil.copystat(EXAMPLE / "pipeline.sql", file)  # long finished

    later("GBP", 1.5, "2026-01-02 11:00:00")
    assert {row["order_id"]: row["dollars"] for row in harness.advance()} == {4: Decimal(65)}
    later("EUR", 1.25, "2026-01-02 13:00:00")
    assert harness.advance() == [], "orders are known up to 12:00 less 5 s"
    order = {"order_id": 6, "currency": "GBP", "amount": 2.0, "order_time": "2026-01-02 12:30:00"}
    Path("orders/more.json").write_text(json.dumps(order))
    shutil.copystat(EXAMPLE / "pipeline.sql", "orders/more.json")
    assert {row["order_id"]: row["dollars"] for row in harness.advance()} == {5: Decimal(12)}
    assert harness.verify("converted_order").passed
