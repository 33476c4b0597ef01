"""A table that came back from an older backup, or whose rows somebody has taken out, is found before anything new is
planned."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import RemoveAction
from pyspark.sql import SparkSession

from tests.cases import at_length
from tests.pipelines.runtime.handmade import HandmadeLake, adopted, no_spark
from tests.pipelines.runtime.plays import RATES, Play, clicks
from tidegate.pipelines.errors import DefinitionChanged, LakeError
from tidegate.pipelines.lake import Lake, delta_log
from tidegate.pipelines.lake.adopt import adopt, survey
from tidegate.pipelines.lake.stream import Generation, Stream
from tidegate.pipelines.runtime import faults
from tidegate.pipelines.runtime.dry_run import dry_run
from tidegate.pipelines.runtime.epochs import Pin
from tidegate.pipelines.runtime.epochs.position import InsertOnLake
from tidegate.pipelines.runtime.failures import StepFailed
from tidegate.pipelines.runtime.lost_commits import (
    _there,
    lost_rows,
    refuse_lost_files,
    refuse_lost_insert,
    refuse_lost_rows,
    refuse_lost_source,
)
from tidegate.pipelines.runtime.verifying.verify import verify
from tidegate.pipelines.testing import Harness

COLUMNS = pa.schema([("_generation", pa.int32()), ("_epoch", pa.int64()), ("id", pa.int64())])


def rows(count: int, epoch: int) -> pa.Table:
    return pa.table([pa.array([1] * count, pa.int32()), [epoch] * count, range(count)], schema=COLUMNS)


def remove(file: Path) -> None:
    file.unlink()


def empty(file: Path) -> None:
    file.write_bytes(b"")


@pytest.fixture(params=[remove, empty])
def lose(request: pytest.FixtureRequest) -> Callable[[Path], None]:
    """Loses the last commit of a table, and starts another process."""

    def call(table: Path) -> None:
        request.param(max((table / "_delta_log").glob("*.json")))
        delta_log._open.clear()
        _there.cache_clear()

    return call


@pytest.fixture
def hand(tmp_path: Path) -> HandmadeLake:
    """users and clicks have landed three epochs each; two epochs of the INSERT are published."""
    hand = HandmadeLake(tmp_path)
    for table in ("users", "clicks"):
        for epoch in (1, 2, 3):
            hand.landed(table, epoch, rows=10 * epoch, flip=1)
            application = hand.lake.application(table, "data", 1)
            adopted(hand.lake.table_path(table), f"g1-e{epoch}-x", rows(10 * epoch, epoch), application, epoch)
    for epoch in (1, 2):
        hand.released(epoch, epoch - 1, epoch, pin=3, matched=10 * epoch)
    check(hand)
    return hand


def users(lake: Lake) -> Generation:
    return Stream(lake, "users").generation(1)


def check(hand: HandmadeLake) -> None:
    """What is asked of a lake before anything is planned."""
    lake = type(hand.lake)(hand.lake.root)  # a process that starts after the power cut
    for table in ("users", "clicks"):
        refuse_lost_source(lake, table, 1)
    refuse_lost_insert(lake, hand.insert.id, lake.target_path(hand.target))


@pytest.mark.parametrize(
    ("owner", "commits", "lost"),
    [
        ("insert enriched", 3, "the plan of epoch 2 of enriched, though the publishing of that epoch is there"),
        ("insert enriched", 2, "the row of staged files of epoch 2 of enriched"),
        ("insert enriched", 1, "the verdict of epoch 2 of enriched"),
        ("clicks", 2, "the plan of epoch 3 of clicks, though its rows are there"),
    ],
)
def test_a_log_that_ends_before_what_it_has_planned(hand: HandmadeLake, owner: str, commits: int, lost: str) -> None:
    """As one that came back from an older backup."""
    path = hand.lake.logs.of(owner).path
    for commit in sorted(Path(path / "_delta_log").glob("*.json"))[-commits:]:
        commit.unlink()
    delta_log._open.clear()
    with pytest.raises(LakeError, match=f"the lake has lost {lost}") as caught:
        check(hand)
    assert f"bring {path}/_delta_log back" in caught.value.next_command


def test_a_table_that_ends_before_its_log(hand: HandmadeLake, lose: Callable[[Path], None]) -> None:
    path = hand.lake.table_path("users")
    lose(Path(path))
    lost = "30 rows of users, of epoch 3, though the watermark log has them"
    with pytest.raises(LakeError, match=f"the lake has lost {lost}") as caught:
        check(hand)
    assert f"bring {path}/_delta_log back" in caught.value.next_command


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_target_that_has_lost_more_than_the_newest_epoch(hand: HandmadeLake, lost: int) -> None:
    """Its files are still there, so the newest epoch alone would be published again, without those before it."""
    target = hand.lake.target_path(hand.target)
    for commit in sorted(Path(target).glob("_delta_log/*.json"))[-lost:]:
        commit.unlink()
    delta_log._open.clear()
    if lost == 1:
        return check(hand)
    with pytest.raises(LakeError, match="the lake has lost the rows of epoch 1 of enriched") as caught:
        check(hand)
    assert caught.value.next_command == f"bring {target}/_delta_log back from a backup"


def test_the_lakes_own_log_is_gone(hand: HandmadeLake, tmp_path: Path) -> None:
    """The lake's own name is part of every transaction's: without it all would be landed and published once more."""
    shutil.rmtree(hand.lake.logs.lake.path)
    delta_log._open.clear()
    with pytest.raises(LakeError, match="the lake's own log is gone") as caught:
        Lake(hand.lake.root)
    assert caught.value.next_command.startswith(f"bring {hand.lake.control} back from a backup")
    new = Lake(tmp_path / "new")
    refuse_lost_source(new, "users", 1)
    assert not new.logs.lake.path.is_there()


def test_a_build_is_counted_against_the_watermark_log(hand: HandmadeLake, lose: Callable[[Path], None]) -> None:
    path = hand.lake.table_path("users")
    plan = hand.planned(3, 2, 3, pin=3)
    assert lost_rows(users(hand.lake), no_spark, 3) == 0
    refuse_lost_rows(hand.lake, no_spark, plan, hand.pipeline)
    lose(Path(path))
    fresh = type(hand.lake)(hand.lake.root)
    assert lost_rows(users(fresh), no_spark, 2) == 0  # what that epoch pins is there
    assert lost_rows(users(fresh), no_spark, 3) == 30
    with pytest.raises(LakeError, match="the lake has lost 30 rows of users up to epoch 3") as caught:
        refuse_lost_rows(fresh, no_spark, plan, hand.pipeline)
    assert "--resnapshot users" in caught.value.next_command
    refuse_lost_source(fresh, "users", 2)  # so that the way out is open


def test_a_pin_without_its_row_of_the_watermark_log_is_a_typed_error(hand: HandmadeLake) -> None:
    on_lake = InsertOnLake(hand.lake, hand.pipeline, hand.insert)
    assert on_lake.pinned(Pin("users", 1, 3, 1)).rows == 30
    with pytest.raises(LakeError, match="the watermark log of users has no row of epoch 4, generation 1"):
        on_lake.pinned(Pin("users", 1, 4, 1))


def test_what_retention_has_removed_is_not_lost(hand: HandmadeLake) -> None:
    path = hand.lake.table_path("users")
    table = DeltaTable(str(path))
    first = next(action for action in pa.table(table.get_add_actions()).to_pylist() if "g1-e1-" in action["path"])
    marks = {"retention-time": 5, "retention-epoch": 3, "retention-rows": 10}
    table.create_write_transaction(
        [RemoveAction(path=first["path"], data_change=True, size=first["size_bytes"], deletion_timestamp=0)],  # type: ignore[call-arg]
        "append",
        table.schema(),
        commit_properties=CommitProperties(
            app_transactions=[
                Transaction(hand.lake.application("users", kind, 1), value)  # type: ignore[arg-type]
                for kind, value in marks.items()
            ]
        ),
    )
    assert lost_rows(users(hand.lake), no_spark, 3) == 0


def test_a_log_that_goes_less_far_than_before_is_read_anew(hand: HandmadeLake) -> None:
    path = hand.lake.table_path("users")
    assert delta_log.committed(path, hand.lake.application("users", "data", 1)) == 3
    remove(max(Path(path / "_delta_log").glob("*.json")))
    assert delta_log.committed(path, hand.lake.application("users", "data", 1)) == 2


def test_a_folder_with_files_of_the_target_is_not_made_anew(tmp_path: Path) -> None:
    hand = HandmadeLake(tmp_path)
    lake, target, insert = hand.lake, hand.target, hand.insert
    refuse_lost_files(lake, target, insert)  # nothing was ever published
    path, data = lake.target_path(target), lake.staged_paths(target, insert)["publish"]
    Path(path).mkdir(parents=True)
    DeltaTable.create(str(path), COLUMNS)
    folder = data / "g1-e1-x"
    folder.make()
    pq.write_table(rows(1, 1), folder / "a.parquet")
    adopt(path, folder, survey(folder), application="publish", epoch=1)
    refuse_lost_files(lake, target, insert)
    shutil.rmtree(data)
    with pytest.raises(LakeError, match="the folder of its data was removed, and 1 of the 1 files of the published"):
        refuse_lost_files(lake, target, insert)


def test_a_quarantine_that_came_back_from_an_older_backup(play: Play) -> None:
    """Its rows were nowhere, otherwise: neither published, nor to be released again. Also where the newest epoch has
    put nothing there, or a RESTORE has taken them out and left all commits."""
    harness = play.harness
    quarantine = harness.lake.quarantine_path(harness.pipeline.table("converted"), harness.pipeline.insert("converted"))
    play.rate("EUR", 100, 10)
    play.order(1, "XXX", 10)
    play.upto(rates=10, orders=10)
    newest = max(Path(quarantine / "_delta_log").glob("*.json"))
    commit = newest.read_text()
    for number in (1, 2):
        if number == 2:
            newest.write_text(commit)
            harness.restart()
            play.order(2, "EUR", 20)
            assert play.upto(rates=20, orders=20) == [(2, 100)]
        remove(newest)
        delta_log._open.clear()
        harness.restart()
        for command in (lambda: dry_run(harness.runner), harness.advance):
            with pytest.raises(LakeError, match="the lake has lost what epoch 1 of converted had put there") as refused:
                command()
            assert refused.value.next_command == f"bring {quarantine}/_delta_log back from a backup"
    newest.write_text(commit)
    delta_log._open.clear()
    before = DeltaTable(str(quarantine)).version()
    DeltaTable(str(quarantine)).restore(0)
    harness.restart()
    with pytest.raises(LakeError, match=r"converted lacks 1 row that published epochs have put there.*RESTORE"):
        harness.advance()
    DeltaTable(str(quarantine)).restore(before)
    harness.restart()
    play.order(3, "EUR", 30)
    assert play.upto(rates=30, orders=30) == [(3, 100)]


NUMBERS = """
CREATE TABLE numbers (n INT) WITH ('connector' = 'scripted');
CREATE TABLE copies (n INT) WITH ('connector' = 'delta', 'path' = '{path}');
INSERT INTO copies SELECT n FROM numbers;
"""


def copied(script: str, spark: SparkSession, directory: Path) -> Harness:
    """A lake that has published the number 1."""
    harness = Harness(script, spark, directory)
    harness.push("numbers", [{"n": 1}])
    assert [row["n"] for row in harness.advance()] == [1]
    harness.runner.close()
    return harness


def test_a_target_of_another_lake_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Its files were removed as those of a crashed attempt at epoch 1, and its rows published once more."""
    target = tmp_path / "copies"
    first = copied(NUMBERS.format(path=target), spark, tmp_path / "first")
    second = Harness(first.pipeline, spark, tmp_path / "second")
    second.push("numbers", [{"n": 1}])
    for command in (second.advance, lambda: dry_run(second.runner)):
        with pytest.raises(
            LakeError, match="copies holds rows published by copies under another lake's name"
        ) as refused:
            command()
        assert "tidegate run SCRIPT --lake DIR" in refused.value.next_command
    assert second.lake.epochs.owners() == []
    assert DeltaTable(str(target)).to_pyarrow_table()["n"].to_pylist() == [1]

    first.restart()
    first.push("numbers", [{"n": 2}])
    assert [row["n"] for row in first.advance()] == [2]


