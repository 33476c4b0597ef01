"""Small files are put together, and what a reader skips them by stays right."""

from __future__ import annotations

import json
import os
import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Schema, write_deltalake

from tidegate.pipelines.lake import by_name, upkeep
from tidegate.pipelines.lake.adopt import adopt, survey
from tidegate.pipelines.lake.delta_log import opened as table_at
from tidegate.pipelines.lake.statistics import SKIPPED_BY
from tidegate.pipelines.lake.upkeep import (
    SMALL_FILES,
    clean_log,
    live_files,
    log_keep,
    put_together,
    remove_dead,
    still_read,
    swept,
    tidy,
)


def test_numbers_that_may_be_nan_get_no_bounds(tmp_path: Path) -> None:
    for number in range(SMALL_FILES):
        rows = pa.table({"x": [number, float("nan")], "near": pa.array([1.5, 2.5], pa.float32()), "n": [number, 7]})
        write_deltalake(tmp_path, rows, mode="append")
    tidied = tidy(tmp_path, keep=timedelta(0))
    assert tidied.files_after == 1
    actions = pa.table(DeltaTable(tmp_path).get_add_actions(flatten=True)).to_pylist()[0]
    # The table does not say that it has none of x, and readers would miss those.
    assert [actions.get(name) for name in ("max.x", "max.near", "max.n", "null_count.n")] == [None, None, None, 0]
    assert pq.read_table(live_files(tmp_path).pop()).num_rows == 2 * SMALL_FILES


