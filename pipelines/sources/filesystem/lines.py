"""The lines of files as a frame of Spark: vectorised, in byte ranges, each line at its own place.

A line's position is that of its first byte in the file (of a compressed file: in what it unpacks to), so it is the same
however a file is cut into ranges. Lines without a character are no messages.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import IO, cast

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tidegate.pipelines.frames import by_number

RANGE_BYTES = 64 << 20
BLOCK_BYTES = 4 << 20
MAX_LINE_BYTES = 256 << 20
COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
"""Endings of compressed files; those are read from their beginning, in one task."""

CHANGED = "tidegate: a file is not as it was planned: "
"""Prefix of an executor's exception; the file's path follows."""

BROKEN = "tidegate: a file cannot be unpacked: "
"""Prefix of an executor's exception; JSON of path, position and error follows."""

_BOM = b"\xef\xbb\xbf"
_NEWLINE, _RETURN = 10, 13


@dataclass(frozen=True)
class Range:
    """The lines of a file that begin at `start` <= byte < `stop`. `number` is the file's; the file must still have this
    size and modified time (ns)."""

    number: int
    path: str
    size: int
    modified: int
    start: int
    stop: int


def read_lines(
    spark: SparkSession,
    files: Sequence[tuple[int, str, int, int]],
    range_bytes: int = RANGE_BYTES,
    *,
    keeps_broken: bool = False,
) -> DataFrame:
    """The lines of files (number, path, size, modified): `_value` BINARY, `_file` BIGINT, `_position` BIGINT, `_cut`
    STRING.

    A file that cannot be unpacked to its end fails the read, unless `keeps_broken`: then its last row has an empty
    value, and says in `_cut` what is wrong. It is null in all others.
    """
    tasks = packed(files, range_bytes)
    schema = "_value BINARY, _file BIGINT, _position BIGINT, _cut STRING"
    return by_number(spark, partial(_of_task, tasks, keeps_broken), len(tasks), schema, len(tasks))


def packed(files: Sequence[tuple[int, str, int, int]], range_bytes: int = RANGE_BYTES) -> list[list[Range]]:
    """The ranges of files, small ones several to a task."""
    tasks: list[list[Range]] = []
    room = 0
    for number, path, size, modified in files:
        whole = os.path.splitext(path)[1] in COMPRESSED
        step = max(size, 1) if whole else range_bytes
        for start in range(0, max(size, 1), step):
            part = Range(number, path, size, modified, start, min(start + step, size))
            if not tasks or room < part.stop - part.start:
                tasks.append([])
                room = range_bytes
            tasks[-1].append(part)
            room -= part.stop - part.start
    return tasks


def _of_task(tasks: Sequence[Sequence[Range]], keeps_broken: bool, number: int) -> Iterator[pa.RecordBatch]:
    for part in tasks[number]:
        yield from read_range(part, keeps_broken=keeps_broken)


def read_range(part: Range, *, keeps_broken: bool = False) -> Iterator[pa.RecordBatch]:
    """The lines of one range as batches. Raises RuntimeError (CHANGED) when the file is not as it was planned, or can
    not be unpacked (BROKEN)."""
    try:
        with open(part.path, "rb") as file:
            _check(part, file)
            codec = COMPRESSED.get(os.path.splitext(part.path)[1])
            if codec is None:
                yield from (batch for batch, _ in _placed(part, file, part.start, part.stop))
            else:
                with pa.CompressedInputStream(pa.PythonFile(file, "r"), codec) as unpacked:
                    yield from _unpacked(part, cast("IO[bytes]", unpacked), keeps_broken)
            _check(part, file)
    except FileNotFoundError as error:
        raise RuntimeError(f"{CHANGED}{part.path}") from error


def _unpacked(part: Range, file: IO[bytes], keeps_broken: bool) -> Iterator[pa.RecordBatch]:
    """The lines of an archive; if it is broken and that is tolerated, those before the broken place."""
    position = 0
    try:
        if not part.size:
            raise EOFError("it has not a single byte, which an archive of nothing has too")
        for batch, end in _placed(part, file, 0, None):
            yield batch
            position = end
    except (pa.ArrowInvalid, OSError, EOFError) as error:
        reason = f"the archive is cut or damaged: {str(error).splitlines()[0]}"
        if not keeps_broken:
            place = json.dumps({"path": part.path, "position": position, "error": reason})
            raise RuntimeError(f"{BROKEN}{place}") from error
        yield _batch(part.number, b"", np.zeros(1, np.int64), np.array([position]), reason)


def _check(part: Range, file: IO[bytes]) -> None:
    status = os.stat(part.path) if file.closed else os.fstat(file.fileno())
    if (status.st_size, status.st_mtime_ns) != (part.size, part.modified):
        raise RuntimeError(f"{CHANGED}{part.path}")


def _placed(part: Range, file: IO[bytes], start: int, stop: int | None) -> Iterator[tuple[pa.RecordBatch, int]]:
    """The lines that begin in [start, stop), each batch with the position behind it."""
    position = start
    if start > 0:
        # From one byte earlier on: a line begins at `start` if that byte is a line break.
        file.seek(start - 1)
        position = start - 1 + len(file.readline())
        file.seek(position)
    rest = b""
    while stop is None or position < stop:
        block = file.read(BLOCK_BYTES)
        data = rest + block
        end = data.rfind(b"\n") + 1 if block else len(data)
        if end:
            batch = _lines(part.number, data[:end], position, stop)
            if batch.num_rows:
                yield batch, position + end
        position, rest = position + end, data[end:]
        if not block:
            return
        if len(rest) > MAX_LINE_BYTES:
            raise RuntimeError(f"{part.path} has a line of more than {MAX_LINE_BYTES} bytes, at byte {position}")


def _lines(number: int, data: bytes, position: int, stop: int | None) -> pa.RecordBatch:
    """The lines of `data`, which begins at `position` with a line's first byte and holds whole lines."""
    read = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(read == _NEWLINE)
    if not len(ends) or ends[-1] != len(read) - 1:
        ends = np.append(ends, len(read))
    starts = np.concatenate(([0], ends[:-1] + 1))
    if stop is not None:
        count = int(np.searchsorted(starts, stop - position))
        starts, ends = starts[:count], ends[:count]
    returned = (ends > starts) & (read[ends - 1] == _RETURN)
    stops = ends - returned
    mask = np.ones(ends[-1] if len(ends) else 0, bool)
    mask[ends[:-1]] = False
    mask[stops[returned]] = False
    lengths = stops - starts
    if position == 0 and data.startswith(_BOM):
        mask[: len(_BOM)] = False
        lengths[:1] -= len(_BOM)
    full = lengths > 0
    return _batch(number, read[: len(mask)][mask].tobytes(), lengths[full], starts[full] + position)


def _batch(
    number: int, values: bytes, lengths: np.ndarray, positions: np.ndarray, broken: str | None = None
) -> pa.RecordBatch:
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    texts = pa.Array.from_buffers(pa.binary(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(values)])
    return pa.record_batch(
        [
            texts,
            pa.array(np.full(len(lengths), number, np.int64)),
            pa.array(positions.astype(np.int64)),
            pa.array([broken] * len(lengths), pa.string()) if broken else pa.nulls(len(lengths), pa.string()),
        ],
        names=["_value", "_file", "_position", "_cut"],
    )
