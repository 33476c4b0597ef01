"""A release by whole columns is the one that SQL makes of the same plan: row by row, count by count."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from pipelines.joins.columnar import Changelog, save_versions
from pipelines.lake import StagedRow
from pipelines.runtime.plans import ReleasePlan
from pipelines.runtime.releasing import Releasing, Waiting, columnar
from pipelines.runtime.releasing.columnar import ColumnarStager
from pipelines.testing import Harness
from pipelines.watermarks import MAX_TIMESTAMP
from tests.cases import at_length

pytestmark = pytest.mark.long

SCRIPT = """
CREATE TABLE rates (currency STRING, kind INT, rate DECIMAL(10, 4), weight DOUBLE, region INT, note BYTES,
    since TIMESTAMP(3), day DATE, WATERMARK FOR since AS since, PRIMARY KEY (currency, kind) NOT ENFORCED
) WITH ('connector' = 'scripted');
CREATE TABLE regions (region BIGINT, name STRING, since TIMESTAMP(3), WATERMARK FOR since AS since,
    PRIMARY KEY (region) NOT ENFORCED) WITH ('connector' = 'scripted');
CREATE TABLE orders (id INT, currency STRING, kind SMALLINT, at TIMESTAMP(3), ok BOOLEAN, who STRING,
    seen TIMESTAMP_LTZ(3), near FLOAT, WATERMARK FOR at AS at)
