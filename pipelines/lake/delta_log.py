"""Delta tables seen through their log, by delta-rs: kept open, so that a look at a table costs what its news cost."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

_open: dict[tuple[str, int], DeltaTable] = {}
_lock = threading.Lock()

PLAIN_READER = 1
"""The reader version of tables whose rows are just what their Parquet files hold."""


def opened(path: Path) -> DeltaTable | None:
    """The table at `path` as it is now; None when there is none."""
    try:
        key = (str(path), (path / "_delta_log").stat().st_ino)
    except FileNotFoundError:
        return None
    with _lock:
        table = _open.get(key)
        if table is None:
            if not DeltaTable.is_deltatable(str(path)):
                return None
            table = DeltaTable(str(path))
            _open[key] = table
        else:
            table.update_incremental()
        return table


def committed(path: Path, application: str) -> int:
    """The last transaction version that `application` committed to the table at `path`; -1 when there is none."""
    table = opened(path)
    found = table.transaction_version(application) if table else None
    return -1 if found is None else int(found)


def plain(table: DeltaTable) -> bool:
    """Whether the Parquet files alone tell the rows (no deletion vectors, no column mapping)."""
    protocol = table.protocol()
    features = set(protocol.reader_features or ())
    return protocol.min_reader_version <= PLAIN_READER or features <= {"timestampNtz"}


def root_of(table: DeltaTable) -> Path:
    """The folder that the paths of a table's log are relative to."""
    return Path(unquote(table.table_uri.removeprefix("file://")))


@dataclass(frozen=True)
class DataFiles:
    """Files that may hold wanted rows, as absolute paths, and as the log names them. `exact`: they are known to hold no
    others."""

    paths: list[str]
    exact: bool
    names: list[str]


def data_files(table: DeltaTable, generation: int, after: int, upto: int) -> DataFiles:
    """The files that may hold rows of `generation` with after < epoch <= upto."""
    actions = pa.table(table.get_add_actions(flatten=True))
    columns = [f"{bound}.{name}" for bound in ("min", "max", "null_count") for name in ("_epoch", "_generation")]
    files = actions.select([name for name in ("path", *columns) if name in actions.column_names]).to_pylist()
    root = root_of(table)
    wanted = {"_epoch": (after + 1, upto), "_generation": (generation, generation)}
    meeting = [file for file in files if all(_meets(file, name, *span) for name, span in wanted.items())]
    return DataFiles(
        [str(root / unquote(file["path"])) for file in meeting],
        all(_within(file, name, *span) for file in meeting for name, span in wanted.items()),
        [file["path"] for file in meeting],
    )


def rows_of(table: DeltaTable, generation: int) -> int | None:
    """The rows of a generation by the statistics of its files; None where these can not tell."""
    actions = pa.table(table.get_add_actions(flatten=True))
    names = ("num_records", "min._generation", "max._generation")
    if any(name not in actions.column_names for name in names):
        return None if actions.num_rows else 0
    found = 0
    for rows, least, greatest in zip(*(actions[name].to_pylist() for name in names), strict=True):
        if rows is None or least is None or greatest is None or least < generation < greatest:
            return None
        if least == generation == greatest:
            found += rows
        elif generation in (least, greatest):
            return None
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
