"""The Delta tables of a lake, as they are now: they stay open, so that looking again costs only what is new."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from tidegate.pipelines.errors import LakeError
from tidegate.pipelines.lake import by_name
from tidegate.pipelines.lake.by_name import NOT_COMMITTED, DataFile, TableState
from tidegate.pipelines.location import Address, Location, note_found


def unreadable() -> tuple[type[Exception], ...]:
    """The errors that a table or file raises when it is damaged, missing, half written or not readable for us."""
    from deltalake.exceptions import DeltaError  # what looks at a lake's state alone does without

    return DeltaError, pa.ArrowException, OSError


@contextmanager
def damage_reported(path: Address, remedy: str) -> Iterator[None]:
    """Turn the error of a damaged table or file at `path` into a LakeError. `remedy`: what to do."""
    try:
        yield
    except by_name.UNREADABLE as error:
        words = " ".join(str(error).split())[:300]
        raise LakeError(
            f"the lake is damaged, or may not be read: {type(error).__name__}: {words}",
            where=str(path),
            state="nothing was changed",
            next_command=remedy,
        ) from error


_open: dict[str, TableState] = {}
"""The tables that were opened, by address."""
_lock = threading.Lock()

OWN = {"delta.logRetentionDuration": "interval 7 days"}
"""Properties of tables that only Tidegate writes (a source's table, a control table): how long the log of their commits
stays; nobody reads it as a history."""

BRIEF_MINUTES = 20
BRIEF = {"delta.deletedFileRetentionDuration": f"interval {BRIEF_MINUTES} minutes"}
"""For tables whose removed files are deleted after ten minutes (`upkeep.CONTROL_KEEP`): how long a checkpoint lists a
removed file. Delta's default is a week: with a commit a second every checkpoint would list 600,000 removals."""


def opened(path: Address, remedy: str | None = None) -> TableState | None:
    """The table at `path` as it is now; None when there is none. Raises LakeError where it is damaged; `remedy`: what
    to do then."""
    with _lock, damage_reported(path, remedy or f"bring {path} back from a backup, then run the same command again"):
        known = _open.pop(str(path), None)
        if known is None and not (Location(path) / "_delta_log").is_there():
            return None
        table = by_name.read(path) if known is None else known.newer()
        if table is not None:
            _open[str(path)] = table
            if table.seen is not None:
                note_found(by_name.file_of(table.log, table.version), table.seen)
        return table


def committed(path: Address, application: str, remedy: str | None = None) -> int:
    """The last transaction version that `application` committed to the table at `path`; NOT_COMMITTED when there is
    none. `remedy`: see `opened`."""
    table = opened(path, remedy)
    return NOT_COMMITTED if table is None else table.committed(application)


def logged_rows(path: Address) -> int | None:
    """The rows of the table at `path`, by its log; 0 where there is none, None where the log does not say."""
    table = opened(path)
    if table is None:
        return 0
    numbers = [file.rows for file in table.files.values()]
    deleted = "deletionVectors" in (table.protocol.reader_features or ())
    return None if deleted or None in numbers else sum(number or 0 for number in numbers)


@dataclass(frozen=True)
class DataFiles:
    """Files that may hold wanted rows. `exact`: they are known to hold no other rows."""

    files: Sequence[DataFile]
    exact: bool


def data_files(table: TableState, generation: int, after: int, upto: int) -> DataFiles:
    """The files that may hold rows of `generation` with after < epoch <= upto."""
    wanted = {"_epoch": (after + 1, upto), "_generation": (generation, generation)}
    found = [file for file in table.files.values() if all(file.meets(name, *span) for name, span in wanted.items())]
    return DataFiles(found, all(file.within(name, *span) for file in found for name, span in wanted.items()))


def rows_of(table: TableState, generation: int, upto: int | None = None) -> int | None:
    """How many rows a generation has up to an epoch, by the statistics of its files, and by reading files that hold
    other rows too; None if the files alone do not give the rows."""
    if not table.plain:
        return None
    import pyarrow.compute as pc

    wanted = {"_generation": (generation, generation), **({} if upto is None else {"_epoch": (0, upto)})}
    chosen = pc.field("_generation") == generation
    chosen = chosen if upto is None else chosen & (pc.field("_epoch") <= upto)
    found = 0
    for file in table.files.values():
        if file.rows is not None and all(file.within(name, *span) for name, span in wanted.items()):
            found += file.rows
        elif all(file.meets(name, *span) for name, span in wanted.items()):
            found += table.place(file).dataset().count_rows(filter=chosen)
    return found
