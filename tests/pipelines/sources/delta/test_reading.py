"""What a step of a Delta table holds, read with Spark from tables that delta-rs and Spark wrote."""

import json
import os
import shutil
from dataclasses import replace

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql.types import StructType

from tests.pipelines.sources.sources_help import Bench, MemorySplits, table
from tidegate.pipelines.connectors.spec import REJECTED, SOURCE_COLUMNS
from tidegate.pipelines.connectors.table import Options
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.delta import CONNECTOR
from tidegate.pipelines.sources.delta.commits import CommitLog
from tidegate.pipelines.sql import compile_script

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
    DeltaTable(path).alter.set_table_properties({"delta.logRetentionDuration": "interval 1 days"})
    while bench.plan():
        pass
    DeltaTable(path).delete("k < 6")
    bench.table = bench_of(path).table
    first = read(spark, bench, 0)
    bench.table = bench_of(path, columns={**TYPES, "note": "STRING"}).table
    return path, [first, *(read(spark, bench, number) for number in (1, 2, 3))]


def test_a_step_holds_what_its_commits_added_however_the_table_changed_since(partitioned):
    _, (snapshot, added, merged, nothing) = partitioned
    assert sorted((row["k"], row["p"]) for row in snapshot.collect()) == [(1, "p 1/é"), (2, "p 0/é"), (3, "p 1/é")]
    assert sorted((row["k"], row["p"], row["note"]) for row in added.union(merged).collect()) == [
        (4, "p 0/é", None),
        (5, "p 1/é", None),
        (6, "p 0/é", "new"),
    ]
    assert nothing.collect() == []


def test_every_row_says_where_it_came_from(partitioned):
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


def test_a_plain_table_is_read_by_its_files(spark, tmp_path, monkeypatch):
    """As Delta's reader has it: also a column that is younger than a file, and one that the script leaves out. A `*` is
    a letter of its folder, which has a copy beside it."""
    path = tmp_path / "a table*"
    write_deltalake(path, rows(1, left=[0]))
    bench = bench_of(path, columns={**TYPES, "note": "ARRAY<BIGINT>"})
    columns, bench.table = bench.table, bench_of(path).table
    bench.plan()
    bench.table = columns
    write_deltalake(path, rows(2, 3, note=[[1, None], None]), mode="append", schema_mode="merge")
    write_deltalake(path, rows(4, 5), mode="append", schema_mode="merge")
    write_deltalake(path, rows(6), mode="append", schema_mode="merge")
    assert bench.plan().ranges["to"] == 3
    with monkeypatch.context() as patch:
        patch.setattr(CommitLog, "plain_schema", lambda *_: None)
        by_delta = read(spark, bench, 1)
    source = bench.source()
    write_deltalake(path, rows(7, later=[1]), mode="append", schema_mode="merge")  # the reader is behind
    shutil.copytree(path, tmp_path / "a table of another")
    monkeypatch.setattr("tidegate.pipelines.sources.delta.reading._by_delta", None)
    by_files = source.read(spark, bench.steps[1])
    assert by_files.schema == by_delta.schema
    found, expected = (sorted(frame.drop("_offset", "_seq").collect()) for frame in (by_files, by_delta))
    assert [row["k"] for row in found] == [2, 3, 4, 5, 6]
    assert found == expected
    placed = by_files.orderBy("_offset").select("k", "_offset", "_seq.file").collect()
    assert [row["file"] for row in placed] == [1, 1, 2, 2, 3]
    assert len({row["_offset"] for row in placed}) == 5

    # Spark looks for a file under such a name in its listing alone, which passes over what is not there.
    json_of = (path / "_delta_log" / f"{2:020d}.json").read_text().splitlines()
    gone = next(action["add"]["path"] for line in json_of if "add" in (action := json.loads(line)))
    (path / gone).unlink()
    with pytest.raises(FileNotFoundError) as caught:
        source.read(spark, bench.steps[1]).collect()
    assert "is gone" in source.explain(caught.value, bench.steps[1]).what


