"""The log, as delta-rs and as hand-written commits of other writers have it."""

import json
import os
import shutil
from dataclasses import replace

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.delta.commits import MOST_NAMED, Commit, CommitLog, grouped, still_there

ROWS = pa.table({"k": [1, 2]})


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "a table"
    write_deltalake(path, ROWS)
    write_deltalake(path, ROWS, mode="append")
    return CommitLog(path, "rates")


def test_a_table_is_there_or_not(tmp_path, log):
    assert log.exists()
    assert not CommitLog(tmp_path / "nothing", "rates").exists()


def test_appends(log):
    assert log.latest() == 1
    commit = log.commit(1)
    assert (commit.version, commit.effect, len(commit.added)) == (1, "added", 1)
    assert commit.timestamp > 1_700_000_000_000
    write_deltalake(log.path, ROWS, mode="append")
    assert log.latest() == 2


def test_moving_rows_into_other_files_does_nothing(log):
    DeltaTable(log.path).optimize.compact()
    assert log.commit(2).effect == "nothing"
    assert log.commit(2).operation == "OPTIMIZE"


def test_deleting_rows_is_a_change(log):
    DeltaTable(log.path).delete("k = 1")
    commit = log.commit(2)
    assert (commit.effect, commit.operation) == ("changed", "DELETE")
    assert not log.feeds_changes(2)


def test_the_feed_is_on_from_some_version_on(log):
    DeltaTable(log.path).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    assert log.commit(2).effect == "nothing"
    assert [log.feeds_changes(version) for version in (1, 2)] == [False, True]


@pytest.mark.parametrize("feed", ["true", "false"])
def test_a_merge_that_only_inserts_adds(log, feed):
    """delta-rs writes what it inserts into the change data feed as well."""
    DeltaTable(log.path).alter.set_table_properties({"delta.enableChangeDataFeed": feed})
    merging = DeltaTable(log.path).merge(pa.table({"k": [2, 7]}), "t.k = s.k", source_alias="s", target_alias="t")
    merging.when_not_matched_insert_all().execute()
    commit = log.commit(3)
    assert (commit.effect, commit.operation, commit.rows) == ("added", "MERGE", 1)


def test_the_commits_own_time_counts(log):
    entry = log.path / "_delta_log" / f"{2:020d}.json"
    entry.write_text(json.dumps({"commitInfo": {"timestamp": 5, "inCommitTimestamp": 7}}) + "\n\n")
    assert log.commit(2).timestamp == 7
    entry.write_text(json.dumps({"commitInfo": {"timestamp": 5}}))
    os.utime(entry, (12, 12))
    assert (log.commit(2).timestamp, log.commit(2).effect) == (12_000, "nothing")


def test_a_commit_that_was_cleaned_up_is_an_error(log):
    with pytest.raises(SourceError, match="version 9 of the Delta table is gone") as error:
        log.commit(9)
    assert "--resnapshot rates" in str(error.value)


def test_a_commit_is_known_again_by_its_digest(tmp_path, log):
    shutil.copytree(log.path, tmp_path / "copy")
    copy = CommitLog(tmp_path / "copy", "rates")
    assert [copy.digest(version) for version in (0, 1)] == [log.digest(0), log.digest(1)]
    assert log.digest(0) != log.digest(1)
    assert log.digest(2) is None
    for path in (log.path, copy.path):
        write_deltalake(path, ROWS, mode="append")
    assert log.digest(2) != copy.digest(2)


def test_a_table_made_anew_has_another_identity(tmp_path, log):
    other = tmp_path / "other"
    write_deltalake(other, ROWS)
    assert CommitLog(other, "rates").id() != log.id()


def test_rows_of_a_plain_table_are_what_its_files_hold(log):
    assert [field["name"] for field in log.plain_schema(1)["fields"]] == ["k"], "nobody has looked at the table"
    write_deltalake(log.path, pa.table({"k": [2], "later": [1]}), mode="append", schema_mode="merge")
    assert log.latest() > 1
    assert [field["name"] for field in log.plain_schema(1)["fields"]] == ["k"], "more has been committed since"
    assert [field["name"] for field in log.plain_schema(log.latest())["fields"]] == ["k", "later"]


