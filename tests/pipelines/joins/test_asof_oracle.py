"""Random workloads against DuckDB's ASOF JOIN: the same rows, whatever the order of advances, restarts and upkeep.

Versions arrive in any order inside of what the watermark allows, with deletes and equal times; probe rows arrive early,
in time or late, with null keys and null times. The seed is printed; $TIDEGATE_SEED repeats it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests import cases
from tests.cases import SEED, at_length
from tidegate.pipelines.joins.release import Joining
from tidegate.pipelines.runtime.epochs import Asked
from tidegate.pipelines.testing import Harness
from tidegate.pipelines.watermarks import MAX_TIMESTAMP

pytestmark = pytest.mark.long

SCRIPT = """
CREATE TABLE rates (currency INT, rate INT, valid_from TIMESTAMP(3), WATERMARK FOR valid_from AS valid_from,
    PRIMARY KEY (currency) NOT ENFORCED) WITH ('connector' = 'scripted'{retention});
CREATE TABLE orders (id INT, currency INT, at TIMESTAMP(3), WATERMARK FOR at AS at) WITH ('connector' = 'scripted');
CREATE TABLE converted (id INT, rate INT) WITH ('connector' = 'scripted');
INSERT INTO converted SELECT o.id, r.rate FROM orders AS o
LEFT JOIN rates FOR SYSTEM_TIME AS OF o.at AS r ON o.currency = r.currency
"""

EXPECTED = """
WITH newest AS (
    SELECT currency, valid_from, arg_max(rate, seq) AS rate, arg_max(op, seq) AS op FROM versions GROUP BY ALL
), matched AS (
    SELECT p.id, p.currency, p."at", v.rate, v.op, v.valid_from FROM probes p
    ASOF LEFT JOIN newest v ON p.currency = v.currency AND p."at" >= v.valid_from
)
SELECT id, CASE WHEN op <> '-D' AND "at" IS NOT NULL AND currency IS NOT NULL THEN rate END AS rate,
    CASE WHEN "at" IS NULL THEN 'time-null' WHEN currency IS NULL THEN 'unmatched:key-null@r'
    WHEN op = '-D' THEN 'unmatched:deleted@r' WHEN op IS NOT NULL THEN NULL
    ELSE 'no version yet' END AS reason
