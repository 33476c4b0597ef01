"""A tick lands what its sources have by one Spark job: the same rows and the same log as one after another."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession

from tests import cases
from tests.cases import at_length
from tests.conftest import Database
from tests.jobs import jobs_of
from tests.oracle.pins import rows_of
from tests.pipelines.runtime.crashing import dying
from tidegate.pipelines.errors import SourceError, TidegateError
from tidegate.pipelines.frames import settings
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.runtime.continuous import Continuous
from tidegate.pipelines.runtime.landing.advances import Advance
from tidegate.pipelines.runtime.landing.source_runner import alone
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.testing import Harness

SCRIPT = """
CREATE TABLE orders (id INT, amount DECIMAL(8, 2), at TIMESTAMP_LTZ(3), twice AS id * 2, p AS PROCTIME(),
    WATERMARK FOR at AS at - INTERVAL '1' SECOND) WITH ('connector' = 'delta', 'path' = '{root}/orders');
CREATE TABLE users (id INT, name STRING, tags ARRAY<STRING>, PRIMARY KEY (id) NOT ENFORCED) WITH (
    'connector' = 'delta', 'path' = '{root}/users', 'format.on-error' = 'quarantine');
CREATE TABLE numbers (id BIGINT, n DOUBLE, seen AS CURRENT_TIMESTAMP, p AS PROCTIME()) WITH (
    'connector' = 'datagen', 'rows-per-second' = '10', 'fields.id.kind' = 'sequence', 'fields.id.start' = '1',
    'fields.id.end' = '1000');
CREATE TABLE words (id INT, word STRING, p AS PROCTIME()) WITH ('connector' = 'filesystem', 'path' = '{root}/words',
    'format' = 'csv', 'format.on-error' = 'quarantine', 'source.settle-time' = '0 s');
CREATE TABLE of_orders (id BIGINT, name STRING) WITH ('connector' = 'delta');
CREATE TABLE of_numbers (id BIGINT, name STRING) WITH ('connector' = 'delta');
CREATE TABLE of_words (id BIGINT, name STRING) WITH ('connector' = 'delta');
INSERT INTO of_orders SELECT o.id, u.name FROM orders AS o
LEFT JOIN users FOR SYSTEM_TIME AS OF o.p AS u ON o.id = u.id;
INSERT INTO of_numbers SELECT o.id, u.name FROM numbers AS o
LEFT JOIN users FOR SYSTEM_TIME AS OF o.p AS u ON o.id = u.id;
INSERT INTO of_words SELECT o.id, u.name FROM words AS o
LEFT JOIN users FOR SYSTEM_TIME AS OF o.p AS u ON o.id = u.id
"""
TABLES = ("users", "orders", "numbers", "words")
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


class Sources:
    """What four sources of several kinds have, and runners of lakes that read them."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark, self.root = spark, root
        self.script, self.rounds = SCRIPT.format(root=root), 0

    def runner(self, lake: str) -> Runner:
        moment = int((BEGAN + timedelta(seconds=self.rounds)).timestamp() * 1000)
        return Runner(
            compile_script(self.script), Lake(self.root / lake), spark=lambda: self.spark, clock=lambda: moment
        )

    def more(self) -> None:
        """A round of news; two users and a word of each do not fit."""
        self.rounds += 1
        first = 100 * self.rounds
        numbers = range(first, first + 5)
        at = [BEGAN + timedelta(seconds=self.rounds, milliseconds=-700 * number) for number in range(5)]
        orders = {
            "id": pa.array(numbers, pa.int32()),
            "amount": pa.array([Decimal(number) / 4 for number in numbers], pa.decimal128(8, 2)),
            "at": pa.array(at, pa.timestamp("us", "UTC")),
        }
        users = {
            "id": pa.array([None, first, first + 1, None], pa.int32()),
            "name": [f"user {n}" for n in range(4)],
            "tags": pa.array([["a", None], [], None, ["b"]]),
        }
        for name, columns in (("orders", orders), ("users", users)):
            for half in (slice(0, 2), slice(2, None)):  # commits of their own
                part = pa.table(columns).slice(half.start, None if half.stop is None else 2)
                write_deltalake(self.root / name, part, mode="append")
        (self.root / "words").mkdir(exist_ok=True)
        (self.root / "words" / f"{self.rounds}.csv").write_text(f"{first},one\nnone,two\n{first + 2},three\n")


