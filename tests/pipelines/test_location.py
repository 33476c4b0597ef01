"""A place in a lake, and that nothing but Location opens one."""

from __future__ import annotations

import ast
import errno
import os
from pathlib import Path

import pyarrow as pa
import pytest

from tests.power import Disk, another_process
from tidegate.pipelines import location
from tidegate.pipelines.location import Location, durable, note_found

ROOT = Path(__file__).parents[2]

ROOMS = (
    *("pipelines/lake", "pipelines/runtime", "pipelines/sinks", "pipelines/joins", "pipelines/testing"),
    *("pipelines/process", "pipelines/sources/cdc", "quality_checks", "assets", "orchestration"),
)
"""Who works on a lake. `versions` and the spools of databases are scratch."""

NO_LAKE = {
    "assets/components.py": "a project of Dagster",
    "assets/factories.py": "Dagster's settings",
    "assets/scaffold.py": "a project of Dagster",
    "orchestration/alerts/sources.py": "a script",
    "orchestration/alerts/channels.py": "an address of the web",
    "orchestration/commands/options.py": "a script",
    "orchestration/commands/report.py": "the page",
    "orchestration/web_server.py": "Dagster's own folder",
    "orchestration/definitions.py": "a project of Dagster",
    "orchestration/demo/stage.py": "the demo's own files, a script",
    "orchestration/demo/writer.py": "a journal of the demo",
    "orchestration/report/page.py": "its style",
    "pipelines/runtime/class_archive.py": "an archive of Spark's classes",
    "pipelines/runtime/engine.py": "Spark's jars, a socket",
    "pipelines/runtime/indexes.py": "scratch",
    "pipelines/runtime/scripts.py": "a script",
    "pipelines/runtime/session.py": "the engine's log",
    "pipelines/runtime/upkeep.py": "scratch",
    "pipelines/testing/connectors.py": "a folder of a test",
    "quality_checks/against_source.py": "scratch",
}
"""What opens files that are no lake's, and which."""

MODULES = {"shutil", "glob", "io", "fileinput", "mmap"}
OF_PATHS = {
    *("open", "exists", "is_file", "is_dir", "stat", "lstat", "mkdir", "unlink", "rmdir", "iterdir", "glob", "rglob"),
    *("touch", "rename", "read_text", "read_bytes", "write_text", "write_bytes", "symlink_to", "hardlink_to", "walk"),
}
"""What a Path has and no Location."""
OF_OS = {"link", "listdir", "makedirs", "remove", "removedirs", "replace", "scandir", "symlink", "truncate", "utime"}
OF_ARROW = {"pq", "ds", "fs", "pa", "feather"}
OPENING = {
    *("ParquetFile", "ParquetWriter", "ParquetDataset", "read_metadata", "read_schema", "read_table", "write_table"),
    *("dataset", "memory_map", "OSFile", "LocalFileSystem"),
}
ALLOWED = {
    ("leases.py", "open"),  # /proc
    ("delta_log.py", "fs.LocalFileSystem"),  # what delta-rs is lent, below the table's own root
    ("lake.py", "self.exists"),  # Lake.exists
    ("extension.py", "self.function.open"),  # of a process function
    ("epoch.py", "self._binding.function.open"),
    ("identity.py", "ast.walk"),
    ("status.py", "lake.exists"),
}


