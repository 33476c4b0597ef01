"""What a step of a Delta table holds, read with Spark from tables that delta-rs and Spark wrote."""

from dataclasses import replace

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql.types import StructType

from pipelines.sources.delta import CONNECTOR
from pipelines.sources.protocol import SOURCE_COLUMNS
from tests.pipelines.sources.sources_help import Bench, table

TYPES = {"k": "BIGINT", "p": "STRING"}


def bench_of(path, role="probe", columns=TYPES):
    own = table(columns, "delta", {"path": str(path)}, role=role)
    return Bench(CONNECTOR, replace(own, primary_key=("k",) if role == "build" and "k" in columns else ()), "")


def rows(*keys, **more):
    values = {"k": pa.array(keys, pa.int64()), "p": [f"p {key % 2}/é" for key in keys]}
    return pa.table({**values, **{name: pa.array(column) for name, column in more.items()}})


def read(spark, bench, number):
    return bench.source().read(spark, bench.steps[number])


@pytest.fixture(scope="module")
def partitioned(spark, tmp_path_factory):
    """A partitioned table that grew a column, was compacted, and lost rows after its steps were planned."""
    path = tmp_path_factory.mktemp("delta") / "a table"
    write_deltalake(path, rows(1, 2, 3), partition_by=["p"])
    bench = bench_of(path)
    bench.plan()
    write_deltalake(path, rows(4, 5), mode="append")
    write_deltalake(path, rows(6, note=["new"]), mode="append", schema_mode="merge")
    DeltaTable(path).optimize.compact()
    bench.table = bench_of(path, columns={**TYPES, "note": "STRING"}).table
    bench.plan()
    DeltaTable(path).alter.set_table_properties({"delta.logRetentionDuration": "interval 1 days"})
    bench.plan()
    DeltaTable(path).delete("k < 6")
    bench.table = bench_of(path).table
    first = read(spark, bench, 0)
    bench.table = bench_of(path, columns={**TYPES, "note": "STRING"}).table
    return path, [first, *(read(spark, bench, number) for number in (1, 2))]


def test_a_step_holds_what_its_commits_added_however_the_table_changed_since(partitioned):
    _, (snapshot, added, nothing) = partitioned
    assert sorted((row["k"], row["p"]) for row in snapshot.collect()) == [(1, "p 1/é"), (2, "p 0/é"), (3, "p 1/é")]
    assert sorted((row["k"], row["p"], row["note"]) for row in added.collect()) == [
        (4, "p 0/é", None),
        (5, "p 1/é", None),
        (6, "p 0/é", "new"),
    ]
    assert nothing.collect() == []


def test_every_row_says_where_it_came_from(spark, partitioned):
    path, frames = partitioned
    ddl = ", ".join(f"{name} {spark_type}" for name, spark_type in SOURCE_COLUMNS.items())
    types = [field.dataType for field in StructType.fromDDL(ddl)]
    for frame in frames:
        assert [frame.schema[name].dataType for name in SOURCE_COLUMNS] == types
    found = [row for frame in frames for row in frame.select("k", *SOURCE_COLUMNS).collect()]
    assert {(row["_op"], row["_split"]) for row in found} == {("+I", "0")}
    by_offset = sorted(found, key=lambda row: row["_offset"])
    assert len({row["_offset"] for row in found}) == 6
    assert by_offset == sorted(found, key=lambda row: row["_seq"])
    assert [row["_seq"]["file"] for row in by_offset] == [0, 0, 0, 1, 1, 2]
    assert [row["_seq"]["phase"] for row in by_offset] == [0, 0, 0, 1, 1, 1]
    written = (path / "_delta_log" / f"{2:020d}.json").stat().st_mtime
    assert by_offset[-1]["_rowtime"].timestamp() == pytest.approx(written, abs=0.002)


def test_a_build_follows_the_change_data_feed(spark, tmp_path):
    """Also where one commit deletes a key and adds it: the key is there after it."""
    path = tmp_path / "t"
    write_deltalake(path, rows(1, 2, 3), configuration={"delta.enableChangeDataFeed": "true"})
    bench = bench_of(path, "build")
    bench.plan()
    DeltaTable(path).update(predicate="k = 1", updates={"p": "'new'"})
    DeltaTable(path).delete("k = 2")
    write_deltalake(path, rows(3), mode="overwrite")
    bench.plan()
    assert bench.plan() is None
    assert {row["_op"] for row in read(spark, bench, 0).collect()} == {"r"}
    found = read(spark, bench, 1).collect()
    by_seq = sorted(found, key=lambda row: row["_seq"])
    assert [(row["_op"], row["k"]) for row in by_seq[:2]] == [("u", 1), ("d", 2)]
    assert [(row["_op"], row["k"]) for row in by_seq[2:]] == [("d", 1), ("c", 3)]
    assert len({row["_offset"] for row in found}) == len(found)


def test_the_feed_may_be_turned_on_after_commits_that_only_moved_rows(spark, tmp_path):
    path = tmp_path / "t"
    for key in (1, 2):
        write_deltalake(path, rows(key), mode="append")
    bench = bench_of(path, "build")
    bench.plan()
    DeltaTable(path).optimize.compact()
    DeltaTable(path).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    DeltaTable(path).update(predicate="k = 1", updates={"p": "'new'"})
    bench.plan()
    assert [(row["_op"], row["k"], row["p"]) for row in read(spark, bench, 1).collect()] == [("u", 1, "new")]


def test_an_update_of_a_key_ends_the_old_one(spark, tmp_path):
    """Unless another row has it then: keys may be swapped."""
    path = tmp_path / "t"
    write_deltalake(path, rows(1, 2, 3, 4), configuration={"delta.enableChangeDataFeed": "true"})
    bench = bench_of(path, "build")
    bench.plan()
    DeltaTable(path).update(predicate="k = 1", updates={"k": "7"})
    DeltaTable(path).update(predicate="k IN (2, 3)", updates={"k": "5 - k"})
    DeltaTable(path).update(predicate="k = 4", updates={"p": "'new'"})
    bench.plan()
    found = sorted(read(spark, bench, 1).collect(), key=lambda row: row["_seq"])
    assert [(row["_op"], row["k"]) for row in found[:2]] == [("d", 1), ("u", 7)]
    assert sorted((row["_op"], row["k"], row["p"]) for row in found[2:4]) == [("u", 2, "p 1/é"), ("u", 3, "p 0/é")]
    assert [(row["_op"], row["k"], row["p"]) for row in found[4:]] == [("u", 4, "new")]


def test_column_mapping_is_followed(spark, tmp_path):
    name = f"delta.`{tmp_path / 't'}`"
    spark.sql(f"CREATE TABLE {name} (k BIGINT) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    bench = bench_of(tmp_path / "t", "build", {"key": "BIGINT"})
    assert bench.plan().flips
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN k TO key")
    spark.range(1, 2).withColumnRenamed("id", "key").write.format("delta").mode("append").save(str(tmp_path / "t"))
    bench.source().preflight()
    bench.plan()
    assert [(row["_op"], row["key"]) for row in read(spark, bench, 1).collect()] == [("c", 1)]