def numbers(harness: Harness) -> list[int]:
    return [row["n"] for row in harness.advance()]


@pytest.mark.parametrize(
    ("lake", "begun"), [("first", ""), ("second", ""), ("first", "insert.judged"), ("second", "insert.quarantined")]
)
def test_a_target_is_that_of_one_insert(spark: SparkSession, tmp_path: Path, lake: str, begun: str) -> None:
    """Another one, of other rows even, was let in: what is in the target was called different by verify, and rows of
    one probe that two lakes read were there twice. `begun`: how far the other one was before the first published."""
    script = NUMBERS.format(path=tmp_path / "copies")
    first = Harness(script, spark, tmp_path / "first")
    of_others = script.replace("numbers", "others").replace("'delta'", "'delta', 'insert.id' = 'b'")
    second = Harness(of_others, spark, tmp_path / lake)
    first.push("numbers", [{"n": 1}])
    second.push("others", [{"n": 2}])
    published: list[int] = []
    off = faults.arm(lambda point: published.extend(numbers(first) if point == begun else ()), "b")
    if not begun:
        published.extend(numbers(first))
        second.restart()
    with pytest.raises((LakeError, DefinitionChanged)) as refused:
        second.advance()
    off()
    assert published == [1]
    if begun:
        assert "copies holds rows published by copies meanwhile" in refused.value.what
        assert "nothing of b was published" in refused.value.state
    elif lake == "first":
        assert "'copies', which has rows in copies" in refused.value.where
    else:
        assert "copies holds rows published by copies under another lake's name" in refused.value.what
    assert DeltaTable(str(tmp_path / "copies")).to_pyarrow_table()["n"].to_pylist() == [1]
    first.restart()
    assert verify(first.pipeline, first.lake, lambda: spark, "copies").passed


