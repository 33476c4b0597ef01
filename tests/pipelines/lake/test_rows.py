"""Tables of the lake that are there already."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable, Schema
from pyspark.sql import SparkSession

from tidegate.pipelines.errors import LakeError
from tidegate.pipelines.lake import delta_log
from tidegate.pipelines.lake.rows import ensure_table, struct_type

COLUMNS = {"id": "INT", "day": "DATE"}


def test_a_table_with_partitions_takes_no_epochs(spark: SparkSession, tmp_path: Path) -> None:
    """A file that is adopted would be of no partition, and readers would find its rows in none."""
    schema = Schema.from_json(struct_type(COLUMNS).json())
    DeltaTable.create(str(tmp_path / "divided"), schema=schema, partition_by=["day"])
    DeltaTable.create(str(tmp_path / "whole"), schema=schema)
    with pytest.raises(LakeError, match="partitioned by day") as refused:
        ensure_table(tmp_path / "divided", COLUMNS, "enriched")
    assert "'path'" in refused.value.next_command
    ensure_table(tmp_path / "whole", COLUMNS, "enriched")


def test_columns_that_have_other_names_in_the_files_are_for_delta_to_read(spark: SparkSession, tmp_path: Path) -> None:
    """By the protocol before features were told one by one, too (reader version 2)."""
    told = "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    spark.sql(f"CREATE TABLE delta.`{tmp_path}` (k BIGINT) USING delta {told}")
    table = delta_log.opened(tmp_path)
    assert table is not None
    assert table.protocol().min_reader_version == 2
    assert not delta_log.plain(table)
