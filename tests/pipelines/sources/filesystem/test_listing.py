"""Which files a folder has, and in which order.

And what the folders of a file say of its rows, and folders that do not fit.
"""

from __future__ import annotations

import datetime
import os
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.pipelines.sources.filesystem.folders import LONG_AGO, Files
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.sources.filesystem.listing import File, Folder, PartitionError, Partitions, fits, settled
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.syntax.dialect import parse_type
from tidegate.pipelines.testing import Harness


def names(folder: Folder) -> list[str]:
    return [file.name for file in folder.files()]


def test_by_time_then_by_name(files: Files) -> None:
    for name in ("z.json", "sub/b.json", "a.json", "sub/deep/c.json"):
        files.write(name, "")
    files.touch("a.json", LONG_AGO)
    files.touch("sub/deep/c.json", LONG_AGO)
    assert names(Folder(files.path, "t")) == ["a.json", "sub/deep/c.json", "z.json", "sub/b.json"]


def test_names_that_say_not_yet(files: Files) -> None:
    for name in (
        ".a",
        "_b",
        "c.tmp",
        "z._COPYING_",
        ".part-0.inprogress.7",
        "d.inprogress",
        "_temporary/e",
        ".f/g",
        "h.json",
        "tmp",
    ):
        files.write(name, "x")
    assert names(Folder(files.path, "t")) == ["h.json", "tmp"]


def test_a_pattern_is_of_the_whole_path(files: Files) -> None:
    for name in ("a.json", "b.csv", "sub/c.json"):
        files.write(name, "x")
    assert names(Folder(files.path, "t", r".*/[^/]*\.json")) == ["a.json", "sub/c.json"]
    assert names(Folder(files.path, "t", r"a\.json")) == []


def test_one_file_is_a_folder_of_one(files: Files) -> None:
    path = files.write("a.json", "xyz")
    folder = Folder(path, "t")
    assert folder.files() == [File("a.json", 3, (LONG_AGO + 1) * 10**9)]
    assert folder.full("a.json") == path


def test_links(files: Files, tmp_path: Path) -> None:
    files.write("sub/a.json", "x")
    (files.path / "again").symlink_to(files.path)
    (files.path / "b.json").symlink_to(files.path / "sub" / "a.json")
    (files.path / "gone").symlink_to(files.path / "nothing")
    assert sorted(names(Folder(files.path, "t"))) == ["b.json", "sub/a.json"]
    (files.path / "out").symlink_to(tmp_path.parent)
    with pytest.raises(SourceError, match="outside of"):
        Folder(files.path, "t").files()


def test_a_link_that_takes_the_place_of_a_listed_file_is_not_followed(files: Files, tmp_path: Path) -> None:
    """However alike the two files are: size and time can be had."""
    listed, outside = files.write("a.json", "mine"), tmp_path.parent / f"{tmp_path.name}-outside.json"
    outside.write_text("your")
    os.utime(outside, (LONG_AGO + 1, LONG_AGO + 1))
    folder = Folder(files.path, "t")
    assert folder.files() == [folder.now("a.json")]
    listed.unlink()
    listed.symlink_to(outside)
    with pytest.raises(SourceError, match="outside of"):
        folder.now("a.json")


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="t: the folder cannot be listed: No such file"):
        Folder(tmp_path / "gone", "t").files()


def test_a_file_settles() -> None:
    file = File("a", 1, 1_000 * 10**9)
    assert not settled(file, 1500, 1001.499)
    assert settled(file, 1500, 1001.5)


DDL = """
CREATE TABLE t (n INT, dt DATE, hour TINYINT, kind STRING{more}) PARTITIONED BY (dt, hour, kind)
WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = '{format}'{options})"""
SCRIPT = (
    DDL
    + """;
CREATE TABLE shown (n INT) WITH ('connector' = 'scripted');
INSERT INTO shown SELECT n FROM t"""
)


