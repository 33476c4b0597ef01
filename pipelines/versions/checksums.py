"""The checksums of a run's files, which lie with its facts in `run.json`: a run of which a byte has changed is none.

A power cut, a disk or a copy can leave a file of the right length with other content, and a look-up would return
another key's version. So files are on the disk before a run has its name, and a process compares all of them when it
opens a run for the first time.
"""

from __future__ import annotations

import json
import logging
import os
import zlib
from collections.abc import Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

FACTS = "run.json"

BLOCK = 16 << 20
"""Bytes of one checksum: blocks of a file are compared by several threads."""

_READ = 1 << 18
"""Bytes that are read at once; they stay in the processor's cache."""

THREADS = min(os.cpu_count() or 1, 4)
"""Threads that make or compare a run. The tasks that need it wait meanwhile, so their processors are free."""

log = logging.getLogger(__name__)


def seal(folder: Path, facts: Mapping[str, Any], pool: Executor) -> None:
    """Store the facts of a run with the checksums of its files; all of it is on the disk then. Raises OSError."""
    content = {**facts, "sums": _sums(folder, pool)}
    (folder / FACTS).write_text(json.dumps({"run": content, "sum": zlib.crc32(json.dumps(content).encode())}))
    list(pool.map(_sync, [*folder.iterdir(), folder]))


def sync_name(folder: Path) -> None:
    """Have the disk know a folder's name. Raises OSError."""
    _sync(folder.parent)


def facts_of(folder: Path) -> dict[str, Any]:
    """The facts of a run. Raises OSError, ValueError and KeyError where they are not whole."""
    stored = json.loads((folder / FACTS).read_text())
    if zlib.crc32(json.dumps(stored["run"]).encode()) != stored["sum"]:
        raise ValueError(f"{folder / FACTS} is damaged")
    return stored["run"]


def compare(folder: Path) -> None:
    """Raise ValueError if a file of a run is not as it was made; OSError and KeyError where it is not whole."""
    facts = facts_of(folder)
    with ThreadPoolExecutor(THREADS) as pool:
        found = _sums(folder, pool)
    if damaged := [name for name in {**facts["sums"], **found} if found.get(name) != facts["sums"].get(name)]:
        log.warning("%s is damaged (%s), and is made again", folder, ", ".join(sorted(damaged)))
        raise ValueError(f"{folder / damaged[0]} is damaged")


def _sums(folder: Path, pool: Executor) -> dict[str, list[int]]:
    """The checksums of a folder's files, block by block."""
    blocks = [
        (path, begin)
        for path in sorted(folder.iterdir())
        if path.name != FACTS
        for begin in range(0, max(path.stat().st_size, 1), BLOCK)
    ]
    found: dict[str, list[int]] = {}
    for (path, _), checksum in zip(blocks, pool.map(_sum, blocks), strict=True):
        found.setdefault(path.name, []).append(checksum)
    return found


def _sum(block: tuple[Path, int]) -> int:
    path, begin = block
    found, left = 0, BLOCK
    buffer = memoryview(bytearray(_READ))
    with path.open("rb", buffering=0) as file:
        file.seek(begin)
        while left and (size := file.readinto(buffer[:left])):
            found, left = zlib.crc32(buffer[:size], found), left - size
    return found


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
