"""The snapshot through Spark: every row once, whatever the key's type, with the cut of its chunk beside it."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.cases import at_length
from tests.conftest import Database
from tests.pipelines.sources.mysql_cdc.binlog.recording import position
from tests.pipelines.sources.mysql_cdc.driver import CHUNK, Driver, declare
from tidegate.pipelines.clock import system_clock
from tidegate.pipelines.progress import Task
from tidegate.pipelines.sources.cdc import snapshot

ODD_KEYS = {
    "unsigned": ("k BIGINT UNSIGNED", "18446744073709551615 - seq", "DECIMAL(20,0)"),
    "decimal": ("k DECIMAL(65,30)", "seq / 7", "STRING"),
    "utf16": ("k VARCHAR(40) CHARACTER SET utf16", "CONCAT('ü', MD5(seq))", "STRING"),
    "quotes": ("k VARCHAR(40)", r"""CONCAT('''"\\%?{}`;-- ', seq)""", "STRING"),
    "bytes": ("k BINARY(20)", "UNHEX(MD5(seq))", "BYTES"),
    "timestamp": ("k TIMESTAMP(6)", "'2024-10-27' + INTERVAL seq * 60000001 MICROSECOND", "TIMESTAMP(6)"),
    "zerofill": ("k INT(8) ZEROFILL", "seq * 7", "BIGINT"),
    "char": ("k CHAR(40) CHARACTER SET latin1", "CONCAT(MD5(seq), ' é')", "STRING"),
    "time": ("k TIME(3)", "SEC_TO_TIME((CAST(seq AS SIGNED) - 50) * 10000.5)", "STRING"),
    "uuid": ("k UUID", "UUID()", "STRING"),
    "inet6": ("k INET6", "CONCAT('fe80::', HEX(seq))", "STRING"),
}


@pytest.mark.parametrize("name", at_length(ODD_KEYS, fast=6))
def test_every_row_comes_once(spark: SparkSession, database: Database, tmp_path: Path, name: str) -> None:
    definition, value, declared = ODD_KEYS[name]
    database.execute(
        f"CREATE TABLE t ({definition} PRIMARY KEY, n INT)", f"INSERT INTO t SELECT {value}, seq FROM seq_1_to_100"
    )
    table = declare(database.options("t") | {CHUNK: "30"}, {"k": declared, "n": "INT"}, ["k"])
    driver = Driver(spark, tmp_path, table)
    driver.run(max_steps=1)
    got = driver.rows().select("k", "n", "_split").collect()
    assert sorted(row["n"] for row in got) == list(range(1, 101))
    assert len({row["_split"] for row in got}) >= 3
    connection = database.connect()
    with connection, connection.cursor() as cursor:
        shown = "k" if declared != "STRING" else "CAST(k AS CHAR)"
        cursor.execute(f"SELECT {shown}, n FROM t")
        wanted = {n: value for value, n in cursor.fetchall()}
    found = {row["n"]: bytes(row["k"]) if declared == "BYTES" else row["k"] for row in got}
    assert found == wanted


def test_a_composite_key_under_a_collation(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    database.execute(
        "CREATE TABLE t (a VARCHAR(9) COLLATE utf8mb4_general_ci, b DATETIME(3), c INT, PRIMARY KEY (a, b, c))",
        "INSERT INTO t SELECT ELT(1 + seq % 4, 'ä', 'B', 'c ', 'D'), '2024-01-01' + INTERVAL seq % 5 SECOND,"
        " CAST(seq AS SIGNED) - 100 FROM seq_1_to_200",
    )
    columns = {"c": "INT", "a": "STRING", "b": "TIMESTAMP(3)"}
    driver = Driver(spark, tmp_path, declare(database.options("t") | {CHUNK: "20"}, columns, ["a", "b", "c"]))
    driver.run(max_steps=1)
    got = {(row["a"], row["b"], row["c"]) for row in driver.rows().collect()}
    assert got == set(database.execute("SELECT a, b, c FROM t"))
    assert len(got) == driver.rows().count() == 200


def test_the_source_columns(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (k INT PRIMARY KEY)", "INSERT INTO t SELECT seq FROM seq_1_to_60")
    start = position(database)
    driver = Driver(spark, tmp_path, declare(database.options("t") | {CHUNK: "20"}, {"k": "INT"}, ["k"]))
    began = system_clock() // 1000
    driver.run(max_steps=1)
    rows = driver.rows()
    assert {row["_op"] for row in rows.collect()} == {"r"}
    times = {row[0] for row in rows.selectExpr("unix_seconds(_rowtime)").collect()}
    assert began <= min(times)
    assert max(times) <= system_clock() // 1000
    assert [tuple(row[0]) for row in rows.select("_seq").distinct().collect()] == [
        (0, 0, start.number, start.position, 0)
    ]
    per_split = rows.groupBy("_split").agg(F.count("*").alias("n"), F.count_distinct("_offset").alias("offsets"))
    assert {(row["_split"], row["n"], row["offsets"]) for row in per_split.collect()} == {
        (f"chunk-{chunk:07d}", 20, 20) for chunk in range(3)
    }
    assert {(split["cut"]["file"], split["cut"]["position"]) for split in driver.splits.rows()} == {
        (start.file, start.position)
    }


def test_a_row_of_several_packets(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    database.execute(
        "SET sql_log_bin = 0",
        "SET group_concat_max_len = 32 << 20",
        "CREATE TABLE t (k INT PRIMARY KEY, doc LONGTEXT CHARACTER SET ascii, body LONGBLOB)",
        "INSERT INTO t VALUES (1, 'before', 'it'), (3, 'after', 'it')",
        "INSERT INTO t SELECT 2, GROUP_CONCAT(MD5(seq) ORDER BY seq SEPARATOR ''), NULL FROM seq_1_to_540000",
        "UPDATE t SET body = REVERSE(doc) WHERE k = 2",
    )
    table = declare(database.options("t"), {"k": "INT", "doc": "STRING", "body": "BYTES"}, ["k"])
    driver = Driver(spark, tmp_path, table)
    driver.run(max_steps=1)
    sums = ("k", "md5(doc)", "md5(body)", "length(doc)", "length(body)")
    found = sorted(tuple(row) for row in driver.rows().selectExpr(*sums).collect())
    assert found == sorted(database.execute(f"SELECT {', '.join(sums)} FROM t"))
    assert found[1][3:] == (17_280_000, 17_280_000)


def test_metadata_columns_and_wider_types(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    from dataclasses import replace

    from tidegate.pipelines.connectors.table import Column

    database.execute("CREATE TABLE t (K INT PRIMARY KEY, d DATE)", "INSERT INTO t VALUES (1, '2024-02-29')")
    table = declare(database.options("t"), {"k": "BIGINT", "d": "TIMESTAMP(3)"}, ["k"])
    extra = (
        Column("db", "STRING", "STRING", metadata="database_name"),
        Column("tab", "STRING", "STRING", metadata="table_name"),
        Column("at", "TIMESTAMP_LTZ(3)", "TIMESTAMP", metadata="op_ts"),
    )
    driver = Driver(spark, tmp_path, replace(table, columns=(*table.columns, *extra)))
    driver.run(max_steps=1)
    got = driver.rows().select("k", "d", "db", "tab", "at").collect()
    assert [tuple(row) for row in got] == [(1, datetime.datetime(2024, 2, 29), database.name, "t", None)]


def test_steps_are_bounded_and_progress_is_reported(
    spark: SparkSession, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    monkeypatch.setattr(snapshot, "STEP_CHUNKS", 4)
    database.execute("CREATE TABLE t (k INT PRIMARY KEY)", "INSERT INTO t SELECT seq FROM seq_1_to_100")
    reported: list[tuple[str, str]] = []

    class Recording(Task):
        def __init__(self, name: str) -> None:
            self.name = name

        def advance(self, amount: int = 1, note: str = "") -> None:
            reported.append((self.name, f"{amount} {note.split()[-1] if note else ''}".strip()))

        def total(self, total: int) -> None: ...

        def note(self, note: str) -> None: ...

    class Bars:
        def task(self, name: str, total: int | None = None, unit: str = "") -> Task:
            reported.append((name, f"of {total} {unit}"))
            return Recording(name)

    driver = Driver(
        spark, tmp_path, declare(database.options("t") | {CHUNK: "10"}, {"k": "INT"}, ["k"]), progress=Bars()
    )
    driver.run(max_steps=3)
    assert [stored.step.summary for stored in driver.steps] == [
        "chunks 1-4 of 10",
        "chunks 5-8 of 10",
        "chunks 9-10 of 10",
    ]
    assert reported == [
        ("build snapshot", "of 10 chunks"),
        ("build snapshot", "4 rows/s"),
        ("build snapshot", "4 rows/s"),
        ("build snapshot", "2 rows/s"),
    ]
    assert sorted(row["k"] for row in driver.rows().collect()) == list(range(1, 101))


def test_the_password_is_in_no_plan_and_no_error(
    spark: SparkSession, database: Database, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from tidegate.pipelines.sources.mysql_cdc import CONNECTOR

    database.execute("CREATE TABLE t (k INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    driver = Driver(spark, tmp_path, declare(database.options("t"), {"k": "INT"}, ["k"]))
    driver.run(max_steps=1)
    stored = driver.steps[0]
    source = CONNECTOR.source(driver.context())
    rows = source.read(spark, stored)
    rows.explain(True)
    database.execute("DROP TABLE t")
    with pytest.raises(PySparkException, match="doesn't exist") as failed:
        rows.collect()
    output = capfd.readouterr()
    assert "MapInArrow" in output.out
    assert database.password not in output.out + output.err
    assert database.password not in str(failed.value)
    assert database.password not in repr(vars(source))
    assert database.password not in str(stored) + str(driver.splits.rows())
    source.close()