def partitions(**options: str) -> Partitions:
    table = compile_script(DDL.format(path="x", format="json", options="", more="")).table("t")
    return Partitions.of(table, options.get("default", "__HIVE_DEFAULT_PARTITION__"))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("dt=2026-01-01/hour=03/kind=a/x.json", ("2026-01-01", "03", "a")),
        ("dt=2026-01-01/hour=-3/kind=a%2Fb%3D%25+c/sub/x.json", ("2026-01-01", "-3", "a/b=%+c")),
        ("dt=2026-01-01/hour=3/kind=b%C3%A9=c/x.json", ("2026-01-01", "3", "b\u00e9=c")),
        ("dt=2026-01-01/hour=3/kind=/x.json", ("2026-01-01", "3", "")),
        ("dt=__HIVE_DEFAULT_PARTITION__/hour=3/kind=__HIVE_DEFAULT_PARTITION__/x.json", (None, "3", None)),
    ],
)
def test_values_of_folders(name: str, values: tuple[str | None, ...]) -> None:
    assert partitions().values(name) == values


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("x.json", "does not lie in folders dt=…/hour=…/kind=…"),
        ("dt=2026-01-01/hour=3/x.json", "does not lie in folders"),
        ("hour=3/dt=2026-01-01/kind=a/x.json", "lies in hour=3, and the folders are dt=…/hour=…/kind=…"),
        ("2026-01-01/3/a/x.json", "lies in 2026-01-01, and the folders are"),
        ("DT=2026-01-01/hour=3/kind=a/x.json", "lies in DT=2026-01-01"),
        ("dt=2026-02-30/hour=3/kind=a/x.json", "column dt: '2026-02-30' does not fit DATE"),
        ("dt=2026-01-01/hour=128/kind=a/x.json", "column hour: '128' does not fit TINYINT"),
        ("dt=2026-01-01/hour=/kind=a/x.json", "column hour: '' does not fit TINYINT"),
        ("dt=2026-01-01/hour=3/kind=%FF/x.json", "lies in kind=%FF, which is no UTF-8 text"),
    ],
)
def test_folders_that_do_not_fit(name: str, words: str) -> None:
    with pytest.raises(PartitionError) as caught:
        partitions().values(name)
    assert words in str(caught.value)


def test_null_has_the_name_that_the_option_says_and_not_where_it_is_not_null() -> None:
    assert partitions(default="none").values("dt=none/hour=none/kind=x/x.json") == (None, None, "x")
    table = compile_script(
        "CREATE TABLE t (n INT, d INT NOT NULL) PARTITIONED BY (d) "
        "WITH ('connector' = 'filesystem', 'path' = 'x', 'format' = 'json')"
    ).table("t")
    with pytest.raises(PartitionError, match="which is NULL, and column d is NOT NULL"):
        Partitions.of(table, "none").values("d=none/x.json")


@pytest.mark.parametrize(
    ("of", "fitting", "others"),
    [
        ("BIGINT", ["9223372036854775807", "+1"], ["9223372036854775808", "1.0", " 1", "\u0661"]),
        ("BOOLEAN", ["true", "FALSE"], ["1", ""]),
        ("DECIMAL(2, 2)", ["0", "0.00", "-0.5"], ["1"]),
        ("DECIMAL(4, 2)", ["99.99", "-.5", "1.", "1.500", "0", "007"], ["100", "1.555", "1e1", "NaN", "."]),
        ("TIMESTAMP(3)", ["2026-01-01 03:00:00", "2026-01-01 03:00:00.123"], ["2026-01-01 24:00:00", "2026-01-01"]),
        ("TIMESTAMP(0)", ["2026-01-01 03:00:00"], ["2026-01-01 03:00:00.1"]),
        ("VARCHAR(2)", ["", "abc"], []),
    ],
)
def test_what_fits_a_type(of: str, fitting: list[str], others: list[str]) -> None:
    assert [text for text in (*fitting, *others) if fits(text, parse_type(of))] == fitting


def test_a_value_casts_to_what_it_says(spark: SparkSession) -> None:
    """What `fits` lets through, Spark casts without loss: `rows.py` trusts that."""
    texts = {
        "BIGINT": ("+1", 1),
        "BOOLEAN": ("FALSE", False),
        "DECIMAL(4, 2)": ("1.500", Decimal("1.50")),
        "TIMESTAMP(3)": ("2026-01-01 03:00:00.123", datetime.datetime(2026, 1, 1, 3, 0, 0, 123_000)),
        "DATE": ("2026-01-01", datetime.date(2026, 1, 1)),
    }
    casts = [f"CAST('{text}' AS {parse_type(of).spark})" for of, (text, _) in texts.items()]
    assert tuple(spark.range(1).selectExpr(*casts).collect()[0]) == tuple(value for _, value in texts.values())


