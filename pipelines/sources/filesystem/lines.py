"""The records of text files as a frame of Spark: vectorised, in byte ranges, each record at its own place.

A record's position is that of its first byte in the file (of a compressed file: in what it unpacks to), so it is the
same however a file is cut into ranges. Records without a character are no messages.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import IO, cast

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tidegate.pipelines.frames import by_number
from tidegate.pipelines.sources.formats.json_arrays import ArrayValues, begins_with_array, is_undecided
from tidegate.pipelines.sources.formats.records import BOM, Records, trimmed

RANGE_BYTES = 64 << 20
BLOCK_BYTES = 4 << 20
MAX_RECORD_BYTES = 256 << 20
COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
"""Endings of compressed files; those are read from their beginning, in one task."""

CHANGED = "tidegate: a file is not as it was planned: "
"""Prefix of an executor's exception; the file's path follows."""

BROKEN = "tidegate: a file cannot be read on: "
"""Prefix of an executor's exception; JSON of path, position and error follows."""

_NEWLINE, _RETURN = 10, 13


@dataclass(frozen=True)
class Range:
    """The records of a file that begin at `start` <= byte < `stop`. `number` is the file's; the file must still have
    this size and modified time (ns). `inside`: whether the first line of the range begins inside of quotes."""

    number: int
    path: str
    size: int
    modified: int
    start: int
    stop: int
    inside: bool = False


def read_lines(
    spark: SparkSession,
    files: Sequence[tuple[int, str, int, int]],
    records: Records,
    range_bytes: int = RANGE_BYTES,
    *,
    keeps_broken: bool = False,
) -> DataFrame:
    """The records of files (number, path, size, modified): `_value` BINARY, `_file` BIGINT, `_position` BIGINT, `_cut`
    STRING.

    A file that cannot be unpacked to its end, or whose records cannot be told apart, fails the read, unless
    `keeps_broken`: then its last row says in `_cut` what is wrong. It is null in all others.
    """
    tasks = packed(files, range_bytes)
    if records.quotes:
        tasks = _inside(spark, tasks, records)
    schema = "_value BINARY, _file BIGINT, _position BIGINT, _cut STRING"
    return by_number(spark, partial(_of_task, tasks, records, keeps_broken), len(tasks), schema, len(tasks))


def packed(files: Sequence[tuple[int, str, int, int]], range_bytes: int = RANGE_BYTES) -> list[list[Range]]:
    """The ranges of files, small ones several to a task."""
    tasks: list[list[Range]] = []
    room = 0
    for number, path, size, modified in files:
        step = max(size, 1) if _codec(path) else range_bytes
        for start in range(0, max(size, 1), step):
            part = Range(number, path, size, modified, start, min(start + step, size))
            if not tasks or room < part.stop - part.start:
                tasks.append([])
                room = range_bytes
            tasks[-1].append(part)
            room -= part.stop - part.start
    return tasks


def _of_task(
    tasks: Sequence[Sequence[Range]], records: Records, keeps_broken: bool, number: int
) -> Iterator[pa.RecordBatch]:
    for part in tasks[number]:
        yield from read_range(part, records, keeps_broken=keeps_broken)


def read_range(part: Range, records: Records, *, keeps_broken: bool = False) -> Iterator[pa.RecordBatch]:
    """The records of one range as batches. Raises RuntimeError (CHANGED) when the file is not as it was planned, or
    (BROKEN) when it cannot be unpacked, or is not written as its format is."""
    broken = partial(_broken, part, keeps_broken)
    with planned(part) as file:
        codec = _codec(part.path)
        if codec is None:
            if not records.joins or not begins_with_array(_head(file)):
                yield from (batch for batch, _ in _placed(part, file, records, broken, part.stop))
            elif not part.start:
                yield from (batch for batch, _ in _values(part, file, broken))
        else:
            with pa.CompressedInputStream(pa.PythonFile(file, "r"), codec) as unpacked:
                yield from _unpacked(part, cast("IO[bytes]", unpacked), records, broken)


@contextmanager
def planned(part: Range) -> Iterator[IO[bytes]]:
    """The file, which is as it was planned before and after. Raises RuntimeError (CHANGED)."""
    try:
        with open(part.path, "rb") as file:
            _check(part, file)
            yield file
            _check(part, file)
    except FileNotFoundError as error:
        raise RuntimeError(f"{CHANGED}{part.path}") from error


def _check(part: Range, file: IO[bytes]) -> None:
    status = os.stat(part.path) if file.closed else os.fstat(file.fileno())
    if (status.st_size, status.st_mtime_ns) != (part.size, part.modified):
        raise RuntimeError(f"{CHANGED}{part.path}")


def _codec(path: str) -> str | None:
    return COMPRESSED.get(os.path.splitext(path)[1])


Broken = Callable[[int, str, bytes], pa.RecordBatch]
"""Given a position, what is wrong from there on, and the bytes: the row that says so. Raises RuntimeError (BROKEN)
where such a row is not wanted."""