FROM matched
"""


@dataclass(frozen=True)
class Size:
    """How much there is. `skew`: the share of versions and probes that one key has. `retention` (ms): versions older
    than it go in between, and no probe row is later than it."""

    keys: int
    versions: int
    probes: int
    advances: int
    skew: float = 0.0
    span_ms: int = 1_000_000
    retention: int | None = None


@dataclass
class Workload:
    """One random history, pushed to a harness step by step, and stored for DuckDB."""

    size: Size
    seed: int
    pushed: list[pa.Table] = field(default_factory=list)
    probes: list[pa.Table] = field(default_factory=list)
    removed: int = 0

    def __post_init__(self) -> None:
        self.chance = np.random.default_rng(self.seed)
        self.borders = np.sort(self.chance.integers(0, self.size.span_ms, self.size.advances))

    def _keys(self, rows: int, keys: int) -> np.ndarray:
        found = self.chance.integers(0, keys, rows)
        return np.where(self.chance.random(rows) < self.size.skew, 0, found)

    def versions(self, low: int, high: int, rows: int) -> pa.Table:
        """`rows` versions with low < time <= high; `op` beside their columns."""
        op = np.where(self.chance.random(rows) < 0.15, "-D", np.where(self.chance.random(rows) < 0.5, "+I", "+U"))
        columns = {
            "currency": pa.array(self._keys(rows, self.size.keys), pa.int32()),
            "rate": pa.array(self.chance.integers(0, 1_000_000, rows), pa.int32()),
            "valid_from": pa.array(self.chance.integers(low + 1, high + 1, rows), pa.timestamp("ms")),
            "op": pa.array(op),
        }
        return pa.table(columns).sort_by("op") if rows else pa.table(columns)

    def orders(self, rows: int, first: int, released: int) -> pa.Table:
        """`rows` probe rows; `released` (ms) is what the watermarks have reached before them."""
        least = 0 if self.size.retention is None else max(released - self.size.retention, 0)
        nothing = self.chance.random((2, rows)) < 0.01
        return pa.table(
            {
                "id": pa.array(np.arange(first, first + rows), pa.int32()),
                "currency": pa.array(self._keys(rows, self.size.keys * 6 // 5), pa.int32(), mask=nothing[0]),
                "at": pa.array(
                    self.chance.integers(least, self.size.span_ms, rows), pa.timestamp("ms"), mask=nothing[1]
                ),
            }
        )

    def play(self, harness: Harness) -> None:
        """Tell it all, with restarts in between, until nothing waits."""
        size, low, first, released = self.size, 0, 0, 0
        for border in [*self.borders.tolist(), size.span_ms]:
            share = size.advances + 1
            versions = self.versions(low, border, size.versions // share if border > low else 0)
            for op in random.Random(self.seed + low).sample(["+I", "+U", "-D"], 3):
                chosen = versions.filter(pa.array(np.array(versions["op"]) == op))
                harness.push("rates", chosen.drop_columns("op"), op)
                self.pushed.append(chosen)
            probes = self.orders(size.probes // share, first, released)
            first += probes.num_rows
            harness.push("orders", probes)
            self.probes.append(probes)
            harness.watermark("rates", border)
            released = max(border - int(self.chance.integers(0, size.span_ms // 20)), released)
            harness.watermark("orders", released)
            if self.chance.random() < 0.7:
                harness.advance()
            if self.chance.random() < 0.3:
                harness.restart()
            if size.retention is not None:
                self.removed += _removed(harness)
            low = border
        for table in ("rates", "orders"):
            harness.watermark(table, MAX_TIMESTAMP)
        harness.advance()

    def differences(self, harness: Harness) -> list[tuple]:
        """Rows that are in one answer only; at most ten of them."""
        insert = harness.pipeline.insert("converted")
        target = harness.pipeline.table("converted")
        paths = {"published": harness.lake.target_path(target), "kept": harness.lake.quarantine_path(target, insert)}
        with duckdb.connect() as database:
            pushed = pa.concat_tables(self.pushed)
            database.register("versions", pushed.append_column("seq", pa.array(np.arange(pushed.num_rows))))
            database.register("probes", pa.concat_tables(self.probes))
            for name, path in paths.items():
                database.register(name, DeltaTable(str(path)).to_pyarrow_dataset())
            # A key without a version at its release may get one later: DuckDB sees all, and can't tell the two apart.
            none_yet = "_reason IN ('unmatched:key-absent@r', 'unmatched:before-first@r')"
            found = (
                "SELECT id, rate, NULL AS reason FROM published "
                f"UNION ALL SELECT id, NULL, IF({none_yet}, 'no version yet', _reason) FROM kept"
            )
            return database.execute(
                f"(({EXPECTED}) EXCEPT ALL ({found})) UNION ALL (({found}) EXCEPT ALL ({EXPECTED})) LIMIT 10"
            ).fetchall()


def _removed(harness: Harness) -> int:
    """How many versions upkeep takes out now, once nobody wants what is in quarantine any more: it would hold them."""
    harness.runner.out_of_quarantine("converted", Asked(discards=True, because="nobody wants them"))
    done = {item.name: item for item in harness.runner.maintenance(timedelta(0)).run()}
    return done["rates"].retained.removed if done["rates"].retained else 0


def check(spark: SparkSession, directory: Path, size: Size, seed: int) -> Workload:
    print(f"seed {seed}")
    retention = "" if size.retention is None else f", 'changelog.retention' = '{size.retention} ms'"
    harness = Harness(SCRIPT.format(retention=retention), spark, directory)
    workload = Workload(size, seed)
    workload.play(harness)
    assert workload.differences(harness) == []
    return workload


@pytest.fixture(params=at_length(["columns", "sql"]))
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns alone need no SQL; with it, the same comes out."""
    if request.param == "sql":
        monkeypatch.setattr(Joining, "_columns_alone", False)


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("number", at_length(range(3)))
def test_any_interleaving_gives_duckdbs_answer(spark: SparkSession, tmp_path: Path, number: int) -> None:
    check(
        spark,
        tmp_path,
        Size(keys=20, versions=400, probes=600, advances=5 if cases.AT_LENGTH else 2, span_ms=300),
        SEED + number,
    )


@pytest.mark.thorough
@pytest.mark.usefixtures("_way")
def test_what_retention_takes_changes_no_answer(spark: SparkSession, tmp_path: Path) -> None:
    size = Size(keys=20, versions=400, probes=600, advances=6, span_ms=300, retention=20)
    assert check(spark, tmp_path, size, SEED).removed > 0


@pytest.mark.thorough
@pytest.mark.usefixtures("_way")
def test_a_million_rows_give_duckdbs_answer_where_one_key_has_a_fifth_of_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    check(spark, tmp_path, Size(keys=100_000, versions=300_000, probes=700_000, advances=2, skew=0.2), SEED)