@pytest.mark.thorough
def test_a_table_of_folders_that_grows(spark: SparkSession, files: Files) -> None:
    """A folder that does not fit stops the table, before any of the new files is taken up; renamed, it goes on."""
    files.write("dt=2026-01-01/hour=03/kind=a%2Fb/1.json", [{"n": 1, "dt": "1999-01-01"}, {"n": 2}])
    files.write("dt=2026-01-01/hour=03/kind=x.tmp/1.json", [{"n": 3}])
    options = ", 'format.on-error' = 'quarantine'"
    script = SCRIPT.format(path=files.path, format="json", options=options, more="")
    harness = Harness(script, spark, files.path.parent / "lake")
    harness.runner.advance("t")
    files.write("dt=__HIVE_DEFAULT_PARTITION__/hour=4/kind=c/1.json", '{"n": 4}\n{"n": "five"}\n')
    files.write("dt=never/hour=4/kind=c/1.json", [{"n": 6}])
    for _ in range(2):
        with pytest.raises(SourceError) as caught:
            harness.runner.advance("t")
        assert caught.value.what == (
            "t: the file dt=never/hour=4/kind=c/1.json lies in dt=never: column dt: 'never' does not fit DATE"
        )
        harness.restart()
    (files.path / "dt=never").rename(files.path / "dt=2026-01-02")
    harness.runner.advance("t")
    rows = lake_rows.read(spark, harness.lake.table_path("t")).orderBy("n").collect()
    first, second = datetime.date(2026, 1, 1), datetime.date(2026, 1, 2)
    assert [(row["n"], row["dt"], row["hour"], row["kind"]) for row in rows] == [
        (1, first, 3, "a/b"), (2, first, 3, "a/b"), (3, first, 3, "x.tmp"), (4, None, 4, "c"), (6, second, 4, "c"),
    ]  # fmt: skip
    (rejected,) = lake_rows.read(spark, harness.lake.rejected_path("t")).collect()
    assert "/dt=__HIVE_DEFAULT_PARTITION__/hour=4/kind=c/1.json, the line at byte 9:" in rejected["_reason"]


def test_parquet_and_a_key_that_is_a_folder(spark: SparkSession, files: Files) -> None:
    name = "dt=2026-01-01/hour=3/kind=a%20b/1.parquet"
    path = files.write(name, "")
    pq.write_table(pa.table({"n": pa.array([1, 2], pa.int32()), "dt": ["x", "y"]}), path)
    files.touch(name, 1_700_000_000)
    script = DDL.format(path=files.path, format="parquet", options="", more=", PRIMARY KEY (n, kind) NOT ENFORCED")
    bench = files.bench()
    bench.table = compile_script(script).table("t")
    bench.plan()
    rows = bench.source().read(spark, bench.steps[0]).orderBy("n").collect()
    found = [(row["n"], row["dt"], row["hour"], row["kind"]) for row in rows]
    assert found == [(n, datetime.date(2026, 1, 1), 3, "a b") for n in (1, 2)]


def test_a_truncate_has_no_row_and_a_change_of_key_needs_no_folder(spark: SparkSession, files: Files) -> None:
    messages = [
        {"op": "u", "before": {"n": 1}, "after": {"n": 2}},
        {"op": "t"},
    ]
    files.write("kind=a/1.json", messages)
    ddl = "CREATE TABLE t (n INT, kind STRING, PRIMARY KEY (n, kind) NOT ENFORCED) PARTITIONED BY (kind) "
    options = f"'connector' = 'filesystem', 'path' = '{files.path}', 'format' = 'debezium-json'"
    made = compile_script(f"{ddl} WITH ({options})").table("t")
    bench = files.bench()
    bench.table = replace(made, role="build")
    bench.plan()
    rows = bench.source().read(spark, bench.steps[0]).orderBy("_offset").collect()
    found = [(row["_op"], row["n"], row["kind"]) for row in rows]
    assert found == [("d", 1, "a"), ("c", 2, "a"), ("t", None, None)]
