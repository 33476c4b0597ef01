"""Which runs a build's index is made of, where they lie, and who makes those that are missing.

    <lake>/_scratch/_versions/<table>/<table id>-g<generation>-<marks>/<after>-<upto>-<landed>.<shard>of<shards>

A large base run, and small ones for what has landed since. Two neighbours become one when the older is up to twice as
large as the newer, and all of them when the small ones are a quarter of the base: made anew from the table's files,
which are as good as the runs. A name says all that a run follows from: `landed` is when its last epoch did, so that an
epoch that was lost and landed again is another one; `marks` are those of retention, and of the columns.

All of it may be lost at any time. The task that misses a run makes it, and those that need it too wait for that one.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from tidegate.pipelines.errors import LakeError
from tidegate.pipelines.versions.run import Made, Run, make, opened

SHARE = 4
"""The small runs hold a quarter of the base's rows, at most,"""
FEW = 100_000
"""or so many."""

SHARD_BYTES = 128 << 20
"""Bytes of Parquet that one shard is made of: some four times as many in memory."""

LAYOUT = 1
"""Of a run's files: others are none of this one's."""

UNUSED_S = 86_400.0
"""After so long, what belongs to no generation or marks of today goes."""

Span = tuple[int, int]
_NAME = re.compile(r"(\d+)-(\d+)-(-?\d+)\.0of(\d+)")


def chained(known: Collection[Span], upto: int, rows: Callable[[int, int], int]) -> list[Span]:
    """The runs, after < epoch <= upto each, that an index up to an epoch is made of: those that are `known`, and one
    that is new, if need be. The last one may reach further than is asked for."""
    found: list[Span] = []
    at = 0
    while at < upto:
        ends = [end for begin, end in known if begin == at and end <= upto]
        if not ends:
            break
        found.append((at, max(ends)))
        at = max(ends)
    if at == upto or (found and rows(at, upto) == 0):
        return found
    further = min((end for begin, end in known if begin == 0 and end > upto), default=None)
    if further is not None and rows(at, upto) > rows(0, upto) // SHARE:
        return [(0, further)]
    found.append((at, upto))
    while len(found) > 2 and rows(*found[-2]) <= 2 * rows(*found[-1]):
        found[-2:] = [(found[-2][0], upto)]
    if len(found) > 1 and rows(found[0][1], upto) > max(rows(*found[0]) // SHARE, FEW):
        return [(0, upto)]
    return found


@dataclass(frozen=True)
class Runs:
    """The runs of one build's generation. `folder` is named by all that they have in common."""

    folder: Path
    generation: int
    keys: tuple[str, ...]
    types: Mapping[str, pa.DataType]

    @classmethod
    def of(
        cls,
        scratch: Path,
        table: str,
        generation: int,
        marks: Sequence[object],
        keys: tuple[str, ...],
        types: Mapping[str, pa.DataType],
    ) -> Runs:
        """Those of a table, which `table` identifies whatever becomes of its name."""
        of = [LAYOUT, *marks, *keys, *(f"{name} {kind}" for name, kind in types.items())]
        mark = hashlib.sha256("\n".join(map(str, of)).encode()).hexdigest()[:12]
        return cls(scratch / f"{table}-g{generation}-{mark}", generation, keys, types)

    def known(self, landed: Callable[[int], int | None]) -> dict[Span, int]:
        """The runs that are there, and the number of their shards; `landed`: when an epoch did (ms, UTC)."""
        found: dict[Span, int] = {}
        for name in os.listdir(self.folder) if self.folder.exists() else ():
            told = _NAME.fullmatch(name)
            if told and landed(int(told[2])) == int(told[3]):
                found[int(told[1]), int(told[2])] = int(told[4])
        return found

    def made(self, span: Span, shards: int | None, landed: int, files: Sequence[str]) -> list[Made]:
        """The shards of a run: so many, or as many as the size of its `files` asks for. `landed`: when its last epoch
        did (ms, UTC)."""
        if shards is None:
            size = sum(os.path.getsize(path) for path in files if os.path.exists(path))
            shards = 1 << max((size - 1) // SHARD_BYTES, 0).bit_length()
        whole = Made("", tuple(files), self.generation, *span, self.keys, self.types, shards=shards)
        name = f"{span[0]}-{span[1]}-{landed}"
        return [
            replace(whole, folder=str(self.folder / f"{name}.{shard}of{shards}"), shard=shard)
            for shard in range(shards)
        ]

    def tidy(self, used: Sequence[Made]) -> None:
        """Remove runs that lie inside of one that is used, and what belongs to no generation or marks of today."""
        for other in self.folder.parent.glob("*"):
            with suppress(OSError):
                if other != self.folder and other.stat().st_mtime < time.time() - UNUSED_S:
                    shutil.rmtree(other, ignore_errors=True)
        names = {Path(made.folder).name for made in used}
        for folder in self.folder.glob("*-*-*of*"):
            told = re.match(r"(\d+)-(\d+)-", folder.name)
            inside = told and any(made.after <= int(told[1]) and int(told[2]) <= made.upto for made in used)
            if inside and folder.name not in names:
                shutil.rmtree(folder, ignore_errors=True)


def whole(runs: Sequence[Made], rows: int | None) -> list[Run]:
    """The runs, made where they are missing; all of them anew where they do not hold `rows`. Raises OSError, and
    LakeError where they do not then either."""
    for attempt in range(2):
        # Another task may have begun with the first: this one begins elsewhere, so that both have something to do.
        start = os.getpid() % max(len(runs), 1)
        by_folder = {made.folder: _there(made) for made in [*runs[start:], *runs[:start]]}
        found = [by_folder[made.folder] for made in runs]
        held = sum(run.count for run, made in zip(found, runs, strict=True) if made.shard == 0)
        if rows is None or held == rows:
            return found
        for made in runs if attempt == 0 else ():
            with _alone(made):
                shutil.rmtree(made.folder, ignore_errors=True)
    raise LakeError(
        f"{held:,} rows of a build are in its files, and the watermark log has {rows:,}",
        where=runs[0].files[0] if runs and runs[0].files else "",
        state="nothing was staged or published",
        next_command="tidegate verify SCRIPT",
    )


def _there(made: Made) -> Run:
    found = opened(made.folder)
    if found is not None:
        return found
    with _alone(made):
        found = opened(made.folder)
        if found is None:
            make(made)
            found = opened(made.folder)
    if found is None:
        raise FileNotFoundError(made.folder)
    return found


@contextmanager
def _alone(made: Made) -> Iterator[None]:
    """While one process makes a run, others that need it wait."""
    folder = Path(made.folder).parent
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{made.shard}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
