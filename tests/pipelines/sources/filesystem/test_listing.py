"""Which files a folder has, and in which order."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.pipelines.sources.filesystem.folders import LONG_AGO, Files
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.filesystem.listing import File, Folder, settled


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
