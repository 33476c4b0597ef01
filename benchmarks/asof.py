"""The event-time join: 10M probes against 3M versions of 1M keys, Parquet to Parquet, plain and with a hot key.

Peers get the very files that the lake holds, and every answer is compared with DuckDB's.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from pathlib import Path

import duckdb
from pyspark.sql import DataFrame, SparkSession

from benchmarks import peers
from benchmarks.measure import Figure, seconds
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.runtime.plans import ReleasePlan
from tidegate.pipelines.runtime.releasing import Releasing, Waiting
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.runtime.session import start_session
from tidegate.pipelines.sql import compile_script

SCRIPT = """
CREATE TABLE rates (currency BIGINT, rate INT, label STRING, valid_from TIMESTAMP(3),
    WATERMARK FOR valid_from AS valid_from, PRIMARY KEY (currency) NOT ENFORCED
) WITH ('connector' = 'delta', 'path' = '{folder}/rates');
CREATE TABLE orders (id BIGINT, currency BIGINT, amount INT, at TIMESTAMP(3), WATERMARK FOR at AS at)
WITH ('connector' = 'delta', 'path' = '{folder}/orders');
CREATE TABLE converted (id BIGINT, amount INT, rate INT, label STRING)
WITH ('connector' = 'delta', 'gate.on-unmatched' = 'publish');
INSERT INTO converted SELECT o.id, o.amount, {rate}, r.label FROM orders AS o
LEFT JOIN rates FOR SYSTEM_TIME AS OF o.at AS r ON o.currency = r.currency {where}
"""
PLAIN, ASKED = {"rate": "r.rate", "where": ""}, {"rate": "o.amount * r.rate", "where": "WHERE o.amount > 5"}
"""Columns alone; an expression and a condition (a million is what rates stay below, so nothing overflows)."""
KEYS, VERSIONS, PROBES = 1_000_000, 3_000_000, 10_000_000
MONTH_MS = 30 * 86_400_000

ASOF = """
COPY (SELECT p.id, p.amount, v.rate, v.label FROM read_parquet('{orders}') p
      ASOF LEFT JOIN read_parquet('{rates}') v ON p.currency = v.currency AND p._rowtime >= v._rowtime
) TO '{out}' (FORMAT parquet)
"""
UNION_AND_WINDOW = """
SELECT id, amount, v.rate, v.label FROM (
  SELECT id, amount, last_value(v) IGNORE NULLS OVER (PARTITION BY currency ORDER BY _rowtime, side
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS v, side FROM (
    SELECT currency, _rowtime, 1 AS side, id, amount, NULL AS v FROM orders
    UNION ALL SELECT currency, _rowtime, 0, NULL, NULL, struct(rate, label) FROM rates)
) WHERE side = 1
"""


def measure(scale: float = 1.0) -> list[Figure]:
    """Plain, then with one key that has a fifth of both sides."""
    spark = start_session()
    plain, first = _one(spark, scale, 0.0)
    skewed, second = _one(spark, scale, 0.2)
    ratio = Figure("the skewed join beside the plain one", second, peer=first, peer_name="plain", aim="at most 1.5")
    return [*plain, *asked(scale), *skewed, ratio]


def asked(scale: float = 1.0) -> list[Figure]:
    """With an expression and a WHERE, beside DuckDB; the index kept."""
    spark = start_session()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _make(spark, folder, scale, 0.0)
        pipeline = compile_script(SCRIPT.format(folder=folder, **ASKED))
        with Runner(pipeline, Lake(folder / "lake"), spark=lambda: spark) as runner:
            for table in ("rates", "orders"):
                runner.advance(table)
            files = {table: f"{runner.lake.table_path(table)}/**/*.parquet" for table in ("rates", "orders")}
            releasing = runner.releasing("converted")
            plan = releasing.plan()
            assert not isinstance(plan, Waiting), plan
            releasing.stager.stage(plan)
            own, duck = [], []
            for _ in range(3):
                own.append(seconds(lambda: releasing.stager.stage(plan)))
                query = ASOF.replace("v.rate", "p.amount * v.rate AS rate").replace("\n)", "\nWHERE p.amount > 5)")
                duck.append(seconds(lambda query=query: _duckdb(query.format(out=folder / "duck.parquet", **files))))
    return [
        Figure("event-time join with an expression and WHERE, the index kept", min(own), peer=min(duck),
               peer_name="DuckDB ASOF JOIN, the same", aim="at most 2.1")
    ]  # fmt: skip


def _one(spark: SparkSession, scale: float, skew: float) -> tuple[list[Figure], float]:
    kind = "skewed" if skew else "plain"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _make(spark, folder, scale, skew)
        pipeline = compile_script(SCRIPT.format(folder=folder, **PLAIN))
        with Runner(pipeline, Lake(folder / "lake"), spark=lambda: spark) as runner:
            for table in ("rates", "orders"):
                runner.advance(table)
            files = {table: f"{runner.lake.table_path(table)}/**/*.parquet" for table in ("rates", "orders")}
            releasing = runner.releasing("converted")
            plan = releasing.plan()
            assert not isinstance(plan, Waiting), plan
            duck = seconds(lambda: _duckdb(ASOF.format(out=folder / "duck.parquet", **files)))
            made = seconds(lambda: releasing.stager.stage(plan))
            own = seconds(lambda: releasing.stage(plan))
            duck = min(duck, seconds(lambda: _duckdb(ASOF.format(out=folder / "duck.parquet", **files))))
            tables = {table: lake_rows.read(spark, runner.lake.table_path(table)) for table in files}
            _window(spark, tables, folder / "warm")
            window = seconds(lambda: _window(spark, tables, folder / "window"))
            polars = peers.run("bench", "peer_polars.py", files["orders"], files["rates"], f"{folder}/polars.parquet")
            sparks = {
                how: peers.run(extra, "peer_spark.py", how, files["orders"], files["rates"], f"{folder}/{how}")
                for how, extra in (("tempo", "bench-tempo"), ("asof", "bench-spark"))
            }
            flink = _pyflink(files, folder)
            narrow = tables["orders"].select("id", "amount", "currency", "_rowtime")
            narrow.write.parquet(f"{folder}/warm-floor")
            floor = seconds(lambda: narrow.write.parquet(f"{folder}/floor"))
            took = {"polars.parquet": polars, "flink/*": flink}
            took |= {f"{how}/*.parquet": found for how, found in sparks.items()}
            answers = [f"{folder}/{peer}" for peer in ("window/*.parquet", *took) if math.isfinite(took.get(peer, 0))]
            whole = f"{folder}/duck.parquet"
            _same(whole, _staged(releasing), _due(files["orders"], plan))
            for found in answers:
                _same(whole, found, int(PROBES * scale))
    figures = [
        Figure(f"event-time join, {kind}: stage {PROBES * scale:,.0f} x {VERSIONS * scale:,.0f}", own, peer=duck,
               peer_name="DuckDB ASOF JOIN", aim="at most 2.5" if not skew else ""),
        Figure(f"event-time join, {kind}", made, peer=own, peer_name="the index kept"),
        Figure(f"event-time join, {kind}", own, peer=window, peer_name="union and window in Spark"),
        Figure(f"event-time join, {kind}", own, peer=polars, peer_name="Polars join_asof"),
        Figure(f"event-time join, {kind}", own, peer=sparks["tempo"], peer_name="tempo's asofJoin", aim="at most 0.5"),
        Figure(f"event-time join, {kind}", own, peer=sparks["asof"], peer_name="Spark 4.3's ASOF JOIN",
               aim="at most 0.67"),
        Figure(f"event-time join, {kind}", own, peer=flink, peer_name="PyFlink's temporal join", aim="at most 0.1"),
        Figure(f"event-time join, {kind}", own, peer=floor, peer_name="Spark scans the probes and writes four columns"),
    ]  # fmt: skip
    return figures, own


def _make(spark: SparkSession, folder: Path, scale: float, skew: float) -> None:
    keys, versions, probes = (int(count * scale) for count in (KEYS, VERSIONS, PROBES))
    key = f"IF(rand({{seed}}) < {skew}, 0L, CAST(rand({{seed}} + 1) * {keys} AS BIGINT)) AS currency"
    moment = f"timestamp_millis(1767225600000 + CAST(rand({{seed}} + 2) * {MONTH_MS} AS BIGINT))"
    time = f"CAST({moment} AS TIMESTAMP_NTZ)"
    rates = ["CAST(id % 100000 AS INT) AS rate", "concat('label-', id % 1000) AS label", f"{time} AS valid_from"]
    orders = ["id", key.format(seed=20), "CAST(id % 1000 AS INT) AS amount", f"{time.format(seed=20)} AS at"]
    spark.range(versions).selectExpr(key.format(seed=10), *(item.format(seed=10) for item in rates)).write.format(
        "delta"
    ).save(f"{folder}/rates")
    spark.range(probes).selectExpr(*orders).write.format("delta").save(f"{folder}/orders")


def _pyflink(files: Mapping[str, str], folder: Path) -> float:
    """Its files are written here, in order; that takes none of its time."""
    moments = {"orders": "at", "rates": "valid_from"}
    for table, moment in moments.items():
        columns = f'* REPLACE (CAST("{moment}" AS TIMESTAMP_MS) AS "{moment}")'
        out = f"{folder}/{table}.parquet"
        _duckdb(
            f"COPY (SELECT {columns} FROM read_parquet('{files[table]}') ORDER BY _rowtime) TO '{out}' (FORMAT parquet)"
        )
    return peers.run(
        "bench-flink",
        "peer_flink_join.py",
        "2",
        *(f"{folder}/{table}.parquet" for table in moments),
        f"{folder}/flink",
        *peers.flink_jars(),
    )


def _duckdb(query: str) -> None:
    with duckdb.connect() as database:
        database.execute(query)


def _window(spark: SparkSession, tables: dict[str, DataFrame], out: Path) -> None:
    for name, rows in tables.items():
        rows.createOrReplaceTempView(name)
    spark.sql(UNION_AND_WINDOW).write.parquet(str(out))


def _staged(releasing: Releasing) -> str:
    staged = releasing.position().staged
    assert staged is not None
    folder = releasing.lake.staged_folder(releasing.target, releasing.insert, staged.folder, "publish")
    return f"{folder}/_disposition=publish/*.parquet"


def _due(orders: str, plan: ReleasePlan) -> int:
    """How many probes the release has: those whose time has come. The peers take the few of the last second as well."""
    assert plan.time is not None
    query = f"SELECT count(*) FROM read_parquet('{orders}') WHERE epoch_us(_rowtime) <= {plan.time.watermark * 1000}"
    with duckdb.connect() as database:
        return int(database.execute(query).fetchall()[0][0])


def _same(expected: str, found: str, probes: int) -> None:
    """All `probes` were found, each as DuckDB has it. Where a key has two versions at one time either answer is right:
    a probe in ten thousand may differ in that."""
    either = "read_parquet('{}') e JOIN read_parquet('{}') f USING (id)"
    odd = "count_if(e.amount <> f.amount OR (e.rate IS NULL) <> (f.rate IS NULL))"
    tied = "count_if(e.rate IS DISTINCT FROM f.rate OR e.label IS DISTINCT FROM f.label)"
    with duckdb.connect() as database:
        counted = f"SELECT count(*), {odd}, {tied} FROM {either.format(expected, found)}"
        rows, wrong, other = database.execute(counted).fetchall()[0]
        whole = database.execute(f"SELECT count(*), count(DISTINCT id) FROM read_parquet('{found}')").fetchall()[0]
    assert whole == (probes, probes), f"{whole[0]} rows of {whole[1]} probes; there are {probes}"
    assert rows == probes, f"{rows} of {probes} probes are DuckDB's"
    assert wrong == 0, f"{wrong} rows differ from DuckDB's"
    assert other <= rows / 10_000, f"{other} rows have another version than DuckDB's"
