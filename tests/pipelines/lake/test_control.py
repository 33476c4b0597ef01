from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import MISSING, dataclass, field, fields, make_dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tidegate.pipelines.errors import LakeError
from tidegate.pipelines.lake import EpochRow, Lake, StagedRow, VerdictRow, WatermarkRow, by_name, commits, delta_log
from tidegate.pipelines.lake.control import Records
from tidegate.pipelines.lake.leases import Leases, read_leases
from tidegate.pipelines.lake.owner_log import OwnerLogs
from tidegate.pipelines.lake.records import NewerRecord, Record, canonical
from tidegate.pipelines.lake.upkeep import live_files, remove_dead
from tidegate.pipelines.runtime.gate import GateVerdict
from tidegate.pipelines.runtime.splits import stored_splits


def row(owner: str, epoch: int, generation: int = 1, **plan: object) -> EpochRow:
    return EpochRow(owner, generation, epoch, "source", 1_700_000_000_000, plan, "digest")


@pytest.fixture
def table(tmp_path: Path) -> Records[EpochRow]:
    return Records(OwnerLogs(tmp_path), EpochRow)


@pytest.mark.parametrize("owner", ["clicks", "insert clicks", "a/b", "100%", "ü ber", "x=y", "it's"])
def test_rows_come_back_by_owner_whatever_it_is_called(table: Records[EpochRow], owner: str) -> None:
    table.append([row(owner, 1, a=1)], application=f"{owner}/plan", version=1)
    table.append([row("another", 1)], application="another", version=1)

    assert table.rows(owner) == [row(owner, 1, a=1)]
    assert table.last(owner) == row(owner, 1, a=1)
    assert table.owners() == sorted([owner, "another"])


def test_a_version_that_is_not_greater_writes_nothing(table: Records[EpochRow]) -> None:
    assert table.append([row("t", 1, first=True)], application="t/plan", version=1)
    assert not table.append([row("t", 1, first=False)], application="t/plan", version=1)
    assert not table.append([row("t", 0)], application="t/plan", version=0)

    assert [found.plan for found in table.rows("t")] == [{"first": True}]


def test_the_newest_row_is_of_the_newest_generation_even_when_an_older_one_has_more_epochs(
    table: Records[EpochRow],
) -> None:
    for epoch in (1, 2, 3):
        table.append([row("t", epoch)], application="t/1", version=epoch)
    table.append([row("t", 1, generation=2)], application="t/2", version=1)

    newest = table.last("t")
    assert (newest.generation, newest.epoch) == (2, 1)
    old = table.last("t", 1)
    assert old.epoch == 3


def test_the_newest_row_is_found_where_compaction_has_put_generations_together(
    table: Records[EpochRow],
) -> None:
    for epoch in range(1, 11):
        table.append([row("t", epoch)], application="t/1", version=epoch)
    for epoch in range(1, 4):
        table.append([row("t", epoch, generation=2)], application="t/2", version=epoch)
    _compacted(table)
    table.append([row("t", 4, generation=2)], application="t/2", version=4)
    found = [table.last("t"), table.last("t", 2), table.last("t", 1), table.last("t", 3)]
    assert [item and (item.generation, item.epoch) for item in found] == [(2, 4), (2, 4), (1, 10), None]


def test_compaction_changes_no_row(table: Records[EpochRow]) -> None:
    for epoch in range(1, 12):
        table.append([row("t", epoch, n=epoch)], application="t", version=epoch)
    before = table.rows("t")
    _compacted(table)

    assert table.rows("t") == before
    assert [found.epoch for found in table.rows("t", epoch=7)] == [7]
    assert table.last("t") == row("t", 11, n=11)
    assert not Records(OwnerLogs(table.logs.control), EpochRow).append([row("t", 11)], application="t", version=11)


def test_two_writers_of_one_version_leave_one_row(tmp_path: Path) -> None:
    def write(number: int) -> None:
        Records(OwnerLogs(tmp_path), EpochRow).append([row("t", 1, by=number)], application="t", version=1)

    OwnerLogs(tmp_path).of("t").create()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))

    assert len(Records(OwnerLogs(tmp_path), EpochRow).rows("t")) == 1


def test_a_lake_keeps_its_identity(tmp_path: Path) -> None:
    assert Lake(tmp_path / "lake").id == Lake(tmp_path / "lake").id
    assert Lake(tmp_path / "lake").id != Lake(tmp_path / "other").id


