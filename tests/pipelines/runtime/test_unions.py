"""UNION ALL as the probe: whatever the order of events, runs and crashes, the rows are those of a plain model, and each
row of a table is in one place for each branch that takes it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipelines.runtime.test_chains import AT, BUILDS, WITH, at_ms
from tidegate.pipelines.errors import GateHeld
from tidegate.pipelines.runtime.ledger import WhereRowsAre
from tidegate.pipelines.testing import Harness
from tidegate.quality_checks.reconcile import reconcile

SOURCES = "".join(
    f"CREATE TABLE {name} (id INT, k INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts, p AS PROCTIME()) {WITH};\n"
    for name in ("a", "b", "c")
)


def prove(harness: Harness) -> None:
    for insert in harness.pipeline.inserts:
        report = harness.verify(insert.id)
        assert report.passed, report
        found = reconcile(harness.lake, harness.pipeline, insert)
        assert found.problems == ()
        assert isinstance(found.rows, WhereRowsAre)
        assert sum(each.waiting for each in found.rows.branches) == found.rows.waiting == 0
        assert sum(each.landed for each in found.rows.branches) == found.rows.landed


HELD = (
    BUILDS
    + SOURCES
    + "CREATE TABLE t (id INT, u INT) WITH ('connector' = 'scripted', 'gate.on-unmatched' = 'block', "
    + "'release.max-rows' = '4');\n"
    + "INSERT INTO t SELECT x.id, u.v FROM (SELECT id, k, p FROM a UNION ALL SELECT id + 10, k, PROCTIME() FROM b "
    + "UNION ALL SELECT id + 20, k, p FROM a) AS x JOIN users FOR SYSTEM_TIME AS OF x.p AS u ON u.k = x.k;\n"
)


def test_what_is_held_of_a_union_is_released_or_discarded_whole(spark: SparkSession, tmp_path: Path) -> None:
    harness = Harness(HELD, spark, tmp_path)
    (insert,) = harness.pipeline.inserts
    harness.push("b", [{"id": 1, "k": 1, "ts": AT}])
    harness.advance()
    rows = reconcile(harness.lake, harness.pipeline, insert).rows
    assert isinstance(rows, WhereRowsAre)
    assert [(each.table, each.landed, each.waiting) for each in rows.branches] == [
        ("a", 0, 0),
        ("b", 1, 1),
        ("a", 0, 0),
    ]
    harness.push("users", [{"k": 1, "v": 7, "ts": AT}])
    harness.watermark("users", at_ms(1))
    assert [row["id"] for row in harness.advance()] == [11]
    for number in range(2, 6):
        harness.push("a", [{"id": number, "k": 1, "ts": AT}])
    harness.push("b", [{"id": 2, "k": 2, "ts": AT}])
    with pytest.raises(GateHeld, match="t"):
        harness.advance()
    harness.push("users", [{"k": 2, "v": 8, "ts": AT}])
    with pytest.raises(GateHeld):
        harness.run()
    harness.runner.resolve_held("t")
    harness.run()
    assert sorted(row["id"] for row in harness.published("t")) == [2, 3, 4, 5, 11, 12, 22, 23, 24, 25]
    harness.push("a", [{"id": 6, "k": 3, "ts": AT}])
    with pytest.raises(GateHeld):
        harness.advance()
    harness.runner.resolve_held("t", discard=True)
    assert sorted((row["id"], row["_reason"]) for row in harness.quarantined("t")) == [
        (6, "discarded"), (26, "discarded"),
    ]  # fmt: skip
    prove(harness)