def _broken(part: Range, keeps: bool, position: int, error: str, data: bytes = b"") -> pa.RecordBatch:
    if not keeps:
        raise RuntimeError(f"{BROKEN}{json.dumps({'path': part.path, 'position': position, 'error': error})}")
    return _batch(part.number, data, np.array([0]), np.array([len(data)]), np.array([position]), error)


Placed = tuple[pa.RecordBatch, int]
"""Some records, and the position behind them."""


def _unpacked(part: Range, file: IO[bytes], records: Records, broken: Broken) -> Iterator[pa.RecordBatch]:
    """The records of an archive; if it is broken and that is tolerated, those before the broken place."""
    position = 0
    try:
        if not part.size:
            raise EOFError("it has not a single byte, which an archive of nothing has too")
        head = b""
        while records.joins and len(head) < BLOCK_BYTES and is_undecided(head) and (read := file.read(BLOCK_BYTES)):
            head += read
        ahead = cast("IO[bytes]", _Ahead(head, file))
        in_array = records.joins and begins_with_array(head)
        read = _values(part, ahead, broken) if in_array else _placed(part, ahead, records, broken, None)
        for batch, end in read:
            yield batch
            position = end
    except (pa.ArrowInvalid, OSError, EOFError) as error:
        yield broken(position, f"the archive is cut or damaged: {str(error).splitlines()[0]}", b"")


@dataclass
class _Ahead:
    """A file of which a piece has been read already."""

    head: bytes
    file: IO[bytes]

    def read(self, size: int) -> bytes:
        head, self.head = self.head, b""
        return head or self.file.read(size)


def _head(file: IO[bytes]) -> bytes:
    """The beginning of a file, up to where it says what it is."""
    head = file.read(16)
    while is_undecided(head) and (more := file.read(BLOCK_BYTES)):
        head = (head.rstrip() or head[:1]) + more
    file.seek(0)
    return head


def _values(part: Range, file: IO[bytes], broken: Broken) -> Iterator[Placed]:
    """The values of a file that is a JSON array. What is broken is one record, to the end of the file."""
    bom, head = _beginning(file)
    arrays = ArrayValues(bom)
    while piece := head + file.read(BLOCK_BYTES):
        head = b""
        found = arrays.feed(piece)
        if len(found.starts):
            positions = found.starts + found.position
            yield _batch(part.number, found.data, found.starts, found.stops, positions), arrays.position
        if arrays.broken or len(arrays.rest) > MAX_RECORD_BYTES:
            break
    arrays.end()
    if len(arrays.rest) > MAX_RECORD_BYTES:
        yield broken(arrays.position, _TOO_LONG.format(MAX_RECORD_BYTES), b""), arrays.position
    elif arrays.broken:
        rest = arrays.rest + file.read(MAX_RECORD_BYTES - len(arrays.rest))
        yield broken(arrays.position, arrays.broken, rest), arrays.position


_TOO_LONG = "it has more than {:,} bytes"


def _placed(part: Range, file: IO[bytes], records: Records, broken: Broken, stop: int | None) -> Iterator[Placed]:
    """The records that begin in [part.start, stop), each batch with the position behind it."""
    inside = part.inside
    rest, passing = b"", inside  # over what belongs to a record that began before this range
    if part.start > 0:
        position = _first_line(file, part.start)
        if records.joins and (before := _character_before(file, position)):
            # The line before, as far as it counts, which ends at a line break.
            rest, passing, position = before + b"\n", True, position - 2
        file.seek(position + len(rest))
    else:
        position, rest = _beginning(file)
        stop = None if stop is None else max(stop, position + 1)
    begun = position  # where the record begins whose bytes, so far, are `pending`
    pending: list[bytes] = []
    bom = 0 if part.start else position
    while stop is None or begun < stop:
        block = file.read(BLOCK_BYTES)
        data = rest + block
        found = records.find(data, inside)
        known, ends = found.known, found.ends
        if not block:
            known = len(data)
            if known > (ends[-1] if len(ends) else 0) or (pending and not len(ends)):
                ends = np.append(ends, known)
        first = 0
        if len(ends) and (pending or passing):
            if not passing:
                whole = b"".join(pending) + data[: ends[0]]
                yield _records(part, records, whole, np.array([0, len(whole)]), begun, bom), position + int(ends[0])
            first, ends, pending, passing = int(ends[0]), ends[1:], [], False
            begun = position + first
        if len(ends):
            borders = np.concatenate(([first], ends))
            if stop is not None:
                borders = borders[: np.searchsorted(borders[:-1], stop - position) + 1]
            begun = position + int(ends[-1])
            yield _records(part, records, data, borders, position, bom), begun
        if passing:
            begun = position + known
        elif known > (start := max(begun - position, 0)):
            pending.append(data[start:known])
        rest, position, inside = data[known:], position + known, found.inside
        if not block:
            return
        if sum(map(len, pending)) + len(rest) > MAX_RECORD_BYTES:
            # It reaches beyond the range, which is shorter.
            after = "" if stop is not None else ", and what follows it in the archive is not read"
            yield broken(begun, f"{_TOO_LONG.format(MAX_RECORD_BYTES)}{after}", b""), position
            return


