"""Which tables' chunks become files as they are, how their columns are stored, and what footers hold of a batch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.pipelines.sources.mysql_cdc.driver import declare
from tests.pipelines.sources.mysql_cdc.test_options import GOOD
from tidegate.pipelines.connectors.table import Column
from tidegate.pipelines.sources.cdc.files import FileColumn, Span, file_columns, spans_of
from tidegate.pipelines.sources.mysql_cdc.types import SourceColumn

PLACE = ("shop", "users")


def found(described: SourceColumn, spark_type: str) -> tuple[FileColumn, ...] | None:
    table = declare(GOOD, {"c": spark_type}, ["c"])
    return file_columns(table, [described], PLACE)


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
        (SourceColumn("c", "varchar", "varchar(9)"), "STRING", pa.string()),
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
        replace(table, columns=(*table.columns, *extra)), [SourceColumn("c", "int", "int(11)")], PLACE
    )
    assert columns is not None
    batch = pa.RecordBatch.from_pydict({"c": pa.array([1, 2], pa.int32())})
    assert [column.of(batch).to_pylist() for column in columns] == [[1, 2], ["shop", "shop"], [None, None]]


def test_a_boolean_is_any_number_but_zero() -> None:
    (column,) = found(SourceColumn("c", "tinyint", "tinyint(1)"), "BOOLEAN") or ()
    batch = pa.RecordBatch.from_pydict({"c": pa.array([0, 1, -1, None], pa.int8())})
    assert column.of(batch).to_pylist() == [False, True, True, None]


_SEQ = pa.struct([("phase", pa.int32()), ("file", pa.int64()), ("position", pa.int64())])


def write(path: Path, split: str, cuts: list[tuple[int, int] | None], epoch: int = 3, **more: Any) -> str:
    """A file of one row per cut."""
    columns = {
        "_generation": pa.array([1] * len(cuts), pa.int32()),
        "_epoch": pa.array([epoch] * len(cuts), pa.int64()),
        "_split": pa.array([split] * len(cuts)),
        "_seq": pa.array([cut and {"phase": 0, "file": cut[0], "position": cut[1]} for cut in cuts], _SEQ),
    }
    pq.write_table(pa.table(columns), path, **more)
    return str(path)


def test_each_file_is_a_chunk(tmp_path: Path) -> None:
    first = write(tmp_path / "a b.parquet", "chunk-000000", [(7, 450)] * 5, row_group_size=2)
    second = write(tmp_path / "b.parquet", "chunk-000001", [(7, 500), (8, 300)])
    uri = f"file://{first.replace(' ', '%20')}"
    assert spans_of([uri, second], 1, 3) == {
        "chunk-000000": Span((7, 450), (7, 450), 5),
        "chunk-000001": Span((7, 300), (8, 500), 2),
    }
    assert spans_of([], 1, 3) == {}


@pytest.mark.parametrize(
    "case", ["no statistics", "another epoch", "two files of a chunk", "two chunks in a file", "a null", "far away"]
)
def test_where_the_rows_must_be_asked(tmp_path: Path, case: str) -> None:
    cuts: list[tuple[int, int] | None] = [(7, 450), (7, 450)]
    files = [write(tmp_path / "a.parquet", "chunk-000000", cuts)]
    if case == "no statistics":
        files = [write(tmp_path / "b.parquet", "chunk-000001", cuts, write_statistics=False)]
    elif case == "another epoch":
        files.append(write(tmp_path / "b.parquet", "chunk-000001", cuts, epoch=4))
    elif case == "two files of a chunk":
        files.append(write(tmp_path / "b.parquet", "chunk-000000", cuts))
    elif case == "two chunks in a file":
        both = pa.concat_tables([pq.read_table(files[0]), pq.read_table(write(tmp_path / "c.parquet", "other", cuts))])
        pq.write_table(both, files[0])
    elif case == "a null":
        files = [write(tmp_path / "b.parquet", "chunk-000001", [(7, 450), None])]
    else:
        files = ["s3://bucket/a.parquet"]
    assert spans_of(files, 1, 3) is None
