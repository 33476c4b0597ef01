"""Which files a step takes: known without Spark. What they hold is read in test_reading.py."""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.pipelines.sources.filesystem.folders import LONG_AGO, Files
from tests.pipelines.sources.sources_help import Bench, table
from tidegate.pipelines.connectors.protocol import Source, StoredStep, Unread
from tidegate.pipelines.connectors.table import Column
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.sources.filesystem import CONNECTOR
from tidegate.pipelines.sources.filesystem import source as filesystem
from tidegate.pipelines.sources.rows import POISON
from tidegate.pipelines.sql import compile_script

ROW = [{"id": 1}]


def spans(bench: Bench) -> list[tuple[Any, ...]]:
    return [(stored.step.ranges["from"], stored.step.ranges["to"], stored.step.flips) for stored in bench.steps]


def test_what_is_there_first_then_what_comes(files: Files) -> None:
    files.write("a.json", ROW)
    files.write("b.json", ROW)
    bench = files.bench()
    assert isinstance(bench.source(), Source)
    assert not bench.source().delegate_watermark_periodic_emit(lambda: None)
    bench.source().preflight(bench.position)
    assert bench.plan().summary == "files 1-2 of 2"
    assert bench.plan() is None
    files.write("c.json", ROW)
    assert bench.plan().summary == "file 3: c.json"
    assert bench.plan() is None
    assert spans(bench) == [(0, 2, True), (2, 3, False)]
    landed = bench.source().landed(bench.steps[1], None)
    assert (landed.position, landed.lag_ms, landed.splits) == ("3 files", 0, {"0"})


def test_an_empty_folder_flips_and_a_run_stops_at_its_ends(files: Files) -> None:
    bench = files.bench()
    ends = bench.source().ends(bench.position)
    files.write("a.json", ROW)
    assert bench.plan(ends).summary == "no file yet"
    assert bench.plan(ends) is None
    bench.plan()
    assert spans(bench) == [(0, 0, True), (0, 1, False)]


def test_a_file_that_is_still_written_waits(files: Files) -> None:
    files.write("a.json", ROW)
    bench = files.bench()
    bench.plan()
    files.write("b.json", ROW, age=-30)
    assert bench.plan() is None
    files.touch("b.json", time.time() - 5)
    assert bench.plan().summary == "file 2: b.json"


def test_the_first_plan_waits_for_files_that_were_just_written(files: Files) -> None:
    files.write("a.json", ROW, age=0)
    bench = files.bench(**{"source_settle-time": "300 ms"})
    bench.plan()
    assert spans(bench) == [(0, 1, True)]


@pytest.mark.parametrize("how", ["finished", "gone"])
def test_it_does_not_flip_before_a_file_that_the_first_plan_found_unfinished(files: Files, how: str) -> None:
    files.write("a.json", ROW)
    files.write("b.json", ROW, age=-50)
    bench = files.bench(**{"source_settle-time": "1 ms"})
    bench.plan()
    assert bench.plan() is None
    files.write("c.json", ROW)
    bench.plan()
    assert spans(bench) == [(0, 1, False), (1, 2, False)]
    if how == "gone":
        (files.path / "b.json").unlink()
    else:
        files.touch("b.json", time.time() - 5)
    bench.plan()
    assert spans(bench)[2:] == [(2, 2 if how == "gone" else 3, True)]
    assert bench.plan() is None


