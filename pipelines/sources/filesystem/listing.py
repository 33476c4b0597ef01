"""Which files a folder has now, and which of them are finished.

A file is finished once it has not been written to for the settle time. Names that begin with `.` or `_`, and names
that end with `.tmp` or `._COPYING_` or hold `.inprogress`, are passed over, folders and files alike.

PARTITIONED BY: values that all rows of a file have by its folders, as Hive lays them out:
`dt=2026-01-01/hour=03/part.json`. A file lies in one folder for each partition column, in their order, each called
`column=value`, from the table's folder on; what is below these folders is free. Names are URL-encoded (`%3A` is a
colon).
"""

from __future__ import annotations

import datetime
import decimal
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from tidegate.pipelines import paths
from tidegate.pipelines.commands import Advised
from tidegate.pipelines.connectors.protocol import Json
from tidegate.pipelines.connectors.table import Column, Table
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.filesystem.birth import born
from tidegate.pipelines.sources.formats.shape import precision
from tidegate.pipelines.sources.rows import NOTHING_AFTER
from tidegate.pipelines.syntax.dialect import parse_type
from tidegate.pipelines.syntax.types import INTEGERS, STRINGS, FlinkType, Kind

SPLIT = "0"
"""Files are read one after another in one order, so a folder is one split."""

DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""The value that Hive and Spark write for NULL. (Flink's own default is `__DEFAULT_PARTITION__`.)"""

_BITS: Mapping[Kind, int] = {Kind.TINYINT: 7, Kind.SMALLINT: 15, Kind.INT: 31, Kind.BIGINT: 63}


class PartitionError(Exception):
    """What is wrong with the folders of a file; a phrase that follows the file's name."""


@dataclass(frozen=True)
class Partitions:
    """The partition columns of a table; none where it has no PARTITIONED BY."""

    columns: tuple[Column, ...] = ()
    default_name: str = DEFAULT_PARTITION

    @classmethod
    def of(cls, table: Table, default_name: str) -> Partitions:
        return cls(tuple(table.column(name) for name in table.partition_columns), default_name)

    def owns(self, folder: str) -> bool:
        """Whether a folder's name is that of a partition, whatever its value begins or ends with."""
        name, sign, _ = folder.partition("=")
        return bool(sign) and unquote(name) in {column.source_name for column in self.columns}

    def values(self, name: str) -> tuple[str | None, ...]:
        """The values of the file `name` (its path below the table's folder), by column: texts that cast to the types
        without loss, None for NULL. Raises PartitionError."""
        folders = name.split("/")[:-1]
        if len(folders) < len(self.columns):
            raise PartitionError(f"does not lie in folders {self._layout()}")
        return tuple(self._value(column, folder) for column, folder in zip(self.columns, folders, strict=False))

    def _layout(self) -> str:
        return "/".join(f"{column.source_name}=…" for column in self.columns)

    def _value(self, column: Column, folder: str) -> str | None:
        written, sign, text = folder.partition("=")
        try:
            found, text = unquote(written, errors="strict"), unquote(text, errors="strict")
        except UnicodeDecodeError as error:
            raise PartitionError(f"lies in {folder}, which is no UTF-8 text once it is decoded") from error
        if not sign or found != column.source_name:
            raise PartitionError(f"lies in {folder}, and the folders are {self._layout()}")
        if text == self.default_name:
            if not column.nullable:
                raise PartitionError(f"lies in {folder}, which is NULL, and column {column.name} is NOT NULL")
            return None
        if not fits(text, parse_type(column.type)):
            raise PartitionError(f"lies in {folder}: column {column.name}: '{text}' does not fit {column.type}")
        return text


def fits(text: str, of: FlinkType) -> bool:
    """Whether a text is a value of a partition column's type, as a CSV field would be."""
    if of.kind in STRINGS:
        return True
    if of.kind in INTEGERS:
        bound = 1 << _BITS[of.kind]
        return bool(re.fullmatch(r"[+-]?[0-9]{1,19}", text)) and -bound <= int(text) < bound
    if of.kind is Kind.BOOLEAN:
        return text.lower() in ("true", "false")
    if of.kind is Kind.DECIMAL:
        return bool(re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)", text)) and _has_digits(text, of)
    if of.kind is Kind.DATE:
        return _is_time(text, r"[0-9]{4}-[0-9]{2}-[0-9]{2}", datetime.date.fromisoformat)
    digits = precision(of)
    fraction = rf"(\.[0-9]{{1,{digits}}})?" if digits else ""
    pattern = rf"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}} [0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}{fraction}"
    return _is_time(text, pattern, datetime.datetime.fromisoformat)


def _has_digits(text: str, of: FlinkType) -> bool:
    number = decimal.Decimal(text).normalize(decimal.Context(prec=200))
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)
    scale = of.scale or 0
    return -exponent <= scale and (not number or number.adjusted() < (of.precision or 0) - scale)


def _is_time(text: str, pattern: str, parse: Callable[[str], object]) -> bool:
    if not re.fullmatch(pattern, text):
        return False
    try:
        parse(text)
    except ValueError:
        return False
    return True


SAMPLE_BYTES = 1 << 15
"""How much of each end of a file is in its digest."""