def test_a_record_of_an_older_version_is_read_and_takes_the_new_fields(tmp_path: Path) -> None:
    young = {"late", "alignment"}
    columns = [
        (each.name, each.type, field(default=each.default, default_factory=each.default_factory))
        if each.default_factory is MISSING or each.default is not MISSING
        else (each.name, each.type, field(default_factory=each.default_factory))
        for each in fields(WatermarkRow)[len(fields(Record)) :]
        if each.name not in young
    ]
    old_row: Any = make_dataclass("OldRow", columns, bases=(Record,), namespace={"table": "watermarks"}, frozen=True)

    first = WatermarkRow(
        "t", 1, 1, 5, 10, 7, False, splits=[{"split": "0", "timestamp": 7, "use_processing_time": False}]
    )
    stored = {name: value for name, value in vars(first).items() if name not in young}
    Records(OwnerLogs(tmp_path), old_row).append([old_row(**stored)], application="t", version=1)
    table = Records(OwnerLogs(tmp_path), WatermarkRow)
    assert table.rows("t") == [first]

    second = replace(first, epoch=2, late=3, alignment={"group": "g"})
    assert table.append([second], application="t", version=2)
    assert table.rows("t") == [first, second]
    _compacted(table)
    assert Records(OwnerLogs(tmp_path), WatermarkRow).rows("t") == [first, second]


def _compacted(table: Records[Any]) -> None:
    for log in table.logs.there():
        while log.together() > 0:
            pass


def _many(table: Records[EpochRow], *spans: tuple[int, int, int]) -> None:
    """Rows of (generation, first epoch, how many), a commit each."""
    for number, (generation, first, count) in enumerate(spans):
        rows = [row("t", epoch, generation) for epoch in range(first, first + count)]
        table.append(rows, application="t", version=table.logs.of("t").version("t") + 1 + number)


def test_put_together_every_row_is_found_as_before_by_who_had_the_table_open_and_by_who_opens_it(
    table: Records[EpochRow], tmp_path: Path
) -> None:
    _many(table, (1, 1, 700), (1, 701, 700), *((1, epoch, 1) for epoch in range(1401, 1420)), (2, 1, 2500))
    _many(table, *((2, epoch, 1) for epoch in range(2501, 2520)))
    table.append([row("other", 1)], application="other", version=1)
    before, newest = table.rows("t"), table.last("t")

    assert table.logs.of("t").together() > 0
    for reader in (table, Records(OwnerLogs(tmp_path), EpochRow)):
        assert reader.rows("t") == before
        assert reader.last("t") == newest
        assert reader.rows("other") == [row("other", 1)]
        assert list(reader.newest_first("t")) == before[::-1]
        assert list(reader.newest_first("t", generation=1, upto=705)) == before[704::-1]
        assert [found.epoch for found in reader.rows("t", generation=2, since=2518)] == [2518, 2519]
        for generation, epoch in ((1, 1), (1, 999), (1, 1000), (1, 1419), (2, 1), (2, 2519)):
            assert reader.rows("t", generation=generation, epoch=epoch) == [row("t", epoch, generation)]


def test_a_record_is_written_again_a_few_times_in_all(table: Records[EpochRow]) -> None:
    log = table.logs.of("t")
    _many(table, *((1, 1 + 2_000 * number, 2_000) for number in range(9)), *((2, 1 + epoch, 1) for epoch in range(3)))
    assert log.together() == 8
    (full,) = (file.path for file in log._files() if file.rows == 18_000)
    for first in range(4, 604, 20):
        _many(table, *((2, epoch, 1) for epoch in range(first, first + 20)))
        _compacted(table)
    assert full in {file.path for file in log._files()}
    assert len(log._files()) <= 1 + 4 * 8
    spans = sorted(file.epochs for file in log._files() if file.generations == (2, 2))
    assert [begin for begin, _ in spans] == [1, *(end + 1 for _, end in spans[:-1])], "no file spans another"
    assert table.rows("t", generation=2) == [row("t", epoch, 2) for epoch in range(1, 604)]


