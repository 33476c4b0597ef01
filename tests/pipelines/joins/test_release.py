"""What a row carries while it is joined: nothing that only counts need."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from pyspark.sql import Observation, SparkSession

from pipelines.runtime.releasing import Waiting
from pipelines.testing import Harness

SCRIPT = """
CREATE TABLE rates (currency INT, rate INT, valid_from TIMESTAMP(3), WATERMARK FOR valid_from AS valid_from,
    PRIMARY KEY (currency) NOT ENFORCED) WITH ('connector' = 'scripted');
CREATE TABLE orders (id INT, currency INT, at TIMESTAMP(3), WATERMARK FOR at AS at) WITH ('connector' = 'scripted');
CREATE TABLE converted (id INT, rate INT{constraint}) WITH ('connector' = 'scripted');
INSERT INTO converted SELECT o.id, r.rate FROM orders AS o
LEFT JOIN rates FOR SYSTEM_TIME AS OF o.at AS r ON o.currency = r.currency WHERE o.id <> 13
"""


@pytest.mark.parametrize("constraint", ["", ", CONSTRAINT small EXPECT (rate < 50) ON VIOLATION QUARANTINE"])
def test_no_column_is_made_for_a_count(spark: SparkSession, tmp_path: Path, constraint: str) -> None:
    harness = Harness(SCRIPT.format(constraint=constraint), spark, tmp_path)
    harness.push("orders", [{"id": 1, "currency": 1, "at": datetime(1970, 1, 1)}])
    for table in ("rates", "orders"):
        harness.watermark(table, 1_000)
        harness.runner.advance(table)
    releasing = harness.runner.releasing("converted")
    plan = releasing.plan()
    assert not isinstance(plan, Waiting)
    query = releasing.stager.frame(spark, plan, Observation("counted"))._jdf.queryExecution()  # type: ignore[operator]
    assert "_common_expr" not in str(query.optimizedPlan().toString())
