"""Tables of the lake that are there already."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema
from pyspark.sql import SparkSession

from tidegate.pipelines.errors import LakeError
from tidegate.pipelines.lake import EpochRow, by_name, delta_log
from tidegate.pipelines.lake.adopt import adopt, survey
from tidegate.pipelines.lake.owner_log import OwnerLogs
from tidegate.pipelines.lake.rows import ensure_table, struct_type
from tidegate.pipelines.location import Location

COLUMNS = {"id": "INT", "day": "DATE"}


def test_a_table_with_partitions_or_features_of_its_own_takes_no_epochs(spark: SparkSession, tmp_path: Path) -> None:
    """A file that is adopted would be of no partition, and readers would find its rows in none."""
    schema = Schema.from_json(struct_type(COLUMNS).json())
    DeltaTable.create(str(tmp_path / "divided"), schema=schema, partition_by=["day"])
    DeltaTable.create(str(tmp_path / "whole"), schema=schema)
    with pytest.raises(LakeError, match="partitioned by day") as refused:
        ensure_table(Location(tmp_path) / "divided", COLUMNS, "enriched")
    assert "'path'" in refused.value.next_command
    ensure_table(Location(tmp_path) / "whole", COLUMNS, "enriched")
    spark.sql(f"ALTER TABLE delta.`{tmp_path}/whole` SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')")
    with pytest.raises(LakeError, match="inCommitTimestamp") as refused:
        ensure_table(Location(tmp_path) / "whole", COLUMNS, "enriched")
    assert "'path'" in refused.value.next_command


def test_columns_that_have_other_names_in_the_files_are_for_delta_to_read(spark: SparkSession, tmp_path: Path) -> None:
    """By the protocol before features were listed one by one, too (reader version 2)."""
    properties = "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    spark.sql(f"CREATE TABLE delta.`{tmp_path}` (k BIGINT) USING delta {properties}")
    table = delta_log.opened(tmp_path)
    assert table is not None
    assert table.protocol.min_reader_version == 2
    assert not table.plain


def test_a_clustered_table_stays_one(spark: SparkSession, tmp_path: Path) -> None:
    """Its columns are metadata of a domain, which a checkpoint has to take over."""
    path = Location(tmp_path) / "t"
    spark.sql(
        f"CREATE TABLE delta.`{path}` (_generation INT, _epoch BIGINT) USING delta CLUSTER BY (_epoch) "
        "TBLPROPERTIES ('delta.checkpointInterval' = '2')"
    )
    for epoch in (1, 2, 3):
        folder = path / str(epoch)
        spark.sql(f"SELECT 1 AS _generation, {epoch}L AS _epoch").write.parquet(str(folder))
        assert adopt(path, folder, survey(folder), application="a", epoch=epoch) == 1
    log = path / "_delta_log"
    assert by_name.last_checkpoint(log) == 2
    for version in (0, 1):
        by_name.file_of(log, version).delete()
    (detail,) = spark.sql(f"DESCRIBE DETAIL delta.`{path}`").collect()
    assert (detail.clusteringColumns, spark.read.format("delta").load(str(path)).count()) == (["_epoch"], 3)


def test_spark_reads_commits_by_name_and_goes_on_from_them(spark: SparkSession, tmp_path: Path) -> None:
    """Statistics skip the right files, paths are decoded, and what Spark commits (its checkpoint too) is followed."""
    path = Location(tmp_path) / "a table of 100% ü"
    ensure_table(path, {"_generation": "INT", "_epoch": "BIGINT", "at": "TIMESTAMP_NTZ"}, "t")

    def add(epoch: int) -> None:
        folder = path / f"é 50%25 = {epoch}"
        at = f"TIMESTAMP_NTZ'2026-01-0{epoch} 00:00:00.123456'"
        spark.sql(f"SELECT 1 AS _generation, {epoch}L AS _epoch, {at} AS at").write.parquet(str(folder))
        assert adopt(path, folder, survey(folder), application="a", epoch=epoch) == 1

    def there() -> list[int]:
        table = delta_log.opened(path)
        assert table is not None
        assert set(table.files) == {
            unquote(name) for name in pa.table(DeltaTable(path).get_add_actions())["path"].to_pylist()
        }
        read = spark.read.format("delta").load(str(path))
        assert [row._epoch for row in read.where("at = TIMESTAMP_NTZ'2026-01-02 00:00:00.123456'").collect()] == [2]
        return sorted(row._epoch for row in read.collect())

    for epoch in (1, 2):
        add(epoch)
    assert there() == [1, 2]
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.checkpointInterval' = '2')")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE _epoch = 1")
    assert there() == [2]
    add(3)
    spark.read.format("delta").load(str(path)).limit(0).write.format("delta").mode("append").save(str(path))
    assert there() == [2, 3]
    assert by_name.last_checkpoint(path / "_delta_log") is not None


def test_spark_reads_the_log_of_an_owner_from_its_own_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    log = OwnerLogs(tmp_path).of("t")
    for epoch in range(1, 26):
        log.append([EpochRow("t", 1, epoch, "source", 0, {}, "d")], {"a": epoch})
        if epoch == 18:
            log.together()
    for version in range(20):
        by_name.file_of(log.path / "_delta_log", version).delete()
    rows = spark.read.format("delta").load(str(log.path)).where("kind = 'epochs'").collect()
    assert sorted(row["epoch"] for row in rows) == list(range(1, 26))