def test_steps_are_bounded(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        files.write(f"{number}.json", ROW)
    bench = files.bench()
    monkeypatch.setattr(filesystem, "MAX_STEP_FILES", 2)
    ends = bench.source().ends(bench.position)
    files.write("6.json", ROW)
    while bench.plan(ends):
        pass
    assert spans(bench) == [(0, 2, False), (2, 4, False), (4, 5, True)]
    lag = bench.source().landed(bench.steps[0], None).lag_ms
    assert lag is not None
    assert lag > 10**9
    monkeypatch.setattr(filesystem, "MAX_STEP_BYTES", 1)
    files.write("7.json", ROW)
    before = bench.source().unread(bench.position)
    assert (before.rest, before.since) == ("2 files", (LONG_AGO + 6) * 1000)
    assert spans(bench)[3:] == [], "what is looked at is not taken up"
    while bench.plan():
        pass
    assert spans(bench)[3:] == [(5, 6, False), (6, 7, False)]
    assert bench.source().unread(bench.position) == Unread()


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_max_rows_takes_whole_files_one_at_least(files: Files, kind: str) -> None:
    for number, rows in enumerate((10, 2, 3, 4)):
        name = f"{number}.{kind}"
        if kind == "json":
            files.write(name, [{"id": number}] * rows)
        else:
            files.write(name, "")
            pq.write_table(pa.table({"id": pa.array([number] * rows, pa.int32())}), files.path / name)
            files.touch(name, files.at + number)
    bench = files.bench(format=kind)
    bench.max_rows = 6
    while bench.plan():
        pass
    assert spans(bench) == [(0, 1, False), (1, 3, False), (3, 4, True)]


AT = Column("at", "TIMESTAMP_LTZ(3)", "TIMESTAMP", expression="_rowtime")
MODIFIED = Column("modified", "TIMESTAMP_LTZ(3)", "TIMESTAMP", metadata="file.modification-time")


@pytest.mark.parametrize(
    ("rowtime", "stops"), [("at", [1, 2, 3, 4]), ("modified", [1, 2, 3, 4]), ("name", [1, 4]), ("id", [1, 4])]
)
def test_alignment_limits_files_where_their_time_is_the_rowtime(files: Files, rowtime: str, stops: list[int]) -> None:
    files.write("a.json", ROW)
    name = Column("name", "STRING", "STRING", metadata="file.name")
    bench = files.bench()
    bench.table = table({"id": "INT"}, "filesystem", bench.table.options, rowtime=rowtime, more=[AT, MODIFIED, name])
    bench.plan()
    files.write("b.json", ROW)
    files.write("c.json", ROW)
    files.write("d.json", ROW)
    bench.limit = (LONG_AGO + 2) * 1000
    while bench.plan():
        pass
    assert [stop for _, stop, _ in spans(bench)] == stops, "one file at least: the group may wait for this table"


def test_a_table_that_others_are_behind_gets_no_file_past_the_limit(files: Files) -> None:
    files.write("a.json", ROW)
    bench = files.bench()
    bench.table = table({"id": "INT"}, "filesystem", bench.table.options, rowtime="at", more=[AT])
    bench.plan()
    for name in ("b.json", "c.json"):
        files.write(name, ROW)
    bench.ahead, bench.limit = frozenset("0"), (LONG_AGO + 2) * 1000
    while bench.plan():
        pass
    held = [stop for _, stop, _ in spans(bench)][-1]
    following = (files.path / ("a.json", "b.json", "c.json")[held]).stat().st_mtime_ns // 1_000_000
    assert (held < 3, bench.held) == (True, {"0": following})
    bench.ahead = frozenset()
    bench.plan()
    assert [stop for _, stop, _ in spans(bench)][-1] == held + 1


def test_a_file_that_changed_is_an_error_of_the_next_run(files: Files) -> None:
    files.write("a.json", ROW)
    bench = files.bench()
    bench.plan()
    with (files.path / "a.json").open("a") as opened:
        opened.write('{"id": 2}\n')
    with pytest.raises(SourceError, match="taken up: 10 bytes then, 20 now") as raised:
        bench.source().ends(bench.position)
    assert raised.value.what.startswith("t: the file a.json changed after it")
    assert "--resnapshot t" in raised.value.next_command
    assert raised.value.where.endswith("a.json")


def test_a_file_that_was_read_may_go_one_that_was_not_may_not(files: Files) -> None:
    files.write("a.json", ROW)
    bench = files.bench()
    bench.plan()
    (files.path / "a.json").unlink()
    files.write("b.json", ROW)
    bench.plan()
    (files.path / "b.json").unlink()


def test_a_file_of_which_nothing_has_landed_is_read_as_it_is_or_forgotten(spark, files: Files) -> None:
    """By a step that names it, and before there is one. Afterwards it must not change."""
    bench = files.bench()
    bench.max_rows = 3
    for name in ("mended.json", "gone.json", "kept.json", "gone later.json", "mended later.json"):
        files.write(name, ROW)
    assert bench.plan().summary == "files 1-3 of 5"
    files.write("mended.json", [{"id": 2}, {"id": 3}])
    files.touch("kept.json", 5)
    for name in ("gone.json", "gone later.json"):
        (files.path / name).unlink()
    source = bench.source()
    frame = source.read(spark, bench.steps[0])
    assert sorted((row["_seq"]["file"], row["id"]) for row in frame.collect()) == [(0, 2), (0, 3), (2, 1)]
    files.write("mended.json", [{"id": 4}])  # while it is read
    with pytest.raises(Exception, match="not as it was planned"):
        source.read(spark, bench.steps[0]).collect()
    frame = bench.source().read(spark, bench.steps[0])  # by the next run
    assert sorted((row["_seq"]["file"], row["id"]) for row in frame.collect()) == [(0, 4), (2, 1)]
    files.write("mended later.json", [{"id": 5}])
    files.write("gone.json", [{"id": 6}])  # another one, which is new
    for summary, numbered in (("files 4-5 of 6", [(4, 5)]), ("file 6: gone.json", [(5, 6)])):
        assert bench.plan().summary == summary
        rows = bench.source().read(spark, bench.steps[-1]).collect()
        assert [(row["_seq"]["file"], row["id"]) for row in rows] == numbered
    assert bench.plan() is None
    for name in ("mended.json", "mended later.json", "gone.json"):
        path = files.path / name
        text = path.read_text()
        at = path.stat().st_mtime
        path.write_text(text + "{}")
        with pytest.raises(SourceError, match="changed after it was taken up"):
            bench.source().ends(bench.position)
        path.write_text(text)
        os.utime(path, (at, at))


def test_a_file_that_is_written_to_again_is_not_read(files: Files) -> None:
    files.write("a.json", ROW)
    bench = files.bench(**{"source_settle-time": "10 ms"})
    bench.plan()
    os.utime(files.path / "a.json", (time.time() + 50, time.time() + 50))
    with pytest.raises(SourceError, match=r"the file a\.json was taken up, and is written to again"):
        bench.source().read(None, bench.steps[0])  # type: ignore[arg-type]


@pytest.mark.parametrize("how", ["another file", "in place", "after a run without it"])
def test_a_file_of_the_same_name_size_and_time_is_not_taken_for_the_one_that_was_read(files: Files, how: str) -> None:
    path = files.write("a.json", ROW)
    at = path.stat().st_mtime
    bench = files.bench()
    bench.plan()
    if how == "in place":
        path.write_text('{"id": 2}\n')
    else:
        path.rename(path.parent.parent / "old.json")
        if how == "after a run without it":
            assert bench.plan() is None
        files.write("a.json", [{"id": 2}])
    files.touch("a.json", at)
    with pytest.raises(SourceError, match=r"the file a\.json changed after it was taken up: it has other bytes now"):
        bench.source().ends(bench.position)
    path.unlink()
    path.write_text('{"id": 1}\n')  # brought back, as another file
    files.touch("a.json", at)
    assert bench.plan() is None
    for row in bench.splits.rows():  # of a lake that is older
        del row["detail"]["touched"], row["detail"]["sample"]
    assert bench.plan() is None


def test_a_name_that_is_no_text_is_refused_and_nothing_is_taken_up(files: Files) -> None:
    files.write("a.json", ROW)
    named = Path(os.fsdecode(os.fsencode(files.path) + b"/\xff.json"))
    named.write_text('{"id": 2}\n')
    bench = files.bench()
    with pytest.raises(SourceError, match=r"t: the file \\xff\.json has a name that is no UTF-8 text") as raised:
        bench.plan()
    raised.value.text().encode()
    assert bench.splits.rows() == []
    named.unlink()
    assert bench.plan().summary == "file 1: a.json"


def test_a_time_in_the_future_is_refused_and_nothing_is_taken_up(files: Files) -> None:
    files.write("a.json", ROW)
    files.write("b.json", ROW, age=-7200)
    bench = files.bench()
    with pytest.raises(SourceError, match=r"t: the file b\.json has a time in the future, \d{4}-") as raised:
        bench.plan()
    assert raised.value.next_command.startswith(f"touch {files.path}/b.json")
    assert bench.splits.rows() == []
    files.touch("b.json", time.time() - 5)
    bench.plan()
    files.write("c.json", ROW, age=-7200)
    assert bench.source().unread(bench.position).rest == "1 file", (
        "so that a schedule runs, and the run says what is wrong"
    )


@pytest.mark.parametrize("name", ["b.json", "below/a.json"])
def test_a_file_that_was_read_is_not_read_again_under_another_name(files: Files, name: str) -> None:
    path = files.write("a.json", ROW)
    bench = files.bench()
    bench.plan()
    moved = files.path / name
    moved.parent.mkdir(exist_ok=True)
    path.rename(moved)
    with pytest.raises(SourceError, match=rf"the file {name} is a\.json, which was taken up already") as raised:
        bench.plan()
    assert raised.value.next_command.startswith(f"mv {moved} {path}")
    moved.rename(path)
    assert bench.plan() is None
    path.unlink()
    files.write(name, ROW)
    assert bench.plan().summary == f"file 2: {name}", "another file is no moved one"


def test_a_lake_that_knows_no_inodes_goes_by_size_and_time(files: Files) -> None:
    path = files.write("a.json", ROW)
    bench = files.bench()
    bench.plan()
    for row in bench.splits.rows():
        del row["detail"]["inode"]
    assert bench.plan() is None
    path.rename(files.path / "b.json")
    with pytest.raises(SourceError, match="was renamed or moved"):
        bench.plan()


def test_links_give_no_row_twice(files: Files) -> None:
    path = files.write("b.json", ROW)
    (files.path / "a.json").symlink_to(path)
    (files.path / "c.json").hardlink_to(path)
    (files.path / "sub").symlink_to(files.path)
    (files.path / "other").mkdir()
    (files.path / "other" / "b.json").symlink_to(path)
    bench = files.bench()
    assert bench.plan().summary == "file 1: a.json"
    assert bench.plan() is None
    assert bench.source().unread(bench.position) == Unread()
    (files.path / "0.json").symlink_to(path)
    assert bench.plan() is None


def test_a_link_to_an_unfinished_file_does_not_hold_the_flip(files: Files) -> None:
    path = files.write("b.json", ROW, age=-50)
    bench = files.bench(**{"source_settle-time": "1 ms"})
    bench.plan()
    (files.path / "a.json").symlink_to(path)
    files.touch("b.json", time.time() - 5)
    bench.plan()
    assert spans(bench) == [(0, 0, False), (0, 1, True)]


def test_a_link_into_another_partition_is_refused(files: Files) -> None:
    path = files.write("dt=a/x.json", ROW)
    bench = files.bench(columns={"id": "INT", "dt": "STRING"})
    bench.table = replace(bench.table, partition_columns=("dt",))
    bench.plan()
    (files.path / "dt=b").mkdir()
    (files.path / "dt=b" / "x.json").symlink_to(path)
    with pytest.raises(SourceError, match=r"dt=b/x\.json is the same file as dt=a/x\.json, in the folders of another"):
        bench.plan()


def test_no_folder(files: Files) -> None:
    bench = files.bench(path=str(files.path / "gone"))
    with pytest.raises(SourceError, match="t: the folder is not there"):
        bench.source().preflight(bench.position)


def test_only_inside_of_the_root(files: Files) -> None:
    with pytest.raises(SourceError, match="outside of"):
        files.bench(path="/").source()


def test_what_a_task_threw_becomes_an_error(files: Files) -> None:
    files.write("a.json", ROW)
    bench = files.bench()
    bench.plan()
    step: StoredStep = bench.steps[0]
    source: Any = bench.source()
    path = files.path / "a.json"
    message = json.dumps({"path": str(path), "position": 7, "error": "no"}, ensure_ascii=False)
    threw = RuntimeError(f"x\n[USER] {POISON}{message} y")
    assert source.explain(threw, step).what == f"t: {path}, the line at byte 7: no"
    threw = RuntimeError(f"x\nRuntimeError: tidegate: a file is not as it was planned: {path}\n at y")
    assert source.explain(threw, step).what == "t: the file a.json changed, or was taken away, while it was read"
    assert source.explain(RuntimeError("other"), step) is None


def test_its_spec() -> None:
    spec = CONNECTOR.spec
    assert not spec.phases({})
    assert spec.only_grows({"format": "json"})
    assert not spec.only_grows({"format": "debezium-json"})


def test_another_folder_in_the_place_of_the_one_that_was_read(files: Files, tmp_path: Path) -> None:
    files.write("a.json", ROW)
    bench = files.bench()
    bench.plan()
    files.path.rename(tmp_path / "old")
    files.path.mkdir()
    files.write("b.json", ROW)
    with pytest.raises(SourceError, match="is another one than was read: none of the 1 files") as raised:
        bench.source().ends(bench.position)
    assert "--lake DIR" in raised.value.next_command
    shutil.copy2(tmp_path / "old" / "a.json", files.path)  # a copy that was brought back
    assert bench.plan().summary == "file 2: b.json"
    (files.path / "a.json").unlink()  # whoever reads may clear away
    assert bench.plan() is None


TABLE = """
CREATE TABLE {name} (n BIGINT, at AS TO_TIMESTAMP_LTZ(n, 3), WATERMARK FOR at AS at) WITH (
    'connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv', 'scan.max-rows-per-epoch' = '1',
    'scan.watermark.alignment.group' = 'g', 'scan.watermark.alignment.max-drift' = '15 ms');
CREATE TABLE kept_{name} (n BIGINT) WITH ('connector' = 'delta');
INSERT INTO kept_{name} SELECT n FROM {name};
"""


@pytest.mark.thorough
def test_it_goes_on_when_the_group_has_caught_up(spark: SparkSession, files: Files, tmp_path: Path) -> None:
    one, two = Files(files.path / "one"), Files(files.path / "two")
    for number in range(6):
        one.write(f"{number}.csv", f"{10 * number}\n")
    two.write("0.csv", "0\n")
    script = "".join(TABLE.format(name=folder.path.name, path=folder.path) for folder in (one, two))
    lake = Lake(tmp_path / "lake")
    with Runner(compile_script(script), lake, spark=lambda: spark, clock=lambda: 0, environment={}) as runner:
        advance = runner.advance_all(["one", "two"])[0]
        assert [item.split for item in advance.blocked] == ["0"]
        assert sum(row.rows for row in lake.watermarks.rows("one")) == 3
        two.write("1.csv", "40\n")
        assert runner.advance_all(["one", "two"])[0].blocked == ()
        assert sum(row.rows for row in lake.watermarks.rows("one")) == 6
