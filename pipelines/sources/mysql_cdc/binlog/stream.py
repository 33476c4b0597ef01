"""Follows a binlog through its files and checks every event: place, checksum, type, and the range's end.

What comes out are whole events of one file, each known and verified; the decoder and the header scan both read these.

When an event's transaction committed: MySQL's GTID events carry it in microseconds; of MariaDB's it is the event's own
second. Without GTID events it is the second in the header of each event itself, when its statement began.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from tidegate.pipelines.sources.cdc.errors import FRESH
from tidegate.pipelines.sources.mysql_cdc.binlog import checksum, tagged
from tidegate.pipelines.sources.mysql_cdc.binlog.events import (
    BETWEEN_FILES,
    CHECKSUM_BYTES,
    HEADER_BYTES,
    INSIDE_TRANSACTION,
    KNOWN,
    LENGTH_AT,
    REFUSED,
    TYPE_AT,
    Chunk,
    Cursor,
    Event,
    Offsets,
    unsigned_at,
)
from tidegate.pipelines.sources.mysql_cdc.binlog.model import FIRST_POSITION, BinlogPosition
from tidegate.pipelines.sources.mysql_cdc.errors import (
    BinlogEnded,
    ChecksumMismatch,
    MalformedEvent,
    UnknownEvent,
    UnsupportedEvent,
)

_ROTATE_POSITION_BYTES = 8


@dataclass(frozen=True)
class Events:
    """Events of one file, in order. `ends` are without checksums, `positions` where each begins in the file."""

    file: str
    data: bytes
    starts: Offsets
    ends: Offsets
    types: NDArray[np.uint8]
    positions: Offsets

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, cut: slice) -> Events:
        return Events(self.file, self.data, self.starts[cut], self.ends[cut], self.types[cut], self.positions[cut])

    def body(self, index: int) -> bytes:
        """What follows the event's header."""
        return self.data[self.starts[index] + HEADER_BYTES : self.ends[index]]

    def place(self, index: int) -> BinlogPosition:
        """The position of the event."""
        return BinlogPosition(self.file, int(self.positions[index]))


