"""A power cut: what the disk has of a folder then. Whatever was not synced may be gone, or not."""

from __future__ import annotations

import os
import random
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tidegate.pipelines import location
from tidegate.pipelines.lake import delta_log

Key = tuple[int, int]
"""A file as it was written last: inode, and the time of its last change (ns)."""


@dataclass
class Disk:
    """What is synced of all that lies below `root`. `at_sync` is called before each sync, with the path.

    A file has what it had at its last sync, and a folder the names that it had at its own. What was never synced is not
    there; a file whose name is there, and whose content is not, is empty.
    """

    root: Path
    at_sync: Callable[[str], None] = lambda _: None
    contents: dict[Key, bytes] = field(default_factory=dict)
    names: dict[int, dict[str, os.stat_result]] = field(default_factory=dict)

    @contextmanager
    def watched(self) -> Iterator[Disk]:
        """During the block syncs are seen; all that lies there before is durable."""
        for folder, _, files in os.walk(self.root):
            for path in (folder, *(os.path.join(folder, file) for file in files)):
                self._synced(path)
        real = os.fsync

        def fsync(opened: int) -> None:
            path = os.readlink(f"/proc/self/fd/{opened}")
            if path == str(self.root) or path.startswith(f"{self.root}/"):
                self.at_sync(path)
                self._synced(path)
            real(opened)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(os, "fsync", fsync)
            yield self

    def _synced(self, path: str) -> None:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            self.names[status.st_ino] = _names(path)
        else:
            self.contents[_key(status)] = Path(path).read_bytes()

    def after_cut(self, chance: random.Random | None = None) -> dict[str, bytes | None]:
        """Every file (None: folder) after a power cut, by its path below the root. By `chance` some of what was not
        synced has come to the disk all the same: of some folders the names, of some files the content."""
        found: dict[str, bytes | None] = {}
        self._collect(str(self.root), "", chance, found)
        return found

    def _collect(self, live: str, below: str, chance: random.Random | None, found: dict[str, bytes | None]) -> None:
        inode = os.stat(live).st_ino if os.path.isdir(live) else -1
        names: Mapping[str, os.stat_result] = self.names.get(inode, {})
        if chance is not None and inode != -1 and chance.random() < 0.5:
            names = _names(live)
        for name, status in names.items():
            path, there = os.path.join(live, name), f"{below}{name}"
            if stat.S_ISDIR(status.st_mode):
                found[there] = None
                self._collect(path, f"{there}/", chance, found)
                continue
            content = self.contents.get(_key(status))
            if content is None and chance is not None and chance.random() < 0.5 and os.path.exists(path):
                content = Path(path).read_bytes()
            found[there] = content or b""


def _names(folder: str) -> dict[str, os.stat_result]:
    found: dict[str, os.stat_result] = {}
    for entry in os.scandir(folder):
        try:
            found[entry.name] = entry.stat(follow_symlinks=False)
        except FileNotFoundError:  # another thread has removed it
            continue
    return found


def _key(status: os.stat_result) -> Key:
    return status.st_ino, status.st_mtime_ns


def laid_out(files: Mapping[str, bytes | None], folder: Path) -> Path:
    """A folder with these files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = folder / name
        if content is None:
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    return folder


def another_process() -> None:
    """Forget what this process knows of the disk, as one that starts after a crash."""
    delta_log._open.clear()
    for known in (location._synced, location._found, location._anchored):
        known.clear()