CLOCK_SKEW_S = 60
"""How far a file's time may be ahead of this machine's clock: such a file is waited for; one further ahead is
refused."""


@dataclass(frozen=True)
class File:
    """A file as it was listed. `name` is its path below the folder, `modified` ns since 1970. `device` and `inode`
    distinguish the file from others, whatever it is called; 0 where they are not known. `touched` is when anything of
    it was changed last, its time too (ns since 1970), which nobody can set; `sample` a digest of its ends: both are
    kept of files that were taken up."""

    name: str
    size: int
    modified: int
    device: int = field(default=0, compare=False)
    inode: int = field(default=0, compare=False)
    touched: int = field(default=0, compare=False)
    sample: str = field(default="", compare=False)

    @property
    def sampled_whole(self) -> bool:
        """Whether the digest of its ends is that of all its bytes."""
        return bool(self.sample) and self.size <= 2 * SAMPLE_BYTES

    def is_still(self, other: File) -> bool:
        """Whether `other`, listed at another time and by another name, is this file unchanged."""
        same = self.inode == other.inode or not self.inode or not other.inode
        return same and (self.size, self.modified) == (other.size, other.modified)

    def untouched(self, other: File) -> bool:
        """Whether `other`, the file of this name now, cannot have other bytes, as nobody has touched it since."""
        return (self.inode, self.touched) == (other.inode, other.touched)


@dataclass(frozen=True)
class Folder:
    """The folder, or the one file, that 'path' names. `pattern` matches whole absolute paths of the files to read;
    `partitions` are the folders that these must lie in; `home` is the script's folder. `written`: 'path' itself, whose
    last part names a single file, whatever file a link leads to."""

    path: Path
    table: str
    pattern: str | None = None
    partitions: Partitions = field(default=Partitions())
    home: str | None = None
    written: str = ""

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

    def id(self) -> Json | None:
        """The storage's id of the folder, whatever its path: its inode, and when it was made, as an inode is given
        again to another folder once its own is removed. None for a single file."""
        try:
            return None if self.path.is_file() else {"inode": self.path.stat().st_ino, "born": born(self.path)}
        except OSError:
            return None

    def name(self, path: Path) -> str:
        """What a file is called in listings: its path below the folder."""
        if path == self.path:
            return Path(self.written).name or path.name
        return path.relative_to(self.path).as_posix()

    def matches(self, path: Path) -> bool:
        """Whether the pattern lets a file in."""
        return self.pattern is None or re.fullmatch(self.pattern, str(path)) is not None

    def full(self, name: str) -> Path:
        """Where a listed file lies."""
        return self.path if self.path.is_file() else self.path / name

    def now(self, name: str) -> File | None:
        """A listed file as it is now; None if it is gone. Raises SourceError if a link that leads out of the allowed
        folders has replaced it."""
        path = self.full(name)
        paths.check(path.resolve(), str(path), self.table, self.home)
        return self._file(path)

    def sample(self, file: File) -> str:
        """A digest of the first and the last bytes of a file, which may be all that it has. "" if it is gone."""
        try:
            with self.full(file.name).open("rb") as opened:
                read = opened.read(SAMPLE_BYTES)
                opened.seek(max(file.size - SAMPLE_BYTES, len(read)))
                return hashlib.sha256(read + opened.read(SAMPLE_BYTES)).hexdigest()
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise self.error(
                f"cannot be read: {error.strerror}", "make it readable, and run again", name=file.name
            ) from error

    def values(self, name: str) -> tuple[str | None, ...]:
        """The values of the partition columns by the folders of a file, each as text or number that casts to its type.
        Raises SourceError if they do not fit."""
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
            f"{self.table}: {'the folder' if name is None else f'the file {_shown(name)}'} {what}",
            where=_shown(self.path if name is None else self.full(name)),
            state=NOTHING_AFTER,
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
                elif self.matches(path):
                    yield self._file(self._text(path))

    def _text(self, path: Path) -> Path:
        """The path, which is text: the lake stores it as such."""
        name = self.name(path)
        if name != _shown(name):
            raise self.error(
                "has a name that is no UTF-8 text",
                "rename it, or leave it out by 'source.path.regex-pattern', then run again",
                name=name,
            )
        return path

    def _file(self, path: Path) -> File | None:
        try:
            status = path.stat()
        except FileNotFoundError:  # gone since it was listed, or a link to nothing
            return None
        return File(
            self.name(path), status.st_size, status.st_mtime_ns, status.st_dev, status.st_ino, status.st_ctime_ns
        )


def _shown(path: str | Path) -> str:
    """A path as text, whatever bytes it has."""
    return os.fsencode(path).decode(errors="backslashreplace")


def unfinished(name: str) -> bool:
    """Whether a name marks a file that nobody is to read."""
    return name.startswith((".", "_")) or name.endswith((".tmp", "._COPYING_")) or ".inprogress" in name


def settled(file: File, settle_ms: int, now: float) -> bool:
    """Whether nothing was written to the file for `settle_ms`; `now` in s since 1970."""
    return file.modified <= (now - settle_ms / 1000) * 1e9


def in_future(file: File, now: float) -> bool:
    """Whether the file's time is further ahead of `now` (s since 1970) than clocks may differ: it could not be read
    until then."""
    return file.modified > (now + CLOCK_SKEW_S) * 1e9
