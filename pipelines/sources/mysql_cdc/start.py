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
    # Not by halving: a file has the time of the session that began it, which may have SET its timestamp (mysqlbinlog
    # does, where it replays a log). One that is older than a file before it says nothing. To begin too early gives
    # rows more; to begin too late would lose some.
    first, newest = 0, 0
    for at, name in enumerate(names):
        begun = birth(server, BinlogPosition(name)).timestamp * 1000
        if begun >= timestamp:
            break
        if begun >= newest:
            first, newest = at, begun
    # Transactions at the end of that file may still be after `timestamp`.
    with closing(scan_borders(server, BinlogPosition(names[first]), end)) as found:
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