def _beginning(file: IO[bytes]) -> tuple[int, bytes]:
    """How long a file's byte order mark is; and the bytes that were read to see that, without it."""
    head = file.read(len(BOM))
    while 0 < len(head) < len(BOM) and (more := file.read(len(BOM) - len(head))):
        head += more
    return (len(BOM), b"") if head == BOM else (0, head)


def _first_line(file: IO[bytes], start: int) -> int:
    """Where the first line begins at or after byte `start`."""
    # From one byte earlier on: a line begins at `start` if that byte is a line break.
    file.seek(start - 1)
    return start - 1 + len(file.readline())


def _character_before(file: IO[bytes], position: int) -> bytes:
    """The last byte before `position` that is no blank; none if there is no such one."""
    while position > 0:
        start = max(position - BLOCK_BYTES, 0) if position % 64 == 0 else max(position - 64, 0)
        file.seek(start)
        text = file.read(position - start)
        text = (text.removeprefix(BOM) if not start else text).rstrip(bytes(range(33)))
        if text:
            return text[-1:]
        position = start
    return b""


def _records(
    part: Range, records: Records, data: bytes, borders: np.ndarray, position: int, bom: int
) -> pa.RecordBatch:
    """The records between `borders` in `data`, which begins at `position`. One without a character is none."""
    read = np.frombuffer(data, np.uint8)
    starts, stops = borders[:-1], borders[1:]
    places = starts + position
    for mark in (_NEWLINE, _RETURN):
        stops = stops - ((stops > starts) & (read[stops - 1] == mark))
    if records.skips_blanks:
        starts, stops = trimmed(read, starts, stops)
    full = stops > starts
    if bom:  # which is of the first line
        places = np.where(places == bom, 0, places)
    return _batch(part.number, data, starts[full], stops[full], places[full])


def _batch(
    number: int, data: bytes, starts: np.ndarray, stops: np.ndarray, places: np.ndarray, error: str | None = None
) -> pa.RecordBatch:
    """Rows of the pieces of `data`, and what is between them left out."""
    count = len(starts)
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[0:-1:2], offsets[1::2], offsets[-1] = starts, stops, stops[-1] if count else 0
    pieces = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return pa.record_batch(
        [
            pieces.take(pa.array(np.arange(0, 2 * count, 2))),
            pa.array(np.full(count, number, np.int64)),
            pa.array(places.astype(np.int64)),
            pa.array([error] * count, pa.string()) if error else pa.nulls(count, pa.string()),
        ],
        names=["_value", "_file", "_position", "_cut"],
    )


def _inside(spark: SparkSession, tasks: list[list[Range]], records: Records) -> list[list[Range]]:
    """The ranges, each told whether its first line begins inside of quotes: a job of its own, where files have several
    ranges."""
    parts = [part for task in tasks for part in task]
    several = {after.number for before, after in pairwise(parts) if before.number == after.number}
    asked = [part for part in parts if part.number in several]
    if not asked:
        return tasks
    rows = by_number(
        spark, partial(_ending_of, asked, records), len(asked), "place INT, after BOOLEAN, after_inside BOOLEAN",
        len(asked),
    )  # fmt: skip
    ending = {row["place"]: (row["after"], row["after_inside"]) for row in rows.collect()}
    inside: dict[tuple[int, int], bool] = {}
    state = False
    for place, part in enumerate(asked):
        state = state and part.start > 0
        inside[part.number, part.start] = state
        state = ending[place][state]
    return [[replace(part, inside=inside.get((part.number, part.start), False)) for part in task] for task in tasks]


def _ending_of(asked: Sequence[Range], records: Records, place: int) -> Iterator[pa.RecordBatch]:
    after, after_inside = ending(asked[place], records)
    yield pa.record_batch(
        [pa.array([place], pa.int32()), pa.array([after]), pa.array([after_inside])],
        names=["place", "after", "after_inside"],
    )


def ending(part: Range, records: Records) -> tuple[bool, bool]:
    """Whether the line after those that begin in a range begins inside of quotes: if the first of them does not, and if
    it does. Raises RuntimeError (CHANGED)."""
    outside, inside = False, True
    with planned(part) as file:
        position, rest = _first_line(file, part.start) if part.start else _beginning(file)[0], b""
        file.seek(position)
        stop = max(part.stop, position + 1) if not part.start else part.stop
        while position < stop and (block := file.read(BLOCK_BYTES)):
            data = rest + block
            known = data.rfind(b"\n", 0, max(stop - position, 0)) + 1
            last = data.find(b"\n", max(stop - position - 1, 0)) + 1
            known = last or known
            same = outside == inside
            outside = records.find(data[:known], outside).inside
            inside = outside if same else records.find(data[:known], inside).inside
            rest, position = data[known:], position + known
    return outside, inside
