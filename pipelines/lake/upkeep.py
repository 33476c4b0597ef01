"""OPTIMIZE and VACUUM of a lake's tables, by delta-rs: small files are put together, dead ones go. No row changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
from deltalake import ColumnProperties, DeltaTable, PostCommitHookProperties, WriterProperties
from deltalake.exceptions import DeltaError

from pipelines.errors import LakeError

SMALL_FILES = 16
"""A table with fewer files than this is left as it is."""


_FLOATING = ('PrimitiveType("float")', 'PrimitiveType("double")')


@dataclass(frozen=True)
class Tidied:
    """One table. `removed` files are gone from the disk, `freed` bytes with them."""

    path: Path
    files_before: int
    files_after: int
    removed: int
    freed: int


def compact(path: Path) -> None:
    """Put small files together, whatever rows are in them. Numbers that may be NaN get no bounds: it is in none, and
    Spark takes it for the greatest."""
    table = DeltaTable(str(path))
    kinds = {field.name: str(field.type) for field in table.schema().fields}
    none = {name: ColumnProperties(statistics_enabled="NONE") for name, kind in kinds.items() if kind in _FLOATING}
    table.optimize.compact(
        writer_properties=WriterProperties(column_properties=none) if none else None,
        post_commithook_properties=PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=True),
    )


def tidy(path: Path, *, keep: timedelta, together: Callable[[Path], None] = compact) -> Tidied | None:
    """Put small files `together` and remove what no version younger than `keep` names; None when there is no table.

    The caller holds the leases of all that writes to the table. Raises LakeError.
    """
    return _tidied(path, keep, together)


def vacuum(path: Path, *, keep: timedelta) -> Tidied | None:
    """Remove what no version younger than `keep` names, and put nothing together: of tables whose files are named
    elsewhere too. None when there is no table. Raises LakeError."""
    return _tidied(path, keep, None)


def _tidied(path: Path, keep: timedelta, together: Callable[[Path], None] | None) -> Tidied | None:
    if not DeltaTable.is_deltatable(str(path)):
        return None
    with _told(path):
        before, size = len(live_files(path)), _size(path)
        if together is not None and before >= SMALL_FILES:
            together(path)
        hours = int(keep.total_seconds() // 3600)
        gone = DeltaTable(str(path)).vacuum(
            retention_hours=hours, dry_run=False, enforce_retention_duration=False, full=True
        )
        return Tidied(path, before, len(live_files(path)), len(gone), max(size - _size(path), 0))


def sweep(staged: Path, finished: Sequence[Path], live: set[Path], *, keep: timedelta) -> Tidied:
    """Remove staged files that were adopted and that OPTIMIZE has replaced since, once they are older than `keep`:
    VACUUM passes over folders whose names begin with an underscore.

    Args:
        finished: The folders in it whose epochs are over.
        live: The files that the tables which adopt from here name now.

    Raises LakeError.
    """
    oldest, gone, freed = time.time() - keep.total_seconds(), 0, 0
    with _told(staged):
        for folder in finished:
            for file in [found for found in folder.rglob("*") if found.is_file()]:
                status = file.stat()
                if file not in live and status.st_mtime < oldest:
                    file.unlink()
                    gone, freed = gone + 1, freed + status.st_size
            for inner in [*sorted((found for found in folder.rglob("*") if found.is_dir()), reverse=True), folder]:
                if not any(inner.iterdir()):
                    inner.rmdir()
    return Tidied(staged, 0, 0, gone, freed)


def live_files(path: Path) -> set[Path]:
    """The files that the table at `path` names now; none when there is no table."""
    if not DeltaTable.is_deltatable(str(path)):
        return set()
    actions = pa.table(DeltaTable(str(path)).get_add_actions(flatten=True))
    return {path / unquote(name) for name in actions["path"].to_pylist()}


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except (DeltaError, OSError) as error:
        raise LakeError(
            f"the table can not be tidied: {error}",
            where=str(path),
            state="no row was changed",
            next_command="check the folder's owner and the disk's space, then run the same command again",
        ) from error


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*.parquet"))