def opens(source: str, name: str = "") -> list[str]:
    """What a module does to a path without a Location, by line."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                found += [(node.lineno, each.name) for each in names if each.name in MODULES]
            case ast.ImportFrom(module=module) if module in MODULES:
                found.append((node.lineno, module or ""))
            case ast.Call(func=ast.Name(id="open")):
                found.append((node.lineno, "open"))
            case ast.Call(func=ast.Attribute(value=of, attr=what) as called) if what in OF_PATHS or (
                isinstance(of, ast.Name) and what in (OPENING if of.id in OF_ARROW else OF_OS if of.id == "os" else ())
            ):
                found.append((node.lineno, ast.unparse(called)))
            case _:
                pass
    return [f"{line}: {what}" for line, what in sorted(found) if (name, what) not in ALLOWED]


def files() -> list[str]:
    found = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    return sorted(path.relative_to(ROOT).as_posix() for path in (*found, ROOT / "pipelines/parquet.py"))


def test_nothing_else_opens_a_path_of_a_lake() -> None:
    """And whoever does not any more leaves its list."""
    found = {file: opens((ROOT / file).read_text(), Path(file).name) for file in files()}
    assert {file: what for file, what in found.items() if what and file not in NO_LAKE} == {}
    assert {file for file, what in found.items() if what} == NO_LAKE.keys()


@pytest.mark.parametrize(
    "line",
    [
        "os.unlink(path)",
        "os.replace(path, path)",
        "open(path)",
        "path.exists()",
        "(path / 'a').stat()",
        "pq.ParquetFile(path)",
        "pq.write_table(rows, path)",
        "Path(path).read_text()",
        "path.parent.mkdir()",
    ],
)
def test_what_opens_a_path_is_found(line: str) -> None:
    assert opens(line) != []


def test_a_place_below_another(tmp_path: Path) -> None:
    root = Location(tmp_path)
    file = root / "a" / "b.json"
    assert (str(file), file.name, file.below(root)) == (f"{tmp_path}/a/b.json", "b.json", "a/b.json")
    assert file == Location(f"{tmp_path}/a/b.json")
    with pytest.raises(ValueError, match="does not lie in"):
        Location(f"{tmp_path}x/b").below(root)
    assert os.fspath(file) == str(file)
    assert (file.parent, file.parent.parent) == (root / "a", root)


def test_a_file_is_put_whole_and_a_new_one_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = Location(tmp_path) / "a.json"
    assert (file.is_there(), file.tag(), file.delete()) == (False, None, False)
    with pytest.raises(FileNotFoundError):
        file.read()
    file.put_new(b"one")
    content, tag = file.read_tagged()
    assert (content, tag, file.size()) == (b"one", file.tag(), 3)
    with pytest.raises(FileExistsError):
        file.put_new(b"two")
    file.put(b"three")
    assert (file.read(), file.tag() == tag) == (b"three", False)
    assert not file.put_instead(b"four", tag)
    assert not file.put_instead(b"four", None)
    folder = os.open(tmp_path, os.O_RDONLY)
    location.fcntl.flock(folder, location.fcntl.LOCK_EX)  # another process is at it
    assert not file.put_instead(b"four", file.tag())
    os.close(folder)
    assert file.read() == b"three"
    assert file.put_instead(b"three", file.tag())
    assert (file.delete(), file.put_instead(b"three", None)) == (True, True)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(location.os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        file.put(b"four")
    assert file.read() == b"three"
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_what_is_put_outlives_a_power_cut_and_so_does_what_was_found(tmp_path: Path) -> None:
    root = Location(tmp_path)
    another_process()
    with Disk(tmp_path).watched() as disk:
        log = root / "new" / "table" / "_delta_log"
        log.make()
        (root / "new" / "plain").make()
        assert disk.after_cut() == {}
        (log / "0.json").put_new(b"zero")
        there = {"new": None, "new/table": None, "new/table/_delta_log": None, "new/table/_delta_log/0.json": b"zero"}
        assert {name: disk.after_cut().get(name) for name in there} == there
        found = log / "1.json"
        Path(found).write_bytes(b"of a runner that died before it was synced")
        Path(root / "new" / "plain" / "rows").write_bytes(b"of Spark")
        lost = disk.after_cut()
        assert "new/table/_delta_log/1.json" not in lost
        assert not lost.get("new/plain/rows")
        note_found(found, found.tag() or (0, 0))
        durable([root / "new" / "plain" / "rows"])
        (root / "other").put(b"goes on from it")
        kept = disk.after_cut()
        assert kept["new/table/_delta_log/1.json"] == Path(found).read_bytes()
        assert (kept["new/plain/rows"], kept["other"]) == (b"of Spark", b"goes on from it")


def test_a_file_or_a_folder_is_given_another_name(tmp_path: Path) -> None:
    root = Location(tmp_path)
    (root / "a" / "in").make()
    (root / "a" / "in" / "x").put(b"new")
    (root / "old").put(b"old")
    assert (root / "a" / "in").move(root / "b") == root / "b"
    assert (root / "b" / "x").move(root / "old").read() == b"new"
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["a", "b", "old"]


def test_what_the_storage_does_not_say_is_not_taken_for_nothing(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="too long"):
        (Location(tmp_path) / ("x" * 300)).is_there()
    (tmp_path / "file").touch()
    assert not (Location(tmp_path) / "file" / "below").is_there()


def test_a_folder_that_another_process_makes_meanwhile_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Location(tmp_path) / "a" / "b"
    monkeypatch.setattr(location.os, "makedirs", lambda path, exist_ok: (tmp_path / "a" / "b").mkdir(parents=True))
    folder.make()
    assert folder.is_there()


def test_a_folder_is_listed_in_pieces_and_deleted_where_it_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(location, "LISTED", 2)
    folder = Location(tmp_path) / "t"
    assert list(folder.listed()) == []
    (folder / "in" / "deep").make()
    (folder / "in").make()
    for name in ("b", "a", "c"):
        size = (folder / f"{name}.parquet").write_parquet(pa.table({"x": [1]}))
        assert size == (folder / f"{name}.parquet").size()
    pieces = list(folder.listed())
    assert [len(piece) for piece in pieces] == [2, 2]
    assert {entry.name: entry.is_folder for piece in pieces for entry in piece} == {
        "in": True, "a.parquet": False, "b.parquet": False, "c.parquet": False,
    }  # fmt: skip
    assert [file.below(folder) for file in folder.files(".parquet")] == ["a.parquet", "b.parquet", "c.parquet"]
    for place in (folder / "in" / "deep", folder / "in", folder):
        place.delete_if_empty()
    assert folder.is_there()
    assert not (folder / "in").is_there()
    with pytest.raises(FileExistsError):
        (folder / "a.parquet").make()
    folder.delete_all()
    assert not folder.is_there()
