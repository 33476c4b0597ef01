"""The one mapping of column types: the same rows by snapshot and by binlog, and what a script may declare."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.conftest import Database
from tests.pipelines.sources.mysql_cdc.binlog import all_types
from tests.pipelines.sources.mysql_cdc.binlog.recording import columns_of
from tests.pipelines.sources.mysql_cdc.driver import FLINK_TYPES, Driver, declare
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.sources.cdc.changelog import CanonicalType, cast_to_declared, compatible
from tidegate.pipelines.sources.mysql_cdc.types import GEOMETRIES, SourceColumn


def test_a_row_is_the_same_by_snapshot_and_by_binlog_whatever_the_servers_time_zone(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    all_types.create(database)
    all_types.fill(database)
    described = columns_of(database, all_types.TABLE)
    assert len(described) == len(all_types.COLUMNS) + 1
    spark_types = {found.name: found.canonical.spark for found in described}
    types = {name: FLINK_TYPES.get(kind, kind) for name, kind in spark_types.items()}
    drivers = {}
    # Connections take the zone that the server has when they come about; the values are given in UTC.
    with database.settings(time_zone="+05:30"):
        assert database.execute("SELECT @@SESSION.time_zone") == (("+05:30",),)
        latest = {"scan.startup.mode": "latest-offset"}
        for name, more in (("snapshot", {}), ("files", {}), ("binlog", latest)):
            table = declare(database.options(all_types.TABLE, **more), types, ["id"], name=name)
            drivers[name] = Driver(spark, tmp_path / name, table, files=name == "files")
            drivers[name].run()
        database.execute("UPDATE everything SET id = id + 10")  # each row once more: deleted and created
        drivers["binlog"].run()
    by_snapshot = drivers["snapshot"].rows().where("_op = 'r'").orderBy("id").toArrow()
    assert drivers["files"].rows().where("_op = 'r'").orderBy("id").select(*types).toArrow() == by_snapshot.select(
        types
    )
    assert list((tmp_path / "files").glob("epoch=1/chunk-*.parquet"))
    by_binlog = drivers["binlog"].rows().where("_op = 'c'").orderBy("id").toArrow()
    assert by_snapshot["id"].to_pylist() == [0, 1, 2, 3]
    assert by_binlog["id"].to_pylist() == [10, 11, 12, 13]
    for found in described[1:]:
        have, want = by_binlog[found.name], by_snapshot[found.name]
        assert have.type == want.type == found.canonical.arrow, found
        assert have.equals(want), (found.column_type, have.to_pylist(), want.to_pylist())
    shapes = [found.name for found in described if found.data_type in GEOMETRIES]
    assert len(shapes) == 8
    well_known = ", ".join(f"ST_AsWKB({name})" for name in shapes)
    on_server = database.execute(f"SELECT {well_known} FROM {all_types.TABLE} ORDER BY id")
    assert [tuple(row.values()) for row in by_snapshot.select(shapes).to_pylist()] == list(on_server)
    instants = by_snapshot[all_types.NAMES[list(all_types.COLUMNS).index("timestamp(6)")]].to_pylist()
    assert [at and at.astimezone(UTC).replace(tzinfo=None) for at in instants] == [
        datetime.datetime(1999, 12, 31, 23, 59, 59, 999999),
        datetime.datetime(2024, 6, 15, 12, 0, 0, 1),
        None,
        None,
    ]


def column(data_type: str, column_type: str = "", **more: Any) -> SourceColumn:
    return SourceColumn("c", data_type, column_type or data_type, **more)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (column("tinyint", "tinyint(1)"), "TINYINT"),
        (column("tinyint", "tinyint(3) unsigned"), "SMALLINT"),
        (column("mediumint", "mediumint unsigned"), "INT"),
        (column("int", "int(10) unsigned zerofill"), "BIGINT"),
        (column("bigint", "bigint unsigned"), "DECIMAL(20,0)"),
        (column("decimal", precision=38, scale=10), "DECIMAL(38,10)"),
        (column("decimal", precision=39, scale=10), "STRING"),
        (column("bit", precision=1), "BOOLEAN"),
        (column("bit", precision=2), "BINARY"),
        (column("year"), "INT"),
        (column("datetime", fraction=6), "TIMESTAMP_NTZ"),
        (column("timestamp"), "TIMESTAMP"),
        (column("time", fraction=6), "STRING"),
        (column("json"), "STRING"),
        (column("enum", "enum('unsigned')"), "STRING"),
        (column("point"), "BINARY"),
        (column("uuid"), "STRING"),
    ],
)
def test_canonical_types(source: SourceColumn, expected: str) -> None:
    assert source.canonical.spark == expected


def test_a_type_that_neither_phase_can_read_is_named() -> None:
    with pytest.raises(PlanningError, match=r"column c has the type vector\(3\)"):
        _ = column("vector", "vector(3)").canonical


INT = column("int").canonical
BIGINT_UNSIGNED = column("bigint", "bigint unsigned").canonical
INSTANT, LOCAL, TEXT, BYTES = (column(kind).canonical for kind in ("timestamp", "datetime", "text", "blob"))
BIT1, DATE, FLOAT = column("bit", precision=1).canonical, column("date").canonical, column("float").canonical
DECIMAL = column("decimal", precision=10, scale=2).canonical


@pytest.mark.parametrize(
    ("source", "declared"),
    [
        (INT, "INT"),
        (INT, "BIGINT"),
        (INT, "DECIMAL(10,0)"),
        (INT, "DECIMAL(12,2)"),
        (INT, "DOUBLE"),
        (INT, "STRING"),
        (BIGINT_UNSIGNED, "DECIMAL(20, 0)"),
        (BIGINT_UNSIGNED, "BIGINT"),
        (DECIMAL, "DECIMAL(12, 3)"),
        (DECIMAL, "STRING"),
        (column("tinyint").canonical, "BOOLEAN"),
        (BIT1, "INT"),
        (FLOAT, "DOUBLE"),
        (TEXT, "STRING"),
        (INSTANT, "TIMESTAMP_NTZ"),
        (LOCAL, "TIMESTAMP"),
        (DATE, "TIMESTAMP_NTZ"),
        (BYTES, "BINARY"),
    ],
)
def test_types_that_hold_every_value(source: CanonicalType, declared: str) -> None:
    assert compatible(source, declared) is None


@pytest.mark.parametrize(
    ("source", "declared"),
    [
        (INT, "SMALLINT"),
        (INT, "DECIMAL(9,0)"),
        (INT, "FLOAT"),
        (BIGINT_UNSIGNED, "INT"),
        (DECIMAL, "DECIMAL(10,3)"),
        (DECIMAL, "DECIMAL(10,1)"),
        (DECIMAL, "DOUBLE"),
        (TEXT, "INT"),
        (BYTES, "STRING"),
        (INSTANT, "STRING"),
        (INSTANT, "DATE"),
        (LOCAL, "DATE"),
    ],
)
def test_types_that_do_not_are_named_with_the_one_to_declare(source: CanonicalType, declared: str) -> None:
    reason = compatible(source, declared)
    assert reason is not None
    assert reason.endswith(f"declare it as {source.spark}")


UTC = datetime.UTC
INSTANT_VALUE = datetime.datetime(2024, 7, 1, 12, 0, 0, 123456, UTC)
LOCAL_VALUE = datetime.datetime(2024, 7, 1, 12, 0, 0, 123456)


@pytest.mark.parametrize(
    ("source", "value", "declared", "zone", "expected"),
    [
        (INSTANT, INSTANT_VALUE, "TIMESTAMP_NTZ", "UTC", LOCAL_VALUE),
        (INSTANT, INSTANT_VALUE, "TIMESTAMP_NTZ", "Europe/Berlin", LOCAL_VALUE + datetime.timedelta(hours=2)),
        (LOCAL, LOCAL_VALUE, "TIMESTAMP", "Asia/Kolkata", INSTANT_VALUE - datetime.timedelta(hours=5.5)),
        (INT, -7, "DECIMAL(12,2)", "UTC", Decimal("-7.00")),
        (BIGINT_UNSIGNED, Decimal(2**64 - 1), "STRING", "UTC", "18446744073709551615"),
        (BIT1, True, "BIGINT", "UTC", 1),
        (TEXT, "as it is", "STRING", "UTC", "as it is"),
        (INSTANT, None, "TIMESTAMP_NTZ", "Europe/Berlin", None),
    ],
)
def test_casts_to_the_declared_type(
    spark: SparkSession, source: CanonicalType, value: Any, declared: str, zone: str, expected: Any
) -> None:
    rows = spark.createDataFrame([(value,)], f"c {source.spark}")
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")  # must take no part
    try:
        cast = rows.select(F.expr(cast_to_declared("c", source, declared, zone)).alias("c")).toArrow()
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    found = cast["c"].to_pylist()[0]
    assert (found.astimezone(UTC) if isinstance(found, datetime.datetime) and found.tzinfo else found) == expected


def test_a_column_survives_being_stored_in_a_plan() -> None:
    stored = column("decimal", "decimal(5,2) unsigned", precision=5, scale=2, nullable=False)
    assert SourceColumn.from_json({"name": "c", "data_type": "int", "column_type": "int"}).characters is None
    assert SourceColumn.from_json(stored.to_json()) == stored