def test_what_is_gone_is_said_by_deltas_reader(log):
    for file in (log.path / "_delta_log").glob("*0.json"):
        file.unlink()
    assert log.plain_schema(1) is None


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(
            lambda path: write_deltalake(path, pa.table({"k": [1], "p": [1]}), partition_by=["p"]), id="a partition"
        ),
        pytest.param(
            lambda path: write_deltalake(path, ROWS.cast(pa.schema([pa.field("k", pa.int64(), metadata={"a": "b"})]))),
            id="something said of a column",
        ),
        pytest.param(
            lambda path: write_deltalake(
                path,
                pa.table({"at": pa.array([1], pa.timestamp("us"))}),  # asks for a reader of features
            ),
            id="a feature",
        ),
    ],
)
def test_a_table_may_be_more_than_its_files(tmp_path, make):
    path = tmp_path / "t"
    make(path)
    log = CommitLog(path, "rates")
    assert log.plain_schema(log.latest()) is None


def commit_of(*names, version=1):
    lines = tuple(json.dumps({"add": {"path": name, "dataChange": True}}) for name in names)
    return Commit(version, "added", "WRITE", 0, lines)


def test_commits_of_few_files_are_read_by_those():
    assert commit_of("part-0.snappy.parquet", "part-1.parquet").plain


@pytest.mark.parametrize(
    "names",
    [
        [],
        ["/elsewhere/a.parquet"],
        ["k=1/a.parquet"],
        ["a%20b.parquet"],
        ["a*.parquet"],
        ["_a.parquet"],
        ["file:a.parquet"],
        ["a.parquet", "a.parquet"],
        [f"{number}.parquet" for number in range(MOST_NAMED + 1)],
    ],
)
def test_files_that_are_not_read_one_by_one(names):
    assert not commit_of(*names).plain


def test_a_file_whose_rows_a_commit_left_out_is_not_read_as_it_is():
    """A table's protocol may have been made plain after the commit that added it."""
    line = json.dumps({"add": {"path": "a.parquet", "dataChange": True, "deletionVector": {"storageType": "u"}}})
    assert not Commit(1, "added", "RESTORE", 0, (line,)).plain


def test_what_commits_have_added_and_left():
    first, second = commit_of("a.parquet", "b.parquet"), commit_of("c.parquet", version=2)
    mend = replace(commit_of("d.parquet", version=3), effect="changed", removed=("b.parquet",))
    left = still_there([first, second, mend])
    assert left is not None
    assert [(commit.version, commit.names) for commit in left] == [
        (1, ["a.parquet"]),
        (2, ["c.parquet"]),
        (3, ["d.parquet"]),
    ]
    assert all(commit.effect == "added" for commit in left)
    # A file that is there again, with a deletion vector, is the later commit's.
    again = still_there([first, replace(commit_of("a.parquet", version=2), removed=("a.parquet",))])
    assert again is not None
    assert [commit.names for commit in again] == [["b.parquet"], ["a.parquet"]]
    for other in (
        replace(second, removed=("before.parquet",)),
        replace(second, compacts=True),
        replace(second, schema={"fields": []}),
    ):
        assert still_there([first, other]) is None


def test_one_query_reads_commits_whose_files_have_names_of_their_own():
    found = [
        commit_of(*names, version=number)
        for number, names in enumerate(
            [
                ["k=1/a.parquet", "k=2/b.parquet"],
                ["c.parquet"],
                ["k=1/a.parquet"],  # once more
                ["k=1/d.parquet", "k=2/d.parquet"],  # which is which?
                ["e%20f.parquet"],  # Spark spells it in another way
                ["f.parquet"],
                [f"{number}.parquet" for number in range(MOST_NAMED)],
                ["g.parquet"],
                [],
            ]
        )
    ]
    assert [[commit.version for commit in each] for each in grouped(found)] == [[0, 1], [2], [3], [4], [5], [6], [7, 8]]
