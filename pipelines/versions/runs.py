"""Which runs a build's index consists of, where they lie, and who makes missing ones.

    <lake>/_scratch/_versions/<table>/<table id>-g<generation>-<marks>/<after>-<upto>-<landed>.<shard>of<shards>

There is a large base run, and small ones for what has landed since. A release adds one (`chained`); upkeep replaces
several by one (`merged`), which is made from the table's files like any other. A name holds all that a run's content
depends on: `landed` is the time at which its last epoch landed, so an epoch that was lost and landed again has another
name; `marks` are those of retention, and of the columns.

All of it may be lost at any time. The first task that misses a run makes it, and others that need it wait.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from tidegate.pipelines.commands import VERIFY
from tidegate.pipelines.errors import LakeError
from tidegate.pipelines.text import counted
from tidegate.pipelines.versions.run import Run, opened, whole_at
from tidegate.pipelines.versions.run_files import Made, deal, is_dealt, make

SHARE, FEW = 4, 100_000
"""Upkeep merges the small runs into the base when they have over a quarter of its rows, and more rows than the second
number."""

MERGED_FROM, MOST = 8, 24
"""Upkeep merges small runs when there are more than 8; without upkeep, a release does at 24."""

VIEW = 8
"""A run that reaches beyond a pin is used for it, without the later versions, if it is at most so many times as large
as the run that would have to be made instead."""

SHARD_BYTES = 128 << 20
"""Bytes of Parquet for one shard; in memory it takes about four times as many."""

PARTS = 8
"""In how many parts, at most, a run's files are divided among its shards; each part is done by the task that comes
first."""

LAYOUT = 6
"""The version of the layout of a run's files; runs of another version are not used."""

UNUSED_S = 86_400.0
"""When folders of other generations or marks are deleted."""

Span = tuple[int, int]
_NAME = re.compile(r"(\d+)-(\d+)-(-?\d+)\.0of(\d+)")


def chained(known: Collection[Span], upto: int, rows: Callable[[int, int], int]) -> list[Span]:
    """The runs, after < epoch <= upto each, of which an index up to an epoch consists: those that are `known`, and a
    new one if need be. The last one may reach further than `upto`."""
    found = _chain(known, upto)
    at = found[-1][1] if found else 0
    if at == upto or (found and rows(at, upto) == 0):
        return found
    for begin in (at, 0):
        end = min((end for first, end in known if first == begin and end > upto), default=None)
        if end is not None and rows(begin, end) <= VIEW * rows(at, upto):
            return [*(found if begin else ()), (begin, end)]
    found.append((at, upto))
    return found if len(found) <= MOST else [found[0], *_together(found[1:], rows)]


