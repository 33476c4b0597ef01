"""Which files a folder has now, and which of them are finished.

A file is finished once it has not been written to for the settle time. Names that begin with `.` or `_`, and names
that end with `.tmp` or `._COPYING_` or hold `.inprogress`, are passed over, folders and files alike.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tidegate.pipelines import paths
from tidegate.pipelines.commands import Advised
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.filesystem.partitions import PartitionError, Partitions

CLOCK_SKEW_S = 60
"""A file's time may be so far ahead of this machine's clock, and it is waited for; one further ahead is refused."""


@dataclass(frozen=True)
class File:
    """A file as it was listed. `name` is its path below the folder, `modified` ns since 1970. `device` and `inode` tell
    the file from others, whatever it is called; 0 where they are not known."""

    name: str
    size: int
    modified: int
    device: int = field(default=0, compare=False)
    inode: int = field(default=0, compare=False)

    def is_still(self, other: File) -> bool:
        """Whether `other`, listed at another time and by another name, is this file unchanged."""
        same = self.inode == other.inode or not self.inode or not other.inode
        return same and (self.size, self.modified) == (other.size, other.modified)


@dataclass(frozen=True)
class Folder:
    """The folder, or the one file, that 'path' names. `pattern` matches whole absolute paths of the files to read;
    `partitions` are the folders that these must lie in; `home` is the script's."""

    path: Path
    table: str
    pattern: str | None = None
    partitions: Partitions = field(default=Partitions())
    home: str | None = None

    def files(self) -> list[File]:
        """All files, by time of their last change, then by name. Raises SourceError when there is no such folder, and
        for a link that leads out of the allowed folders."""
        try:
            found = [self._file(self.path)] if self.path.is_file() else list(self._below(self.path, ()))
        except OSError as error:
            raise self.error(
                f"cannot be listed: {error.strerror}", "make the folder readable, and run again"
            ) from error
        return sorted((file for file in found if file), key=lambda file: (file.modified, file.name))

    def id(self) -> int | None:
        """What the storage knows the folder by, whatever it is called: its inode. None for a single file."""
        try:
            return None if self.path.is_file() else self.path.stat().st_ino
        except OSError:
            return None

    def full(self, name: str) -> Path:
        """Where a listed file lies."""
        return self.path if self.path.is_file() else self.path / name

    def now(self, name: str) -> File | None:
        """A listed file as it is now; None if it is gone. Raises SourceError where a link that leads out of the allowed
        folders has taken its place since."""
        path = self.full(name)
        paths.check(path.resolve(), str(path), self.table, self.home)
        return self._file(path)

    def values(self, name: str) -> tuple[str | None, ...]:
        """What the folders of a file say of the partition columns, each as its type is cast from. Raises SourceError
        where they do not fit."""
        try:
            return self.partitions.values(name)
        except PartitionError as error:
            raise self.error(
                str(error),
                "rename the folder, or take the file out, or leave it out by 'source.path.regex-pattern'",
                name=name,
            ) from error

    def error(self, what: str, next_command: Advised, *, name: str | None = None) -> SourceError:
        """An error of this folder, or of one of its files."""
        return SourceError(
            f"{self.table}: {'the folder' if name is None else f'the file {name}'} {what}",
            where=str(self.path if name is None else self.full(name)),
            state="what was read before stands; nothing after it was read",
            next_command=next_command,
        )

    def _below(self, folder: Path, seen: tuple[Path, ...]) -> Iterator[File | None]:
        with os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if unfinished(entry.name) and not (entry.is_dir() and self.partitions.owns(entry.name)):
                    continue
                path = Path(entry.path)
                if entry.is_symlink():
                    target = path.resolve()
                    paths.check(target, str(path), self.table, self.home)
                    if target in seen or target == folder:
                        continue
                if entry.is_dir():
                    yield from self._below(path, (*seen, folder.resolve()))
                elif self.pattern is None or re.fullmatch(self.pattern, str(path)):
                    yield self._file(path)

    def _file(self, path: Path) -> File | None:
        try:
            told = path.stat()
        except FileNotFoundError:  # gone since it was listed, or a link to nothing
            return None
        name = path.name if path == self.path else path.relative_to(self.path).as_posix()
        return File(name, told.st_size, told.st_mtime_ns, told.st_dev, told.st_ino)


def unfinished(name: str) -> bool:
    """Whether a name says that nobody is to read it."""
    return name.startswith((".", "_")) or name.endswith((".tmp", "._COPYING_")) or ".inprogress" in name


def settled(file: File, settle_ms: int, now: float) -> bool:
    """Whether nothing was written to the file for `settle_ms`; `now` in s since 1970."""
    return file.modified <= (now - settle_ms / 1000) * 1e9


def in_future(file: File, now: float) -> bool:
    """Whether the file's time is further ahead of `now` (s since 1970) than clocks may differ: it would be passed over
    until that time has come."""
    return file.modified > (now + CLOCK_SKEW_S) * 1e9
