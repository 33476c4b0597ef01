"""The event-time join: 10M probes against 3M versions of 1M keys, Parquet to Parquet, plain and with a hot key.

Peers get the very files that the lake holds, and every answer is compared with DuckDB's.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
from pyspark.sql import DataFrame, SparkSession

from benchmarks import peers
from benchmarks.measure import Figure, seconds
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.runtime.epochs import ReleasePlan
from tidegate.pipelines.runtime.epochs.position import Waiting
from tidegate.pipelines.runtime.indexes import INDEXES
from tidegate.pipelines.runtime.releasing.insert_runner import InsertRunner
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.runtime.session import start_session
from tidegate.pipelines.sql import compile_script

SCRIPT = """
CREATE TABLE rates ({columns}, rate INT, label STRING, valid_from TIMESTAMP(3),
    WATERMARK FOR valid_from AS valid_from, PRIMARY KEY ({key}) NOT ENFORCED
) WITH ('connector' = 'delta', 'path' = '{folder}/rates');
CREATE TABLE orders (id BIGINT, {columns}, amount INT, at TIMESTAMP(3), WATERMARK FOR at AS at)
WITH ('connector' = 'delta', 'path' = '{folder}/orders');
CREATE TABLE converted (id BIGINT, amount INT, rate INT, label STRING)
WITH ('connector' = 'delta', 'gate.on-unmatched' = 'publish');
INSERT INTO converted SELECT o.id, o.amount, {rate}, r.label FROM orders AS o
LEFT JOIN rates FOR SYSTEM_TIME AS OF o.at AS r ON {on} {where}
"""
KEYS, VERSIONS, PROBES = 1_000_000, 3_000_000, 10_000_000
MONTH_MS = 30 * 86_400_000

ASOF = """
COPY (SELECT o.id, o.amount, {rate} AS rate, r.label FROM read_parquet('{orders}') o
      ASOF LEFT JOIN read_parquet('{rates}') r ON {on} AND o._rowtime >= r._rowtime {where}
) TO '{out}' (FORMAT parquet)
"""
NUMBER = {"currency BIGINT": "key"}


@dataclass(frozen=True)
class Case:
    """One INSERT. `key`: its columns, and what each is of a whole number `key`; `skew`: the share of both sides that
    one key has; `rate`, `where`: what is asked for (rates stay below a million, so nothing overflows)."""

    name: str
    aim: str
    aim_made: str = "at most 1.8"
    key: Mapping[str, str] = field(default_factory=lambda: NUMBER)
    skew: float = 0.0
    rate: str = "r.rate"
    where: str = ""

    def filled(self, text: str, **more: object) -> str:
        names = [column.split()[0] for column in self.key]
        on = " AND ".join(f"o.{name} = r.{name}" for name in names)
        return text.format(
            columns=", ".join(self.key), key=", ".join(names), on=on, rate=self.rate, where=self.where, **more
        )


PLAIN = Case("plain", "at most 1.3")
SKEWED = Case("skewed", "", skew=0.2)
ASKED = Case(
    "with an expression and WHERE", "at most 2.1", "at most 2.8", rate="o.amount * r.rate", where="WHERE o.amount > 5"
)
TEXT = Case("text keys", "", key={"currency STRING": "concat('customer-', key)"})
TWO = Case("keys of two columns", "", key={"currency BIGINT": "key DIV 8", "kind INT": "CAST(key % 8 AS INT)"})

UNION_AND_WINDOW = """
SELECT id, amount, v.rate, v.label FROM (
  SELECT id, amount, last_value(v) IGNORE NULLS OVER (PARTITION BY currency ORDER BY _rowtime, side
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS v, side FROM (
    SELECT currency, _rowtime, 1 AS side, id, amount, NULL AS v FROM orders
    UNION ALL SELECT currency, _rowtime, 0, NULL, NULL, struct(rate, label) FROM rates)
) WHERE side = 1
"""


def measure(scale: float = 1.0) -> list[Figure]:
    """Columns alone, and what is asked for beside; each kind of key beside the plain one."""
    spark, figures, took = start_session(), list[Figure](), dict[str, float]()
    for case in (PLAIN, ASKED, TEXT, TWO, SKEWED):
        with _staged(spark, scale, case) as staged:
            took[case.name] = staged.own
            figures += _beside_duckdb(staged)
            figures += _beside_others(spark, staged) if case in (PLAIN, SKEWED) else []
    for case, aim in ((TEXT, "at most 1.3"), (TWO, "at most 1.3"), (SKEWED, "at most 1.15")):
        name = f"event-time join, {case.name}, the index kept"
        figures.append(Figure(name, took[case.name], peer=took["plain"], peer_name="plain", aim=aim))
    return figures


@dataclass(frozen=True)
class _Measured:
    """A release that was staged, again and again: the least seconds of those that make the index and of those that
    keep it, beside DuckDB's. The first one, of a process that may be cold, counts for none."""

    case: Case
    scale: float
    folder: Path
    files: Mapping[str, str]
    made: float
    own: float
    duck: float

    @property
    def duckdbs(self) -> str:
        return f"{self.folder}/duck.parquet"

    @property
    def name(self) -> str:
        return f"event-time join, {self.case.name}"


@contextmanager
def _staged(spark: SparkSession, scale: float, case: Case, times: int = 3) -> Iterator[_Measured]:
    """A case's release, held against DuckDB's answer, every row."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _make(spark, folder, scale, case)
        pipeline = compile_script(case.filled(SCRIPT, folder=folder))
        with Runner(pipeline, Lake(folder / "lake"), spark=lambda: spark) as runner:
            for table in ("rates", "orders"):
                runner.advance(table)
            files = {table: f"{runner.lake.table_path(table)}/**/*.parquet" for table in ("rates", "orders")}
            releasing = runner.releasing("converted")
            plan = releasing.plan()
            assert not isinstance(plan, Waiting), plan
            query, made, own, duck = case.filled(ASOF, out=folder / "duck.parquet", **files), [], [], list[float]()
            releasing.write(plan)
            for stage in [releasing.write] * (times - 1) + [releasing.stage]:
                shutil.rmtree(runner.lake.scratch(INDEXES))
                made.append(seconds(lambda: releasing.write(plan)))
                own.append(seconds(lambda stage=stage: stage(plan)))
                duck.append(seconds(lambda: _duckdb(query)))
            _same(f"{folder}/duck.parquet", _published(releasing), _releasable(files["orders"], plan, case))
            yield _Measured(case, scale, folder, files, min(made), min(own), min(duck))


def _beside_duckdb(staged: _Measured) -> list[Figure]:
    size = f"{PROBES * staged.scale:,.0f} x {VERSIONS * staged.scale:,.0f}"
    return [
        Figure(f"{staged.name}: stage {size}, the index kept", staged.own, peer=staged.duck,
               peer_name="DuckDB ASOF JOIN, the same", aim=staged.case.aim),
        Figure(f"{staged.name}: the index made in the release", staged.made, peer=staged.duck,
               peer_name="DuckDB ASOF JOIN, the same", aim=staged.case.aim_made),
    ]  # fmt: skip


def _beside_others(spark: SparkSession, staged: _Measured) -> list[Figure]:
    """Peers get the same files, and each answer is held against DuckDB's."""
    folder, files, name = staged.folder, staged.files, staged.name
    tables = {table: lake_rows.read(spark, Lake(folder / "lake").table_path(table)) for table in files}
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
    took = {"window/*.parquet": window, "polars.parquet": polars, "flink/*": flink}
    took |= {f"{how}/*.parquet": found for how, found in sparks.items()}
    for answer, found in took.items():
        if math.isfinite(found):
            _same(staged.duckdbs, f"{folder}/{answer}", int(PROBES * staged.scale))
    own = staged.own
    return [
        Figure(name, own, peer=window, peer_name="union and window in Spark"),
        Figure(name, own, peer=polars, peer_name="Polars join_asof"),
        Figure(name, own, peer=sparks["tempo"], peer_name="tempo's asofJoin", aim="at most 0.5"),
        Figure(name, own, peer=sparks["asof"], peer_name="Spark 4.3's ASOF JOIN", aim="at most 0.67"),
        Figure(name, own, peer=flink, peer_name="PyFlink's temporal join", aim="at most 0.1"),
        Figure(name, own, peer=floor, peer_name="Spark scans the probes and writes four columns"),
    ]


def _make(spark: SparkSession, folder: Path, scale: float, case: Case) -> None:
    keys, versions, probes = (int(count * scale) for count in (KEYS, VERSIONS, PROBES))
    number = f"IF(rand({{seed}}) < {case.skew}, 0L, CAST(rand({{seed}} + 1) * {keys} AS BIGINT)) AS key"
    moment = f"timestamp_millis(1767225600000 + CAST(rand({{seed}} + 2) * {MONTH_MS} AS BIGINT))"
    time = f"CAST({moment} AS TIMESTAMP_NTZ)"
    key = [f"{expression} AS {column.split()[0]}" for column, expression in case.key.items()]
    rates = ["CAST(id % 100000 AS INT) AS rate", "concat('label-', id % 1000) AS label"]
    for table, size, seed, named, columns in (
        ("rates", versions, 10, "valid_from", [*key, *rates]),
        ("orders", probes, 20, "at", ["id", *key, "CAST(id % 1000 AS INT) AS amount"]),
    ):
        rows = spark.range(size).selectExpr("id", number.format(seed=seed), f"{time.format(seed=seed)} AS {named}")
        rows.selectExpr(*columns, named).write.format("delta").save(f"{folder}/{table}")


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


def _published(releasing: InsertRunner) -> str:
    staged = releasing.position().staged
    assert staged is not None
    folder = releasing.lake.staged_paths(releasing.target, releasing.insert)["publish"] / staged.folder
    return f"{folder}/_disposition=publish/*.parquet"


def _releasable(orders: str, plan: ReleasePlan, case: Case) -> int:
    """How many probes the release publishes: those whose time has come. The peers take the few of the last second as
    well."""
    come = f"epoch_us(_rowtime) <= {plan.watermark * 1000}"
    query = f"SELECT count(*) FROM (SELECT * FROM read_parquet('{orders}') o {case.where}) WHERE {come}"
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