class EventStream:
    """Reads from `start` up to `end`, both transaction borders; without `end` everything that is fed.

    `verify` False leaves checksums and the events that `events.REFUSED` lists alone: nothing is decoded, and all of
    these begin no transaction. `done` once the range has been read.
    """

    def __init__(self, start: BinlogPosition, end: BinlogPosition | None = None, *, verify: bool = True) -> None:
        self._cursor = Cursor(start)
        self._end = end
        self._verify = verify
        self._checksum_bytes = CHECKSUM_BYTES
        self._inside_transaction = False
        self.done = False
        self._stop_at_end()

    @property
    def place(self) -> BinlogPosition:
        """The position of the next event."""
        return self._cursor.place

    def feed(self, chunk: Chunk) -> Iterator[Events]:
        """The chunk's events up to the range's end. A format-description event, which begins a file, comes alone.

        Raises ChecksumMismatch, MalformedEvent, UnknownEvent, UnsupportedEvent, BinlogEnded; each names its place.
        """
        data = chunk.data
        types = np.frombuffer(data, np.uint8)[chunk.starts + TYPE_AT]
        lengths = unsigned_at(data, chunk.starts + LENGTH_AT, 4)
        alone = np.flatnonzero((types == Event.ROTATE) | (types == Event.FORMAT_DESCRIPTION))
        borders = np.unique(np.concatenate([[0], alone, alone + 1, [len(types)]])).astype(int).tolist()
        for first, last in pairwise(borders):
            if self.done:
                return
            cut = slice(first, last)
            yield from self._run(data, chunk.starts[cut], lengths[cut], types[cut])

    def _run(self, data: bytes, starts: Offsets, lengths: Offsets, types: NDArray[np.uint8]) -> Iterator[Events]:
        """Events without a change of file between them; or one ROTATE; or one format-description event."""
        file = self._cursor.place.file
        positions = self._cursor.advance(data, starts, lengths, types)
        ends = starts + lengths - self._checksum_bytes
        run = self._before_end(Events(file, data, starts, ends, types, positions))
        if not len(run):
            return
        require_known(run, refuse=self._verify)
        if types[0] == Event.ROTATE:
            self._rotate(run, lengths)
        elif types[0] == Event.FORMAT_DESCRIPTION:
            self._begin_file(run, lengths)
            yield run
        else:
            if self._verify and self._checksum_bytes:
                self._require_checksums(run)
            yield run

    def _before_end(self, run: Events) -> Events:
        """The events that begin before the range's end, which must be a border between transactions."""
        inside = len(run)
        if self._end is not None and BinlogPosition(run.file).number == self._end.number:
            inside = int(np.searchsorted(run.positions, self._end.position))
        if inside < len(run):
            self._cursor.place = run.place(inside)
        in_files = np.flatnonzero(~BETWEEN_FILES[run.types[:inside]])
        if len(in_files):
            self._inside_transaction = bool(INSIDE_TRANSACTION[run.types[in_files[-1]]])
        self._stop_at_end()
        return run[:inside]

    def _stop_at_end(self) -> None:
        place, end = self._cursor.place, self._end
        if end is None or place.order < end.order:
            return
        self.done = True
        if place.number == end.number and place.position > end.position:
            raise BinlogEnded(f"the range ends at {end}, inside an event", where=place, next_command=FRESH)
        if self._inside_transaction:
            raise BinlogEnded(f"the range ends at {end}, inside a transaction", where=place, next_command=FRESH)

    def _require_checksums(self, run: Events) -> None:
        wrong = checksum.first_mismatch(run.data, run.starts, run.ends + CHECKSUM_BYTES)
        if wrong is not None:
            raise ChecksumMismatch("an event's bytes do not match its CRC32 checksum", where=run.place(wrong))

    def _rotate(self, run: Events, lengths: Offsets) -> None:
        """On to the next file. The artificial one, by which a dump begins, may have a checksum or none."""
        event = run.data[run.starts[0] : run.starts[0] + lengths[0]]
        ends_with_checksum = crc32(event[:-CHECKSUM_BYTES]) == int.from_bytes(event[-CHECKSUM_BYTES:], "little")
        body = event[HEADER_BYTES : -CHECKSUM_BYTES if ends_with_checksum else None]
        position = int.from_bytes(body[:_ROTATE_POSITION_BYTES], "little")
        try:
            file = body[_ROTATE_POSITION_BYTES:].decode()
        except UnicodeDecodeError as error:
            raise MalformedEvent("the next file's name cannot be read", where=run.place(0)) from error
        if self._inside_transaction and file != run.file:
            self._refuse_unfinished(run)
        self._cursor.place = BinlogPosition(file, position)
        self._stop_at_end()

    def _begin_file(self, run: Events, lengths: Offsets) -> None:
        if self._inside_transaction and run.positions[0] == FIRST_POSITION:
            self._refuse_unfinished(run)
        event = run.data[run.starts[0] : run.starts[0] + lengths[0]]
        algorithm = checksum.algorithm_of(event)
        if algorithm not in (checksum.NONE, checksum.CRC32):
            raise UnsupportedEvent(
                f"the file's checksums are of the kind {algorithm}; none and CRC32 are known",
                where=run.place(0),
                next_command="SET GLOBAL binlog_checksum = 'CRC32'   (on the server)",
            )
        self._checksum_bytes = CHECKSUM_BYTES if algorithm == checksum.CRC32 else 0
        if self._verify and self._checksum_bytes and not checksum.format_description_matches(event):
            raise ChecksumMismatch("an event's bytes do not match its CRC32 checksum", where=run.place(0))

    def _refuse_unfinished(self, run: Events) -> None:
        raise BinlogEnded(
            f"{run.file} ends inside a transaction, which a crash of the server left unfinished and undone",
            where=run.place(0),
            next_command=FRESH,
        )


_REFUSED = np.isin(np.arange(256), [*REFUSED])