def test_a_snapshot_is_of_the_table_that_is_there_now(spark, tmp_path):
    """Delta's own reader keeps the version that it read last, which is another commit in a table that was brought
    back from a backup. The files of both are there, as after a copy that only brought the log back."""
    path, backup = tmp_path / "t", tmp_path / "backup"
    write_deltalake(path, rows(1))
    shutil.copytree(path / "_delta_log", backup)
    found = []
    for key in (2, 3):
        write_deltalake(path, rows(key), mode="append")
        bench = bench_of(path)
        bench.plan()
        found.append(sorted(row["k"] for row in read(spark, bench, 0).collect()))
        shutil.rmtree(path / "_delta_log")
        shutil.copytree(backup, path / "_delta_log")
    assert found == [[1, 2], [1, 3]]


def test_commits_of_any_table_are_read_together(spark, tmp_path, monkeypatch):
    """Each query costs its planning: a table of many small commits would never be caught up with."""
    path = tmp_path / "t"
    write_deltalake(path, rows(1), partition_by=["p"])
    bench = bench_of(path)
    bench.plan()
    for key in (2, 3, 4):
        write_deltalake(path, rows(key, key + 10), mode="append")
    bench.plan()
    together = read(spark, bench, 1)
    monkeypatch.setattr(
        "tidegate.pipelines.sources.delta.reading.grouped", lambda commits: [[each] for each in commits]
    )
    one_by_one = read(spark, bench, 1)
    assert together.schema == one_by_one.schema
    found, expected = (sorted(frame.drop("_offset", "_seq").collect()) for frame in (together, one_by_one))
    assert [row["k"] for row in found] == [2, 3, 4, 12, 13, 14]
    assert found == expected
    placed = together.select("k", "_offset", "_seq.file").collect()
    assert {row["k"]: row["file"] for row in placed} == {2: 1, 12: 1, 3: 2, 13: 2, 4: 3, 14: 3}
    assert len({row["_offset"] for row in placed}) == 6


def test_a_column_may_hide_what_spark_says_of_a_file(spark, tmp_path):
    path = tmp_path / "t"
    write_deltalake(path, rows(1, _Metadata=["a"]))
    bench = bench_of(path)
    bench.plan()
    for key in (2, 3):
        write_deltalake(path, rows(key, _Metadata=["a"]), mode="append")
    bench.plan()
    assert sorted((row["k"], row["_seq"]["file"]) for row in read(spark, bench, 1).collect()) == [(2, 1), (3, 2)]


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
    while bench.plan():
        pass
    assert [(row["_op"], row["k"], row["p"]) for row in read(spark, bench, 2).collect()] == [("u", 1, "new")]


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
    named = replace(bench.table.columns[0], field_name="_the key")
    bench.table = replace(bench.table, columns=(named,))
    assert bench.plan().flips
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN k TO `_the key`")
    spark.range(1, 2).withColumnRenamed("id", "_the key").write.format("delta").mode("append").save(str(tmp_path / "t"))
    bench.source().preflight(bench.position)
    bench.plan()
    assert [(row["_op"], row["key"]) for row in read(spark, bench, 1).collect()] == [("c", 1)]


def mapped(spark, path, *statements):
    """A table with column mapping and a feed, and statements of SQL about it; {t} is the table."""
    create = (
        "CREATE TABLE {t} (k BIGINT, v STRING, w STRING, _version INT) USING delta TBLPROPERTIES "
        "('delta.columnMapping.mode' = 'name', 'delta.enableChangeDataFeed' = 'true')"
    )
    for statement in (create, *statements):
        spark.sql(statement.format(t=f"delta.`{path}`"))


