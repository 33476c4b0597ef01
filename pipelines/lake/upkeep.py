"""Upkeep of a lake's tables: small files are put together, dead files and old logs deleted. No row changes.

All at once (`tidy`), or in pieces that a run does between two ticks: `put_together`, `remove_dead`, `clean_log`.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa
from deltalake.exceptions import CommitFailedError, DeltaError

from tidegate.pipelines.errors import LakeError
from tidegate.pipelines.lake import by_name, delta_log
from tidegate.pipelines.lake.adopt import replace, survey
from tidegate.pipelines.lake.by_name import DataFile, TableState
from tidegate.pipelines.location import UNFINISHED, Address, Location
from tidegate.pipelines.parquet import UNFINISHED_ROWS, write_file

SMALL_FILES = 16
"""Fewer files of about one size than this are not put together."""

LARGE = 64 << 20
"""Bytes: a file of this size is not put together with others any more."""

PIECE = 32 << 20
"""Bytes that one piece puts together: less than a tick's work."""

REMOVED = 100
"""Files that one piece deletes: a busy disk takes a millisecond for each."""

CONTROL_KEEP = timedelta(minutes=10)
"""How long dead files and old logs of control tables stay: only Tidegate reads them, and never for long."""


May = Callable[[TableState], Collection[DataFile]]


@dataclass(frozen=True)
class Tidied:
    """One table. `removed` files are gone from the disk, `freed` bytes with them."""

    path: Address
    files_before: int
    files_after: int
    removed: int
    freed: int


def tidy(path: Address, *, keep: timedelta, may: May | None = None, together: bool = True) -> Tidied | None:
    """Put small files together (`may`: see `put_together`; not `together`: none, as of tables whose files are named
    elsewhere too), and delete what no version younger than `keep` names. None if there is no table.

    The caller holds the leases of all that writes to the table. Raises LakeError.
    """
    table = delta_log.opened(path)
    if table is None:
        return None
    with _reported(path):
        size = _size(path)
        while together and put_together(path, may):
            pass
        gone = sum(remove_dead(path, still_read(path, keep=keep), keep=keep))
        for _ in clean_kept_log(path, keep):
            pass
        return Tidied(path, len(table.files), len(live_files(path)), gone, max(size - _size(path), 0))


def put_together(path: Address, may: May | None = None, least: int = SMALL_FILES) -> int:
    """Put some small files of about one size together, by Arrow; returns how many fewer there are. `may`: returns the
    files that it may take; None: all. `least`: as many of one size at least. The caller holds the leases of all that
    writes to the table.

    A file is rewritten once for each of a few sizes, however old the table gets. Does nothing if another writer commits
    meanwhile, or if the files alone do not give the rows.
    """
    table = delta_log.opened(path)
    if table is None or not table.plain:
        return 0
    chosen = _of_one_size(table.files.values() if may is None else may(table), least)
    if len(chosen) < 2:
        return 0
    folder = table.root / f"together-{uuid.uuid4().hex[:8]}"
    try:
        write_file(folder / "0.parquet", table.rows(chosen).to_batches())
        replace(path, folder, survey(folder), chosen, note="small files together", same_rows=True)
        return len(chosen) - 1
    except BaseException as error:
        folder.delete_all(where_it_can=True)
        if isinstance(error, CommitFailedError | pa.ArrowException):
            return 0
        raise


def _of_one_size(files: Collection[DataFile], least: int) -> list[DataFile]:
    """The files to put together next: the smallest first, the older ones of them."""
    sizes: dict[int, list[DataFile]] = defaultdict(list)
    for file in files:
        if file.size < LARGE and file.rows is not None:
            sizes[file.size.bit_length() // 2].append(file)
    for _, found in sorted(sizes.items()):
        if len(found) < least:
            continue
        taken, total = list[DataFile](), 0
        for file in sorted(found, key=lambda file: (file.least("_epoch") or 0, file.size, file.path)):
            total += file.size
            if total > PIECE and len(taken) > 1:
                break
            taken.append(file)
        return taken
    return []


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


def clean_kept_log(path: Address, keep: timedelta) -> Iterator[int]:
    """`clean_log` of a table that people may read; `keep` where it does not say how long its log stays."""
    kept = log_keep(path, keep)
    if kept is not None:
        yield from clean_log(path, keep=kept)


def log_keep(path: Address, keep: timedelta) -> timedelta | None:
    """How long the log of a table that people may read is kept: by its own properties; `keep` if they do not say; None
    (for ever) if they are not understood, or cleaning is off."""
    table = delta_log.opened(path)
    set_in = table.metadata.configuration if table is not None else {}
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
    return set() if table is None else set(table.paths())


def still_read(*paths: Address, keep: timedelta) -> set[str] | None:
    """The addresses of files that the tables at `paths` name, or named less than `keep` ago: somebody may be reading
    them. None if one of their logs does not say what was removed (see `by_name.removed_since`)."""
    found, since = set[str](), int((time.time() - keep.total_seconds()) * 1000)
    for table in filter(None, map(delta_log.opened, paths)):
        removed = by_name.removed_since(table, since)
        if removed is None:
            return None
        found |= {*table.paths(), *(str(table.root / name) for name in removed)}
    return found


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
