"""'gate.proof' = 'columns': each published row says which versions it met, and verify finds one that lies."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.cases import at_length
from tests.copies import copy_of
from tests.oracle.pins import rows_of
from tidegate.pipelines.testing import Harness

SCRIPT = """
CREATE TABLE rates (cur STRING PRIMARY KEY NOT ENFORCED, rate INT, at TIMESTAMP(3), WATERMARK FOR at AS at)
WITH ('connector' = 'scripted');
CREATE TABLE names (cur STRING PRIMARY KEY NOT ENFORCED, name STRING, at TIMESTAMP(3), WATERMARK FOR at AS at)
WITH ('connector' = 'scripted');
CREATE TABLE orders (id INT, cur STRING, at TIMESTAMP(3), WATERMARK FOR at AS at) WITH ('connector' = 'scripted');
CREATE TABLE priced (id INT PRIMARY KEY NOT ENFORCED, rate INT, name STRING)
WITH ('connector' = 'scripted', 'gate.proof' = 'columns', 'gate.on-unmatched' = 'publish');
INSERT INTO priced SELECT o.id, r.rate, n.name FROM orders AS o
LEFT JOIN rates FOR SYSTEM_TIME AS OF o.at AS r ON o.cur = r.cur
LEFT JOIN names FOR SYSTEM_TIME AS OF o.at AS n ON o.cur = n.cur;
CREATE TABLE users (id INT PRIMARY KEY NOT ENFORCED, name STRING)
WITH ('connector' = 'scripted', 'phases' = 'true', 'signals' = 'true');
CREATE TABLE clicks (id INT, n INT, proctime AS PROCTIME()) WITH ('connector' = 'scripted');
CREATE TABLE named (n INT PRIMARY KEY NOT ENFORCED, name STRING)
WITH ('connector' = 'scripted', 'gate.proof' = 'columns', 'gate.on-unmatched' = 'publish');
INSERT INTO named SELECT c.n, u.name FROM clicks AS c
LEFT JOIN users FOR SYSTEM_TIME AS OF c.proctime AS u ON c.id = u.id
"""


def at(second: int) -> datetime:
    return datetime(2024, 1, 1, 0, 0, second, tzinfo=UTC).replace(tzinfo=None)


@pytest.fixture(scope="module")
def harness(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Harness:
    """Both targets published, from builds whose second epoch says otherwise than the first. To be read alone."""
    harness = Harness(SCRIPT, spark, tmp_path_factory.mktemp("proof"))
    harness.push("rates", [{"cur": "EUR", "rate": 1, "at": at(1)}])
    harness.push("names", [{"cur": "EUR", "name": "euro", "at": at(5)}])
    harness.push("users", [{"id": 1, "name": "ann"}])
    harness.end_of_snapshot("users")
    harness.push("orders", [{"id": 1, "cur": "EUR", "at": at(3)}, {"id": 2, "cur": "EUR", "at": at(30)}])
    harness.push("clicks", [{"id": 1, "n": 1}])
    harness.runner.advance_all(["rates", "names", "users"])  # an epoch of its own each
    harness.push("rates", [{"cur": "EUR", "rate": 2, "at": at(20)}])
    harness.push("users", [{"id": 1, "name": "eve"}])
    for table in ("rates", "names", "orders"):
        harness.watermark(table, 40_000 + 1_704_067_200_000)
    harness.push("clicks", [{"id": 1, "n": 2}, {"id": 9, "n": 3}])
    harness.advance()
    return harness


def test_the_proof_of_every_row_is_kept_and_verified(harness: Harness) -> None:
    priced = _rows(harness, "priced")
    assert {row["id"]: (row["rate"], row["name"]) for row in priced} == {1: (1, None), 2: (2, "euro")}
    assert {row["id"]: (row["_build_epoch_r"], row["_build_epoch_n"], row["_matched"]) for row in priced} == {
        1: (1, None, False),
        2: (2, 1, True),
    }
    assert {row["id"]: row["_reason"] for row in priced} == {1: "unmatched:before-first@n", 2: None}
    seqs = {row["cur"]: row["_seq"] for row in _table(harness, "names")}
    assert {row["id"]: row["_build_seq_n"] for row in priced} == {1: None, 2: seqs["EUR"]}
    named = {row["n"]: (row["_build_epoch"], row["_matched"], row["_reason"]) for row in _rows(harness, "named")}
    assert named == {1: (2, True, None), 2: (2, True, None), 3: (None, False, "unmatched:key-absent@u")}
    for insert in ("priced", "named"):
        assert harness.verify(insert).passed


@pytest.mark.parametrize(
    ("insert", "column", "lie", "where"),
    at_length(
        [
            ("priced", "_build_epoch_r", "1", "id = 2"),
            ("priced", "_build_seq_n", "_build_seq_r", "id = 2"),
            ("named", "_matched", "true", "n = 3"),
            ("named", "_reason", "'unmatched:deleted@u'", "n = 3"),
        ]
    ),
)
def test_a_proof_that_lies_is_found(
    harness: Harness, tmp_path: Path, insert: str, column: str, lie: str, where: str
) -> None:
    copy = copy_of(harness, tmp_path / "copy")
    path = copy.lake.target_path(copy.pipeline.table(insert))
    assert DeltaTable(str(path)).update(updates={column: lie}, predicate=where)["num_updated_rows"] == 1
    report = copy.verify(insert)
    found = [(item.place, item.kind, item.rows) for epoch in report.epochs for item in epoch.differences]
    assert found == [("publish", "unexpected", 1), ("publish", "missing", 1)]


def test_a_target_that_has_rows_gets_the_columns_and_may_do_without_them_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The change was reported as one that goes on, and the epoch that was planned under it could not be staged."""
    script = SCRIPT[SCRIPT.index("CREATE TABLE users") :]
    without = script.replace(" 'gate.proof' = 'columns',", "")
    found: dict[int, tuple[bool | None, int | None]] = {}
    for user, text in enumerate((without, script, without), 1):
        harness = Harness(text, spark, tmp_path)
        harness.push("users", [{"id": user, "name": "ann"}])
        if user == 1:
            harness.end_of_snapshot("users")
        harness.push("clicks", [{"id": user, "n": user}])
        harness.advance()
        found = {row["n"]: (row.get("_matched"), row.get("_build_epoch")) for row in _rows(harness, "named")}
        harness.runner.close()
    assert harness.verify("named").passed
    assert found == {1: (None, None), 2: (True, 2), 3: (None, None)}


def _rows(harness: Harness, table: str) -> list[dict[str, Any]]:
    return rows_of(str(harness.lake.target_path(harness.pipeline.table(table))))


def _table(harness: Harness, table: str) -> list[dict[str, Any]]:
    return rows_of(str(harness.lake.table_path(table)))
