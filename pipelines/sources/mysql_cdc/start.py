"""Where a table that has no snapshot begins: scan.startup.mode latest-offset, specific-offset, timestamp."""

from __future__ import annotations

from contextlib import closing

import numpy as np
from pymysql.cursors import Cursor

from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.mysql_cdc.binlog.model import BinlogPosition, ServerOptions
from tidegate.pipelines.sources.mysql_cdc.binlog.scan import scan_borders
from tidegate.pipelines.sources.mysql_cdc.headers import birth, is_border
from tidegate.pipelines.sources.mysql_cdc.log import LogFiles, log_files
from tidegate.pipelines.sources.mysql_cdc.options import MysqlOptions

_NOTHING = "nothing was read"


def start_position(cursor: Cursor, options: MysqlOptions, end: BinlogPosition) -> BinlogPosition:
    """The first position to read. `end` is the server's end as of the first plan. Raises SourceError."""
    startup = options.startup
    if startup.mode == "specific-offset":
        return _specific(cursor, options, end)
    if startup.mode == "timestamp":
        return _first_at(options.server, log_files(cursor), startup.timestamp or 0, end)
    return end


def _first_at(server: ServerOptions, files: LogFiles, timestamp: int, end: BinlogPosition) -> BinlogPosition:
    """Where the first transaction begins that committed at or after `timestamp` (ms, UTC); `end` when none did."""
    names = files.names
    low, high = 0, len(names)
    while low < high:  # the first file that was begun after `timestamp`
        middle = (low + high) // 2
        if birth(server, BinlogPosition(names[middle])).timestamp * 1000 < timestamp:
            low = middle + 1
        else:
            high = middle
    # Transactions at the end of the file before it may still be after `timestamp`.
    with closing(scan_borders(server, BinlogPosition(names[max(0, low - 1)]), end)) as found:
        for borders in found:
            late = np.flatnonzero(borders.times >= timestamp * 1000)
            if len(late):
                return borders.place(int(late[0]))
    return end


def _specific(cursor: Cursor, options: MysqlOptions, end: BinlogPosition) -> BinlogPosition:
    position = BinlogPosition(options.startup.file or "", options.startup.position or 0)
    files = log_files(cursor)
    size = files.sizes.get(position.file)
    if size is None:
        raise SourceError(
            f"the server has no binlog {position.file}",
            where=f"scan.startup.specific-offset.file of {options.where}",
            state=_NOTHING,
            next_command=f"choose one of {', '.join(files.names[:1])} to {files.names[-1]} (SHOW BINARY LOGS)",
        )
    if position.position > size or position.order > end.order:
        raise SourceError(
            f"{position.file} is {size} bytes long, and {position.position} is after its end",
            where=f"scan.startup.specific-offset.pos of {options.where}",
            state=_NOTHING,
            next_command=f"choose a transaction's first byte (SHOW BINLOG EVENTS IN '{position.file}')",
        )
    if not is_border(options.server, position):
        raise SourceError(
            f"no transaction begins at {position}",
            where=f"scan.startup.specific-offset.pos of {options.where}",
            state=_NOTHING,
            next_command=f"choose the Pos of a Gtid event (SHOW BINLOG EVENTS IN '{position.file}')",
        )
    return position
