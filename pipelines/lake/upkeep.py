"""OPTIMIZE and VACUUM of a lake's tables: small files are compacted, dead files and old logs deleted. No row changes.

All at once (`tidy`), or in pieces that a run does between two ticks: `put_together`, `clean_log`, `remove_dead`.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError

from tidegate.pipelines.errors import LakeError
from tidegate.pipelines.lake import by_name, delta_log
from tidegate.pipelines.lake.adopt import replace, rows_in, survey
from tidegate.pipelines.location import UNFINISHED, Address, Location, settle
from tidegate.pipelines.parquet import UNFINISHED_ROWS, write_file

SMALL_FILES = 16
"""A table with fewer files than this is not compacted; in pieces: with fewer files of about one size."""

LARGE = 64 << 20
"""Bytes: in pieces, a file of this size is not compacted any further."""

PIECE = 32 << 20
"""Bytes that one piece compacts: less than a tick's work."""

REMOVED = 100
"""Files that one piece deletes: a busy disk takes a millisecond for each."""

CONTROL_KEEP = timedelta(minutes=10)
"""How long dead files and old logs of control tables stay: only Tidegate reads them, and never for long."""


@dataclass(frozen=True)
class Tidied:
    """One table. `removed` files are gone from the disk, `freed` bytes with them."""

    path: Address
    files_before: int
    files_after: int
    removed: int
    freed: int


def compact(path: Address) -> None:
    """Compact small files, in the order of their epochs, a commit for each new file. Does nothing where the files alone
    do not give the rows. Raises CommitFailedError if another writer commits meanwhile."""
    table = delta_log.opened(path)
    if table is None or not delta_log.plain(table):
        return
    files = delta_log.files_of(table, "path", "size_bytes", "num_records", "min._epoch")
    small = sorted(_by_epoch(file) for file in files if _small(file))
    chosen, total = list[str](), 0
    for _, size, name in small:
        if total + size > 2 * LARGE and chosen:
            _rewrite(path, table, chosen)
            chosen, total = [], 0
        chosen.append(name)
        total += size
    _rewrite(path, table, chosen)


