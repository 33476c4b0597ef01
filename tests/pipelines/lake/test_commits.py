"""A commit makes the next version or none, beside whatever else writes, and looks at no folder."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.schema import Field
from deltalake.transaction import AddAction

from tidegate.pipelines.errors import LakeError
from tidegate.pipelines.lake import EpochRow, by_name, commits, delta_log
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.lake.adopt import adopt, survey
from tidegate.pipelines.lake.commits import Removal, by_delta_rs, commit
from tidegate.pipelines.lake.control import Records
from tidegate.pipelines.lake.leases import Leases
from tidegate.pipelines.lake.owner_log import OwnerLogs
from tidegate.pipelines.lake.upkeep import clean_log
from tidegate.pipelines.location import Location


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "a table of 100% ü"
    write_deltalake(path, rows(0))
    return path


def staged(table: Path, number: int) -> Path:
    folder = table / f"é 50%25 = {number}"
    folder.mkdir()
    pq.write_table(rows(number), folder / "a b.parquet")
    return folder


def add(table: Path, number: int, application: str = "a") -> int:
    folder = staged(table, number)
    return adopt(table, folder, survey(folder), application=application, epoch=number)


def there(table: Path) -> list[int]:
    return sorted(DeltaTable(table).to_pyarrow_table()["id"].to_pylist())


def versions(table: Path) -> list[int]:
    return sorted(int(file.stem) for file in (table / "_delta_log").glob("*.json"))


@pytest.fixture
def listings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The listings of logs: those of Python, and what makes delta-rs list."""
    found: list[str] = []

    def counted(of: Any, name: str) -> None:
        true = getattr(of, name)

        def listed(*args: Any, **kwargs: Any) -> Any:
            if of is DeltaTable or "_delta_log" in str(args[:1]):
                found.append(name)
            return true(*args, **kwargs)

        monkeypatch.setattr(of, name, listed)

    for name in ("scandir", "listdir"):
        counted(os, name)
    for name in ("__init__", "update_incremental", "is_deltatable"):
        counted(DeltaTable, name)
    return found


def test_ordinary_commits_list_no_log(table: Path, tmp_path: Path, listings: list[str]) -> None:
    logs = OwnerLogs(tmp_path)
    control, leases = Records(logs, EpochRow), Leases(logs, label="one")
    control.append([EpochRow("t", 1, 1, "source", 0, {}, "d")], application="c", version=1)
    leases.acquire("t")
    listings.clear()
    for number in range(2, 30):
        assert control.append([EpochRow("t", 1, number, "source", 0, {}, "d")], application="c", version=number)
        assert [row.epoch for row in control.rows("t", since=number - 1)][-1] == number
        assert add(table, number) == 1
    leases.renew()
    leases.close()
    assert listings == []
    assert there(table) == [0, *range(2, 30)]
    stored = DeltaTable(logs.of("t").path).to_pyarrow_table()
    assert Counter(stored["kind"].to_pylist()) == {"epochs": 29, "lease": 2}


def test_a_checkpoint_lists_no_log_and_is_delta_rs_s(table: Path, listings: list[str]) -> None:
    DeltaTable(table).alter.set_table_properties({"delta.checkpointInterval": "5"})
    listings.clear()
    for number in range(1, 15):
        add(table, number)
    assert listings == ["__init__"] * 3  # of folders with links to five commits
    log = table / "_delta_log"
    assert [int(file.name[:20]) for file in sorted(log.glob("*.checkpoint.parquet"))] == [5, 10, 15]
    assert json.loads((log / "_last_checkpoint").read_text())["version"] == 15
    for version in range(15):
        by_name.file_of(Location(log), version).delete()
    assert there(table) == list(range(15))
    assert DeltaTable(table).transaction_version("a") == 14
    state = by_name.read(table)
    assert state.transaction_version("a") == 14


def test_a_checkpoint_that_can_not_be_written_costs_no_commit(
    table: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    DeltaTable(table).alter.set_table_properties({"delta.checkpointInterval": "2"})

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Location, "put", full)
    assert add(table, 1) == 1
    assert there(table) == [0, 1]
    assert "no checkpoint of version 2 was written: [Errno 28] No space" in caplog.text


ADD = """
import sys
from pathlib import Path
from tests.pipelines.lake.test_commits import add
for number in range(1, 41):
    add(Path(sys.argv[1]), number + int(sys.argv[2]), sys.argv[2])
"""