@pytest.fixture
def sources(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sources:
    """With a first round."""
    monkeypatch.setenv("TIDEGATE_FILES_ROOT", str(tmp_path))
    made = Sources(spark, tmp_path)
    made.more()
    return made


def landed(found: dict[str, Advance | TidegateError]) -> dict[str, list[int]]:
    """By table, the rows of the epochs that landed."""
    assert all(isinstance(each, Advance) for each in found.values()), found
    return {name: [epoch.rows for epoch in each.epochs] for name, each in found.items() if isinstance(each, Advance)}


def state(lake: Lake) -> dict[str, Any]:
    """All rows of a lake, its quarantines and its watermark log; in order, but for where they lie."""
    found: dict[str, Any] = {}
    for name in TABLES:
        found[name] = sorted(map(str, rows_of(str(lake.table_path(name)))))
        if Path(lake.rejected_path(name) / "_delta_log").exists():
            found[f"{name} rejected"] = sorted(map(str, rows_of(str(lake.rejected_path(name)))))
        found[f"{name} log"] = [asdict(replace(row, lag_ms=None)) for row in lake.watermarks.rows(name)]
    return found


def test_rows_and_log_are_the_same_however_many_land_at_once(sources: Sources) -> None:
    rounds = 3 if cases.AT_LENGTH else 2
    for number in range(rounds):
        with sources.runner("alone") as runner:
            for name in TABLES:
                runner.advance(name, max_epochs=1)
        with sources.runner("at_once") as runner:
            jobs = jobs_of(sources.spark, lambda runner=runner: landed(runner.advance_together(TABLES)))
        if number:  # what is rejected of two tables is read once more
            assert len(jobs) == 1 + 2, jobs
        sources.more()
    alone, at_once = (state(Lake(sources.root / name)) for name in ("alone", "at_once"))
    assert at_once == alone
    assert len(at_once["users rejected"]) == 2 * rounds
    assert len(at_once["words rejected"]) == rounds
    assert [row["late"] for row in at_once["orders log"]] == [0, 2, 2][:rounds]
    assert all(row["splits"][0]["rowtime"] for row in at_once["orders log"])


@pytest.mark.thorough
def test_spark_compiles_the_code_of_a_table_once(sources: Sources) -> None:
    """What changes from epoch to epoch is handed to it."""
    code: dict[str, list[list[str]]] = {name: [] for name in TABLES}
    compiling = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
    with settings(sources.spark, compiling):
        for number in range(3):
            with sources.runner("lake") as runner:
                for name in TABLES:
                    steps = runner.landing(name).steps(max_epochs=1)
                    writer = next(steps)
                    if number:
                        code[name].append(generated(sources.spark, writer.by_tasks(0)[1]))
                    alone(steps, writer)
            sources.more()
    assert all(code[name][0] for name in ("users", "orders", "numbers"))
    assert [name for name, (first, second) in code.items() if first != second] == []


def generated(spark: SparkSession, frame: DataFrame) -> list[str]:
    """The code of each stage."""
    debug = getattr(getattr(spark._jvm, "org.apache.spark.sql.execution.debug.package$"), "MODULE$")
    found = debug.codegenStringSeq(frame._jdf.queryExecution().executedPlan())
    return [found.apply(place)._2() for place in range(found.size())]


@pytest.mark.parametrize("point", at_length(["source.appended", "source.written"]))
def test_a_crash_leaves_what_the_next_tick_finishes_and_others_land_where_a_table_fails(
    sources: Sources, point: str
) -> None:
    with sources.runner("lake") as runner:
        runner.advance_together(TABLES)
    sources.more()
    with sources.runner("lake") as runner, dying(point, owner="orders"):
        runner.advance_together(TABLES)
    for _ in range(2):
        with sources.runner("lake") as runner:
            runner.advance_together(TABLES)
    for name in TABLES:
        ids = [row["id"] for row in rows_of(str(runner.lake.table_path(name)))]
        assert len(ids) == len(set(ids)) == {"orders": 10, "numbers": 10}.get(name, 4), name

    sources.more()
    for file in (sources.root / "orders").glob("*.parquet"):
        file.unlink()
    with sources.runner("lake") as runner:
        found = runner.advance_together(TABLES)
        failed = found.pop("orders")
        assert landed(found) == {"users": [2], "numbers": [10], "words": [2]}
    assert isinstance(failed, SourceError)
    assert "of the Delta table is gone" in str(failed)


KINDS = """
CREATE TABLE users (id INT, name STRING, since TIMESTAMP_LTZ(3), PRIMARY KEY (id) NOT ENFORCED,
    WATERMARK FOR since AS since) WITH ('connector' = 'scripted');
CREATE TABLE clicks (id INT, n INT, at TIMESTAMP_LTZ(3), p AS PROCTIME(), WATERMARK FOR at AS at)
    WITH ('connector' = 'scripted');
CREATE TABLE idle (id INT, p AS PROCTIME()) WITH ('connector' = 'scripted');
CREATE TABLE plain (id INT, name STRING) WITH ('connector' = 'delta');
CREATE TABLE expression (twice INT, name STRING) WITH ('connector' = 'delta');
CREATE TABLE filtered (id INT, name STRING) WITH ('connector' = 'delta');
CREATE TABLE checked (id INT, name STRING, CONSTRAINT small EXPECT (id < 50)) WITH ('connector' = 'delta');
CREATE TABLE timed (id INT, name STRING) WITH ('connector' = 'delta');
CREATE TABLE of_idle (id INT, name STRING) WITH ('connector' = 'delta');
INSERT INTO plain SELECT c.id, u.name FROM clicks AS c
LEFT JOIN users FOR SYSTEM_TIME AS OF c.p AS u ON c.id = u.id;
INSERT INTO expression SELECT c.id * 2, upper(u.name) FROM clicks AS c
LEFT JOIN users FOR SYSTEM_TIME AS OF c.p AS u ON c.id = u.id;
INSERT INTO filtered SELECT c.id, u.name FROM clicks AS c
LEFT JOIN users FOR SYSTEM_TIME AS OF c.p AS u ON c.id = u.id AND u.name <> 'x' WHERE c.n > 0;
INSERT INTO checked SELECT c.id, u.name FROM clicks AS c
LEFT JOIN users FOR SYSTEM_TIME AS OF c.p AS u ON c.id = u.id;
INSERT INTO timed SELECT c.id, u.name FROM clicks AS c
LEFT JOIN users FOR SYSTEM_TIME AS OF c.at AS u ON c.id = u.id;
INSERT INTO of_idle SELECT c.id, u.name FROM idle AS c LEFT JOIN users FOR SYSTEM_TIME AS OF c.p AS u ON c.id = u.id
"""
INSERTS = ("plain", "expression", "filtered", "checked", "timed")


def versions(lake: Lake) -> Counter[str]:
    """How many versions each table of a lake has, but for those that go by the clock."""
    logs = {str(log.parent.relative_to(lake.root)) for log in Path(lake.root).glob("**/_delta_log")}
    return Counter({name: DeltaTable(lake.root / name).version() + 1 for name in logs - {"completeness"}})


def files(lake: Lake) -> set[Path]:
    """The files of the tables that `versions` counts, but for checkpoints, which come with every tenth commit."""
    root, others = Path(lake.root), ("_scratch", "_quality", "completeness")
    found = {file.relative_to(root) for file in root.rglob("*") if file.is_file() and "checkpoint" not in file.name}
    return {file for file in found if file.parts[0] not in others and file.parts[:2] != ("_control", "runners")}


@contextmanager
def listings(lake: Lake) -> Iterator[list[str]]:
    """The folders of a lake that are listed meanwhile, but for two whose numbers of files are bounded."""
    found = list[str]()

    def noted(listing: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*given: Any, **more: Any) -> Any:
            if str(lake.root) in str(given) and not any(f"/{own}/" in str(given) for own in ("_scratch", "_quality")):
                found.append(str(given))
            return listing(*given, **more)

        return watched

    with pytest.MonkeyPatch.context() as patched:
        for name in ("scandir", "listdir"):
            patched.setattr(os, name, noted(getattr(os, name)))
        patched.setattr(DeltaTable, "__init__", noted(DeltaTable.__init__))  # lists a log
        yield found


def documented() -> list[tuple[str, int, int]]:
    """By table, the commits of a source table and of an INSERT in an ordinary tick, as docs/lake.md lists them."""
    text = (Path(__file__).parents[4] / "docs" / "lake.md").read_text()
    rows = text.partition("### What a tick commits")[2].partition("\n\n#")[0].splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows if row.startswith("| `")]
    numbers = [[int(cell.partition(":")[0] or 0) for cell in each[1:3]] for each in cells]
    return [(each[0].strip("`"), source, insert) for each, (source, insert) in zip(cells, numbers, strict=True)]