def test_steps_read_as_of_their_own_versions(spark, tmp_path):
    """Whatever the table is now, and however old they are: columns renamed and added later, the feed off, a column that
    is called as one of ours."""
    path = tmp_path / "t"
    mapped(spark, path, "INSERT INTO {t} VALUES (1, 'v1', 'w1', 7), (2, 'v2', 'w2', 8)")
    columns = {"k": "BIGINT", "v": "STRING", "_version": "INT"}
    bench = bench_of(path, "build", columns)
    bench.plan()
    for statement in (
        "UPDATE {t} SET v = 'new' WHERE k = 1",
        "DELETE FROM {t} WHERE k = 2",
        "ALTER TABLE {t} RENAME COLUMN w TO x",
        "INSERT INTO {t} VALUES (3, 'v3', 'x3', 9)",
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'false')",
        "ALTER TABLE {t} ADD COLUMN y INT",
        "INSERT INTO {t} VALUES (4, 'v4', 'x4', 10, 1)",
    ):
        spark.sql(statement.format(t=f"delta.`{path}`"))
    while bench.plan():
        pass
    for entry in (path / "_delta_log").glob("*.json"):
        os.utime(entry, (1_700_000_000, 1_700_000_000))
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    found = [
        sorted((row["_op"], row["k"], row["v"], row["_version"]) for row in read(spark, bench, number).collect())
        for number in range(len(bench.steps))
    ]
    assert [rows for rows in found if rows] == [
        [("r", 1, "v1", 7), ("r", 2, "v2", 8)],
        [("d", 2, "v2", 8), ("u", 1, "new", 7)],
        [("c", 3, "v3", 9)],
        [("c", 4, "v4", 10)],
    ]


def test_a_column_that_took_the_name_of_another_is_refused(spark, tmp_path):
    path = tmp_path / "t"
    mapped(spark, path, "INSERT INTO {t} VALUES (1, 'v1', 'w1', 7)")
    bench = bench_of(path, "build", {"k": "BIGINT", "v": "STRING"})
    bench.plan()
    for statement in (
        "INSERT INTO {t} VALUES (2, 'v2', 'w2', 7)",
        "ALTER TABLE {t} RENAME COLUMN v TO old",
        "INSERT INTO {t} VALUES (3, 'old', 'w3', 7)",
        "ALTER TABLE {t} RENAME COLUMN w TO v",
        "INSERT INTO {t} VALUES (4, 'old', 'w4', 7)",
    ):
        spark.sql(statement.format(t=f"delta.`{path}`"))
    bench.plan()
    assert [(row["k"], row["v"]) for row in read(spark, bench, 1).collect()] == [(2, "v2")]
    with pytest.raises(SourceError, match="no column v from version 3 on"):
        bench.plan()
    bench = bench_of(path, "build", {"k": "BIGINT", "v": "STRING"})
    bench.plan()
    assert sorted(row["v"] for row in read(spark, bench, 0).collect()) == ["w1", "w2", "w3", "w4"]
    spark.sql(f"ALTER TABLE delta.`{path}` DROP COLUMN v")
    spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMN v STRING")
    with pytest.raises(SourceError, match="no column v from version 7 on"):
        bench.plan()


def test_a_column_of_no_type_is_null(spark, tmp_path):
    path = tmp_path / "t"
    spark.range(2).selectExpr("id AS k", "NULL AS v").write.format("delta").save(str(path))
    bench = bench_of(path, columns={"k": "BIGINT", "v": "STRING"})
    bench.source().preflight(bench.position)
    bench.plan()
    assert sorted((row["k"], row["v"]) for row in read(spark, bench, 0).collect()) == [(0, None), (1, None)]