WITH ('connector' = 'scripted');
CREATE TABLE converted (id INT, ok BOOLEAN, at TIMESTAMP(3), rate DECIMAL(10, 4), weight DOUBLE, note BYTES, day DATE,
    name STRING, who STRING, seen TIMESTAMP_LTZ(3), near FLOAT, kind SMALLINT
) WITH ('connector' = 'scripted', 'gate.on-unmatched' = '{policy}');
INSERT INTO converted SELECT o.id, o.ok, o.at, r.rate, r.weight, r.note, r.day, g.name, o.who, o.seen, o.near,
    o.kind FROM orders AS o
{first} JOIN rates FOR SYSTEM_TIME AS OF o.at AS r ON o.currency = r.currency AND o.kind = r.kind
{second} JOIN regions FOR SYSTEM_TIME AS OF o.at AS g ON r.region = g.region
"""
SEED = int(os.environ.get("TIDEGATE_SEED") or random.SystemRandom().randrange(10**9))
START = datetime(2026, 1, 1)


def at(chance: random.Random) -> datetime | None:
    return None if chance.random() < 0.05 else START + timedelta(milliseconds=chance.randrange(60))


def told(ms: int) -> int:
    return int((START - datetime(1970, 1, 1)).total_seconds() * 1000) + ms


def rate(chance: random.Random) -> dict[str, Any]:
    return {
        "currency": chance.choice("abc"),
        "kind": chance.randrange(2),
        "rate": Decimal(chance.randrange(10**6)).scaleb(-4),
        "weight": chance.choice([None, 0.5, float("nan"), float("inf")]),
        "region": chance.choice([None, 1, 2, 3]),
        "note": chance.choice([None, b"", b"\x00\xff"]),
        "since": at(chance),
        "day": START.date() + timedelta(chance.randrange(9)),
    }


def push(harness: Harness, chance: random.Random, first: int) -> None:
    """A random part of a history: ids from `first` on."""
    for op in ("+I", "+U", "-D"):
        harness.push("rates", [rate(chance) for _ in range(8)], op)
        regions = [{"region": chance.randrange(1, 4), "name": f"r{n}", "since": at(chance)} for n in range(4)]
        harness.push("regions", regions, op)
    orders = [
        {
            "id": first + n,
            "currency": chance.choice([None, *"abcd"]),
            "kind": chance.choice([None, 0, 1, 2]),
            "at": at(chance),
            "ok": chance.choice([None, True, False]),
            "who": chance.choice([None, "", "ä" * 50]),
            "seen": chance.choice([None, START.replace(tzinfo=UTC)]),
            "near": chance.choice([None, 0.25, float("nan")]),
        }
        for n in range(150)
    ]
    harness.push("orders", orders)
    harness.push("orders", [{**order, "id": order["id"] + 500} for order in orders[:20]], "-U")


def rows(releasing: Releasing, staged: StagedRow) -> list[tuple[str, ...]]:
    """All staged rows, in order, as text (NaN is not equal to itself)."""
    files = f"{releasing.staged_path / staged.folder}/*/*.parquet"
    query = "SELECT * FROM read_parquet(?, hive_partitioning = true, union_by_name = true)"
    with duckdb.connect() as database:
        found = database.execute(query, [files]).to_arrow_table()
    names = sorted(found.column_names)
    return sorted(tuple(f"{name}={row[name]}" for name in names) for row in found.to_pylist())


def types(releasing: Releasing, staged: StagedRow) -> set[tuple[tuple[str, str], ...]]:
    """The columns of its files, as Arrow reads them."""
    schemas = [pq.read_schema(releasing.staged_path / staged.folder / file["path"]) for file in staged.files]
    return {tuple((field.name, str(field.type)) for field in schema) for schema in schemas}


def planned(spark: SparkSession, directory: Path) -> tuple[Harness, ReleasePlan, ColumnarStager]:
    """A plan over rows that have all landed, and who may stage it by whole columns."""
    harness = Harness(SCRIPT.format(policy="publish", first="LEFT", second="LEFT"), spark, directory)
    push(harness, random.Random(1), 0)
    for table in ("rates", "regions", "orders"):
        harness.watermark(table, MAX_TIMESTAMP)
        harness.runner.advance(table)
    releasing = harness.runner.releasing("converted")
    plan = releasing.plan()
    assert not isinstance(plan, Waiting)
    return harness, plan, ColumnarStager(releasing.stager.standing)


@pytest.mark.thorough
@pytest.mark.parametrize("policy", at_length(["quarantine", "publish"]))
@pytest.mark.parametrize(("first", "second"), at_length([("LEFT", "INNER"), ("INNER", "LEFT"), ("LEFT", "LEFT")]))
def test_it_stages_what_sql_stages(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, first: str, second: str
) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    harness = Harness(SCRIPT.format(policy=policy, first=first, second=second), spark, tmp_path)
    for step, watermark in enumerate([20, 40, MAX_TIMESTAMP]):
        push(harness, chance, 1_000 * step)
        for table in ("rates", "regions", "orders"):
            harness.watermark(table, watermark if watermark == MAX_TIMESTAMP else told(watermark))
            harness.runner.advance(table)
        releasing = harness.runner.releasing("converted")
        plan = releasing.plan()
        assert not isinstance(plan, Waiting)
        assert ColumnarStager(releasing.stager.standing).plain(plan) is None  # so few rows
        if step == 1:  # as if retention had removed versions of the first build
            plan = replace(plan, pins=(replace(plan.pins[0], horizon=told(15)), *plan.pins[1:]))
        by_sql = releasing.stager.stage(plan)
        # Published without a match, a row without a rate has no region: the INNER join that follows drops it for that.
        seen = step == 1 and (policy, first, second) != ("publish", "LEFT", "INNER")
        assert (sum(n for name, n in by_sql.counts.items() if "beyond-retention@" in name) > 0) == seen
        monkeypatch.setattr(columnar, "FEWEST_ROWS", 0)
        assert ColumnarStager(releasing.stager.standing).plain(plan) is not None
        by_columns = releasing.stager.stage(plan)
        monkeypatch.undo()
        assert by_columns.counts == by_sql.counts
        assert by_columns.facts == by_sql.facts
        assert rows(releasing, by_columns) == rows(releasing, by_sql)
        assert types(releasing, by_columns) == types(releasing, by_sql)
        harness.runner.release("converted")
    assert harness.verify("converted").passed


@pytest.mark.parametrize(("limit", "value"), [("MOST_VERSIONS", 1), ("MOST_BYTES", 1), ("FEWEST_ROWS", 10**6)])
def test_sql_does_what_does_not_fit(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(columnar, "FEWEST_ROWS", 0)
    _, plan, stager = planned(spark, tmp_path)
    assert stager.plain(plan) is not None
    monkeypatch.setattr(columnar, limit, value)
    assert stager.plain(plan) is None


@pytest.mark.thorough
def test_what_does_not_fit_into_memory_is_staged_by_sql_after_all(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columnar, "FEWEST_ROWS", 0)
    monkeypatch.setattr(columnar, "save_versions", _too_large)
    harness, _, _ = planned(spark, tmp_path)
    assert harness.runner.release("converted").published
    assert len(harness.published("converted")) + len(harness.quarantined("converted")) == 170
    assert harness.verify("converted").passed


def _too_large(changelog: Changelog) -> str | None:
    """One of two builds is saved, the other is not."""
    return save_versions(changelog) if "name" in changelog.columns else None


def test_a_truncated_build_is_for_sql(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columnar, "FEWEST_ROWS", 0)
    harness, plan, stager = planned(spark, tmp_path)
    assert stager.plain(plan) is not None
    log = harness.lake.watermarks
    truncated = [replace(row, truncated=True) for row in log.rows("regions")]
    monkeypatch.setattr(log, "rows", lambda owner, **_: truncated)
    assert stager.plain(plan) is None