def require_known(run: Events, *, refuse: bool = True) -> None:
    """Raise UnknownEvent or UnsupportedEvent for the first event that the decoder cannot go on past. Without `refuse`
    those that REFUSED lists are taken: what they mean does not matter to who reads headers alone."""
    unknown = np.flatnonzero(~KNOWN[run.types] & (refuse | ~_REFUSED[run.types]))
    if not len(unknown):
        return
    place, code = run.place(int(unknown[0])), int(run.types[unknown[0]])
    if code in REFUSED:
        meaning, fix = REFUSED[Event(code)]
        raise UnsupportedEvent(f"{meaning} ({Event(code).name}); on the server: {fix}", where=place, next_command=FRESH)
    raise UnknownEvent(
        f"an event of the type {code}, which this reader does not know, so it cannot know whether rows are lost",
        where=place,
        next_command=FRESH,
    )


_MICROSECONDS = 1_000_000
_COMMIT_TIME_AT = HEADER_BYTES + 42
"""Past flags, server's UUID, number, and the two logical clocks of a MySQL GTID event."""
_COMMIT_TIME_BYTES = 7
_ORIGINAL_FOLLOWS = 1 << 55


def gtid_indices(events: Events) -> Offsets:
    """The events that begin a transaction."""
    types = events.types
    begins = (types == Event.MARIADB_GTID) | (types == Event.GTID)
    begins |= (types == Event.ANONYMOUS_GTID) | (types == Event.GTID_TAGGED)
    return np.flatnonzero(begins)


_GROUP_COMMIT, _DISTRIBUTED = 0x02, 0x40 | 0x80
_START_ALTER, _ROLLBACK_ALTER = 0x02, 0x08
"""Flags of MariaDB's GTID event, and of its second byte of flags (`sql/log_event.h`, Gtid_log_event)."""


def is_half_of_alter(events: Events, index: int) -> bool:
    """Whether the GTID event `index` begins a START ALTER or a ROLLBACK ALTER: MariaDB's two-phase ALTER has its whole
    text in these, too, and is done with COMMIT ALTER (`binlog_alter_two_phase`)."""
    if events.types[index] != Event.MARIADB_GTID:
        return False
    body = events.body(index)
    flags, at = body[12], 13  # past number and domain
    if flags & _GROUP_COMMIT:
        at += 8
    if flags & _DISTRIBUTED:
        at += 6 + body[at + 4] + body[at + 5]
    return len(body) > at and bool(body[at] & (_START_ALTER | _ROLLBACK_ALTER))


def begin_times(events: Events, begins: Offsets) -> Offsets:
    """The commit times of the transactions that begin at the events `begins`; microseconds, UTC."""
    starts = events.starts[begins]
    times = unsigned_at(events.data, starts, 4) * _MICROSECONDS
    types = events.types[begins]
    for index in np.flatnonzero(types == Event.GTID_TAGGED).tolist():
        times[index] = tagged.parse(events.body(int(begins[index])), events.place(int(begins[index]))).committed
    precise = (types == Event.GTID) | (types == Event.ANONYMOUS_GTID)
    precise &= events.ends[begins] >= starts + _COMMIT_TIME_AT + _COMMIT_TIME_BYTES
    if precise.any():
        at = starts[precise] + _COMMIT_TIME_AT
        committed = unsigned_at(events.data, at, _COMMIT_TIME_BYTES)
        # Of a replicated transaction the time at its first server follows, which is the change's; 0 when not known.
        replicated = committed & _ORIGINAL_FOLLOWS != 0
        original = unsigned_at(events.data, at + np.where(replicated, _COMMIT_TIME_BYTES, 0), _COMMIT_TIME_BYTES)
        committed &= _ORIGINAL_FOLLOWS - 1
        times[precise] = np.where(replicated & (original != 0), original, committed)
    return times


class CommitTimes:
    """Knows the running transaction's commit time from chunk to chunk."""

    def __init__(self) -> None:
        self._running: int | None = None

    def of(self, events: Events) -> Offsets:
        """The commit time of each event's transaction; microseconds, UTC."""
        begins = gtid_indices(events)
        times = unsigned_at(events.data, events.starts, 4) * _MICROSECONDS
        known = begin_times(events, begins)
        if self._running is not None:
            begins, known = np.append(0, begins), np.append(self._running, known)
        if len(begins):
            latest = np.searchsorted(begins, np.arange(len(events)), side="right") - 1
            times = np.where(latest >= 0, known[latest], times)
            self._running = int(known[-1])
        return times
