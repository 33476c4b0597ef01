"""One INSERT that joins by both kinds of time, one build several times, and the table that its rows come from:
wherever runs and crashes cut a random history, each row is what a plain model makes of the stored plans."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.cases import at_length
from tests.oracle.pins import rows_of
from tests.pipelines.runtime.crashing import may_die
from tests.pipelines.runtime.plays import at_ms, epochs_of, moment, prove
from tidegate.pipelines.errors import PlanningError, SourceError
from tidegate.pipelines.runtime import faults
from tidegate.pipelines.runtime.epochs import Asked
from tidegate.pipelines.runtime.retention import Horizon, Retention
from tidegate.pipelines.sources.scripted.input import ScriptedInput
from tidegate.pipelines.testing import Harness

KEYED = (
    "(k INT PRIMARY KEY NOT ENFORCED, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'scripted');"
)
SCRIPT = f"""
CREATE TABLE users {KEYED}
CREATE TABLE rates {KEYED}
CREATE TABLE orders (id INT PRIMARY KEY NOT ENFORCED, a INT, b INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts,
    pt AS PROCTIME()) WITH ('connector' = 'scripted');
CREATE TABLE joined (id INT, u INT, r INT, s INT, n INT, p INT)
WITH ('connector' = 'scripted', 'gate.on-unmatched' = 'publish');
CREATE TABLE latest (id INT, a INT) WITH ('connector' = 'scripted', 'gate.on-unmatched' = 'publish');
CREATE VIEW positive AS SELECT k, v FROM rates WHERE v > 0;
INSERT INTO joined SELECT o.id, u.v, r.v, s.v, n.v, p.a FROM orders AS o
LEFT JOIN users FOR SYSTEM_TIME AS OF o.pt AS u ON u.k = o.a
LEFT JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON r.k = o.a
LEFT JOIN rates FOR SYSTEM_TIME AS OF o.ts AS s ON s.k = o.b
LEFT JOIN positive FOR SYSTEM_TIME AS OF o.pt AS n ON n.k = MOD(r.v, 4)
LEFT JOIN orders FOR SYSTEM_TIME AS OF o.ts AS p ON p.id = o.id - 1 AND p.b = o.b;
INSERT INTO latest SELECT o.id, p.a FROM orders AS o
LEFT JOIN orders FOR SYSTEM_TIME AS OF o.pt AS p ON p.id = o.a;
"""
POINTS = [point for point in faults.POINTS if point.startswith("insert.")]


def landed(harness: Harness, table: str) -> list[dict[str, Any]]:
    """The rows of a source's table in the source's order."""
    rows = rows_of(str(harness.lake.table_path(table)))
    return sorted(rows, key=lambda row: tuple(row["_seq"].values()))


def valid(rows: list[dict[str, Any]], key: str, value: int | None, at: datetime | None, pin: int) -> dict[str, Any]:
    """The version of a key at a time, or the latest one, of what had landed at a pin; nothing without one."""
    seen = [row for row in rows if row["_epoch"] <= pin and row[key] == value]
    if at is not None:
        seen = sorted((row for row in seen if row["ts"] is not None and row["ts"] <= at), key=lambda row: row["ts"])
    return seen[-1] if seen else {}


def model(harness: Harness, insert: str) -> list[tuple[Any, ...]]:
    """What the published epochs of an INSERT hold."""
    tables = {name: landed(harness, name) for name in ("users", "rates", "orders")}
    found, taken = list[tuple[Any, ...]](), set[int]()
    for epoch in epochs_of(harness, insert):
        pins, plan = {pin.table: pin.epoch for pin in epoch.plan.pins}, epoch.plan
        for row in tables["orders"]:
            below = plan.bounds is None or (row["ts"] is not None and ms_of(row["ts"]) <= plan.bounds.watermark)
            if row["id"] in taken or row["_epoch"] > plan.first.upto or not below:
                continue
            taken.add(row["id"])
            rates, orders = tables["rates"], tables["orders"]
            if insert == "latest":
                found.append((row["id"], valid(orders, "id", row["a"], None, pins["orders"]).get("a")))
                continue
            user = valid(tables["users"], "k", row["a"], None, pins["users"]).get("v")
            rate = valid(rates, "k", row["a"], row["ts"], pins["rates"]).get("v")
            other = valid(rates, "k", row["b"], row["ts"], pins["rates"]).get("v")
            key = None if rate is None else rate % 4
            now = valid(rates, "k", key, None, pins["rates"]).get("v")
            before = valid(orders, "id", row["id"] - 1, row["ts"], pins["orders"])
            number = before.get("a") if before.get("b") == row["b"] else None
            found.append((row["id"], user, rate, other, now if now else None, number))
    return sorted(found)


def ms_of(at: datetime) -> int:
    return (at - datetime(1970, 1, 1)) // timedelta(milliseconds=1)


def published(harness: Harness, insert: str) -> list[tuple[Any, ...]]:
    names = [item.name for item in harness.pipeline.insert(insert).projections]
    return sorted(tuple(row[name] for name in names) for row in harness.published(insert))


@pytest.mark.parametrize("seed", at_length(range(8)))
def test_each_row_is_what_a_plain_model_makes_of_the_plans(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    draw, harness, marks, orders = random.Random(seed), Harness(SCRIPT, spark, tmp_path), {"orders": 0, "rates": 0}, 0
    harness.push("orders", [{"id": 0, "a": None, "b": 1, "ts": None}])
    for number in range(3):
        for _ in range(draw.randint(3, 7)):
            match draw.choice(["orders", "orders", "users", "rates", "mark"]):
                case "orders":
                    rows = [
                        {
                            "id": (orders := orders + 1),
                            "a": draw.randint(1, 4),
                            "b": draw.randint(1, 2),
                            "ts": moment(draw.randint(max(marks["orders"] - 5, 0), marks["orders"] + 40)),
                        }
                        for _ in range(draw.randint(1, 4))
                    ]
                    harness.push("orders", rows)
                case "mark":
                    name = draw.choice(list(marks))
                    marks[name] += draw.randint(0, 30)
                    harness.watermark(name, at_ms(marks[name]))
                case name:
                    at, key, value = draw.randint(0, 200), draw.randint(0, 4), draw.randint(0, 9)
                    at = at if name == "users" else marks["rates"] + 1 + at % 30
                    harness.push(name, [{"k": key, "v": value, "ts": moment(at)}])
        if number == 1:
            harness.watermark("users", at_ms(0))  # it flips, and never comes further
            assert not published(harness, "joined"), "released before users had flipped"
        with may_die(draw.choice(POINTS), passes=draw.randint(1, 3)) as died:
            harness.advance()
        if died:
            harness.restart()
            harness.advance()
    for name in marks:
        harness.watermark(name, at_ms(10_000))
    harness.advance()
    for insert, without_time in (("joined", 1), ("latest", 0)):
        assert published(harness, insert) == model(harness, insert)
        places = prove(harness, insert)
        assert (places.landed, places.waiting) == (orders + 1, 0)
        assert sum(places.quarantined.values()) == without_time
    assert not harness.run().moved
    with pytest.raises(PlanningError, match="joined joins users and rates by processing time"):
        harness.runner.backfill("joined", (at_ms(0), at_ms(50)))


SMALL = f"""
CREATE TABLE users {KEYED}
CREATE TABLE rates {KEYED}
CREATE TABLE orders (id INT PRIMARY KEY NOT ENFORCED, a INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts, pt AS PROCTIME())
WITH ('connector' = 'scripted');
CREATE TABLE joined (id INT, u INT, r INT) WITH ('connector' = 'scripted');
INSERT INTO joined SELECT o.id, u.v, r.v FROM orders AS o JOIN users FOR SYSTEM_TIME AS OF o.pt AS u ON u.k = o.a
JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON r.k = o.a JOIN orders FOR SYSTEM_TIME AS OF o.ts AS p ON p.id = o.id;
"""


def test_out_of_quarantine_a_row_meets_what_is_latest_then_and_retention_knows_both_kinds(
    spark: SparkSession, tmp_path: Path
) -> None:
    harness = Harness(SMALL, spark, tmp_path)
    for name, key in (("users", 9), ("rates", 1)):
        harness.push(name, [{"k": key, "v": 5, "ts": moment(0)}])
        harness.watermark(name, at_ms(90))
    harness.push("orders", [{"id": 1, "a": 1, "ts": moment(10)}])
    harness.watermark("orders", at_ms(90))
    assert harness.advance() == []
    assert [row["_reason"] for row in harness.quarantined("joined")] == ["unmatched:key-absent@u"]
    harness.push("users", [{"k": 1, "v": 7, "ts": moment(80)}])
    harness.push("rates", [{"k": 1, "v": 6, "ts": moment(95)}])
    harness.run()
    harness.runner.out_of_quarantine("joined", Asked())
    assert published(harness, "joined") == [(1, 7, 5)]
    assert prove(harness, "joined").waiting == 0
    retention = Retention(harness.lake, harness.pipeline, lambda: at_ms(10**15), {})
    horizons = [retention.horizon(harness.pipeline.table(name), 1, timedelta(0)) for name in ("users", "rates")]
    assert [isinstance(each, Horizon) and (each.time, each.epoch) for each in horizons] == [
        (None, 2),
        (at_ms(90), None),
    ]
    ScriptedInput(harness.lake.scratch("orders"), harness.pipeline.table("orders")).rows(
        [{"id": 1, "a": 2, "ts": moment(95)}], "+U"
    )
    with pytest.raises(SourceError, match="build side and probe at once only grows"):
        harness.run()
