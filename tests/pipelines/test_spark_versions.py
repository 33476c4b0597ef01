"""The versions of Spark that Tidegate works with, what is refused, and that an older one gives the same rows."""

from __future__ import annotations

import re
import tomllib
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from packaging.requirements import Requirement
from pyspark.sql import SparkSession

from tidegate.pipelines import spark_versions
from tidegate.pipelines.runtime.session import SparkSession as SessionOfRuntime
from tidegate.pipelines.runtime.session import start_session
from tidegate.pipelines.spark_versions import JARS, SparkNotSupported, over_arrays, place_by_id, spark_hash

TOP = Path(__file__).parents[2]


@pytest.fixture
def pyspark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package pyspark, whose version the test writes."""
    monkeypatch.setattr(spark_versions, "pyspark_home", lambda: tmp_path / "pyspark")
    monkeypatch.delenv("SPARK_HOME", raising=False)
    (tmp_path / "pyspark").mkdir()
    return tmp_path / "pyspark" / "version.py"


@pytest.fixture
def as_in_4_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_versions, "spark_version", lambda: "4.0")


@pytest.mark.parametrize(
    ("version", "known"), [("4.2.0", "4.2"), ("4.1.4", "4.1"), ("4.0.2-amzn-0", "4.0"), ("4.2.1.dev0", "4.2")]
)
def test_jars_are_those_of_pysparks_version(pyspark: Path, version: str, known: str) -> None:
    pyspark.write_text(f'__version__: str = "{version}"\n')
    assert spark_versions.spark_version() == known
    assert spark_versions.spark_jars().delta == f"io.delta:delta-spark_{known}_2.13:4.4.0"


@pytest.mark.parametrize("line", ['__version__ = "4.3.0"', '__version__: str = "3.5.6"', "", '__version__ = "4.20.0"'])
def test_another_version_is_refused_before_anything_starts(
    pyspark: Path, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pyspark.write_text(f"{line}\n")
    monkeypatch.setattr(SessionOfRuntime, "getActiveSession", lambda: None)
    monkeypatch.setattr(SessionOfRuntime, "_instantiatedSession", None)
    with pytest.raises(SparkNotSupported, match=r"4\.0, 4\.1 and 4\.2, and this is") as raised:
        start_session(master="local[1]")
    assert raised.value.where == str(pyspark.parent)
    assert "pip install 'pyspark>=4.0.1,<=4.2.0'" in raised.value.next_command


def test_a_spark_home_of_another_version_than_pyspark_is_refused(
    pyspark: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pyspark.write_text('__version__ = "4.2.0"\n')
    home = tmp_path / "spark"
    (home / "jars").mkdir(parents=True)
    (home / "jars" / "spark-core_2.13-4.0.2-amzn-0.jar").touch()
    monkeypatch.setenv("SPARK_HOME", str(home))
    with pytest.raises(SparkNotSupported, match=r"pyspark is 4\.2, and \$SPARK_HOME has Spark 4\.0"):
        spark_versions.spark_version()
    pyspark.with_name("version.py").write_text('__version__ = "4.0.1"\n')
    spark_versions._version.cache_clear()
    assert spark_versions.spark_version() == "4.0"


def test_the_package_asks_for_the_versions_that_are_known() -> None:
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    (asked,) = [one for one in map(Requirement, project["dependencies"]) if one.name == "pyspark"]
    pinned = re.search(r"^pyspark==(.*)$", (TOP / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned is not None
    assert pinned.group(1) in asked.specifier
    first = ["3.5.9", "4.0.1", "4.1.0", "4.2.0", "4.3.0"]
    assert [version[:3] for version in first if version in asked.specifier] == list(JARS)
    command = SparkNotSupported("", "").next_command
    assert all(f"{bound.operator}{bound.version}" in command for bound in asked.specifier)


def test_the_hash_that_places_rows_in_4_0_is_sparks(spark: SparkSession) -> None:
    numbers = [0, 1, 7, 255, 65_536, 2_147_483_647]
    (row,) = spark.sql("SELECT " + ", ".join(f"hash({number})" for number in numbers)).collect()
    assert [spark_hash(number) for number in numbers] == list(row)


def test_rows_are_placed_as_by_id(spark: SparkSession, as_in_4_0: None) -> None:
    rows = spark.range(0, 40, 1, 3).selectExpr("CAST(id AS INT) AS bucket")
    placed = place_by_id(rows, 7, "bucket % 7").selectExpr("bucket", "spark_partition_id() AS task").collect()
    assert sorted(tuple(row) for row in placed) == [(bucket, bucket % 7) for bucket in range(40)]


def test_a_function_gets_equal_values_one_row_at_a_time(spark: SparkSession, as_in_4_0: None) -> None:
    """Whole numbers beside NULLs, and times of summer and winter, wherever the worker is."""
    kinds = {
        "BIGINT": (pa.int64(), [2**63 - 1, None, -1]),
        "DOUBLE": (pa.float64(), [0.1, None, float("inf")]),
        "DECIMAL(38, 18)": (pa.decimal128(38, 18), [Decimal("-12345678901234.000000000000000001"), None, Decimal(0)]),
        "STRING": (pa.string(), ["\u00e9\x00", None, ""]),
        "BINARY": (pa.binary(), [b"\x00\xff", None, b""]),
        "BOOLEAN": (pa.bool_(), [True, None, False]),
        "DATE": (pa.date32(), [date(1, 1, 1), None, date(9999, 12, 31)]),
        "TIMESTAMP_NTZ": (pa.timestamp("us"), [datetime(2024, 10, 27, 2, 30, 0, 1), None, datetime(1883, 11, 18, 12)]),
    }  # fmt: skip
    ddl = ", ".join(f"c{place} {kind}" for place, kind in enumerate(kinds))
    columns = {f"c{place}": pa.array(values, kind) for place, (kind, values) in enumerate(kinds.values())}
    rows = spark.createDataFrame(pa.table(columns), ddl)
    for place, (name, (kind, values)) in enumerate(kinds.items()):

        def call(column, kind=kind):
            assert column.type == kind, column.type
            return column

        function = over_arrays(call, [kind, pa.int64()], name)  # the last one is left out
        assert [row[0] for row in rows.select(function(f"c{place}")).collect()] == values