def test_an_ordinary_tick_runs_a_job_for_landing_and_one_an_insert(spark: SparkSession, tmp_path: Path) -> None:
    harness = Harness(KINDS, spark, tmp_path, clock=lambda: int(BEGAN.timestamp() * 1000))
    loop = Continuous(harness.runner, every=0.0)

    def news(second: int) -> None:
        at = BEGAN + timedelta(seconds=second)
        harness.push("users", [{"id": number, "name": f"n{second}", "since": at} for number in range(3)])
        harness.push("clicks", [{"id": number, "n": 1, "at": at} for number in range(3)])
        for table in ("users", "clicks"):
            harness.watermark(table, int(at.timestamp() * 1000))

    for second in (1, 2):
        news(second)
        loop.run(max_ticks=1)
    before, there = versions(harness.lake), files(harness.lake)
    news(3)
    with listings(harness.lake) as listed:
        jobs = jobs_of(spark, lambda: loop.run(max_ticks=1))
    assert len(jobs) == 1 + len(INSERTS), jobs
    assert listed == []
    made = files(harness.lake) - there
    written = [file for file in made if file.suffix == ".parquet" and file.parts[0] != "_control"]
    assert len(written) >= 2 + len(INSERTS)  # rows: one file a task
    # With one task each, two sources and an INSERT make 20 files.
    assert len(made) - len(written) == 2 * 5 + len(INSERTS) * 7
    expected: Counter[str] = Counter()
    for name, source, insert in documented():
        for count, owners in ((source, ("users", "clicks")), (insert, INSERTS)):
            for owner in owners if count else ():
                expected[name.replace("<table>", owner).replace("<target>", owner).replace("<insert>", owner)] += count
    assert versions(harness.lake) - before == expected
    assert len(harness.published("timed")) == len(harness.published("plain")) == 9
    assert jobs_of(spark, lambda: loop.run(max_ticks=1)) == []
    assert versions(harness.lake) == before + expected
    harness.runner.close()


