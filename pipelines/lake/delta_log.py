"""Delta tables seen through their log, by delta-rs: they stay open, so that looking again costs only what is new."""

from __future__ import annotations

import threading
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote

import pyarrow as pa

from tidegate.pipelines.errors import LakeError
from tidegate.pipelines.lake import by_name
from tidegate.pipelines.lake.by_name import TableState
from tidegate.pipelines.location import Address, Location, Tag, note_found

if TYPE_CHECKING:  # what looks at a lake's state alone does without: their import takes longer than the look
    import pyarrow.dataset as ds
    from deltalake import DeltaTable


def unreadable() -> tuple[type[Exception], ...]:
    """The errors that a table or file raises when it is damaged, missing, half written or not readable for us."""
    from deltalake.exceptions import DeltaError

    return DeltaError, pa.ArrowException, OSError


@contextmanager
def damage_reported(path: Address, remedy: str) -> Iterator[None]:
    """Turn the error of a damaged table or file at `path` into a LakeError. `remedy`: what to do."""
    try:
        yield
    except unreadable() as error:
        words = " ".join(str(error).split())[:300]
        raise LakeError(
            f"the lake is damaged, or may not be read: {type(error).__name__}: {words}",
            where=str(path),
            state="nothing was changed",
            next_command=remedy,
        ) from error


Table: TypeAlias = "TableState | DeltaTable"
"""An opened table: read by the names of its log's files or, if it requires more of its readers, by delta-rs."""

_open: dict[str, tuple[Table, Tag | None]] = {}
"""The tables that were opened, by address, each with the tag of its version's file: another tag means another table."""
_lock = threading.Lock()

OWN = {"delta.logRetentionDuration": "interval 7 days"}
"""Properties of tables that only Tidegate writes (a source's table, a control table): how long the log of their commits
stays; nobody reads it as a history."""

BRIEF_MINUTES = 20
BRIEF = {"delta.deletedFileRetentionDuration": f"interval {BRIEF_MINUTES} minutes"}
"""For tables whose removed files are deleted after ten minutes (`upkeep.CONTROL_KEEP`): how long a checkpoint lists a
removed file. Delta's default is a week: with a commit a second every checkpoint would list 600,000 removals."""


def opened(path: Address, remedy: str | None = None) -> Table | None:
    """The table at `path` as it is now; None when there is none. Raises LakeError where it is damaged; `remedy`: what
    to do then."""
    key = str(path)
    with _lock:
        known, tag = _open.pop(key, (None, None))
        if known is None and not (Location(path) / "_delta_log").is_there():
            return None
        if known is not None and not isinstance(known, TableState) and _tag_of(known) != tag:
            known = None
        table = known.newer() if isinstance(known, TableState) else None
        by_delta_rs = None if isinstance(known, TableState) else known
        if table is None and (by_delta_rs is None or plain(by_delta_rs)):
            table = by_name.read(path)
        if table is None:
            with damage_reported(path, remedy or f"bring {path} back from a backup, then run the same command again"):
                from deltalake import DeltaTable

                if by_delta_rs is not None:
                    table = brought_up_to_date(by_delta_rs)
                elif DeltaTable.is_deltatable(str(path)):
                    table = DeltaTable(str(path))
                else:
                    return None
        tag = table.seen if isinstance(table, TableState) else _tag_of(table)
        _open[key] = table, tag
        if tag is not None:
            note_found(by_name.file_of(root_of(table) / "_delta_log", table.version()), tag)
        return table


def _tag_of(table: DeltaTable) -> Tag | None:
    return by_name.seen(root_of(table) / "_delta_log", table.version())


def brought_up_to_date(table: DeltaTable) -> DeltaTable:
    """A table that was opened before, as it is now; `table` itself stays at its version, which a commit of this process
    may be about to follow. If there is nothing new, two look-ups in its log show it; listing the log would take longer
    the longer it is."""
    log, version = root_of(table) / "_delta_log", table.version()
    # The log may have been cleaned up meanwhile, past where this table stands.
    if by_name.file_of(log, version).is_there() and not by_name.file_of(log, version + 1).is_there():
        return table
    from deltalake import DeltaTable

    return DeltaTable(str(root_of(table)))


NOT_COMMITTED = -1


def committed(path: Address, application: str, remedy: str | None = None) -> int:
    """The last transaction version that `application` committed to the table at `path`; NOT_COMMITTED when there is
    none. `remedy`: see `opened`."""
    return committed_in(opened(path, remedy), application)


def committed_in(table: Table | None, application: str) -> int:
    """The same of a table that was opened."""
    found = table.transaction_version(application) if table else None
    return NOT_COMMITTED if found is None else int(found)


def plain(table: Table) -> bool:
    """Whether the Parquet files alone give the rows (no deletion vectors, no column mapping)."""
    if isinstance(table, TableState):  # is read by names only where that is so
        return True
    return by_name.readable(by_name.Protocol(*table.protocol()), table.metadata().configuration)


def root_of(table: Table) -> Location:
    """The folder that the paths of a table's log are relative to."""
    if isinstance(table, TableState):
        return table.root
    return Location(unquote(table.table_uri.removeprefix("file://")).rstrip("/"))