def _files(path: Path, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        rows = pa.table({"_epoch": pa.array([number] * 3), "n": [number, None, 7], "x": [1.5, float("nan"), None]})
        write_deltalake(path, rows, mode="append")


def _rows(path: Path) -> list[tuple[object, ...]]:
    found = DeltaTable(path).to_pyarrow_table().to_pylist()
    return sorted((row["_epoch"], str(row["n"]), str(row["x"])) for row in found)


def test_files_of_about_one_size_are_put_together_and_larger_ones_left_alone(tmp_path: Path) -> None:
    kinds = pa.schema([("_epoch", pa.int64()), ("n", pa.int64()), ("x", pa.float64())])
    DeltaTable.create(tmp_path, Schema.from_arrow(kinds), configuration={SKIPPED_BY: "_epoch,n"})
    _files(tmp_path, SMALL_FILES)
    before = _rows(tmp_path)
    assert put_together(tmp_path) == SMALL_FILES - 1
    assert put_together(tmp_path) == 0
    (whole,) = live_files(tmp_path)
    assert pq.read_table(whole)["_epoch"].to_pylist() == sorted(3 * [*range(SMALL_FILES)])
    assert _rows(tmp_path) == before
    big = pa.table({"_epoch": pa.array(range(200_000)), "n": range(200_000), "x": [0.5] * 200_000})
    write_deltalake(tmp_path, big, mode="append")
    large = live_files(tmp_path) - {whole}
    _files(tmp_path, SMALL_FILES, first=SMALL_FILES)
    put_together(tmp_path)
    assert large <= live_files(tmp_path)
    actions = pa.table(DeltaTable(tmp_path).get_add_actions(flatten=True)).to_pylist()
    assert min(action["min._epoch"] for action in actions) == 0
    assert {action.get("max.x") for action in actions} == {None}


def test_only_files_that_may_be_are_put_together(tmp_path: Path) -> None:
    _files(tmp_path, SMALL_FILES + 2)
    names = sorted(pa.table(DeltaTable(tmp_path).get_add_actions())["path"].to_pylist())
    assert put_together(tmp_path, lambda table: [table.files[name] for name in names[:3]]) == 0
    assert put_together(tmp_path, lambda table: [table.files[name] for name in names[:SMALL_FILES]]) == SMALL_FILES - 1
    assert {str(tmp_path / name) for name in names[SMALL_FILES:]} <= live_files(tmp_path)


def test_putting_together_is_no_news_for_who_follows_the_table(tmp_path: Path) -> None:
    _files(tmp_path, SMALL_FILES)
    put_together(tmp_path)
    newest = max((tmp_path / "_delta_log").glob("*.json")).read_text().splitlines()
    actions = [json.loads(line) for line in newest]
    changes = [part[kind]["dataChange"] for part in actions for kind in ("add", "remove") if kind in part]
    assert len(changes) == SMALL_FILES + 1
    assert not any(changes)


def test_a_cleaned_log_has_every_version_since_the_checkpoint_and_the_same_rows(tmp_path: Path) -> None:
    _files(tmp_path, 30)
    DeltaTable(tmp_path).create_checkpoint()
    _files(tmp_path, 5, first=30)
    before, last = _rows(tmp_path), DeltaTable(tmp_path).version()
    opened = table_at(tmp_path)
    assert opened is not None
    for file in (tmp_path / "_delta_log").iterdir():  # as a copy would have them
        os.utime(file, (0, 0))
    assert sum(clean_log(tmp_path, keep=timedelta(hours=1))) == 0
    assert sum(clean_log(tmp_path, keep=timedelta(0))) == 29
    assert _rows(tmp_path) == before
    assert DeltaTable(tmp_path).version() == last
    for version in range(29, last + 1):
        assert DeltaTable(tmp_path, version=version).version() == version
    _files(tmp_path, 1, first=35)
    newer = opened.newer()
    assert newer is not None
    assert newer.version == last + 1


def test_a_commit_that_is_damaged_is_as_old_as_its_file(tmp_path: Path) -> None:
    """Its checkpoint has all that it said; upkeep of a running pipeline goes on."""
    _files(tmp_path, 3)
    DeltaTable(tmp_path).create_checkpoint()
    last = DeltaTable(tmp_path).version()
    (tmp_path / "_delta_log" / f"{last:020}.json").write_bytes(b'{"add": ')
    assert sum(clean_log(tmp_path, keep=timedelta(hours=1))) == 0
    assert sum(clean_log(tmp_path, keep=timedelta(0))) == last


def test_a_log_without_a_checkpoint_stays(tmp_path: Path) -> None:
    _files(tmp_path, 5)
    assert sum(clean_log(tmp_path, keep=timedelta(0))) == 0


def test_dead_files_go_after_their_time_and_what_lives_or_is_young_or_is_not_a_tables_stays(tmp_path: Path) -> None:
    _files(tmp_path, SMALL_FILES)
    put_together(tmp_path)
    live = live_files(tmp_path)
    (tmp_path / "notes.txt").write_text("a person's")
    (tmp_path / "_staged").mkdir()
    (tmp_path / "_staged" / "part-0.parquet").write_bytes(b"waits")
    (tmp_path / "empty").mkdir()
    assert sum(remove_dead(tmp_path, live, keep=timedelta(hours=1))) == 0
    assert sum(remove_dead(tmp_path, None, keep=timedelta(0))) == 0
    for file in tmp_path.glob("*.parquet"):  # written long ago, and named until just now
        os.utime(file, (0, 0))
    assert sum(remove_dead(tmp_path, still_read(tmp_path, keep=timedelta(hours=1)), keep=timedelta(0))) == 0
    assert sum(remove_dead(tmp_path, live, keep=timedelta(0))) == SMALL_FILES
    left = {path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("*")}
    assert left == {"_delta_log", "_staged", "notes.txt", Path(live.pop()).parent.name}
    assert len(_rows(tmp_path)) == 3 * SMALL_FILES
    assert sum(remove_dead(tmp_path / "_staged", set(), keep=timedelta(0), hidden=True, without="part")) == 1


def test_what_is_committed_while_a_walk_over_folders_is_interrupted_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Upkeep goes on after a tick, which may take longer than dead files are left: `live` is older than those then."""
    began = time.time()
    for folder in ("owner=a", "owner=b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "dead.parquet").touch()
        os.utime(tmp_path / folder / "dead.parquet", (0, 0))
    walk = remove_dead(tmp_path, set(), keep=timedelta(minutes=10), hidden=True)
    next(walk)
    committed = [tmp_path / folder / "committed.parquet" for folder in ("owner=a", "owner=b")]
    for file in committed:
        file.touch()
    monkeypatch.setattr(upkeep, "time", SimpleNamespace(time=lambda: began + 3600))
    assert sum(walk) == 2
    assert all(file.exists() for file in committed)


def test_what_another_runner_takes_out_between_two_looks_is_still_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _files(tmp_path, SMALL_FILES)
    live, look = live_files(tmp_path), by_name.removed_since

    def and_then_another_writes(*given: Any) -> object:
        found = look(*given)
        put_together(tmp_path)
        return found

    monkeypatch.setattr(upkeep.by_name, "removed_since", and_then_another_writes)
    assert live <= (still_read(tmp_path, keep=timedelta(hours=1)) or set())
    assert not live <= live_files(tmp_path)


def test_of_tables_that_adopt_from_one_folder_nothing_goes_until_all_of_them_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hour, one, other = timedelta(hours=1), tmp_path / "one", tmp_path / "other"
    _files(one, 2)
    assert still_read(one, other, keep=hour) == live_files(one), "the other has no row yet"
    _files(other, 1)
    assert still_read(one, other, keep=hour) == live_files(one) | live_files(other)
    look = by_name.removed_since
    monkeypatch.setattr(
        upkeep.by_name, "removed_since", lambda table, at: None if table.root.name == "one" else look(table, at)
    )
    assert still_read(one, other, keep=hour) is None
    folder = tmp_path / "staged" / "g1-e1-x"
    folder.mkdir(parents=True)
    (folder / "a.parquet").write_bytes(b"dead")
    (folder / "_b.parquet.writing").write_bytes(b"of a task that was killed")
    for file in folder.iterdir():
        os.utime(file, (0, 0))
    os.utime(folder, (0, 0))

    def dead(live: set[str] | None) -> tuple[int, int]:
        tidied = swept([folder.parent], remove_dead(folder.parent, live, keep=hour, hidden=True))
        return tidied.removed, tidied.freed

    assert dead(None) == (0, 0)
    assert dead({str(folder / "a.parquet"), str(folder / "_b.parquet.writing")}) == (0, 0)
    assert dead(set()) == (2, 4)
    assert not folder.exists()


@pytest.mark.parametrize("by_delta_rs", [False, True])
def test_what_is_still_read_are_the_files_of_the_disk_whatever_their_names(tmp_path: Path, by_delta_rs: bool) -> None:
    _files(tmp_path, SMALL_FILES)
    folder = tmp_path / "_data" / "in 100%25 ü+" / "g1-e1"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"_epoch": [99], "n": [1], "x": [1.5]}), folder / "part=a%20b.parquet")
    adopt(tmp_path, folder, survey(folder), application="a", epoch=1)
    there = {str(path) for path in tmp_path.rglob("*.parquet")}
    assert still_read(tmp_path, keep=timedelta(hours=1)) == live_files(tmp_path) == there
    if by_delta_rs:
        DeltaTable(tmp_path).optimize.compact()
    else:
        assert put_together(tmp_path) == SMALL_FILES
    gone = there - live_files(tmp_path)
    assert str(folder / "part=a%20b.parquet") in gone
    for _ in range(2):
        assert (still_read(tmp_path, keep=timedelta(hours=1)) or set()) == gone | live_files(tmp_path)
        assert still_read(tmp_path, keep=timedelta(hours=-1)) == live_files(tmp_path)
        DeltaTable(tmp_path).create_checkpoint()


def test_the_log_of_a_table_of_somebodys_own_is_kept_as_its_properties_say(tmp_path: Path) -> None:
    week = timedelta(days=7)
    for number, (properties, kept) in enumerate(
        [
            ({}, week),
            ({"delta.logRetentionDuration": "interval 2 hours"}, timedelta(hours=2)),
            ({"delta.logRetentionDuration": "interval 1 month"}, None),
            ({"delta.enableExpiredLogCleanup": "false"}, None),
        ]
    ):
        path = tmp_path / str(number)
        _files(path, 1)
        if properties:
            DeltaTable(path).alter.set_table_properties(properties)
        assert log_keep(path, week) == kept
