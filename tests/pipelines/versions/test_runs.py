"""Which runs an index is made of, while a build grows tick by tick."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pipelines.versions.test_index import Row, written
from tidegate.pipelines.parquet import together
from tidegate.pipelines.versions import (
    ABSENT,
    MATCH,
    IndexOf,
    Made,
    chained,
    checksums,
    merged,
    opened,
    run,
    run_files,
    runs,
    shards_of,
    tidy,
)
from tidegate.pipelines.versions.runs import FEW, MERGED_FROM, MOST, SHARE, Span

GROWTH = st.lists(st.sampled_from([0, 0, 1, 10, 1_000, 60_000, 500_000]), min_size=1, max_size=120)


def counted(epochs: list[int]) -> Callable[[int, int], int]:
    return lambda after, upto: sum(epochs[after:upto])


def follow(runs: list[Span], upto: int, rows: Callable[[int, int], int]) -> None:
    """All rows are in one of them."""
    assert runs[0][0] == 0
    assert all(one[1] == two[0] for one, two in pairwise(runs))
    assert rows(runs[-1][1], upto) == 0


@settings(deadline=None)
@given(GROWTH)
def test_a_tick_adds_a_run_and_upkeep_alone_puts_them_together(epochs: list[int]) -> None:
    """No tick makes a row's run anew, and upkeep makes no more than a few times the rows."""
    known: set[Span] = set()
    rows, by_ticks, by_upkeep = counted(epochs), 0, 0
    for upto in range(1, len(epochs) + 1):
        found = chained(known, upto, rows)
        follow(found, upto, rows)
        assert len(found) <= MOST
        by_ticks += sum(rows(*span) for span in found if span not in known)
        known = set(found)
        if upto % 3 == 0:
            together = merged(known, upto, rows)
            follow(together, upto, rows)
            assert len(together) <= MERGED_FROM + 2
            assert rows(together[0][1], upto) <= max(rows(*together[0]) // SHARE, FEW)
            by_upkeep += sum(rows(*span) for span in together if span not in known)
            known = set(together)
    assert by_ticks <= rows(0, len(epochs))
    assert by_upkeep <= (rows(0, len(epochs)) + FEW) * 20


@settings(deadline=None)
@given(GROWTH)
def test_without_upkeep_a_tick_puts_small_runs_together_at_last(epochs: list[int]) -> None:
    """The base is never made anew, and each row a few times."""
    known: set[Span] = set()
    rows, made, merges = counted(epochs), 0, 0
    for upto in range(1, len(epochs) + 1):
        found = chained(known, upto, rows)
        follow(found, upto, rows)
        assert len(found) <= MOST + 1
        new = [span for span in found if span not in known]
        assert not known or min(known) in found
        made += sum(rows(*span) for span in new)
        merges += any(span[0] < max(end for _, end in known) for span in new if known)
        known = set(found)
    assert made <= rows(0, len(epochs)) * 8
    assert merges <= len(epochs) // 4


@pytest.mark.parametrize("known", [{(0, 1)}, {(0, 1), *((n, n + 1) for n in range(1, MERGED_FROM))}])
def test_upkeep_leaves_a_few_small_runs_alone(known: set[Span]) -> None:
    assert merged(known, 99, lambda after, upto: upto - after) == sorted(known)


def test_upkeep_puts_together_what_ticks_have_made_and_no_more() -> None:
    """Whatever has landed since the last of them."""
    known = {(n, n + 1) for n in range(12)}
    assert merged(known, 99, lambda after, upto: upto - after) == [(0, 1), (1, 12)]
    assert merged(known, 99, lambda after, upto: (upto - after) * FEW) == [(0, 12)]


def test_a_run_that_goes_further_serves_a_pin_of_the_past() -> None:
    rows = counted([1] * 99)
    assert chained({(0, 9)}, 5, rows) == [(0, 9)]
    assert chained({(0, 4), (0, 9)}, 5, rows) == [(0, 4), (4, 5)]
    assert chained({(0, 4), (4, 9)}, 7, rows) == [(0, 4), (4, 9)], "upkeep has put small runs together meanwhile"
    assert chained({(0, 99)}, 5, rows) == [(0, 5)], "a view of a large run costs more than a small run"


def test_nothing_is_made_for_epochs_without_rows() -> None:
    assert chained({(0, 4)}, 9, lambda after, upto: min(upto, 4) - min(after, 4)) == [(0, 4)]


def sharded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Made], list[str]]:
    """Four shards of three files of 100 rows each, and what is done about them as it is done."""
    files = list[str]()
    for part in range(3):
        of_part = folder / f"table{part}"
        of_part.mkdir()
        files.append(written(of_part, ["number"], [Row("c", (100 * part + n,), n, (0, n), 1) for n in range(100)]))
    done = list[str]()

    def noted(call: Callable[..., None]) -> Callable[..., None]:
        return lambda *given: (call(*given), done.append(call.__name__))[1]

    monkeypatch.setattr(runs, "deal", noted(runs.deal))
    monkeypatch.setattr(runs, "make", noted(runs.make))
    types = {"number": pa.int64(), "place": pa.int64()}
    names = [str(folder / "runs" / f"0-1-5.{shard}of4") for shard in range(4)]
    return [Made(name, tuple(files), 1, 0, 1, ("number",), types, shard, 4) for shard, name in enumerate(names)], done