def merged(known: Collection[Span], upto: int, rows: Callable[[int, int], int]) -> list[Span]:
    """The runs into which upkeep merges the known runs of an index up to an epoch."""
    found = _chain(known, upto)
    if len(found) > 1 and rows(found[0][1], found[-1][1]) > max(rows(*found[0]) // SHARE, FEW):
        return [(0, found[-1][1])]
    return found if len(found) <= MERGED_FROM else [found[0], *_together(found[1:], rows)]


def _chain(known: Collection[Span], upto: int) -> list[Span]:
    """Known runs that follow one another without a gap, from the start on; of several, the longest."""
    found: list[Span] = []
    at = 0
    while ends := [end for begin, end in known if begin == at and end <= upto]:
        found.append((at, max(ends)))
        at = max(ends)
    return found


def _together(runs: Sequence[Span], rows: Callable[[int, int], int]) -> list[Span]:
    """The runs, where from the first one that has no more rows than all after it, all become one. So a run is made
    again only once as many rows have come as it has, and few runs are left, each with more rows than all after it."""
    end = runs[-1][1]
    for number, run in enumerate(runs[:-1]):
        if rows(*run) <= rows(run[1], end):
            return [*runs[:number], (run[0], end)]
    return list(runs)


def folder_of(scratch: Path, table: str, marks: Sequence[object], run: Made) -> Path:
    """The folder of the runs of a generation, named by all that `run` has in common with the others. `table` identifies
    the table, even if it is renamed."""
    of = [LAYOUT, *marks, *run.keys, *(f"{name} {kind}" for name, kind in run.types.items())]
    mark = hashlib.sha256("\n".join(map(str, of)).encode()).hexdigest()[:12]
    return scratch / f"{table}-g{run.generation}-{mark}"


def runs_in(folder: Path, landed: Callable[[int], int | None]) -> dict[Span, int]:
    """The runs in a folder, each with its number of shards. `landed`: returns when an epoch landed (ms, UTC)."""
    found: dict[Span, int] = {}
    for name in os.listdir(folder) if folder.exists() else ():
        parts = _NAME.fullmatch(name)
        if parts and landed(int(parts[2])) == int(parts[3]):
            found[int(parts[1]), int(parts[2])] = int(parts[4])
    return found


def shards_of(run: Made, folder: Path, landed: int, shards: int | None) -> list[Made]:
    """The shards of a run: `shards` of them, or by the size of its files. `landed`: when its last epoch landed (ms,
    UTC)."""
    if shards is None:
        size = sum(os.path.getsize(path) for path in run.files if os.path.exists(path))
        shards = 1 << max((size - 1) // SHARD_BYTES, 0).bit_length()
    name = folder / f"{run.after}-{run.upto}-{landed}"
    return [replace(run, folder=f"{name}.{shard}of{shards}", shard=shard, shards=shards) for shard in range(shards)]


def tidy(folder: Path, used: Sequence[Made]) -> None:
    """Remove runs whose epochs a used run covers, and folders of other generations or marks."""
    for other in folder.parent.glob("*"):
        with suppress(OSError):
            if other != folder and other.stat().st_mtime < time.time() - UNUSED_S:
                shutil.rmtree(other, ignore_errors=True)
    names = {name for made in used for name in (Path(made.folder).name, _dealt_below(made).name)}
    for run in folder.glob("*-*-*.*"):
        parts = re.match(r"(\d+)-(\d+)-", run.name)
        inside = parts and any(made.after <= int(parts[1]) and int(parts[2]) <= made.upto for made in used)
        own = ".".join(run.name.split(".")[:2])  # another process may make one that is used just now
        if inside and own not in names:
            shutil.rmtree(run, ignore_errors=True)


TRIES = 10
"""How often a task looks for runs that other tasks remove, each at most once."""


def whole(runs: Sequence[Made], rows: int | None) -> list[Run]:
    """The runs, of which missing ones are made; all are made again if they do not have `rows` in all. Raises OSError,
    and LakeError if they do not have them then either."""
    removed, held = False, 0
    for _ in range(TRIES):
        start = os.getpid() % max(len(runs), 1)
        missing = [made for made in [*runs[start:], *runs[:start]] if opened(made.folder) is None]
        for wait in (False, True):  # first what no other task is making, so that each has something to do
            for made in missing:
                ensure(made, wait=wait)
        there = [(made, run) for made in runs if (run := opened(made.folder)) is not None]
        if len(there) < len(runs):
            continue  # another task has counted as this one does below, and makes them again
        held = sum(run.count for _, run in there)
        if rows is None or held == rows:
            _forget_dealt(runs)
            return [run for _, run in there]
        if removed:
            break
        for made, run in there:
            with _alone(made):
                if opened(made.folder) is run:  # else it is made again already
                    shutil.rmtree(made.folder, ignore_errors=True)
        _forget_dealt(runs)
        removed = True
    raise LakeError(
        f"a build's files hold {counted(held, 'row')}, and the watermark log has {rows:,}",
        where=runs[0].files[0] if runs and runs[0].files else "",
        state="nothing was staged or published",
        next_command=VERIFY,
    )


def ensure(made: Made, *, wait: bool = True) -> None:
    """Make a run if it is missing; without `wait`, not if another process is making it. Raises OSError."""
    with _alone(made, wait=wait) as own:
        if own and not whole_at(made.folder):
            for dead in Path(made.folder).parent.glob(f"{Path(made.folder).name}.*"):  # of a process that was killed
                shutil.rmtree(dead, ignore_errors=True)
            make(made, _dealt(made) if made.shards > 1 else ())


def _dealt(made: Made) -> list[Path]:
    """The dealt files of a run, each from a part of its files; made now if they are missing."""
    parts = max(min(len(made.files), PARTS), 1)
    of = "\n".join([str(made.shards), *made.files])
    folder = _dealt_below(made) / hashlib.sha256(of.encode()).hexdigest()[:12]
    paths, start = [folder / f"{part}" for part in range(parts)], made.shard % parts
    for wait in (False, True):
        for part in [*range(start, parts), *range(start)]:
            if not is_dealt(paths[part]):
                with _alone(made, f"part{part}", wait=wait) as own:
                    if own and not is_dealt(paths[part]):
                        deal(made, made.files[part::parts], paths[part])
    return paths


def _dealt_below(made: Made) -> Path:
    """The folder with the dealt files of a run."""
    folder = Path(made.folder)
    return folder.with_name(f"{folder.stem}.dealt")


def _forget_dealt(runs: Sequence[Made]) -> None:
    """Delete dealt files: all shards are there, or all will be made again."""
    for made in runs:
        if made.shards > 1 and made.shard == 0:
            shutil.rmtree(_dealt_below(made), ignore_errors=True)


@contextmanager
def _alone(made: Made, name: str | None = None, *, wait: bool = True) -> Iterator[bool]:
    """Inside the block this process alone makes a run (or what is called `name`); others that need it wait. Without
    `wait` they get False."""
    folder = Path(made.folder).parent
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{made.shard if name is None else name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
