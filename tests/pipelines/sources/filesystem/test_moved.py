"""Which folder lies at a path is told by its own id, and by the files that were read: not by the path."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.sources.filesystem.folders import LONG_AGO, Files
from tests.pipelines.sources.sources_help import Bench
from tidegate.pipelines.connectors.protocol import KnowsItsPlace
from tidegate.pipelines.connectors.table import Options
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.filesystem import listing


def at(bench: Bench, path: Path, **options: str) -> Bench:
    """The same table, whose folder lies at another path now."""
    given = Options({**bench.table.options, "path": str(path), **options})
    return replace(bench, table=replace(bench.table, options=given))


def is_the_same(bench: Bench) -> bool:
    source = bench.source()
    assert isinstance(source, KnowsItsPlace)
    return source.is_the_same(bench.position)


def read(files: Files, *names: str) -> Bench:
    """A table that has read files of these names, each with other rows."""
    for number, name in enumerate(names or ("a.json", "b.json")):
        files.write(name, [{"id": number}])
    bench = files.bench()
    assert bench.plan() is not None
    return bench


def moved(old: Path, new: Path) -> Path:
    return old.rename(new)


def copied(old: Path, new: Path) -> Path:
    """As `cp -r` does it: other inodes, other times."""
    for file in shutil.copytree(old, new, copy_function=shutil.copyfile).rglob("*.json"):
        os.utime(file, (LONG_AGO + 500, LONG_AGO + 500))
    shutil.rmtree(old)
    return new


def copied_with_times(old: Path, new: Path) -> Path:
    return shutil.copytree(old, new)


def linked(old: Path, new: Path) -> Path:
    new.symlink_to(old)
    return new


def copied_back(old: Path, new: Path) -> Path:
    return moved(copied(copied(old, new), old), new)


@pytest.mark.parametrize("how", [moved, copied, copied_with_times, linked, copied_back])
def test_a_folder_at_another_path_goes_on(files: Files, tmp_path: Path, how: Callable[[Path, Path], Path]) -> None:
    bench = at(read(files), how(files.path, tmp_path / "elsewhere"))
    assert is_the_same(bench)
    assert bench.plan() is None
    again = Files(tmp_path / "elsewhere", at=LONG_AGO + 900)
    again.write("c.json", [{"id": 3}])
    assert bench.plan().summary == "file 3: c.json"
    (again.path / "b.json").rename(again.path / "d.json")
    with pytest.raises(SourceError, match=r"d\.json is b\.json, which was taken up already"):
        bench.plan()
    (again.path / "d.json").rename(again.path / "b.json")
    again.write("a.json", [{"id": 8}])
    with pytest.raises(SourceError, match=r"a\.json changed after it was taken up"):
        bench.plan()


def test_a_file_that_was_renamed_in_a_copy_is_not_read_again(files: Files, tmp_path: Path) -> None:
    bench = at(read(files), copied(files.path, tmp_path / "copy"))
    (tmp_path / "copy" / "b.json").rename(tmp_path / "copy" / "c.json")
    with pytest.raises(SourceError, match=r"c\.json is b\.json, which was taken up already"):
        bench.plan()


@pytest.mark.parametrize("inode", ["another", "given again"])
def test_another_folder_at_the_path_is_refused(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inode: str
) -> None:
    bench = read(files)
    if inode == "given again":
        (files.path / "a.json").unlink()
        (files.path / "b.json").unlink()
        monkeypatch.setattr(listing, "born", lambda path: 1)
    else:
        moved(files.path, tmp_path / "old")
        files.path.mkdir()
    files.write("c.json", [{"id": 5}])
    assert not is_the_same(bench)
    for act in (bench.plan, lambda: bench.source().ends(bench.position)):
        with pytest.raises(SourceError, match="t: the folder is another one than was read: none of the 2 files") as why:
            act()
    assert "put the old folder back" in why.value.next_command
    assert "--resnapshot t" in why.value.next_command


def test_a_planned_step_is_not_read_from_another_folder(files: Files, tmp_path: Path) -> None:
    bench = read(files)
    files.write("c.json", [{"id": 5}])
    bench.plan()
    moved(files.path, tmp_path / "old")
    Files(files.path).write("c.json", [{"id": 6}])
    with pytest.raises(SourceError, match="is another one than was read"):
        bench.source().read(None, bench.steps[-1])  # type: ignore[arg-type]


def test_large_files_need_their_times(files: Files, tmp_path: Path) -> None:
    """What lies between the ends of a large file is in no digest, so its reader has to say that it is a copy."""
    rows = [{"id": number} for number in range(9000)]
    files.write("a.json", rows)
    bench = files.bench()
    bench.plan()
    bench = at(bench, copied_with_times(files.path, tmp_path / "kept"))
    assert bench.plan() is None
    path = tmp_path / "kept" / "a.json"
    os.utime(path, (LONG_AGO + 500, LONG_AGO + 500))
    with pytest.raises(SourceError, match=r"changed after it was taken up: \d+ bytes then") as raised:
        bench.plan()
    command = raised.value.next_command
    assert command.startswith("if it is a copy: touch -d @"), command
    os.utime(path, ns=(2 * (int(command.split("@")[1].split()[0].replace(".", "")),)))
    assert bench.plan() is None


def test_a_link_to_a_single_file_is_the_file_that_the_script_names(files: Files, tmp_path: Path) -> None:
    read(files, "one.json", "two.json")
    link = tmp_path / "in.json"
    link.symlink_to(files.path / "one.json")
    bench = at(files.bench(), link)
    assert bench.plan().summary == "file 1: in.json"
    link.unlink()
    link.symlink_to(files.path / "two.json")
    with pytest.raises(SourceError, match=r"the file in\.json changed after it was taken up"):
        bench.plan()
    link.unlink()
    link.symlink_to(copied(files.path, tmp_path / "elsewhere") / "one.json")
    assert bench.plan() is None


def test_a_pattern_of_the_old_place(files: Files, tmp_path: Path) -> None:
    """It goes by whole paths, so it may leave out every file of the folder once that was moved."""
    files.write("a.json", [{"id": 1}])
    bench = files.bench(**{"source_path_regex-pattern": re.escape(str(files.path)) + "/.*"})
    assert bench.plan() is not None
    new = moved(files.path, tmp_path / "elsewhere")
    Files(new, at=LONG_AGO + 900).write("b.json", [{"id": 2}])
    with pytest.raises(SourceError, match=r"matches none of the files that were read, such as .*elsewhere/a\.json"):
        at(bench, new).plan()
    mended: Any = at(bench, new, **{"source.path.regex-pattern": r".*/[a-z]\.json"}).plan()
    assert mended.summary == "file 2: b.json"