def test_a_table_is_read_once_however_many_shards_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, done = sharded(tmp_path, monkeypatch)
    index = opened(IndexOf(tuple(made), 1, 300))
    assert (done.count("deal"), done.count("make")) == (3, 4)
    found = index.find([pa.array([0, 150, 299, 300])], None)
    assert found.what.tolist() == [MATCH, MATCH, MATCH, ABSENT]
    assert sorted(path.name for path in (tmp_path / "runs").iterdir() if path.is_dir()) == [
        f"0-1-5.{shard}of4" for shard in range(4)
    ], "what was dealt is gone"


def test_a_shard_that_is_gone_is_made_again_and_what_a_kill_has_left_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, done = sharded(tmp_path, monkeypatch)
    for run_ in made[:2]:
        runs.ensure(run_)
    (dealt,) = (tmp_path / "runs").glob("*.dealt/*")
    (dealt / "1").unlink()
    (tmp_path / "runs" / "0-1-5.2of4.abcd").mkdir()
    done.clear()
    opened(IndexOf(tuple(made), 1, 300))
    assert done.count("deal") == 1, "a part that is missing is dealt once more"
    shutil.rmtree(made[3].folder)
    assert opened(IndexOf(tuple(made), 1, 300)).find([pa.array([*range(300)])], None).what.tolist() == [MATCH] * 300
    assert len([path for path in (tmp_path / "runs").iterdir() if path.is_dir()]) == 4


def test_few_rows_of_a_file_are_read_at_once_however_many_are_in_a_row_group(tmp_path: Path) -> None:
    """What a task holds that deals rows of a kilobyte would else be several row groups."""
    rows = [Row("c", (n,), n, (0, n), 1) for n in range(run_files.BATCH + 1)]
    types = {"number": pa.int64(), "place": pa.int64()}
    made = Made("", (written(tmp_path, ["number"], rows),), 1, 0, 1, ("number",), types)
    assert [batch.num_rows for batch in run_files._batches(made, made.files)] == [run_files.BATCH, 1]


def met(made: list[Made]) -> list[int]:
    """What each of the 300 keys meets, where nobody knows how many rows there are."""
    return opened(IndexOf(tuple(made), 1, None)).find([pa.array([*range(300)])], None).what.tolist()


@pytest.mark.parametrize("left", [0, 7, 8, 200])
def test_what_a_power_cut_has_left_of_what_was_dealt_is_dealt_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    made, done = sharded(tmp_path, monkeypatch)
    runs.ensure(made[0])
    (dealt,) = (tmp_path / "runs").glob("*.dealt/*")
    os.truncate(dealt / "1", left)
    done.clear()
    assert met(made) == [MATCH] * 300
    assert done.count("deal") == 1


