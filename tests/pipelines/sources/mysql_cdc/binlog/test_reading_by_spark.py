"""The binlog in Spark: rows, partitions, errors that keep their type, and a password that is nowhere to be seen.

A long transaction is read in memory that does not depend on it: 400,000 rows, in a soak 5 million.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from itertools import pairwise

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.conftest import Database
from tests.pipelines.sources.mysql_cdc.binlog.recording import position, read, server_of, wanted
from tidegate.pipelines.connectors.spec import SOURCE_COLUMNS
from tidegate.pipelines.sources.cdc.errors import find
from tidegate.pipelines.sources.mysql_cdc.binlog.model import BinlogRange, split_by_file
from tidegate.pipelines.sources.mysql_cdc.binlog.reading import read_binlog
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.table_reader import spark_schema_of
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
    span = BinlogRange(start, position(database))
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
    rows = read_binlog(spark, server_of(database), [BinlogRange(start, position(database))], table)
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


ROWS = 5_000_000 if os.environ.get("TIDEGATE_SOAK") else 400_000
READ = """
import pickle, sys
from tidegate.pipelines.sources.mysql_cdc.binlog.reading import read_range
from tests.memory import peak_rss

server, spans, table = pickle.load(sys.stdin.buffer)
for span in spans:
    sizes = [batch.num_rows for batch in read_range(server, span, table)]
    print(sum(sizes), max(sizes), peak_rss(), flush=True)
"""


@pytest.mark.thorough
@pytest.mark.soak
@pytest.mark.timeout(0)
def test_a_long_transaction_takes_no_more_memory_than_a_short_one(database: Database) -> None:
    database.execute("CREATE TABLE a (id INT PRIMARY KEY, at DATETIME(6), n BIGINT, s CHAR(200) CHARACTER SET ascii)")
    places = [position(database)]
    for first, last in ((1, ROWS // 4), (ROWS // 4 + 1, ROWS // 4 + ROWS)):
        database.execute(f"INSERT INTO a SELECT seq, NOW(6), seq, REPEAT(MD5(seq), 6) FROM seq_{first}_to_{last}")
        places.append(position(database))
    spans = [BinlogRange(start, end) for start, end in pairwise(places)]
    given = pickle.dumps([server_of(database), spans, wanted(database, "a")])
    done = subprocess.run(
        [sys.executable, "-c", READ], input=given, capture_output=True, check=False, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr.decode()
    short, long = (list(map(int, line.split())) for line in done.stdout.splitlines())
    print(f"{long[0]:,} rows: peak RSS {long[2] >> 20:,} MiB, {short[0]:,} rows: {short[2] >> 20:,} MiB")
    assert (short[0], long[0]) == (ROWS // 4, ROWS)
    assert long[1] <= 1.1 * short[1], "a batch is of one chunk, whatever the transaction"
    assert long[2] <= 1.2 * short[2]
