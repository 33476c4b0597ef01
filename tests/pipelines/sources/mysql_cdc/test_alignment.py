"""Tables of one server in an alignment group: what other tables commit does not count for a table's own pace."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tests.conftest import Database
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.syntax.types import quoted_string

SCRIPT = """
CREATE TABLE {name} (k INT, v INT, at AS SYSTEM_ROWTIME(), PRIMARY KEY (k) NOT ENFORCED,
    WATERMARK FOR at AS SYSTEM_WATERMARK()) WITH ({options},
    'scan.watermark.alignment.group' = 'g', 'scan.watermark.alignment.max-drift' = '5 s');
CREATE TABLE probe_{name} (k INT, at TIMESTAMP(3), WATERMARK FOR at AS at) WITH ('connector' = 'scripted');
CREATE TABLE kept_{name} (k INT, v INT) WITH ('connector' = 'delta');
INSERT INTO kept_{name} SELECT p.k, b.v FROM probe_{name} AS p
    LEFT JOIN {name} FOR SYSTEM_TIME AS OF p.at AS b ON p.k = b.k;
"""
FIRST = 2_000_000_000


def script(database: Database, *names: str) -> str:
    clause = {
        name: ", ".join(f"'{key}' = {quoted_string(value)}" for key, value in database.options(name).items())
        for name in names
    }
    return "".join(SCRIPT.format(name=name, options=clause[name]) for name in names)


def change(database: Database, name: str, seconds: range) -> None:
    """One transaction a second, by the server's clock."""
    with database.connect(autocommit=False) as connection, connection.cursor() as cursor:
        for second in seconds:
            cursor.execute(f"SET timestamp = {FIRST + second}")
            cursor.execute(f"UPDATE {name} SET v = v + 1")
            connection.commit()


def test_a_quiet_table_beside_a_busy_one_comes_to_its_ends(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    for name in ("quiet", "busy"):
        database.execute(f"CREATE TABLE {name} (k INT PRIMARY KEY, v INT)", f"INSERT INTO {name} VALUES (1, 0)")
    lake = Lake(tmp_path)
    pipeline = compile_script(script(database, "quiet", "busy"))
    with Runner(pipeline, lake, spark=lambda: spark, environment={}) as active:
        active.advance_all(["quiet", "busy"])
        change(database, "quiet", range(1))
        change(database, "busy", range(40))
        change(database, "quiet", range(100, 101))
        change(database, "busy", range(102, 103))
        before = {name: len(lake.watermarks.rows(name)) for name in ("quiet", "busy")}
        quiet, busy = active.advance_all(["quiet", "busy"])
        assert (quiet.rows, busy.rows) == (2, 41)
        assert (quiet.blocked, busy.blocked) == ((), ())
        # A transaction of the busy table is no step of the quiet one's, and the busy one was held in between.
        epochs = {name: len(lake.watermarks.rows(name)) - before[name] for name in before}
        assert epochs["quiet"] <= 3
        assert [row.rows for row in lake.watermarks.rows("busy")][-2:] == [6, 35]
