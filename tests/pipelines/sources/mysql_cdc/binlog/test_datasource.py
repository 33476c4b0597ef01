"""The binlog in Spark: rows, partitions, errors that keep their type, and a password that is nowhere to be seen."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.conftest import Database
from tests.pipelines.sources.mysql_cdc.binlog.recording import position, read, server_of, wanted
from tidegate.pipelines.connectors.spec import SOURCE_COLUMNS
from tidegate.pipelines.sources.cdc.errors import find
from tidegate.pipelines.sources.mysql_cdc.binlog import BinlogRange, read_binlog, split_by_file
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.output import spark_schema_of
from tidegate.pipelines.sources.mysql_cdc.errors import SchemaChanged


def test_ranges_are_partitions_and_rows_are_those_of_the_reader(spark: SparkSession, database: Database) -> None:
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, `odd ``name` TEXT, at DATETIME(6))")
    table = wanted(database, "t")
    start = position(database)
    for number in range(3):
        database.execute(
            f"INSERT INTO t SELECT seq + {number * 1000}, CONCAT('ü', seq), NOW(6) FROM seq_1_to_500",
            "FLUSH BINARY LOGS",
        )
    database.execute("TRUNCATE TABLE t")
    span = BinlogRange(0, start, position(database))
    pieces = split_by_file(span, [name for name, *_ in database.execute("SHOW BINARY LOGS")])
    rows = read_binlog(spark, server_of(database), pieces, table)
    assert rows.rdd.getNumPartitions() == len(pieces) == 4
    assert rows.columns == [column.name for column in table.columns] + list(SOURCE_COLUMNS)
    found = rows.orderBy("_offset").toArrow()
    expected = read(database, table, start)
    assert found.equals(expected.cast(found.schema))
    assert rows.schema == spark.createDataFrame([], spark_schema_of(table)).schema
    plan = str(rows._jdf.queryExecution().toString())  # type: ignore[operator]
    assert database.password not in plan


def test_an_error_keeps_its_type_its_place_and_what_to_do(spark: SparkSession, database: Database) -> None:
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    table = wanted(database, "t")
    start = position(database)
    database.execute("INSERT INTO t VALUES (1)", "ALTER TABLE t MODIFY id BIGINT")
    rows = read_binlog(spark, server_of(database), [BinlogRange(0, start, position(database))], table)
    with pytest.raises(PySparkException) as caught:
        rows.collect()
    error = find(caught.value)
    assert isinstance(error, SchemaChanged)
    assert "MODIFY id BIGINT" in error.what
    assert error.where.startswith(f"{start.file}:")
    assert error.where.endswith(str(table))
    assert "--resnapshot" in error.next_command
    assert database.password not in str(caught.value)


def test_no_ranges_no_rows(spark: SparkSession, database: Database) -> None:
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    assert read_binlog(spark, server_of(database), [], wanted(database, "t")).collect() == []
