"""The upkeep of a runner that goes on: in pieces of bounded work, under the leases that it holds."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.pipelines.runtime.grown import ROWS, decoded, grown, to_the_end, upkeep, upkeep_of
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.lake.commits import Removal
from tidegate.pipelines.lake.owner_log import AT_ONCE, OwnerLog
from tidegate.pipelines.lake.records import EpochRow
from tidegate.pipelines.lake.upkeep import REMOVED
from tidegate.pipelines.runtime.epochs.history import history_of
from tidegate.pipelines.runtime.ledger import CHECKPOINT, newest_of, where_rows_are


def test_the_files_of_control_tables_go_after_their_time_and_the_rows_stay(tmp_path: Path) -> None:
    made = grown(tmp_path, 300)
    before = made.lake.epochs.rows(made.owner), made.lake.watermarks.rows("clicks")
    files = len([*(tmp_path / "_control").rglob("*.parquet")])
    upkeep(made)
    assert len([*(tmp_path / "_control").rglob("*.parquet")]) < files / 2
    for lake in (made.lake, Lake(tmp_path)):
        assert (lake.epochs.rows(made.owner), lake.watermarks.rows("clicks")) == before
    made.landed("clicks", 301, ROWS)
    assert isinstance(made.lake.epochs.last("clicks"), EpochRow)


def test_upkeep_that_fails_is_said_and_tried_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [100.0]

    def full() -> int:
        raise OSError(28, "No space left on device")

    with upkeep_of(grown(tmp_path, 60), now=lambda: now[0], least=0) as upkeep:
        with monkeypatch.context() as patched:
            patched.setattr(upkeep.lake.logs.lake, "together", full)
            assert not upkeep.piece()
        assert "No space left on device" in caplog.text
        assert not upkeep.piece()  # it rests
        now[0] += 61
        assert upkeep.piece()


def test_what_is_not_leased_is_left_alone(tmp_path: Path) -> None:
    made = grown(tmp_path, 60)
    for number in range(40):
        made.appended("clicks", 61 + number)
    examined = []
    with upkeep_of(made) as upkeep:
        upkeep._small_files = lambda place: examined.append(place.path) or iter(())  # type: ignore[method-assign]
        to_the_end(upkeep)
        assert examined == []
        upkeep.leases.acquire("clicks")
        to_the_end(upkeep)
    assert examined == [made.lake.table_path("clicks")]


def test_a_work_of_upkeep_ends_where_its_lease_goes(tmp_path: Path) -> None:
    """The next owner of the lease writes to the same tables."""
    made, done = grown(tmp_path, 60), list[Path]()

    def endless(place: Any) -> Iterator[None]:
        while True:
            done.append(place.path)
            yield

    with upkeep_of(made, made.owner, least=0) as upkeep:
        upkeep._small_files = endless  # type: ignore[method-assign]
        while len(done) < 2:
            assert upkeep.piece()
        upkeep.leases.release(made.owner)
        to_the_end(upkeep)
    assert done == [made.lake.target_path(made.target)] * 2


def test_a_round_of_upkeep_takes_fewer_pieces_than_there_are_folders(tmp_path: Path) -> None:
    """A loop that is behind does a piece a tick, and each tick leaves a folder: its rounds end all the same."""
    made, millisecond = grown(tmp_path, 60), itertools.count()
    target = made.lake.target_path(made.target)
    for number in range(500):
        Path(target / f"epoch-{number}").mkdir()
    with upkeep_of(made, made.owner, keep=timedelta(days=1), now=lambda: next(millisecond) / 1000) as kept:
        assert sum(1 for _ in iter(kept.piece, False)) < 50


@pytest.mark.thorough
def test_an_old_lake_is_brought_up_in_pieces_of_bounded_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No checkpoint, a long log that has expired, thousands of files: as where upkeep never ran."""
    made = grown(tmp_path, 3_000)
    lake, owner = made.lake, made.owner
    for log in (lake.logs.of("clicks"), lake.logs.of("users")):
        expired(Path(log.path), 1_000)
    in_files_of_few_rows(lake.logs.of(owner), "staged", 600)
    expected = lake.staged.rows(owner)
    work: Counter[str] = Counter()
    opened, unlink = pq.ParquetFile, os.unlink

    def seen(path: str) -> None:
        work["removed"] += 1
        unlink(path)

    def read(path: Path, **options: Any) -> pq.ParquetFile:
        work["opened"] += 1
        return opened(path, **options)

    monkeypatch.setattr(os, "unlink", seen)
    monkeypatch.setattr(pq, "ParquetFile", read)
    most, total = Counter(), Counter()
    with upkeep_of(made, owner, least=0) as kept:
        more = True
        while more:
            work.clear()
            with decoded(monkeypatch) as rows:
                more = kept.piece()
            work["rows"] = sum(rows.values())
            most |= work
            total += work
    assert total["removed"] > 2_000
    assert total["opened"] > 600
    assert most["removed"] <= REMOVED
    assert most["opened"] <= AT_ONCE
    assert most["rows"] <= 3 * 2 * CHECKPOINT + 10  # three tables of an INSERT
    assert Lake(tmp_path).staged.rows(owner) == expected
    stored = lake.ledger.last(owner)
    assert stored is not None
    assert 3_000 - stored.epoch <= CHECKPOINT
    history = where_rows_are(lake, made.insert.id, "clicks", history_of(lake, made.pipeline, made.insert))
    assert newest_of(lake, made.insert.id, lake.target_path(made.target))[1] == history


def expired(path: Path, versions: int) -> None:
    """Versions of long ago that change nothing, a checkpoint after them."""
    first = DeltaTable(path).version() + 1
    for version in range(first, first + versions):
        (path / "_delta_log" / f"{version:020}.json").write_text('{"commitInfo":{"timestamp":0}}\n')
    DeltaTable(path).create_checkpoint()
    for file in (path / "_delta_log").iterdir():
        os.utime(file, (0, 0))


def in_files_of_few_rows(log: OwnerLog, kind: str, files: int) -> None:
    """Rewrite what a log has of a kind, into many files, in one commit."""
    table, known = log._now()
    assert table is not None
    old = [file for file in known if file.kind == kind]
    rows = pa.concat_tables([pq.ParquetFile(log.path / file.path).read() for file in old]).sort_by("epoch")
    few = rows.num_rows // files
    made = [log._written(kind, rows.slice(start, few)) for start in range(0, rows.num_rows, few)]
    log.put(table, made, gone=[Removal(table.files[file.path], news=False) for file in old])