def read(table: DeltaTable, *columns: str, where: ds.Expression | None = None) -> pa.Table:
    """The rows of a small table, without Spark; all columns when none is named.

    Arrow opens the files itself. delta-rs would lend it a file system written in Python, which Arrow's threads let go
    of a moment after the answer: a process that ends in that moment is aborted (SIGABRT) on its way out.
    """
    import pyarrow.fs as fs

    files = fs.SubTreeFileSystem(str(root_of(table)), fs.LocalFileSystem())
    return table.to_pyarrow_table(columns=list(columns) or None, filters=where, filesystem=files)


def files_of(table: Table, *columns: str, but: Container[str] = ()) -> list[dict[str, Any]]:
    """What a table's log has of its files, or of some of them (by their paths in it): path, size_bytes, num_records,
    partition.x, min.x, max.x, null_count.x; times in us, None where it has nothing."""
    if isinstance(table, TableState):
        files = [file for file in table.files.values() if file.path not in but]
        values = [table.column(name, files) for name in columns]
        return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]
    actions = table.get_add_actions(flatten=True)  # `pa.table` of it would import pandas
    there, size = set(actions.schema.names), actions.num_rows
    values = [_values(actions.column(name)) if name in there else [None] * size for name in ("path", *columns)]
    return [dict(zip(columns, row[1:], strict=True)) for row in zip(*values, strict=True) if row[0] not in but]


def _values(column: Any) -> list[Any]:
    found = pa.chunked_array(column)
    if pa.types.is_timestamp(found.type):
        found = found.cast(pa.timestamp("us", tz=found.type.tz)).cast(pa.int64())
    return found.to_pylist()


def all_files(table: Table) -> list[str]:
    """The absolute paths of the table's files."""
    return paths_of(table, [file["path"] for file in files_of(table, "path")])


def size_of(path: Address) -> int:
    """The bytes of all files of the table at `path`; 0 where there is none."""
    table = opened(path)
    return 0 if table is None else sum(file["size_bytes"] for file in files_of(table, "size_bytes"))


def logged_rows(path: Address) -> int | None:
    """The rows of the table at `path`, by its log; 0 where there is none, None where the log does not say."""
    table = opened(path)
    if table is None:
        return 0
    if "deletionVectors" in set(table.protocol().reader_features or ()):
        return None
    numbers = [file["num_records"] for file in files_of(table, "num_records")]
    return None if None in numbers else sum(numbers)


def paths_of(table: Table, names: Sequence[str]) -> list[str]:
    """The absolute paths of files as the table's log names them."""
    return [str(file_of(table, name)) for name in names]


def file_of(table: Table, name: str) -> Location:
    """The place of a file as the table's log names it."""
    return root_of(table) / unquote(name)


@dataclass(frozen=True)
class DataFiles:
    """Files that may hold wanted rows, as absolute paths, and as named in the log. `exact`: they are known to hold no
    other rows."""

    paths: list[str]
    exact: bool
    names: list[str]


def data_files(table: Table, generation: int, after: int, upto: int) -> DataFiles:
    """The files that may hold rows of `generation` with after < epoch <= upto."""
    columns = [f"{bound}.{name}" for bound in ("min", "max", "null_count") for name in ("_epoch", "_generation")]
    files = files_of(table, "path", *columns)
    wanted = {"_epoch": (after + 1, upto), "_generation": (generation, generation)}
    meeting = [file for file in files if all(_meets(file, name, *span) for name, span in wanted.items())]
    return DataFiles(
        paths_of(table, [file["path"] for file in meeting]),
        all(_within(file, name, *span) for file in meeting for name, span in wanted.items()),
        [file["path"] for file in meeting],
    )


def rows_of(table: Table, generation: int, upto: int | None = None) -> int | None:
    """How many rows a generation has up to an epoch, by the statistics of its files, and by reading files that hold
    other rows too; None if the files alone do not give the rows."""
    if not plain(table):
        return None
    import pyarrow.compute as pc

    wanted = {"_generation": (generation, generation), **({} if upto is None else {"_epoch": (0, upto)})}
    chosen = pc.field("_generation") == generation
    chosen = chosen if upto is None else chosen & (pc.field("_epoch") <= upto)
    files = files_of(table, "path", "num_records", *(f"{bound}.{name}" for name in wanted for bound in ("min", "max")))
    found = 0
    for file in files:
        known = {**file, **{f"null_count.{name}": 0 for name in wanted}}
        if file.get("num_records") is not None and all(_within(known, name, *span) for name, span in wanted.items()):
            found += file["num_records"]
        elif all(_meets(file, name, *span) for name, span in wanted.items()):
            found += file_of(table, file["path"]).dataset().count_rows(filter=chosen)
    return found


def _meets(file: Mapping[str, object], column: str, low: int, high: int) -> bool:
    least, greatest = file.get(f"min.{column}"), file.get(f"max.{column}")
    if not isinstance(least, int) or not isinstance(greatest, int):
        return True
    return least <= high and greatest >= low


def _within(file: Mapping[str, object], column: str, low: int, high: int) -> bool:
    least, greatest = file.get(f"min.{column}"), file.get(f"max.{column}")
    known = isinstance(least, int) and isinstance(greatest, int) and file.get(f"null_count.{column}") == 0
    return known and low <= least and greatest <= high  # type: ignore[operator]