def tidy(path: Address, *, keep: timedelta, together: Callable[[Any], None] | None = compact) -> Tidied | None:
    """Compact small files by `together` (None: do not, for tables whose files are named elsewhere too), and delete what
    no version younger than `keep` names. None if there is no table.

    The caller holds the leases of all that writes to the table. Raises LakeError.
    """
    if not DeltaTable.is_deltatable(str(path)):
        return None
    with _reported(path):
        before, size = len(live_files(path)), _size(path)
        if together is not None and before >= SMALL_FILES:
            together(path)
        settle()  # what was removed by a commit is deleted: delta-rs does that, past Location
        hours = int(keep.total_seconds() // 3600)
        gone = DeltaTable(str(path)).vacuum(
            retention_hours=hours, dry_run=False, enforce_retention_duration=False, full=True
        )
        if (log := log_keep(path, keep)) is not None:
            for _ in clean_log(path, keep=log):
                pass
        return Tidied(path, before, len(live_files(path)), len(gone), max(size - _size(path), 0))


def put_together(path: Address, may: Callable[[delta_log.Table], Collection[str]] | None = None) -> int:
    """Compact some small files of about one size, by Arrow; returns how many were replaced. `may`: the files that it
    may take, as named in the log; None: all. The caller holds the leases of all that writes to the table.

    A file is rewritten once for each of a few sizes, however old the table gets. Does nothing if another writer commits
    meanwhile, or if the files alone do not give the rows.
    """
    table = delta_log.opened(path)
    if table is None or not delta_log.plain(table):
        return 0
    files = delta_log.files_of(table, "path", "size_bytes", "num_records", "min._epoch")
    chosen = _of_one_size(files, None if may is None else set(may(table)))
    try:
        return _rewrite(path, table, chosen)
    except (CommitFailedError, pa.ArrowException):
        return 0


def _rewrite(path: Address, table: delta_log.Table, chosen: Sequence[str]) -> int:
    """Put some files of a table together into one; by how many it has fewer now."""
    if len(chosen) < 2:
        return 0
    folder = Location(path) / f"together-{uuid.uuid4().hex[:8]}"
    try:
        write_file(folder / "0.parquet", rows_in(table, chosen).to_batches())
        replace(path, folder, survey(folder), chosen, note="small files together", same_rows=True)
    except BaseException:
        folder.delete_all(where_it_can=True)
        raise
    return len(chosen) - 1


def _of_one_size(files: list[dict[str, object]], may: set[str] | None) -> list[str]:
    """The names of files to put together next: the smallest first, the older ones of them."""
    sizes: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
    for file in files:
        epoch, size, name = _by_epoch(file)
        if _small(file) and (may is None or name in may):
            sizes[size.bit_length() // 2].append((epoch, size, name))
    for _, found in sorted(sizes.items()):
        if len(found) < SMALL_FILES:
            continue
        taken, total = [], 0
        for _, size, name in sorted(found):
            total += size
            if total > PIECE and len(taken) > 1:
                break
            taken.append(name)
        return taken
    return []


def _small(file: Mapping[str, object]) -> bool:
    return int(str(file["size_bytes"])) < LARGE and file["num_records"] is not None


def _by_epoch(file: Mapping[str, object]) -> tuple[int, int, str]:
    epoch = file.get("min._epoch")
    return epoch if isinstance(epoch, int) else 0, int(str(file["size_bytes"])), str(file["path"])


_UNFINISHED = re.compile(rf"{UNFINISHED}.+|\d{{20}}\.json#\d+")
"""Files of commits, of Tidegate and of delta-rs, that were killed before they got their version's name."""


def clean_log(path: Address, *, keep: timedelta) -> Iterator[int]:
    """Delete the log of versions before the newest checkpointed one that was committed at least `keep` ago, and commits
    that were never finished, piece by piece; yields how many files each piece deleted. Every version from that one on
    stays readable.

    The oldest version goes first: if one is found in the log, no later one has been deleted
    (`tidegate.pipelines.lake.by_name`).
    """
    log, oldest = Location(path) / "_delta_log", time.time() - keep.total_seconds()
    versions, checkpoints, others = array("q"), array("q"), defaultdict[int, list[str]](list)
    for names in log.listed():
        for entry in names:
            found = by_name.VERSIONED.fullmatch(entry.name)
            if found is None:
                if _UNFINISHED.fullmatch(entry.name) and entry.location.written_before(oldest):
                    entry.location.delete()
                continue
            version = int(found[1])
            versions.append(version)
            if found[2] != "json":
                others[version].append(entry.name)
            if found[2] == "checkpoint.parquet":
                checkpoints.append(version)
        yield 0
    old = [version for version in sorted(checkpoints) if by_name.seen(log, version)]
    young = bisect_left(old, True, key=lambda version: not _committed_before(log, version, oldest))
    gone, first = 0, old[young - 1] if young else -1
    old_versions = sorted({version for version in versions if version < first})
    if old_versions and not _named(log, first):
        return
    for version in old_versions:
        for name in (f"{version:020}.json", *others.pop(version, ())):
            gone += (log / name).delete()
        if gone >= REMOVED:
            yield gone
            gone = 0
    yield gone


def _named(log: Location, version: int) -> bool:
    """Whether the log names the checkpoint of a version or of a later one as its last. A log that begins at a version
    is read from there only by that name."""
    hint = {"version": version, "size": by_name.checkpoint_of(log, version).footer().num_rows}
    return by_name.name_checkpoint(log, version, json.dumps(hint).encode())


def _committed_before(log: Location, version: int, moment: float) -> bool:
    """Whether a version is older than `moment` (s, UTC): by its commit, or by its file's time if the commit has
    none."""
    try:
        at = by_name.committed_at(log, version)
    except FileNotFoundError:  # it has gone from the log before
        return True
    except ValueError:  # damaged
        at = None
    return by_name.file_of(log, version).written_before(moment) if at is None else at < moment * 1000


def log_keep(path: Address, keep: timedelta) -> timedelta | None:
    """How long the log of a table that people may read is kept: by its own properties; `keep` if they do not say; None
    (for ever) if they are not understood, or cleaning is off."""
    table = delta_log.opened(path)
    set_in = table.metadata().configuration if table is not None else {}
    if set_in.get("delta.enableExpiredLogCleanup", "true").lower() != "true":
        return None
    text = set_in.get("delta.logRetentionDuration")
    if text is None or text == delta_log.OWN["delta.logRetentionDuration"]:
        return keep
    found = re.fullmatch(r"(?:interval\s+)?(\d+)\s+(second|minute|hour|day|week)s?", text.strip(), re.IGNORECASE)
    return timedelta(**{f"{found[2].lower()}s": int(found[1])}) if found else None


def remove_dead(
    path: Address,
    live: Collection[str] | None,
    *,
    keep: timedelta,
    hidden: bool = False,
    without: str | tuple[str, ...] = (),
) -> Iterator[int]:
    """Delete the data files below `path` that are not `live` (see `live_files`, read now or later) and were written
    longer than `keep` ago, and folders that become empty, piece by piece; yields how many files each piece deleted.
    Deletes nothing if `live` is not known.

    Folders whose names begin with an underscore are left alone, as by VACUUM, unless `hidden`; so are the log, always,
    and folders in `path` whose names begin with `without`.
    """
    if live is not None:
        yield from _removed(Location(path), live, time.time() - keep.total_seconds(), hidden, without)


def _removed(
    folder: Location, live: Collection[str], oldest: float, hidden: bool, without: str | tuple[str, ...] = ()
) -> Iterator[int]:
    """The same for files written before `oldest` (s, UTC), one moment for all pieces however long they take: what is
    committed meanwhile is younger, and not in `live`."""
    for names in folder.listed():
        gone = 0
        for entry in names:
            place = entry.location
            if entry.is_folder:
                spared = entry.name == "_delta_log" or entry.name.startswith(without)
                if not spared and (hidden or not entry.name.startswith("_")):
                    old = place.written_before(oldest)
                    yield gone
                    gone = 0
                    yield from _removed(place, live, oldest, hidden)
                    if old:
                        place.delete_if_empty()
            elif _written(entry.name) and str(place) not in live and place.written_before(oldest):
                gone += place.delete()
            if gone == REMOVED:
                yield gone
                gone = 0
        yield gone


def _written(name: str) -> bool:
    """Whether a file has a name that Spark, Arrow, delta-rs or a killed `BatchWriter` gives to files of a table."""
    rows = name.endswith((".parquet", f".parquet{UNFINISHED_ROWS}"))
    return rows or name == "_SUCCESS" or (name.startswith(".") and name.endswith(".crc"))


def swept(places: Sequence[Address], removing: Iterator[int]) -> Tidied:
    """What `removing` (see `remove_dead`) frees in some folders. Raises LakeError."""
    with _reported(places[0]):
        size, gone = sum(map(_size, places)), sum(removing)
        return Tidied(places[0], 0, 0, gone, max(size - sum(map(_size, places)), 0))


def live_files(path: Address) -> set[str]:
    """The addresses of the files that the table at `path` names now; none when there is no table."""
    table = delta_log.opened(path)
    return set() if table is None else _live(path, table)


def _live(path: Address, table: delta_log.Table) -> set[str]:
    return {str(Location(path) / unquote(file["path"])) for file in delta_log.files_of(table, "path")}


def still_read(path: Address, keep: timedelta) -> set[str] | None:
    """The addresses of the files that the table at `path` names, or named less than `keep` ago, by its log: they may be
    being read. None if the log does not say what was removed (see `by_name.removed_since`)."""
    table = delta_log.opened(path)
    if table is None:
        return set()
    live, since = _live(path, table), int((time.time() - keep.total_seconds()) * 1000)
    removed = by_name.removed_since(Location(path), table.version(), since)
    return None if removed is None else live | {str(Location(path) / name) for name in removed}


def still_read_of(*paths: Address, keep: timedelta) -> set[str] | None:
    """`still_read` for several tables that adopt files from one folder; None if it is not known for one of them."""
    found = [still_read(path, keep) for path in paths]
    return None if None in found else {name for names in found for name in names or ()}


@contextmanager
def _reported(path: Address) -> Iterator[None]:
    try:
        yield
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise LakeError(
            f"the table cannot be tidied: {error}",
            where=str(path),
            state="no row was changed",
            next_command="check the folder's owner and the disk's space, then run the same command again",
        ) from error


def _size(path: Address) -> int:
    return sum(file.size() for file in Location(path).files(".parquet"))