def test_what_was_dealt_to_another_number_of_shards_is_none_of_these(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _ = sharded(tmp_path, monkeypatch)
    runs.ensure(made[3])
    two = [replace(one, folder=one.folder.replace("of4", "of2"), shards=2) for one in made[:2]]
    assert met(two) == [MATCH] * 300


def test_a_file_that_is_removed_while_rows_are_dealt_is_not_begun_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who tidies up takes all files, and not the folder where one is written meanwhile."""
    made, _ = sharded(tmp_path, monkeypatch)
    into = tmp_path / "dealt" / "0"

    def tidied(batches: Iterable[pa.RecordBatch], *most: int) -> Iterator[pa.RecordBatch]:
        for number, block in enumerate(together(batches, *most)):
            for file in (tmp_path / "dealt").iterdir() if number == 1 else ():
                file.unlink()
            yield block

    monkeypatch.setattr(run_files, "together", tidied)
    monkeypatch.setattr(run_files, "DEALT_BYTES", 1)
    with pytest.raises(FileNotFoundError):
        run_files.deal(made[0], made[0].files, into)
    assert list((tmp_path / "dealt").iterdir()) == []
    with pytest.raises(ValueError, match="nothing was dealt to it"):
        run_files.make(made[0])


def one_changed(file: Path) -> None:
    """A bit of one byte, in the middle; the file is as long as it was."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def swapped(file: Path) -> None:
    """The first half and the second one."""
    content = file.read_bytes()
    half = len(content) // 2
    file.write_bytes(content[half:] + content[:half])


DAMAGES: list[Callable[[Path], object]] = [Path.unlink, lambda file: os.truncate(file, 0), one_changed, swapped]


def test_a_run_that_lacks_a_file_or_has_other_bytes_in_it_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One with other bytes of the same length was believed, and another key's version was published."""
    monkeypatch.setattr(checksums, "BLOCK", 256)  # most files have several
    rows = [Row("c", (f"key {n}",), n, (0, n), 1) for n in range(99)]
    types = {"text": pa.string(), "place": pa.int64()}
    made = Made(str(tmp_path / "0-1-5.0of1"), (written(tmp_path, ["text"], rows),), 1, 0, 1, ("text",), types)
    runs.ensure(made)
    files = sorted(file.name for file in Path(made.folder).iterdir())
    assert files == sorted([*(f"{name}.npy" for name in run.ARRAYS), *(f"{name}.arrow" for name in OTHERS), "run.json"])
    for name in files:
        for damage in DAMAGES:
            runs.ensure(made)
            assert run.opened(made.folder) is not None
            damage(Path(made.folder) / name)
            forget()  # another process
            assert run.opened(made.folder) is None, (name, damage)
    found = opened(IndexOf((made,), 1, 99)).find([pa.array(["key 7"])], None)
    assert found.what.tolist() == [MATCH]


OTHERS = ("keys", "rows", "truncates")


def forget() -> None:
    run._OPEN.clear()
    run._COMPARED.clear()


def test_a_run_is_compared_once_and_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Made(str(tmp_path / "0-1-5.0of1"), (written(tmp_path, ["number"], [Row("c", (1,), 1, (0, 0), 1)]),), 1, 0, 1,
                ("number",), {"number": pa.int64(), "place": pa.int64()})  # fmt: skip
    synced: list[str] = []
    sync, rename = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.readlink(f"/proc/self/fd/{file}")) or sync(file))
    monkeypatch.setattr(os, "replace", lambda *names: synced.append("named") or rename(*names))
    runs.ensure(made)
    there = {file.name for file in Path(made.folder).iterdir()}
    before = synced.index("named")
    assert {Path(name).name for name in synced[:before]} >= there
    assert synced[before + 1 :] == [str(tmp_path)]
    compared: list[Path] = []
    monkeypatch.setattr(run, "compare", compared.append)
    forget()
    for _ in range(2):
        run._OPEN.clear()  # it was unmapped for others
        assert run.opened(made.folder) is not None
    assert compared == [Path(made.folder)]


def test_a_task_makes_what_no_other_one_is_making(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tasks that miss an index share its shards; one that has come to the other's waits for it at last."""
    made, done = sharded(tmp_path, monkeypatch)
    monkeypatch.setattr(runs.os, "getpid", lambda: 1)  # it would begin with the one that is being made
    (tmp_path / "runs").mkdir()
    with (tmp_path / "runs" / "1.lock").open("w") as other, ThreadPoolExecutor() as pool:
        fcntl.flock(other, fcntl.LOCK_EX)
        index = pool.submit(opened, IndexOf(tuple(made), 1, 300))
        end = time.monotonic() + 60
        while done.count("make") < 3 and time.monotonic() < end:
            time.sleep(0.01)
        assert done.count("make") == 3
        assert not Path(made[1].folder).exists()
        fcntl.flock(other, fcntl.LOCK_UN)
        assert len(index.result().runs) == 4
    assert done.count("deal") == 3


def test_what_another_process_may_be_making_is_not_tidied_up(tmp_path: Path) -> None:
    own = tmp_path / "own"
    for name in (
        "0-5-9.0of2",
        "0-5-9.1of2.abcd",
        "0-5-9.dealt",
        "0-4-8.0of1",
        "0-4-8.dealt",
        "0-4-8.0of1.abcd",
        "0-5-9.0of4",
    ):
        (own / name).mkdir(parents=True)
    tidy(own, shards_of(Made("", (), 1, 0, 5, ("number",), {}), own, 9, 2))
    assert sorted(path.name for path in own.iterdir()) == ["0-5-9.0of2", "0-5-9.1of2.abcd", "0-5-9.dealt"]


def test_few_runs_stay_mapped_those_that_were_asked_for_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has ten open files."""
    monkeypatch.setattr(run, "Run", lambda folder: object())
    monkeypatch.setattr(run, "_OPEN", {})
    monkeypatch.setattr(run, "compare", lambda folder: None)
    folders = [tmp_path / str(number) for number in range(run.MAPPED + 1)]
    for folder in folders:
        folder.mkdir()
        (folder / "run.json").touch()
    first, second, *more, last = map(str, folders)
    found = {name: run.opened(name) for name in (first, second, *more)}
    assert run.opened(first) is found[first]
    run.opened(last)
    assert len(run._OPEN) == run.MAPPED
    assert run.opened(first) is found[first]
    assert run.opened(second) is not found[second]