def test_so_is_one_whose_features_only_delta_rs_knows(spark: SparkSession, tmp_path: Path) -> None:
    target = tmp_path / "copies"
    first = copied(NUMBERS.format(path=target), spark, tmp_path / "first")
    spark.sql(f"ALTER TABLE delta.`{target}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    with pytest.raises(LakeError, match="copies holds rows published by copies"):
        Harness(first.pipeline, spark, tmp_path / "second").advance()
    # What is not done for its writers is named before anything is planned.
    spark.sql(f"ALTER TABLE delta.`{target}` SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')")
    first.restart()
    first.push("numbers", [{"n": 2}])
    for _ in range(2):
        with pytest.raises(LakeError, match=r"asks its writers for .*inCommitTimestamp"):
            first.advance()
    assert [row.epoch for row in first.lake.epochs.rows("insert copies")] == [1]


def test_deletion_vectors_of_a_build_are_named(spark: SparkSession, tmp_path: Path) -> None:
    harness = Harness(clicks(), spark, tmp_path)
    harness.push("user_info", [{"user_id": 1, "gender": "f"}, {"user_id": 2, "gender": "m"}])
    harness.end_of_snapshot("user_info")
    harness.advance()
    build = harness.lake.table_path("user_info")
    spark.sql(f"ALTER TABLE delta.`{build}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    harness.push("click_event", [{"user_id": 1, "item_id": 1}])
    assert [row["gender"] for row in harness.advance()] == ["f"], "the property alone changes no row"
    spark.sql(f"DELETE FROM delta.`{build}` WHERE user_id = 2")
    harness.push("click_event", [{"user_id": 2, "item_id": 2}])
    with pytest.raises(LakeError, match=r"lost 1 row of user_info .* \(it has deletion vectors") as refused:
        harness.advance()
    assert refused.value.where == str(build)


def test_tables_whose_control_tables_were_removed_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    lake = copied(NUMBERS.format(path=tmp_path / "copies"), spark, tmp_path).lake
    shutil.rmtree(str(lake.control))
    delta_log._open.clear()
    with pytest.raises(LakeError, match="numbers holds rows landed under another lake's name") as refused:
        Harness(NUMBERS.format(path=tmp_path / "other"), spark, tmp_path).advance()
    assert refused.value.next_command.startswith(f"bring {lake.control} back from a backup")


@pytest.mark.parametrize("backfill", at_length([False, True]))
def test_rows_that_wait_for_their_time_are_counted(spark: SparkSession, tmp_path: Path, backfill: bool) -> None:
    """An event-time release counts its rows in the probe's table: the gate sees nothing of those that are gone."""
    play = Play(spark, tmp_path)
    play.rate("EUR", 1, 0)
    play.order(1, "EUR", 5)
    play.order(2, "EUR", 50)
    assert play.upto(10, 10) == [(1, 1)]
    shutil.rmtree(str(play.harness.lake.table_path("orders") / "_delta_log"))
    delta_log._open.clear()
    play.harness.restart()
    play.order(3, "EUR", 60)
    play.land(100, 100)
    with pytest.raises(LakeError, match="lost 1 row of orders that converted has not released"):
        play.harness.runner.backfill("converted") if backfill else play.upto()
    assert play.out == [(1, 1)]


def test_rows_that_are_released_may_be_gone(spark: SparkSession, tmp_path: Path) -> None:
    play = Play(spark, tmp_path)
    play.rate("EUR", 1, 0)
    play.order(1, "EUR", 5)
    play.order(2, "EUR", 50)
    assert play.upto(10, 10) == [(1, 1)]
    spark.sql(f"DELETE FROM delta.`{play.harness.lake.table_path('orders')}` WHERE id = 1")
    assert play.upto(100, 100) == [(2, 1)]


@pytest.mark.thorough
def test_rows_with_deletion_vectors_are_counted_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Rows of a source, and of a target that a statement reads, of which another writer has deleted some."""
    through = """
        CREATE TABLE kept (id INT, currency STRING, at TIMESTAMP(3), WATERMARK FOR at AS at)
        WITH ('connector' = 'scripted');
        INSERT INTO kept SELECT id, currency, at FROM orders WHERE id <> 4;
        INSERT INTO converted SELECT o.id, r.rate FROM kept AS o
        """
    script = RATES.replace("INSERT INTO converted SELECT o.id, r.rate FROM orders AS o", through)
    play = Play(spark, tmp_path, script=script)
    lake = play.harness.lake
    tables = lake.table_path("orders"), lake.target_path(play.harness.pipeline.table("kept"))
    play.rate("EUR", 1, 0)
    for number, at in ((1, 5), (2, 50), (3, 60), (4, 70)):
        play.order(number, "EUR", at)
    play.land(10, 10)
    play.harness.advance()
    assert play.out == [(1, 1)]
    for table in tables:
        spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
        spark.sql(f"DELETE FROM delta.`{table}` WHERE id = 1")
        opened = delta_log.opened(table)
        assert opened is not None
        assert not opened.plain
    play.land(55, 55)
    play.harness.advance()
    assert play.out == [(1, 1), (2, 1)]
    play.order(5, "EUR", 65)
    spark.sql(f"DELETE FROM delta.`{tables[1]}` WHERE id = 3")
    play.land(100, 100)
    with pytest.raises(LakeError, match=r"lost 1 row of kept that converted has not released.*deletion vectors"):
        play.harness.advance()
    assert play.out == [(1, 1), (2, 1)]


def test_a_missing_file_of_a_probe_is_reported_with_its_insert(spark: SparkSession, tmp_path: Path) -> None:
    play = Play(spark, tmp_path)
    play.rate("EUR", 1, 0)
    play.order(1, "EUR", 50)
    assert play.upto(10, 10) == []
    for file in Path(play.harness.lake.table_path("orders")).rglob("*.parquet"):
        file.unlink()
    with pytest.raises(StepFailed, match=r"converted: .*parquet") as failed:
        play.upto(100, 100)
    assert failed.value.state == "nothing was planned"


@pytest.mark.parametrize("log", ["lake", "insert.copies"])
def test_verify_sees_that_a_log_is_gone(spark: SparkSession, tmp_path: Path, log: str) -> None:
    """Without them no epoch is known, and nothing that is published was looked at."""
    harness = copied(NUMBERS.format(path=tmp_path / "copies"), spark, tmp_path)
    assert harness.verify("copies").passed
    shutil.rmtree(str(harness.lake.control / log))
    delta_log._open.clear()
    if log == "lake":
        with pytest.raises(LakeError, match="the lake's own log is gone"):
            harness.restart()
        return
    harness.restart()
    report = harness.verify("copies")
    assert not report.passed
    assert "lost" in report.problems[0] or "another lake's name" in report.problems[0]
