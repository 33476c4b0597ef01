"""Which tables' chunks become files as they are, and how their columns are stored."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from tests.pipelines.sources.mysql_cdc.driver import declare
from tests.pipelines.sources.mysql_cdc.test_options import GOOD
from tidegate.pipelines.connectors.table import Column
from tidegate.pipelines.sources.mysql_cdc.options import parse
from tidegate.pipelines.sources.mysql_cdc.snapshot.files import FileColumn, file_columns
from tidegate.pipelines.sources.mysql_cdc.types import SourceColumn

OPTIONS = parse(GOOD)


def found(described: SourceColumn, spark_type: str) -> tuple[FileColumn, ...] | None:
    table = declare(GOOD, {"c": spark_type}, ["c"])
    return file_columns(table, [described], OPTIONS)


@pytest.mark.parametrize(
    ("described", "declared", "stored"),
    [
        (SourceColumn("c", "int", "int(11)"), "INT", pa.int32()),
        (SourceColumn("c", "int", "int(11)"), "BIGINT", pa.int64()),
        (SourceColumn("c", "tinyint", "tinyint(3) unsigned"), "INT", pa.int32()),
        (SourceColumn("c", "tinyint", "tinyint(1)"), "BOOLEAN", pa.bool_()),
        (SourceColumn("c", "decimal", "decimal(12,2)", precision=12, scale=2), "DECIMAL(12, 2)", pa.decimal128(12, 2)),
        (SourceColumn("c", "datetime", "datetime(3)"), "TIMESTAMP_NTZ", pa.timestamp("us")),
        (SourceColumn("c", "timestamp", "timestamp"), "TIMESTAMP", pa.timestamp("us", "UTC")),
        (SourceColumn("c", "varchar", "varchar(9)"), "VARCHAR(20)", pa.string()),
    ],
)
def test_what_is_stored_as_it_comes(described: SourceColumn, declared: str, stored: pa.DataType) -> None:
    assert found(described, declared) == (FileColumn("c", stored, "c"),)


@pytest.mark.parametrize(
    ("described", "declared"),
    [
        (SourceColumn("c", "int", "int(11)"), "STRING"),
        (SourceColumn("c", "int", "int(11)"), "DECIMAL(12,2)"),
        (SourceColumn("c", "smallint", "smallint(6)"), "BOOLEAN"),
        (SourceColumn("c", "bit", "bit(1)", precision=1), "INT"),
        (SourceColumn("c", "timestamp", "timestamp"), "TIMESTAMP_NTZ"),
        (SourceColumn("c", "date", "date"), "TIMESTAMP_NTZ"),
    ],
)
def test_what_spark_has_to_cast(described: SourceColumn, declared: str) -> None:
    assert found(described, declared) is None


def test_metadata_columns_are_the_same_in_every_row() -> None:
    table = declare(GOOD, {"c": "INT"}, ["c"])
    extra = (
        Column("db", "STRING", "STRING", metadata="database_name"),
        Column("at", "TIMESTAMP_LTZ(6)", "TIMESTAMP", metadata="op_ts"),
    )
    columns = file_columns(
        replace(table, columns=(*table.columns, *extra)), [SourceColumn("c", "int", "int(11)")], OPTIONS
    )
    assert columns is not None
    batch = pa.RecordBatch.from_pydict({"c": pa.array([1, 2], pa.int32())})
    assert [column.of(batch).to_pylist() for column in columns] == [[1, 2], ["shop", "shop"], [None, None]]


def test_a_boolean_is_any_number_but_zero() -> None:
    (column,) = found(SourceColumn("c", "tinyint", "tinyint(1)"), "BOOLEAN") or ()
    batch = pa.RecordBatch.from_pydict({"c": pa.array([0, 1, -1, None], pa.int8())})
    assert column.of(batch).to_pylist() == [False, True, True, None]
