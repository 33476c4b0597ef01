"""Raw binlog on disk for as long as another table of the same server still has to read it.

Tables of one server each have epochs of their own, and each would ask the server for the same bytes. The first that
reads a range leaves its events here; the others, whose plans end where it ended, take them from here and the server
sends them once. A spool is a copy and never the truth: what is missing or damaged is read from the server again.

    <folder>/<start>--<end>--<birth>--<birth>/events        frames of whole events
                                              for-<table>   one for each table that has not read it yet

It holds what the server logged of all its databases, not of the wanted tables alone: the folder is the user's own.
"""

from __future__ import annotations

import os
import shutil
import stat
import struct
import uuid
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from tidegate.pipelines.sources.mysql_cdc.binlog.events import Chunk
from tidegate.pipelines.sources.mysql_cdc.binlog.model import BinlogPosition, BinlogRange
from tidegate.pipelines.sources.mysql_cdc.errors import SpoolDamaged

LIMIT_BYTES = 2 << 30
"""What one server's spool may hold before its oldest ranges go, read or not."""

_FRAME = struct.Struct("<QQI")
"""Number of events, their bytes, CRC32 of starts and bytes: a server may send events without checksums."""

PRIVATE = 0o700

_EVENTS, _FOR, _TO = "events", "for-", "--"


@dataclass(frozen=True)
class Spool:
    """What `reader` shares with the other `readers`, tables of one server.

    `birth` and `end_birth` tell the files apart in which the reader's step begins and ends, so that a range of a log
    that began anew, or of a server that was restored, is never taken for one of the log that there is. `end_birth` is
    needed to read and to record.
    """

    folder: str
    reader: str
    readers: tuple[str, ...]
    birth: str
    end_birth: str = ""
    limit: int = LIMIT_BYTES

    def meeting(
        self, start: BinlogPosition, goal: BinlogPosition, is_there: Callable[[BinlogPosition, str], bool]
    ) -> BinlogPosition:
        """Where a piece from `start` towards `goal` should end: where the stored ranges that begin at `start` lead to;
        else where others ended last, so that the next pieces begin together; else at `goal`. `is_there`: whether the
        server has a place, in a file of that birth."""
        ranges = {
            first: last
            for first, last, born, _ in self._unread()
            if start.order < last.order <= goal.order and is_there(last, born)
        }
        place = start
        while place in ranges:
            place = ranges[place]
        return place if place != start else max(ranges.values(), key=lambda end: end.order, default=goal)

    def leave(self, position: BinlogPosition) -> None:
        """`reader` has committed everything before `position` and needs no range that ends there or earlier. A range is
        removed when its last reader leaves it."""
        for _, last, _, place in self._unread():
            if last.order <= position.order:
                (place / f"{_FOR}{self.reader}").unlink(missing_ok=True)
                if not any(place.glob(f"{_FOR}*")):
                    shutil.rmtree(place, ignore_errors=True)

    def stored(self, span: BinlogRange) -> Generator[Chunk, None, None] | None:
        """The events of exactly `span`; None when they are not here.

        What it yields is as it was recorded; SpoolDamaged is raised instead, and the range is gone then.
        """
        try:
            file = (self.place(span) / _EVENTS).open("rb")
        except FileNotFoundError:
            return None
        return self._whole(span, file)

    def _whole(self, span: BinlogRange, file: BinaryIO) -> Generator[Chunk, None, None]:
        try:
            yield from _frames(file)
        except SpoolDamaged:
            self.forget(span)
            raise

    def forget(self, span: BinlogRange) -> None:
        """Remove a range that is not what it should be."""
        shutil.rmtree(self.place(span), ignore_errors=True)

    def recording(self, span: BinlogRange) -> Recording:
        """Writes `span` down as it is read from the server."""
        return Recording(self, span)

    def place(self, span: BinlogRange) -> Path:
        """The folder of one range."""
        return Path(self.folder) / f"{_name(span.start)}{_TO}{_name(span.end)}{_TO}{self.birth}{_TO}{self.end_birth}"

    def _unread(self) -> list[tuple[BinlogPosition, BinlogPosition, str, Path]]:
        """Start, end, birth of the last file and folder of the ranges that wait for `reader`."""
        found = []
        for marker in Path(self.folder).glob(f"[!.]*{_TO}{self.birth}{_TO}*/{_FOR}{self.reader}"):
            first, last, _, born = marker.parent.name.split(_TO)
            found.append((_position(first), _position(last), born, marker.parent))
        return found

    def prune(self) -> None:
        """Remove the oldest ranges until the rest is within the limit."""
        ranges = sorted(Path(self.folder).glob(f"[!.]*/{_EVENTS}"), key=lambda path: path.stat().st_mtime, reverse=True)
        held = 0
        for events in ranges:
            held += events.stat().st_size
            if held > self.limit:
                shutil.rmtree(events.parent, ignore_errors=True)


class Recording:
    """One range on its way into the spool. It is there for others once `finish` is called, and leaves nothing else."""

    def __init__(self, spool: Spool, span: BinlogRange) -> None:
        self._spool = spool
        self._place = spool.place(span)
        self._folder = self._place.with_name(f".{uuid.uuid4().hex}")
        private = Path(spool.folder)
        private.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        if stat.S_IMODE(private.stat().st_mode) != PRIVATE:  # an older version left it open
            private.chmod(PRIVATE)
        self._folder.mkdir()
        self._file = (self._folder / _EVENTS).open("wb")

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def through(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """`chunks`, each written down before it goes on."""
        for chunk in chunks:
            _write(self._file, chunk)
            yield chunk

    def finish(self) -> None:
        """The range has been read to its end, and whole."""
        self._file.flush()
        os.fsync(self._file.fileno())
        for name in self._spool.readers:
            if name != self._spool.reader:
                (self._folder / f"{_FOR}{name}").touch()
        # A range that another reader recorded meanwhile is as good.
        with suppress(OSError):
            self._folder.rename(self._place)
        self._spool.prune()


def _write(file: BinaryIO, chunk: Chunk) -> None:
    starts = chunk.starts.astype(np.int64, copy=False).tobytes()
    file.write(_FRAME.pack(len(chunk.starts), len(chunk.data), zlib.crc32(chunk.data, zlib.crc32(starts))))
    file.write(starts)
    file.write(chunk.data)


def _frames(file: BinaryIO) -> Generator[Chunk, None, None]:
    """What was written. Raises SpoolDamaged where it is not there as it was."""
    with file:
        size = os.fstat(file.fileno()).st_size
        while file.tell() < size:
            yield _frame(file, size)


def _frame(file: BinaryIO, size: int) -> Chunk:
    begin = file.tell()
    if begin + _FRAME.size <= size:
        count, length, checksum = _FRAME.unpack(file.read(_FRAME.size))
        # A damaged length may be any number: no more is read than the file holds.
        if file.tell() + 8 * count + length <= size:
            starts, data = file.read(8 * count), file.read(length)
            if zlib.crc32(data, zlib.crc32(starts)) == checksum:
                return Chunk(data, np.frombuffer(starts, np.int64))
    raise SpoolDamaged("what another table left of the binlog is damaged", where=f"{file.name}, byte {begin}")


def _name(position: BinlogPosition) -> str:
    return f"{position.file}@{position.position}"


def _position(name: str) -> BinlogPosition:
    file, _, position = name.rpartition("@")
    return BinlogPosition(file, int(position))