SERVER = """
CREATE TABLE users (id INT PRIMARY KEY NOT ENFORCED, name STRING) WITH ({users});
CREATE TABLE cities (id INT PRIMARY KEY NOT ENFORCED, city STRING) WITH ({cities});
CREATE TABLE clicks (id INT, p AS PROCTIME()) WITH ('connector' = 'scripted');
CREATE TABLE named (id INT, name STRING, city STRING) WITH ('connector' = 'delta');
INSERT INTO named SELECT c.id, u.name, t.city FROM clicks AS c
LEFT JOIN users FOR SYSTEM_TIME AS OF c.p AS u ON c.id = u.id
LEFT JOIN cities FOR SYSTEM_TIME AS OF c.p AS t ON c.id = t.id
"""


def test_tables_of_one_server_land_by_one_job_while_its_log_grows_little(
    spark: SparkSession, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute(
        "CREATE TABLE users (id INT PRIMARY KEY, name VARCHAR(20))",
        "CREATE TABLE cities (id INT PRIMARY KEY, city VARCHAR(20))",
        *(f"INSERT INTO {table} SELECT seq, 'old' FROM seq_1_to_5" for table in ("users", "cities")),
    )
    options = {table: database.clause(table) for table in ("users", "cities")}
    harness = Harness(SERVER.format(**options), spark, tmp_path)
    loop = Continuous(harness.runner, every=0.0)

    def news(number: int, name: str) -> None:
        database.execute(
            f"UPDATE users SET name = '{name}' WHERE id = {number}",
            f"UPDATE cities SET city = '{name}' WHERE id = {number}",
        )
        harness.push("clicks", [{"id": number}])

    news(1, "first")
    while not any(row["id"] == 1 for row in harness.published("named")):
        loop.run(max_ticks=1)
    news(2, "second")
    jobs = jobs_of(spark, lambda: loop.run(max_ticks=1))
    assert len(jobs) == 2, jobs
    monkeypatch.setattr("tidegate.pipelines.sources.mysql_cdc.source.READ_APART", 1)
    news(3, "third")
    jobs = jobs_of(spark, lambda: loop.run(max_ticks=1))
    assert len(jobs) > 3, jobs
    found = {row["id"]: (row["name"], row["city"]) for row in harness.published("named")}
    assert found == {1: ("first", "first"), 2: ("second", "second"), 3: ("third", "third")}
    assert not list(Path(harness.lake.root / "_scratch" / "_binlog").glob("*/*")), "what all have read is gone"
    harness.runner.close()