def test_of_two_processes_each_version_is_ones(table: Path) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", ADD, str(table), offset]) for offset in ("100", "200")]
    for number in range(1, 21):
        write_deltalake(table, rows(number), mode="append")
    assert [writer.wait() for writer in writers] == [0, 0]
    assert there(table) == [*range(21), *range(101, 141), *range(201, 241)]
    assert versions(table) == list(range(101))


def test_what_another_writer_commits_in_between_stays(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link, turn = os.link, iter([True, True])

    def overtaken(unfinished: Path, version: Path) -> None:
        if next(turn, False):
            write_deltalake(table, rows(99), mode="append")
        link(unfinished, version)

    monkeypatch.setattr(os, "link", overtaken)
    assert add(table, 1) == 1
    assert there(table) == [0, 1, 99, 99]
    assert versions(table) == [0, 1, 2, 3]


def test_the_same_epoch_of_another_runner_is_not_added_twice(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link, turn = os.link, iter([True])

    def overtaken(unfinished: Path, version: Path) -> None:
        if next(turn, False):
            add(table, 1)
        link(unfinished, version)

    folder = table / "other"
    folder.mkdir()
    pq.write_table(rows(1), folder / "a.parquet")
    monkeypatch.setattr(os, "link", overtaken)
    assert adopt(table, folder, survey(folder), application="a", epoch=1) == 0
    assert there(table) == [0, 1]


KILLED = """
import os, sys
from pathlib import Path
from tests.pipelines.lake.test_commits import add
os.link = lambda *_: os._exit(9)
add(Path(sys.argv[1]), 1)
"""


def test_a_kill_before_the_link_leaves_what_no_reader_sees_and_upkeep_removes(table: Path) -> None:
    assert subprocess.run([sys.executable, "-c", KILLED, str(table)], check=False).returncode == 9
    log = table / "_delta_log"
    (left,) = log.glob("_commit_*")
    assert there(table) == [0]
    state = by_name.read(table)
    assert state.version() == 0
    assert sum(clean_log(table, keep=timedelta(hours=1))) == 0
    assert left.exists()
    os.utime(left, (0, time.time() - 7200))
    sum(clean_log(table, keep=timedelta(hours=1)))
    assert not left.exists()
    assert versions(table) == [0]


def asks_for(path: Path, *features: str, of_readers: Sequence[str] = ()) -> None:
    """Another writer has enabled these features on a table of one version."""
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": list(features)}
    if of_readers:
        protocol |= {"minReaderVersion": 3, "readerFeatures": list(of_readers)}
    (path / "_delta_log" / f"{1:020}.json").write_text(json.dumps({"protocol": protocol}))


def sets_a_property(path: Path) -> None:
    """delta-rs adds the type VARIANT to what a table with features asks for, whatever the property."""
    asks_for(path, "timestampNtz", of_readers=["timestampNtz"])
    DeltaTable(path).alter.set_table_properties({"delta.logRetentionDuration": "interval 9 days"})
    assert "variantType" in (DeltaTable(path).protocol().reader_features or ())


def has_a_variant(path: Path) -> None:
    asks_for(path, "variantType", of_readers=["variantType"])
    (described,) = (
        json.loads(line)["metaData"]
        for line in (path / "_delta_log" / f"{0:020}.json").read_text().splitlines()
        if "metaData" in json.loads(line)
    )
    fields = json.loads(described["schemaString"])["fields"]
    fields.append({"name": "v", "type": "variant", "nullable": True, "metadata": {}})
    described["schemaString"] = json.dumps({"type": "struct", "fields": fields})
    (path / "_delta_log" / f"{2:020}.json").write_text(json.dumps({"metaData": described}))


HARMLESS: dict[str, Callable[[Path], object]] = {
    "clustering": lambda path: asks_for(path, "clustering", "domainMetadata"),
    "vacuumProtocolCheck": lambda path: asks_for(path, "vacuumProtocolCheck", of_readers=["vacuumProtocolCheck"]),
    "appendOnly": lambda path: DeltaTable(path).alter.set_table_properties({"delta.appendOnly": "true"}),
    "a property set by delta-rs": sets_a_property,
}


@pytest.mark.parametrize("feature", HARMLESS)
def test_files_are_added_whatever_else_the_table_is_used_for(table: Path, feature: str) -> None:
    HARMLESS[feature](table)
    assert add(table, 1) == 1
    opened = delta_log.opened(table)
    assert opened is not None
    assert delta_log.plain(opened)
    files = delta_log.all_files(DeltaTable(table))  # whose dataset knows not all of these features
    assert sorted(pq.read_table(files)["id"].to_pylist()) == [0, 1]


REFUSED: dict[str, Callable[[Path], object]] = {
    "rowTracking": lambda path: asks_for(path, "rowTracking", "domainMetadata"),
    "inCommitTimestamp": lambda path: asks_for(path, "inCommitTimestamp"),
    "typeWidening": lambda path: asks_for(path, "typeWidening", of_readers=["typeWidening"]),
    "variantType": has_a_variant,
    "delta.constraints.small": lambda path: DeltaTable(path).alter.add_constraint({"small": "id < 10"}),
}


@pytest.mark.parametrize("feature", REFUSED)
def test_what_is_not_done_for_a_table_is_named_and_nothing_is_added(table: Path, feature: str) -> None:
    REFUSED[feature](table)
    before = versions(table)
    with pytest.raises(LakeError, match=feature) as refused:
        add(table, 1)
    assert "'path'" in refused.value.next_command
    assert versions(table) == before


def test_no_row_leaves_a_table_that_is_only_appended_to(table: Path) -> None:
    HARMLESS["appendOnly"](table)
    there = delta_log.opened(table)
    assert there is not None
    (old,) = delta_log.files_of(there, "path", "size_bytes")
    with pytest.raises(LakeError, match="only appended to"):
        commit(there, table, [Removal(old["path"], old["size_bytes"], {})])
    commit(there, table, [Removal(old["path"], old["size_bytes"], {}, news=False)])


def test_what_a_writer_has_to_know_more_for_is_left_to_delta_rs(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    DeltaTable(table).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    left: list[Path] = []
    by_delta_rs = commits._by_delta_rs
    monkeypatch.setattr(commits, "_by_delta_rs", lambda *args: left.append(args[1]) or by_delta_rs(*args))
    assert add(table, 1) == 1
    assert left == [table]
    assert there(table) == [0, 1]


def test_what_delta_rs_commits_is_durable_before_it_has_its_name(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    DeltaTable(table).alter.set_table_properties(
        {"delta.enableChangeDataFeed": "true", "delta.checkpointInterval": "2"}
    )
    log, synced, linked = table / "_delta_log", set[int](), list[str]()
    fsync, link = os.fsync, os.link
    monkeypatch.setattr(os, "fsync", lambda opened: (synced.add(os.fstat(opened).st_ino), fsync(opened)))

    def named(unfinished: str, name: str) -> None:
        assert os.stat(unfinished).st_ino in synced
        linked.append(Path(name).name)
        link(unfinished, name)

    monkeypatch.setattr(os, "link", named)
    lasting = {"delta.logRetentionDuration": "interval 2 days"}
    by_delta_rs(table, lambda at: DeltaTable(at).alter.set_table_properties(lasting))
    add(table, 1)
    lake_rows.add_columns(Location(table), [Field("later", "string")])  # and the files' statistics before
    by_delta_rs(table, lambda at: DeltaTable.create(at, rows().schema, mode="ignore"))  # nothing to do
    commits.create(table, schema=rows().schema, mode="overwrite")
    assert linked == [f"{version:020}.json" for version in range(2, 7)]
    assert (DeltaTable(table).version(), by_name.last_checkpoint(Location(log))) == (6, 5)
    assert not [name for name in linked if "tidegate-log" in (log / name).read_text()]


def test_a_file_system_without_links_is_left_to_delta_rs(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", none)
    assert add(table, 1) == 1
    assert there(table) == [0, 1]
    assert not list((table / "_delta_log").glob("_commit_*"))


@pytest.mark.parametrize("by_delta_rs", [False, True])
def test_a_version_that_is_not_the_next_is_not_made(table: Path, by_delta_rs: bool) -> None:
    old = DeltaTable(table) if by_delta_rs else delta_log.opened(table)
    assert old is not None
    write_deltalake(table, rows(1), mode="append")
    with pytest.raises(CommitFailedError):
        commit(old, table, [])
    assert versions(table) == [0, 1]


def gone_on(table: Path) -> None:
    """Other processes go on: commits, a checkpoint, and a log that is cleaned up to it."""
    for number in range(20, 26):
        add(table, number, "b")
    DeltaTable(table).create_checkpoint()
    add(table, 26, "b")
    sum(clean_log(table, keep=timedelta(0)))


@pytest.mark.parametrize("by_delta_rs", [False, True])
def test_who_was_stopped_while_the_log_was_cleaned_up_makes_no_version_that_was_there_before(
    table: Path, monkeypatch: pytest.MonkeyPatch, by_delta_rs: bool
) -> None:
    old = delta_log.opened(table)
    assert old is not None
    commits.checkpoint(Location(table), 0)
    late = by_name.checkpoint_of(old.log, 0).read()
    writer = (DeltaTable, "create_write_transaction") if by_delta_rs else (Location, "put_new")
    stopped, real = iter([True]), getattr(*writer)

    def stops(*args: Any, **kwargs: Any) -> Any:
        if next(stopped, False):
            gone_on(table)
            by_name.checkpoint_of(old.log, 0).put(late)  # one more process that was stopped
        return real(*args, **kwargs)

    monkeypatch.setattr(*writer, stops)
    if by_delta_rs:
        monkeypatch.setattr(commits, "_writable", lambda _: False)
    with pytest.raises(CommitFailedError, match="cleaned up"):
        commit(old, table, [AddAction("lost.parquet", 1, {}, 0, True, "{}")])
    assert versions(table) == [6, 7]
    assert there(table) == [0, *range(20, 27)]


STOPS = {
    "before the checkpoint": ("put", ".checkpoint.parquet"),
    "before the log names it": ("put_instead", "_last_checkpoint"),
    "while the log names it": ("put", "_last_checkpoint"),
}


@pytest.mark.parametrize("stop", STOPS)
def test_a_checkpoint_that_comes_late_takes_no_version_back(
    table: Path, monkeypatch: pytest.MonkeyPatch, stop: str
) -> None:
    DeltaTable(table).alter.set_table_properties({"delta.checkpointInterval": "3"})
    method, suffix = STOPS[stop]
    stopped, real = iter([True]), getattr(Location, method)

    def stops(self: Location, *args: Any) -> Any:
        if str(self).endswith(suffix) and next(stopped, False):
            gone_on(table)
        return real(self, *args)

    monkeypatch.setattr(Location, method, stops)
    add(table, 1)
    add(table, 2)  # version 3, whose checkpoint comes late
    delta_log._open.clear()  # as another process
    assert next(stopped, None) is None
    state = delta_log.opened(table)
    assert state is not None
    assert (state.version(), DeltaTable(table).version()) == (10, 10)
    assert len(delta_log.all_files(state)) == 10
    add(table, 3, "c")
    assert (DeltaTable(table).version(), there(table)) == (11, [0, 1, 2, 3, *range(20, 27)])
    for number in range(4, 8):
        add(table, number)
    assert json.loads((table / "_delta_log" / "_last_checkpoint").read_text())["version"] == 15
    assert by_name.read(table) is not None


def test_a_log_that_names_a_checkpoint_that_was_cleaned_up_is_read_to_its_end(table: Path) -> None:
    """Writers that do not look may name an old one."""
    log = Location(table / "_delta_log")
    commits.checkpoint(Location(table), 0)
    late, name = by_name.checkpoint_of(log, 0).read(), (log / "_last_checkpoint").read()
    gone_on(table)
    by_name.checkpoint_of(log, 0).put(late)
    for hint in (name, b'{"ver'):
        (log / "_last_checkpoint").put(hint)
        delta_log._open.clear()
        state = delta_log.opened(table)
        assert state is not None
        assert state.version() == 7
        assert len(delta_log.all_files(state)) == 8
    add(table, 1)
    assert there(table) == [0, 1, *range(20, 27)]
    commits.checkpoint(Location(table), 8)
    assert by_name.last_checkpoint(log) == 8
    (log / "_last_checkpoint").put(name)
    sum(clean_log(table, keep=timedelta(0)))
    assert by_name.last_checkpoint(log) == 8
    assert versions(table) == [8]
    assert not by_name.checkpoint_of(log, 0).is_there()
    assert there(table) == [0, 1, *range(20, 27)]


def test_the_oldest_version_leaves_first(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who finds a version in the log takes one that is not there for one that never was."""
    for number in range(1, 13):
        add(table, number)
    DeltaTable(table).create_checkpoint()
    left: list[int] = []
    unlink = os.unlink
    monkeypatch.setattr(os, "unlink", lambda path, **_: left.append(int(Path(path).name[:20])) or unlink(path))
    sum(clean_log(table, keep=timedelta(0)))
    assert left == list(range(12))