def test_rows_that_the_declaration_excludes(spark, tmp_path):
    """Also in a key; a row that goes is not asked for more than its key."""
    path = tmp_path / "t"
    made = {"v": ["abc", "abcd", "abc"], "at": pa.array([0, 0, 1_500_000], pa.timestamp("us"))}
    first = pa.table({"k": pa.array([1, 2, None], pa.int64()), **made})
    write_deltalake(path, first, configuration={"delta.enableChangeDataFeed": "true"})
    columns = compile_script(
        "CREATE TABLE t (k BIGINT, v VARCHAR(3), `at` TIMESTAMP(0), PRIMARY KEY (k) NOT ENFORCED) "
        "WITH ('connector' = 'scripted')"
    )
    bench = bench_of(path, "build")
    bench.table = replace(bench.table, columns=columns.table("t").columns)
    bench.splits = MemorySplits()
    bench.plan()
    assert bench.failure(spark).what.startswith("t: version 0 of the Delta table: column ")
    kept_apart = Options({**bench.table.options, "format.on-error": "quarantine"})
    failed, bench = (
        bench,
        replace(bench, table=replace(bench.table, options=kept_apart), steps=[], splits=MemorySplits()),
    )
    bench.plan()
    DeltaTable(path).delete("k = 2")
    bench.plan()
    snapshot, deleted = (read(spark, bench, number).collect() for number in (0, 1))
    assert [row["k"] for row in snapshot if row[REJECTED] is None] == [1]
    assert sorted(row[REJECTED]["reason"] for row in snapshot if row[REJECTED]) == [
        "version 0 of the Delta table: column k is NOT NULL, and the row has no value for it",
        "version 0 of the Delta table: column v: 'abcd' does not fit VARCHAR(3)",
    ]
    assert [(row["_op"], row["k"], row[REJECTED]) for row in deleted] == [("d", 2, None)]
    # A table that is mended is read as it is now, and from there on.
    assert failed.failure(spark).what.startswith("t: version 1 of the Delta table: column ")
    DeltaTable(path).delete("k IS NULL")
    found = read(spark, failed, 0).collect()
    assert [(row["k"], row["_seq"]["file"]) for row in found] == [(1, 2)]
    assert failed.source().landed(failed.steps[0], None).position == "version 2"
    assert failed.plan() is None
    write_deltalake(path, first.slice(0, 1), mode="append")
    assert failed.plan().summary == "versions 3-3 of 3"
    read(spark, failed, 1)
    # So are later versions, by what they have added and left; but not where older rows were written anew with them.
    for number in (2, 3):
        start = DeltaTable(path).version()
        write_deltalake(path, pa.table({"k": [7, 8], "v": ["a", "abcd"], "at": first["at"].slice(0, 2)}), mode="append")
        failed.plan()
        assert failed.failure(spark).what.startswith(f"t: version {start + 1} of the Delta table: column v")
        write_deltalake(path, pa.table({"k": [9], "v": ["b"], "at": first["at"].slice(0, 1)}), mode="append")
        assert failed.failure(spark).what.startswith(f"t: version {start + 1} of the Delta table: column v")
        if number == 2:
            DeltaTable(path).delete("k = 8")
            found = read(spark, failed, number).collect()
            assert sorted((row["_op"], row["k"], row["_seq"]["file"]) for row in found) == [
                ("c", 7, start + 3),
                ("c", 9, start + 2),
            ]
            assert failed.source().landed(failed.steps[number], None).position == f"version {start + 3}"
            assert failed.plan() is None
        else:
            DeltaTable(path).update(predicate="k = 1 OR k = 8", updates={"v": "'c'"})
            assert failed.failure(spark).what.startswith(f"t: version {start + 1} of the Delta table: column v")


@pytest.mark.parametrize("mode", ["snapshot", "added", "changed"])
def test_files_that_vacuum_took(spark, tmp_path, mode):
    path = tmp_path / "t"
    write_deltalake(path, rows(1, 2), configuration={"delta.enableChangeDataFeed": "true"})
    bench = bench_of(path, "build")
    bench.plan()
    if mode != "snapshot":
        write_deltalake(path, rows(3), mode="append")
        bench.plan()
    if mode == "changed":
        DeltaTable(path).update(predicate="k = 1", updates={"p": "'new'"})
        bench.plan()
    gone = next(iter((path / "_change_data").glob("*"))) if mode == "changed" else None
    if gone is None:
        commit = (path / "_delta_log" / f"{bench.steps[-1].step.ranges['to']:020d}.json").read_text()
        gone = path / next(json.loads(line)["add"]["path"] for line in commit.splitlines() if '"add"' in line)
    gone.unlink()
    error = bench.failure(spark, at_once=True)
    assert gone.name in error.what
    assert "is gone" in error.what
    assert "--resnapshot t" in error.next_command


def test_a_version_whose_log_was_cleaned_up(spark, tmp_path):
    path = tmp_path / "t"
    write_deltalake(path, rows(0))
    bench = bench_of(path)
    bench.plan()
    for key in range(1, 4):
        write_deltalake(path, rows(key), mode="append")
    DeltaTable(path).create_checkpoint()
    for version in range(3):
        (path / "_delta_log" / f"{version:020d}.json").unlink()
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    assert "is gone, which snapshot of version 0 needs" in bench.failure(spark, at_once=True).what