def test_another_commit_in_between_makes_putting_together_give_up(
    table: Records[EpochRow], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _many(table, *((1, epoch, 1) for epoch in range(1, 40)))
    log = table.logs.of("t")
    written = log._written

    def beside(kind: str, part: pa.Table, **how: Any) -> Any:
        Records(OwnerLogs(tmp_path), EpochRow).append([row("t", 99)], application="beside", version=1)
        return written(kind, part, **how)

    monkeypatch.setattr(log, "_written", beside)
    assert table.logs.of("t").together() == 0
    assert [found.epoch for found in table.rows("t")] == [*range(1, 40), 99]
    assert len(list(Path(log.path).glob("*.parquet"))) == 40


@pytest.mark.parametrize("step", ["a record", "compaction"])
def test_who_was_stopped_before_a_commit_names_no_file_that_was_deleted_as_a_dead_one(
    table: Records[EpochRow], monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    _many(table, *((1, epoch, 1) for epoch in range(1, 10)))
    log, made = table.logs.of("t"), commits.commit

    def stopped(*given: Any, **more: Any) -> None:
        assert sum(remove_dead(log.path, live_files(log.path), keep=timedelta(0), hidden=True)) == 1
        made(*given, **more)

    with monkeypatch.context() as patched:
        patched.setattr(commits, "commit", stopped)
        if step == "a record":
            table.append([row("t", 10)], application="t/plan", version=10)
        else:
            assert log.together() > 0
    found = Records(OwnerLogs(table.logs.control), EpochRow).rows("t")
    assert [each.epoch for each in found] == [*range(1, 11 if step == "a record" else 10)]


def test_what_a_look_decodes_does_not_grow_with_the_history(
    table: Records[EpochRow], monkeypatch: pytest.MonkeyPatch
) -> None:
    def decoded_by_a_look() -> int:
        found: list[int] = []
        of = EpochRow.from_row.__func__  # type: ignore[attr-defined]
        with monkeypatch.context() as patched:
            patched.setattr(
                EpochRow, "from_row", classmethod(lambda cls, owner, row: found.append(1) or of(cls, owner, row))
            )
            newest = table.last("t")
            table.rows("t", generation=1, epoch=newest.epoch)
            table.rows("t", generation=1, epoch=1)
            table.rows("t", generation=1, since=newest.epoch - 3)
        return len(found)

    _many(table, (1, 1, 400))
    table.logs.of("t").together()
    young = decoded_by_a_look()
    _many(table, *((1, 401 + 5_000 * number, 5_000) for number in range(8)))
    table.logs.of("t").together()
    assert decoded_by_a_look() <= young
    assert len(table.logs.of("t")._files()) <= 20
    assert sum(map(len, table.logs.decoded._cached.values())) <= 2_048


def test_an_append_cleans_no_log(table: Records[EpochRow]) -> None:
    """It would list all of it."""
    _many(table, (1, 1, 1))
    DeltaTable(table.logs.of("t").path).alter.set_table_properties({"delta.logRetentionDuration": "interval 0 seconds"})
    _many(table, *((1, epoch, 1) for epoch in range(2, 130)))
    assert len((table.logs.of("t").path / "_delta_log").files(".json")) == 131


@pytest.mark.parametrize("cleaned", [False, True])
def test_a_checkpoint_has_all_that_the_log_has(tmp_path: Path, cleaned: bool) -> None:
    """For delta-rs and for Tidegate, also where the commits before it have left the log; what was put together stays
    listed as removed for as long as somebody may read it."""
    table: Records[EpochRow] = Records(OwnerLogs(tmp_path), EpochRow)
    log = table.logs.of("t")
    _many(table, *((1, epoch, 1) for epoch in range(1, 28)))
    log.together()  # version 28
    _many(table, *((1, epoch, 1) for epoch in range(28, 33)))
    state, folder = by_name.read(log.path), log.path / "_delta_log"
    assert state is not None
    assert by_name.last_checkpoint(folder) == 30
    assert state.version == 33
    removed = by_name.removed_since(state, 0)
    assert removed is not None
    assert len(removed) == 27
    for version in range(30 if cleaned else 0):
        by_name.file_of(folder, version).delete()
        by_name.checkpoint_of(folder, version).delete()
    delta_log._open.clear()
    there = DeltaTable(log.path)
    assert there.version() == 33
    assert sorted(there.to_pyarrow_table()["epoch"].to_pylist()) == list(range(1, 33))
    assert set(pa.table(there.get_add_actions())["path"].to_pylist()) == set(state.files)
    assert there.transaction_version("t") == state.committed("t")
    assert there.metadata().configuration == state.metadata.configuration
    stored = pq.read_table(by_name.checkpoint_of(folder, 30))
    assert {row["path"] for row in stored["remove"].to_pylist() if row} == set(removed)
    assert [row.epoch for row in table.rows("t")] == list(range(1, 33))
    there.create_checkpoint()  # of delta-rs, on top of ours
    assert DeltaTable(log.path).transaction_version("t") == state.committed("t")
    _many(table, *((1, epoch, 1) for epoch in range(33, 41)))
    assert by_name.last_checkpoint(folder) == 40
    assert [row.epoch for row in table.rows("t")] == list(range(1, 41))


def test_a_reader_of_an_older_version_reads_all_rows_or_says_that_files_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Upkeep removes what was put together ten minutes ago, and its next checkpoint does not list it any more."""
    table: Records[EpochRow] = Records(OwnerLogs(tmp_path), EpochRow)
    _many(table, *((1, epoch, 1) for epoch in range(1, 61)))
    rows, held = table.rows("t"), delta_log.opened(table.logs.of("t").path)
    _compacted(table)
    with monkeypatch.context() as patched:  # another process that does not look at the log again
        patched.setattr(delta_log, "opened", lambda *_: held)
        assert Records(OwnerLogs(tmp_path), EpochRow).rows("t") == rows
    assert (
        sum(remove_dead(table.logs.of("t").path, live_files(table.logs.of("t").path), keep=timedelta(0), hidden=True))
        == 60
    )
    with monkeypatch.context() as patched:
        patched.setattr(delta_log, "opened", lambda *_: held)
        with pytest.raises(LakeError, match="No such file"):
            Records(OwnerLogs(tmp_path), EpochRow).rows("t")
    assert table.rows("t") == Records(OwnerLogs(tmp_path), EpochRow).rows("t") == rows


DAMAGE = {
    "a data file is gone": lambda data, log: data.unlink(),
    "a data file is cut": lambda data, log: data.write_bytes(data.read_bytes()[:40]),
    "a data file holds something else": lambda data, log: data.write_text("no Parquet"),
    "a commit holds something else": lambda data, log: log.write_text("{no JSON"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_log_says_which_file_to_bring_back(tmp_path: Path, damage: str) -> None:
    Records(OwnerLogs(tmp_path), EpochRow).append([row("t", 1)], application="a", version=1)
    path = OwnerLogs(tmp_path).of("t").path
    (data,) = Path(path).glob("*.parquet")
    DAMAGE[damage](data, max((Path(path) / "_delta_log").glob("*.json")))
    with pytest.raises(LakeError, match="back from a backup") as caught:
        Records(OwnerLogs(tmp_path), EpochRow).last("t")
    assert str(path) in caught.value.where


@dataclass(frozen=True)
class Newer(EpochRow):
    """An epoch of a later version, which stores more of it."""

    paused: int | None = None


def test_a_column_of_a_newer_tidegate_is_refused_and_upkeep_does_not_lose_it(tmp_path: Path) -> None:
    newer, older = Records(OwnerLogs(tmp_path), Newer), Records(OwnerLogs(tmp_path), EpochRow)
    older.append([row("t", 1)], application="t", version=1)
    for epoch in range(2, 25):
        made = Newer("t", 1, epoch, "source", 5, {}, "digest", paused=epoch)
        newer.append([made], application="t", version=epoch)

    assert older.rows("t", epoch=1) == [row("t", 1)]
    with pytest.raises(
        NewerRecord, match="a newer Tidegate wrote this EpochRow: this one does not know its paused"
    ) as e:
        older.last("t")
    assert (e.value.where, e.value.state) == (
        "t, generation 1, epoch 24 of the lake's epochs",
        "nothing was changed",
    )
    assert "install the Tidegate that wrote it" in e.value.next_command
    _compacted(older)
    assert [found.paused for found in newer.rows("t", since=2)] == list(range(2, 25))


def test_what_a_row_stores_with_a_field_of_a_newer_tidegate_is_refused_by_its_row(tmp_path: Path) -> None:
    file = {"path": "a", "disposition": "publish", "size": 1, "rows": 1, "stats": "", "paused": 1}
    staged = StagedRow("insert e", 1, 7, "d", 5, "f", [file], {}, {})
    verdict = VerdictRow("insert e", 1, 7, "d", 5, True, [], [{"name": "c", "passed": True, "paused": 1}])
    split = {"split": "0", "timestamp": 1, "use_processing_time": False, "paused": 1}
    landed = WatermarkRow("t", 1, 7, 5, 1, 1, False, splits=[split])
    summed = {**landed.to_row(), "record": canonical({**json.loads(landed.to_row()["record"]), "sums": {"paused": 1}})}
    for read in (
        lambda: staged.of("publish"),
        lambda: GateVerdict.of(verdict),
        lambda: stored_splits(landed),
        lambda: WatermarkRow.from_row("t", summed),
    ):
        with pytest.raises(NewerRecord, match="does not know its paused") as refused:
            read()
        assert "generation 1, epoch 7" in refused.value.where


def test_a_lease_with_a_field_of_a_newer_tidegate_is_refused(tmp_path: Path) -> None:
    Leases(OwnerLogs(tmp_path), label="x").acquire("clicks")
    path = OwnerLogs(tmp_path).of("clicks").path
    paused = """regexp_replace(record, '^.', '{"paused":1,')"""
    DeltaTable(str(path)).update(updates={"record": paused}, predicate="kind = 'lease'")
    with pytest.raises(NewerRecord, match="wrote this LeaseRow: this one does not know its paused"):
        read_leases(OwnerLogs(tmp_path))
